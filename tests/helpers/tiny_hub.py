"""Everything that profiles/paper.yaml names, tiny and random, where the real thing would lie.

Models and data sets of the hub lie in a hub's cache (HF_HUB_CACHE), each model with a checkpoint of its own class and
in its published form; sources, LPIPS and insightface's files lie in the paths that the profile says."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tiny_base
import tiny_families
import tiny_models
import tiny_people
import torch
import transformers
from cases import yaml_beside

from editjudge.core import images
from editjudge.core.winner import SIDES
from editjudge.judges.styles import GENERAL, style
from tools.tiny_base import pretrain, tiny
from tools.trials.random_models import write_lpips

COMMIT = "5" * 40
COLOURS = {"red": (230, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 230)}  # as grounding_server knows them
HEIGHT, WIDTH = 96, 128
FACES = ((6, 5), (14, 7), (16, 11))  # cells of 32 of the detector's 640: in the red square, in the blue one, beside
SIZES = replace(tiny_base.SIZES, text_intermediate=96)
PREFERENCES = 16  # pairs of which people say which edit is better
PHOTOS, PHOTOS_FROM = 3, 2 * 10**6  # photographs of the pool, and the first one's number
SEQUENCES_FROM = 5 * 10**6
TAUGHT, QUESTIONS = 72, 4  # lessons, and questions in each
SHOWN = ((64, 64), (64, 96), (96, 128))  # heights and widths at which a judge is shown the pictures below
INSTRUCTION = "Number {}: put the red square behind the blue square and look at it"
UNICEDIT = yaml_beside(__file__)["UNICEDIT"]


def cached(hub: Path, name: str, revision: str = "main", kind: str = "models") -> Path:
    """The folder of a hub id's files in a hub's cache."""
    root = hub / f"{kind}--{name.replace('/', '--')}"
    ref = root / "refs" / revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(COMMIT)
    folder = root / "snapshots" / COMMIT
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def picture(number: int) -> bytes:
    """A photograph of three squares, as PNG: no two are alike."""
    rng = np.random.default_rng(number)
    small = rng.uniform(40, 215, (6, 8, 1)).astype(np.float32) + rng.uniform(-25, 25, (6, 8, 3)).astype(np.float32)
    pixels = cv2.resize(small, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC).clip(0, 255).astype(np.uint8)
    places = {"red": (16, 8, 72, 64), "green": (88, 8, 108, 28), "blue": (84, 36, 104, 56)}
    for colour, (x0, y0, x1, y1) in places.items():
        jitter = rng.integers(-3, 4, 2)
        pixels[y0 + jitter[1] : y1 + jitter[1], x0 + jitter[0] : x1 + jitter[0]] = COLOURS[colour]
    return images.encode_png(pixels)


def write_sources(root: Path, tasks: Iterable[str], rows: int, address: str) -> None:
    """data/sources, `rows` a task and source. address: under which root is served, for Pico-Banana's."""
    folder, numbers = root / "data/sources", iter(range(10**6))
    unicedit, (nano, pico, own) = [], (folder / name for name in ("Nano-150k", "pico", "own"))
    for path in (folder / "UnicEdit-10M/data", nano / "json", nano / "Image", pico / "images", own):
        path.mkdir(parents=True, exist_ok=True)
    lines = defaultdict[Path, list[dict[str, Any]]](list)
    for task in tasks:
        for _ in range(rows):
            number = next(numbers)
            said, name = INSTRUCTION.format(number), f"{number}.png"
            if task not in UNICEDIT:
                (own / name).write_bytes(picture(number))
                lines[own / f"{task}.jsonl"].append({"key": f"k{number}", "instruction": said, "image": name})
                continue
            shown = {"bytes": picture(number), "path": None}
            row = {"key": f"{number:032x}", "edit_task": "Any", "edit_subtask": UNICEDIT[task], "src_image": shown}
            unicedit.append(row | {"edit_image": shown, "prompt_cn": said, "prompt_en": said})
    for file, prefix in (("background", "Nano-150k/"), ("action", "Nano-150k/")):
        for _ in range(rows):
            number = next(numbers)
            (nano / f"Image/{number}.png").write_bytes(picture(number))
            row = {"task_type": "ic", "instruction": INSTRUCTION.format(number)}
            row["input_images"] = [f"{prefix}Image/{number}.png"]
            lines[nano / f"json/{file}_cleaned.jsonl"].append(row)
    kinds = ("Zoom in", "Photo to cartoon/sketch/comic", "Remove an existing object")
    for kind in (*kinds, "Add new (handwritten/printed/etc) text"):
        number = next(numbers)
        (pico / f"images/{number}.png").write_bytes(picture(number))
        row = {"open_image_input_url": f"{address}/data/sources/pico/images/{number}.png", "edit_type": kind}
        row |= {"text": INSTRUCTION.format(number), "output_image": "x.png", "summarized_text": "squares"}
        lines[pico / "sft.jsonl"].append(row)
    pq.write_table(pa.Table.from_pylist(unicedit), folder / "UnicEdit-10M/data/train-00000-of-00001.parquet")
    for file, each in lines.items():
        file.write_text("".join(json.dumps(row) + "\n" for row in each))
    write_preferences(folder / "editreward", next(numbers))


