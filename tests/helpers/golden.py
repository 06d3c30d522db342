"""What every stage computes from small fixed input, as SHA-256: machines that agree here agree to the last bit.

`PYTHONPATH=. python tests/helpers/golden.py` prints the values as JSON, `--write` puts them into tests/golden.json; of
stages that are named, only theirs. All runs in one process and one thread: a CPU that is emulated is not inherited by
child processes."""

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from editjudge.core import portable

# ruff: noqa: E402
portable.set_up()  # before NumPy, OpenCV and torch are loaded

os.environ |= {"HF_HUB_OFFLINE": "1"}

import cv2
import numpy as np
import pandas as pd
import report_data
import torch
from tiny_base import INSTRUCTIONS, SIZES, compare

from editjudge.benchmarks import report
from editjudge.core import images, params, records
from editjudge.core.settings import read, section
from editjudge.editors import procedural as edits
from editjudge.judges import measures_judge
from editjudge.judges.protocol import Edit, Question, Verdict
from editjudge.judges.scorers.checkpoint import CheckpointScorer
from editjudge.judges.styles import style
from editjudge.measures.annotation import batch, slot_settings, slots
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.chat.local_model import load
from editjudge.models.weights.merge import merge_adapter
from editjudge.photos import edits as photo_edits
from editjudge.photos import locating, writers
from editjudge.photos.settings import Instructions
from editjudge.sources.builtin import photos, scenes
from editjudge.sources.photo_records import Photo
from editjudge.sources.selection import embedders
from editjudge.sources.selection.coreset import coverage
from editjudge.sources.settings import FilterSetting
from editjudge.stages import embed, leaderboard, probe_bench, scorer_data, train_judge
from editjudge.stages import filter as filtering
from editjudge.stages.graph.arena import LeaderboardSetting
from editjudge.statistics import agreement
from editjudge.training import trainer
from editjudge.training.lesson import Lesson
from editjudge.training.samples import Sample, image_names
from editjudge.training.scorer import ScorerLesson
from editjudge.training.settings import TrainScorerSetting
from editjudge.vision import aesthetics
from tools.tiny_base import pretrain, samples, tiny

ROOT = Path(__file__).parents[2]
VALUES = ROOT / "tests/golden.json"
SIDE = 96  # of the images, pixels
TASKS = tuple(scenes.EDITS)
KINDS = ("precise", "box", "leaky", "regenerated", "shifted", "unedited")
Rows = list[dict[str, Any]]


def digest(value: Any) -> str:
    """The start of the SHA-256 of arrays, bytes, files of a folder, and of all else as JSON with every digit."""
    found = hashlib.sha256()
    _feed(found, value)
    return found.hexdigest()[:16]


def _feed(found: Any, value: Any) -> None:
    if isinstance(value, dict):
        value = [*value.items()]
    if isinstance(value, Path):
        value = [(file.name, file.read_bytes()) for file in sorted(value.iterdir()) if file.suffix == ".safetensors"]
    if isinstance(value, np.ndarray):
        value = str((value.dtype, value.shape)).encode() + value.tobytes()
    if isinstance(value, list | tuple):
        for part in value:
            _feed(found, part)
    else:
        found.update(value if isinstance(value, bytes) else repr(value).encode())


@functools.cache
def settings() -> dict[str, Any]:
    return params.load(ROOT / "params.yaml")


@functools.cache
def recipe(task: str) -> Recipe:
    return load_recipe(ROOT / f"pipelines/{settings()['tasks'][task]}/{task}.yaml")


@functools.cache
def raw_pairs(role: str = "train") -> Rows:
    return [pair for task in TASKS for pair in scenes.make_pairs(task, role, 2, SIDE, 1)]


def photograph_edits() -> Any:
    """Two of the probe's photos: their scores, their records, and the edits that templates write."""
    setting, found = read("instructions", Instructions, settings()["instructions"] | {"side": SIDE}), []
    for name in ("chelsea", "flower"):
        rgb = photos.load(name)
        height, width = rgb.shape[:2]
        score = aesthetics.colour_sharpness(rgb)
        own = locating.drawn(name, height, width)
        photo = Photo(name, name, height, width, (), score, {}, own["background"], own["object"])
        shown = photo_edits.scaled_photo(photo, images.encode_png(rgb), setting.side)
        asked = list(photo_edits.planned(photo, shown, setting, records.Refusals(lambda _: None)))
        written = writers.fill_templates(asked, setting.seed)
        both = zip(asked, written, strict=True)
        rows = [photo_edits.row(edit, said) for edit, said in both if not isinstance(said, str)]
        found.append((photo.row(), rows))
    return found


@functools.cache
def embedded() -> np.ndarray:
    rows = raw_pairs()
    return embed.checked(embedders.embedded(settings()["embed"])(rows), rows, "float32")


def picks() -> tuple[np.ndarray, ...]:
    setting = read("filter", FilterSetting, settings()["filter"] | {"sample_num": 5})
    chosen = filtering.choose(embedded(), None, setting, "color_alter")
    return chosen, coverage(embedded(), chosen).radii


@functools.cache
def candidates(kind: str) -> list[tuple[np.ndarray, float]]:
    amount = probe_bench.AMOUNTS.get(kind, 4.0)  # the probe has no edit by a network
    made = []
    for pair in raw_pairs():
        source, rng = images.decode(pair["image"]), np.random.default_rng([7, *pair["key"].encode()])
        made.append(edits.edit_image(source, edits.parse_edit(pair["edit"]), kind, amount, rng))
    return made


@functools.cache
def benchmark() -> Rows:
    setting = settings()["probe_bench"]
    asked = raw_pairs("benchmark")[::2]
    made = [probe_bench.make_pair(p, probe_bench.AMOUNTS, setting["least_gap"], 2) for p in asked]
    return [pair for pair in made if pair]


def measured(pair: dict[str, Any], edited: list[bytes]) -> Rows:
    """The measures of some edits of a pair, in this process."""
    its, models = recipe(pair["task"]), section(settings(), "measures", SlotSetting)
    models = slots.check(slot_settings.used(its, models), models)
    boxes = tuple(tuple(region["box"]) for region in pair["regions"])
    its = slot_settings.configured(its, models)
    asked = batch.Original(pair["image"], boxes, its, tuple(map(batch.Altered, edited)))
    return batch.measure_group([asked], slots.Models(models))


@functools.cache
def annotations() -> Rows:
    rows = []
    for n, pair in enumerate(raw_pairs()):
        edited = {kind: candidates(kind)[n] for kind in KINDS}
        found = measured(pair, [images.encode_png(image) for image, _ in edited.values()])
        for (kind, (image, damage)), meta in zip(edited.items(), found, strict=True):
            shown = {"source_sha256": pair["image"], "edit_sha256": images.encode_png(image)}
            sums = {name: hashlib.sha256(data).hexdigest() for name, data in shown.items()}
            names = {"key": pair["key"], "task": pair["task"], "model": kind}
            rows.append(names | {"damage": damage} | sums | meta)
    return rows


@functools.cache
def training_pairs() -> Rows:
    """Of all prompts, by measures; the thresholds are those of params.yaml."""
    rows = []
    for task in TASKS:
        own = [row for row in annotations() if row["task"] == task]
        rows += report_data.pairs_of(settings(), task, own, [pair for pair in raw_pairs() if pair["task"] == task])
    return rows


@functools.cache
def scratch() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory()


@functools.cache
def training() -> tuple[Path, Any]:
    """Three steps of LoRA on the committed base: the adapter's folder and the losses."""
    setting = dataclasses.replace(
        train_judge.read_setting(settings()), lora_rank=4, lora_alpha=8, learning_rate=1e-3, max_steps=3,
        global_batch=4, held_out_share=0.0, test_share=0.0, log_every=1,
    )  # fmt: skip
    samples = train_judge.samples_of(training_pairs()[:12])
    out, checkpoints = (Path(scratch().name) / name for name in ("adapter", "checkpoints"))
    pictures = {name: _image(name) for sample in samples for name in image_names(vars(sample)).values()}
    trained = trainer.train(Lesson(setting), samples, ROOT / "models/tiny_base", pictures, out, checkpoints)
    return out, trained.history


@functools.cache
def scoring() -> Any:
    """Three steps of a scorer on the committed base, what it then says of edits, and its folder's weights."""
    setting = read(
        "train_scorer.editreward", TrainScorerSetting,
        settings()["train_scorer"]["editreward"]
        | {"max_steps": 3, "global_batch": 4, "batch_size": 4, "held_out_share": 0.0, "log_every": 1, "calibration": 8},
    )  # fmt: skip
    pictures, samples = dict[str, bytes](), list[Sample]()
    for prompt in raw_pairs()[:2]:
        made = scorer_data.make_edits(prompt, 7)
        names = [f"{prompt['key']}.{n}" for n in range(len(made))]
        pictures |= {prompt["key"]: prompt["image"]} | dict(zip(names, (image for image, _ in made), strict=True))
        for a, b in itertools.combinations(range(len(made)), 2):
            scores = [[*made[n][1].values(), sum(made[n][1].values()) / 2] for n in (a, b)]
            better = "" if scores[0][2] == scores[1][2] else "Image A" if scores[0][2] > scores[1][2] else "Image B"
            key, words = f"{names[a]}.{b}", prompt["instruction"]
            both, names_of = (*scores[0], *scores[1]), (prompt["key"], names[a], names[b])
            samples.append(Sample(key, prompt["key"], words, *names_of, better, scores=both))
    out, checkpoints = (Path(scratch().name) / name for name in ("scorer", "scorer_checkpoints"))
    base, lesson = ROOT / "models/tiny_base", ScorerLesson(setting)
    trained = trainer.train(lesson, samples, base, pictures, out, checkpoints)
    asked = [Edit(s.instruction, pictures[s.source], pictures[s.a]) for s in samples]
    said = [dataclasses.asdict(each) for each in CheckpointScorer.load(out, batch_size=4, device="cpu").score(asked)]
    assert all(each.pop("said") is None for each in said), "it has no words"
    return trained.history, said, (out / "head.safetensors").read_bytes(), (out / "model.safetensors").read_bytes()