def write_preferences(folder: Path, first: int) -> None:
    """Records in EditReward-Data's form, every fourth a tie whose dimensions disagree."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    records = []
    for number in range(first, first + 3 * PREFERENCES, 3):
        names = [f"{each}.png" for each in range(number, number + 3)]
        for each, name in enumerate(names, number):
            (folder / "images" / name).write_bytes(picture(each))
        tie = not number % 4
        record = dict(zip(("path_src", "path1", "path2"), names, strict=True)) | {"prompt": INSTRUCTION.format(number)}
        record |= {"model1": "one", "model2": "two", "tie_case": tie}
        scores = ((4, 2), (2, 4)) if tie else ((4, 3), (2, 1))
        for n, (following, quality) in enumerate(scores, 1):
            record |= {f"model{n}_dim1_score": following, f"model{n}_dim2_score": quality}
            record[f"model{n}_overall_score"] = (following + quality) / 2
        records.append(record)
    (folder / "train.json").write_text(json.dumps(records))


def write_ratings(root: Path, rows: int) -> None:
    """Ratings of single edits to train a rater on, and people's of one of them, two people each."""
    folder = root / "data/sources/imgedit_judge"
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number in range(rows):
        for name in ("source", "edited"):
            (folder / f"{number}_{name}.png").write_bytes(picture(2 * number + (name == "edited")))
        row = {"key": f"r{number}", "source": f"{number}_source.png", "edited": f"{number}_edited.png"}
        row |= {"instruction": INSTRUCTION.format(number), "type": ("add", "remove", "style")[number % 3]}
        made.append(row | {"scores": [1 + number % 5, 1 + number % 4, 5]})
    lines = "".join(json.dumps(row) + "\n" for row in made)
    (folder / "ratings.jsonl").write_text(lines)
    columns = ["key", "source", "edited", "instruction", "type", "adherence", "quality", "preservation"]
    people = [[*(str(made[0][name]) for name in columns[:5]), *scores] for scores in (("4", "4", "5"), ("3", "4", "4"))]
    (folder / "people.csv").write_text("".join(",".join(row) + "\n" for row in [columns, *people]))


def write_sequences(root: Path, rows: int) -> None:
    """Dialogues of two turns with their three images, in the form that ADIEE's labels are made of."""
    folder = root / "data/sources/adiee"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(rows):
        names = [f"{number}_{turn}.png" for turn in range(3)]
        for turn, name in enumerate(names):
            (folder / name).write_bytes(picture(SEQUENCES_FROM + 3 * number + turn))
        told = [INSTRUCTION.format(2 * number), INSTRUCTION.format(2 * number + 1)]
        lines.append(json.dumps({"key": f"s{number}", "images": names, "instructions": told}) + "\n")
    (folder / "sequences.jsonl").write_text("".join(lines))