def _image(name: str) -> bytes:
    """The image that a training pair names."""
    folder, _, key = name.rpartition("/")
    at = next(n for n, pair in enumerate(raw_pairs()) if pair["key"] == key)
    if folder.startswith("data/pools"):
        return raw_pairs()[at]["image"]
    return images.encode_png(candidates(folder.split("/")[2])[at][0])


@functools.cache
def merged() -> Path:
    out = Path(scratch().name) / "judge"
    merge_adapter(ROOT / "models/tiny_base", training()[0], out, "float32")
    return out


def questions() -> list[Question]:
    shown = [(row, [row["source_image"], *row["edited_images"]]) for row in benchmark()]
    return [Question(row["key"], row["instruction"], *(each["bytes"] for each in own)) for row, own in shown]


@functools.cache
def verdicts() -> list[Verdict]:
    return compare(load(merged(), device="cpu"), style("pvc"), questions(), 4)


def verdicts_by_measures() -> list[Any]:
    found = []
    for row in benchmark():
        pair = row | {"image": row["source_image"]["bytes"]}
        a, b = measured(pair, [each["bytes"] for each in row["edited_images"]])
        found.append(measures_judge.compare(row["key"], a["measures"], b["measures"]))
    return found


def _matches() -> pd.DataFrame:
    """Every two candidates of each prompt, the less damaged one mostly winning."""
    rng, rows = np.random.default_rng(3), []
    for n, pair in enumerate(raw_pairs()):
        for a, b in [(a, b) for a in KINDS for b in KINDS if a < b]:
            damages = {f"damage_{s}": candidates(m)[n][1] for s, m in (("a", a), ("b", b))}
            gap = damages["damage_b"] - damages["damage_a"] + 2 * rng.standard_normal()
            winner = "Tie" if abs(gap) < 0.3 else "Image A" if gap > 0 else "Image B"
            names = {"prompt": pair["key"], "origin": pair["origin"], "task": pair["task"]}
            names |= {"dimension": "visual_consistency", "model_a": a, "model_b": b, "winner": winner}
            rows.append(names | damages)
    return pd.DataFrame(rows)


def rating() -> Any:
    setting = section(settings(), "leaderboard", LeaderboardSetting)
    return leaderboard.rank(_matches(), vars(setting) | {"replicates": 50})


def benchmark_report() -> Any:
    """Intervals, agreement and the psychometric curve of verdicts with a known truth."""
    rng, count = np.random.default_rng(4), 60
    truths = [str(side) for side in rng.choice(["Image A", "Image B"], count)]
    rows = [
        {"key": str(n), "truth": truth, "label": truth, "forward": truth, "backward": truth, "winner": winner,
         "p_a": round(float(rng.random()), 4), "task": "color_alter", "judge": "golden", "reason": None,
         "cluster": str(n % 7), "score_a": None, "score_b": None}
        for n, (truth, winner) in enumerate(zip(truths, rng.permutation(truths).tolist(), strict=True))
    ]  # fmt: skip
    return agreement.report(rows), report.tie_calibrated(rows)


def pretraining() -> Any:
    """Three steps of the tiny base's own training, and its samples."""
    torch.manual_seed(0)
    tokens = tiny.tokenizer(INSTRUCTIONS)
    net = tiny.model(tokens, SIZES)

    def draw(rng: np.random.Generator, count: int, done: float) -> Any:
        return samples.make_batch(sorted(photos.BASE), (SIZES.image_size, SIZES.image_size), 0.7, rng, count)

    pixels = draw(np.random.default_rng(0), 6, 0.0)
    setting = pretrain.PretrainSettings(steps=3, batch_size=4, eval_every=3, eval_samples=4)
    history = pretrain.pretrain(net, tokens, draw, draw, setting)
    return pixels, history, [weight.detach().numpy() for weight in net.parameters()]


STAGES: dict[str, Callable[[], Any]] = {
    "instructions": photograph_edits,
    "raw_pairs": raw_pairs,
    "gedit_bench": lambda: raw_pairs("benchmark"),
    "embed": embedded,
    "filter": picks,
    **{f"candidates@{kind}": functools.partial(candidates, kind) for kind in (*KINDS, "style_transfer")},
    "probe_bench": benchmark,
    "annotate": annotations,
    "train_pairs": training_pairs,
    "base_model": pretraining,
    "train_judge": training,
    "merge_judge": merged,
    "train_scorer": scoring,
    "judge_benchmark": verdicts,
    "judge_benchmark@measures": verdicts_by_measures,
    "judge_benchmark@report": benchmark_report,
    "leaderboard": rating,
}


def value(stage: str) -> str:
    """The stage's fingerprint, computed here and now, on one thread."""
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    return digest(STAGES[stage]())


def main() -> None:
    values = json.loads(VALUES.read_text())
    for stage in [word for word in sys.argv[1:] if word in STAGES] or STAGES:
        values[stage] = value(stage)
        print(f"{stage} {values[stage]}", flush=True)
    if "--write" in sys.argv[1:]:
        VALUES.write_text(json.dumps(values, indent=2) + "\n")


if __name__ == "__main__":
    main()