def write_benchmarks(hub: Path, tasks: Iterable[str]) -> None:
    """GEditBench v2, VCReward-Bench and EditScore-Bench, a prompt of each task, in their published forms."""
    arena, pairs, scored = [], [], []
    for number, task in enumerate(tasks, 10**6):
        source, a, b = ({"bytes": picture(seed), "path": None} for seed in (number, number + 1000, number + 2000))
        said = INSTRUCTION.format(number)
        arena.append({"key": f"g{number}", "task": task, "instruction": said, "source_image": source})
        pairs.append(arena[-1] | {"edited_images": [a, b], "winner": SIDES[number % 2]})
        row = {"key": [f"a{number}", f"b{number}"], "instruction": said, "input_image": source}
        scored.append(row | {"output_images": [a, b], "dimension": "consistency", "task_type": task})
    sets = {"GEditBench-v2/GEditBench-v2": arena, "GEditBench-v2/VCReward-Bench": pairs}
    for name, rows in (sets | {"EditScore/EditReward-Bench": scored}).items():
        pq.write_table(pa.Table.from_pylist(rows), cached(hub, name, kind="datasets") / "test.parquet")


def write_suites(hub: Path, root: Path) -> None:
    """ImgEdit-Bench's three suites, people's answers about the one dialogue, and GEdit-Bench v1: a case or two each."""
    folder = root / "data/benchmarks/imgedit"
    for n, name in enumerate(("basic", "uge", "multi_turn"), 3 * 10**6):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "1.png").write_bytes(picture(n))
    case = {"id": "1.png", "prompt": INSTRUCTION.format(1)}
    tables = {"basic": {"1": case | {"edit_type": "add"}, "2": case | {"edit_type": "style"}}, "UGE": {"1": case}}
    for name, rows in tables.items():
        (folder / f"{name}_edit.json").write_text(json.dumps(rows))
    turns = {f"turn{n}": INSTRUCTION.format(n) for n in (1, 2, 3)}
    (folder / "multi_turn.jsonl").write_text(json.dumps({"id": "1"} | turns) + "\n")
    columns = "id,model,rater,content_memory,content_understanding,version_backtracking"
    (folder / "people.csv").write_text(f"{columns}\n1,flux1_kontext_dev,a,yes,no,\n1,flux1_kontext_dev,b,yes,yes,no\n")
    shown = {"bytes": picture(4 * 10**6), "path": None}
    row = {"task_type": "ps_human", "input_image_raw": shown, "input_image": shown, "Intersection_exist": True}
    both = [
        row | {"key": f"k{each}", "instruction_language": each, "instruction": INSTRUCTION.format(2)}
        for each in ("en", "cn")
    ]
    pq.write_table(pa.Table.from_pylist(both), cached(hub, "stepfun-ai/GEdit-Bench", kind="datasets") / "train.parquet")


def write_judge_base(folder: Path) -> None:
    """A random Qwen3-VL that has learnt nothing but the form of a reply: which side it names is chance."""
    styles = [style(name) for name in ("pvc", GENERAL, "full")]
    turns = [turn for each in styles for turn in each.messages(INSTRUCTION)]
    texts = [part["text"] for turn in turns for part in turn["content"] if "text" in part]
    tokens = tiny.tokenizer(texts * 2, vocab_size=1024)
    net = tiny.model(tokens, SIZES)
    rng, optimizer = np.random.default_rng(0), torch.optim.AdamW(net.parameters(), lr=5e-3, fused=True)
    for step in range(TAUGHT):
        pretrain.train_step(net, _lesson(net, tokens, styles[step % 3], rng), optimizer, 1.0)
    tiny.save(net.eval(), tiny.processor(tokens, SIZES.image_size), folder)


def _lesson(net: Any, tokens: Any, asked: Any, rng: np.random.Generator) -> pretrain.Batch:
    """Questions on images of noise, with a side drawn as their answer."""
    pixels = rng.integers(0, 256, (QUESTIONS, 3, *SHOWN[int(rng.integers(len(SHOWN)))], 3), dtype=np.uint8)
    chats = [asked.messages(INSTRUCTION.format(int(rng.integers(1000)))) for _ in range(QUESTIONS)]
    return pretrain.collate(net, tokens, pixels, chats, rng.integers(0, 2, QUESTIONS))


SENTENCE_MODULES = (
    ("", "sentence_transformers.base.modules.transformer.Transformer"),
    ("1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling"),
    ("2_Normalize", "sentence_transformers.base.modules.normalize.Normalize"),
)


def write_words(folder: Path) -> None:
    """A random Qwen3 of words alone: its server answers for it."""
    tokens = tiny_families.tokenizer(tiny_families.QWEN)
    tokens.chat_template = tiny_families.TURNS
    config = transformers.Qwen3Config(**tiny_families.text(tokens))
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    tokens.save_pretrained(folder)


def write_embedder(folder: Path) -> Path:
    """A random Qwen3-VL of few weights as a sentence-transformers folder, in the form of Qwen3-VL-Embedding's."""
    sizes = tiny.TinySettings(hidden_size=48, text_layers=2, vision_layers=2)
    tokens = tiny.tokenizer(["Make the cat red", "Remove the dog"])
    tiny.save(tiny.model(tokens, sizes), tiny.processor(tokens), folder)
    modules = [{"idx": n, "name": str(n), "path": p, "type": kind} for n, (p, kind) in enumerate(SENTENCE_MODULES)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps({"embedding_dimension": 48, "pooling_mode": "lasttoken"}))
    forward = {"method": "forward", "method_output_name": "last_hidden_state"}
    modality = {"text": forward, "image": forward, "message": forward | {"format": "structured"}}
    setting = {"transformer_task": "feature-extraction", "modality_config": modality}
    (folder / "sentence_bert_config.json").write_text(json.dumps(setting | {"module_output_name": "token_embeddings"}))
    return folder


def write_models(hub: Path, root: Path, values: Mapping[str, Any]) -> None:
    """A tiny checkpoint for each model of the parameters. root: the folder that local paths are relative to."""
    measures = values["measures"]
    for slot in tiny_models.SLOTS:
        tiny_models.write(slot, cached(hub, *measures[slot].split("@")))
    tiny_people.write_parser(cached(hub, measures["parsing"]))
    tiny_people.write_pose(cached(hub, measures["pose"]), experts=1)
    write_lpips(root / measures["lpips"])
    write_region_models(hub, root, values)
    insightface = root / measures["insightface"]["folder"]
    insightface.mkdir(parents=True, exist_ok=True)
    tiny_people.write_buffalo(insightface, side=640, always=FACES)
    write_embedder(cached(hub, values["embed"]["model"]))
    write_judge_base(cached(hub, values["train_judge"]["base"]))
    for model in {values["grounding"]["parser"]["model"], values["instructions"]["writer"]["model"]}:
        write_words(cached(hub, model))
    write_editors(hub, values["editors"])


def write_region_models(hub: Path, root: Path, values: Mapping[str, Any]) -> None:
    """The models of photographs, but SAM 2.1, which is that of the measures, and the photographs themselves."""
    aesthetic, regions = values["photo_pool"]["aesthetic"], values["regions"]
    assert regions["segmenter"]["model"] == values["measures"]["segmenter"]
    for model in sorted({aesthetic["model"], regions["clip"]["model"]}):
        tiny_models.clip_folder(cached(hub, model))
    tiny_models.laion_head(root / aesthetic["head"])
    tiny_models.save_detector(cached(hub, regions["detector"]["model"]))
    photos = root / values["photo_pool"]["photos"]
    photos.mkdir(parents=True)
    for number in range(PHOTOS):
        (photos / f"{number}.png").write_bytes(picture(PHOTOS_FROM + number))


def write_editors(hub: Path, editors: Mapping[str, Any]) -> None:
    """One checkpoint for each pipeline class, and the LoRAs."""
    import tiny_pipelines

    for entry in (entry for entry in editors.values() if entry["kind"] == "diffusers"):
        folder = cached(hub, entry["model"])
        if not (folder / "model_index.json").is_file():
            tiny_pipelines.save(entry["pipeline"], folder)
        if lora := entry.get("lora"):
            tiny_pipelines.save_lora(entry["pipeline"], folder, cached(hub, lora["model"]), lora["file"])
