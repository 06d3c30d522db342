"""What a machine does a second, in small pieces: `python -m tools.trials.rates`. Ten minutes give the first figures.

Weights are random, of the published shapes (`random_base`, `random_models`, and diffusers' own defaults, which are the
published transformers'); the work goes through the project's own code. Each piece ends by itself, and its figures
are written as soon as they are there, so that a run that was stopped keeps them:

- zero2, zero3: a step of 16 training pairs, on one process and on one for each GPU (two on a CPU, over gloo), and the
  scaling: how many times faster, a process. `tools.trials.accelerator` tells FLOPs and the share of the peak beside it.
- served: questions a second of three true PNGs each, over HTTP: by vLLM with a copy on each GPU. Where there is no vLLM
  that is told, and at the tiny shape the embedded server is asked.
- editors: seconds of a denoising step of a megapixel beside its source, and of an image with the entry's steps.
- embedding, measures: images, and edits measured by CLIP, DINOv3 and LPIPS, a second, on one GPU or core.

`--write` puts what `editjudge plan` can use into tools/rates.yaml, in the place of its estimates."""

import argparse
import json
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
import yaml
from transformers import CLIPVisionConfig, DINOv3ViTConfig

from editjudge.core import params
from editjudge.core.files import write_bytes
from editjudge.engine import launch, resume
from editjudge.engine.local import gpus
from editjudge.engine.workers import LaunchSetting
from editjudge.judges import opening
from editjudge.judges.protocol import Question
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.recipe import load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.chat.settings import LocalSetting
from editjudge.models.serve.launch import Serving, ServingError, command, running
from editjudge.sources.selection.embedders import qwen3_vl
from editjudge.training.samples import SIDES
from tools.trials import accelerator, random_base, random_models
from tools.trials.random_base import SHAPES, Shape

ROOT = Path(__file__).parents[2]
FIGURES, RATES = ROOT / "work/rates.json", ROOT / "tools/rates.yaml"
INSTRUCTION = "Change the colour of the cup on the table to green"
# Of each transformer: arguments that make it tiny, and tokens of the text at its true shape. A megapixel has 64 x 64.
TINY = {"num_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2, "axes_dims_rope": (4, 6, 6)}
EDITORS: dict[str, tuple[str, dict[str, Any], int]] = {
    "flux1_kontext_dev": ("FluxTransformer2DModel", {"num_single_layers": 1}, 512),
    "qwen_image_edit_2511": ("QwenImageTransformer2DModel", {}, 350),
}
SENTENCES = (("", "sentence_transformers.base.modules.transformer.Transformer"),
             ("1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling"),
             ("2_Normalize", "sentence_transformers.base.modules.normalize.Normalize"))  # fmt: skip
Figures = dict[str, Any]


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def zero(stage: str, shape: Shape, folder: Path, words: Namespace) -> Figures:
    """Steps of 16 pairs, for each number of processes: seconds and memory of one; and the scaling from the first number
    to the last, 1 being as many times faster as there are more processes. Seconds are None where a long run took no
    longer than a short one: give --steps more of them."""
    found, base = dict[int, Figures](), base_of(shape, folder)
    for count in words.processes:
        job = folder / f"{stage}_{count}"
        job.mkdir()
        asked = {"base": str(base), "pixels": shape.pixels, "deepspeed": stage, "micro": min(words.micro, 16 // count)}
        (job / "job.json").write_text(json.dumps(asked | {"steps": words.steps, "workers": words.workers}))
        launch.start(LaunchSetting(processes=count), ["-m", "tools.trials.rates", "--worker", str(job)])
        found[count] = json.loads((job / "done.json").read_text())
    (few, one), *_, (many, all_) = found.items() if len(found) > 1 else [*found.items()] * 2
    known = len(found) > 1 and one["step, s"] and all_["step, s"]
    scaling = one["step, s"] * few / (all_["step, s"] * many) if known else None
    return {f"{count} processes": each for count, each in found.items()} | {"scaling": scaling}


def train(job: Path) -> None:
    """One process of `zero`."""
    asked = json.loads((job / "job.json").read_text())
    pairs, pictures = accelerator.samples(max(asked["steps"]) * accelerator.BATCH, asked["pixels"])
    peak, words = accelerator.Peak(), Namespace(**asked)
    folder = job / os.environ.get("RANK", "0")  # its own: who saves is alone in its folder
    step = accelerator.train(Path(asked["base"]), folder, pairs, pictures, asked["steps"], words)
    if launch.first():
        (job / "done.json").write_text(json.dumps({"step, s": step if step > 0 else None, "memory, GB": peak.read()}))


def base_of(shape: Shape, folder: Path) -> Path:
    """A random base of the shape, written once."""
    if not (folder / "base").is_dir():
        random_base.write(folder / "base", shape)
    return folder / "base"


def served(shape: Shape, folder: Path, words: Namespace) -> Figures:
    """Questions a second, each in both orders."""
    base, how = base_of(shape, folder), Serving(engine="vllm", port=0, data_parallel=0)
    checkpoint = LocalSetting(model=str(base), dtype="bfloat16", batch_size=8)
    try:
        command(checkpoint, how, 1)
    except ServingError as error:
        if words.shape != "tiny":
            return {"skipped": str(error)}
        how = Serving(port=0)
    pairs, pictures = accelerator.samples(words.questions, shape.pixels)
    asked = [Question(p.key, p.instruction, *(pictures[getattr(p, name)] for name in SIDES)) for p in pairs]
    with running(checkpoint, how) as server:
        at = {"backend": "endpoint", "base_url": server.url, "model": server.model, "rule": "agreement"}
        at |= {"max_in_flight": 256, "reply_tries": 1, "max_new_tokens": accelerator.REPLY, "prompt": "pvc"}
        with opening.open_judge("judges.rates", at, folder / "served.sqlite") as judge:
            judge.compare(asked[:1])
            start = time.perf_counter()
            judge.compare(asked[1:])
            rate = 2 * (len(asked) - 1) / (time.perf_counter() - start)
            failed = sum(judge.account.failures.values())
    return {"engine": how.engine, "questions a second, one order": rate, "failed": failed}


def editors(shape: Shape, folder: Path, words: Namespace) -> Figures:
    """Of each transformer: seconds of a step, its memory, and seconds of an image by the steps of its entry."""
    entries, found = params.load(ROOT / "configs/editors.yaml"), dict[str, Any]()
    for name, (kind, tiny, tokens) in EDITORS.items():
        small = words.shape == "tiny"
        torch.manual_seed(0)
        peak = accelerator.Peak()
        with torch.device(device()):
            model: Any = getattr(diffusers, kind)(**(TINY | tiny if small else {})).to(torch.bfloat16).eval()
        side, text = (4, 7) if small else (64, tokens)
        given = inputs(model, kind, side, text)
        with torch.inference_mode():
            model(**given)
            start = time.perf_counter()
            model(**given)
            step = accelerator.seconds(start)
        own = entries[name]["data"]
        passes = own["num_inference_steps"] * (2 if own.get("true_cfg_scale", 1) > 1 else 1)
        found[name] = {"pass, s": step, "image, s": step * passes, "memory, GB": peak.read()}
        del model, given
    return found


def inputs(model: Any, kind: str, side: int, text: int) -> dict[str, Any]:
    """A picture of side x side tokens beside its source, and a text of so many tokens, all random."""
    config, rows = model.config, 2 * side * side
    drawn = {"dtype": torch.bfloat16, "device": device()}
    words = torch.randn(1, text, config.joint_attention_dim, **drawn)
    found = {"hidden_states": torch.randn(1, rows, config.in_channels, **drawn), "encoder_hidden_states": words}
    found["timestep"] = torch.full((1,), 0.5, **drawn)
    if kind.startswith("Flux"):
        ids = torch.zeros(rows, 3, **drawn)
        ids[:, 1] = torch.arange(rows) % (side * side) // side
        ids[:, 2] = torch.arange(rows) % side
        found |= {"img_ids": ids, "txt_ids": torch.zeros(text, 3, **drawn)}
        return found | {"pooled_projections": torch.randn(1, config.pooled_projection_dim, **drawn)}
    return found | {"img_shapes": [[(1, side, side)] * 2]}


def embedding(shape: Shape, folder: Path, words: Namespace) -> Figures:
    """Images with an instruction, a second, their decoding from PNG in it."""
    base = base_of(shape, folder)
    modules = [{"idx": n, "name": str(n), "path": path, "type": kind} for n, (path, kind) in enumerate(SENTENCES)]
    (base / "modules.json").write_text(json.dumps(modules))
    (base / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"embedding_dimension": shape.hidden, "pooling_mode": "lasttoken"}
    (base / "1_Pooling/config.json").write_text(json.dumps(pooling))
    forward = {"method": "forward", "method_output_name": "last_hidden_state"}
    modality = {"text": forward, "image": forward, "message": forward | {"format": "structured"}}
    setting = {"transformer_task": "feature-extraction", "modality_config": modality}
    (base / "sentence_bert_config.json").write_text(json.dumps(setting | {"module_output_name": "token_embeddings"}))
    peak = accelerator.Peak()
    embed = qwen3_vl({"model": str(base), "model_dtype": "bfloat16", "batch_size": 8}, device())
    rng = np.random.default_rng(0)
    pictures = [accelerator.picture(rng, shape.pixels) for _ in range(words.questions)]
    rows = [{"key": str(n), "image": image, "instruction": INSTRUCTION} for n, image in enumerate(pictures)]
    embed(rows[:1])
    start = time.perf_counter()
    embed(rows)
    return {"images a second": len(rows) / accelerator.seconds(start), "memory, GB": peak.read()}


def measures(shape: Shape, folder: Path, words: Namespace) -> Figures:
    """Edits a second, by the recipe color_alter, with the processes' start in it."""
    small = words.shape == "tiny"
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    of_clip = CLIPVisionConfig(**sizes, image_size=32, patch_size=16, projection_dim=16) if small else None
    of_dino = DINOv3ViTConfig(**sizes, num_register_tokens=4) if small else None
    clip = random_models.write_clip(folder / "clip", of_clip)
    dino = random_models.write_dinov3(folder / "dinov3", of_dino)
    lpips = random_models.write_lpips(folder / "lpips.safetensors")
    setting = SlotSetting(clip=str(clip), dinov3=str(dino), lpips=str(lpips))
    rng, side = np.random.default_rng(0), 96 if small else 1024
    recipe = load_recipe(ROOT / "pipelines/object_centric/color_alter.yaml")
    box = (side // 4, side // 4, side // 2, side // 2)
    prompts = []
    for _ in range(max(1, words.questions // 7)):  # seven edits of each source
        source, *edits = (accelerator.picture(rng, side * side) for _ in range(8))
        prompts.append(batch.Original(source, (box,), recipe, tuple(batch.Altered(each, (box,)) for each in edits)))
    start = time.perf_counter()
    with resume.RecordCache(folder / "measures.sqlite") as cache:
        found = [row for rows in batch.measure_all(prompts, [recipe], setting, cache, "rates") for row in rows]
    failed = [row["reason"] for row in found if row["status"] == "failed"]
    return {"edits a second": len(found) / (time.perf_counter() - start), "failed": failed}


PIECES: Mapping[str, Callable[[Shape, Path, Namespace], Figures]] = {
    "editors": editors,
    "measures": measures,
    "embedding": embedding,
    "served": served,
    "zero2": lambda *given: zero("zero2", *given),
    "zero3": lambda *given: zero("zero3", *given),
}


def for_plan(figures: Mapping[str, Figures], where: str) -> dict[str, Any]:
    """Rates of tools/plan.yaml that were measured: seconds of one GPU."""
    found: dict[str, Any] = {}
    count = max(1, gpus())
    if rate := figures.get("served", {}).get("questions a second, one order"):
        found["question"] = {"seconds": count / rate}
    if rate := figures.get("embedding", {}).get("images a second"):
        found["embedding"] = {"seconds": 1 / rate}
    if rate := figures.get("measures", {}).get("edits a second"):
        found["candidate"] = {"seconds": count / rate}
    told = {"kind": "measured", "source": f"{where}, by tools.trials.rates"}
    return {name: each | told for name, each in found.items()}


def parse(arguments: Sequence[str] | None) -> Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="8b", help="tiny runs on a CPU in a minute")
    parser.add_argument("--layers", type=int, help="of the language model, for first figures; 36 in 8B")
    parser.add_argument("--pieces", nargs="+", choices=list(PIECES), default=list(PIECES))
    parser.add_argument("--micro", type=int, default=2, help="pairs of a micro-batch, at most")
    parser.add_argument("--steps", type=int, nargs=2, default=(1, 3), help="of the short and of the long run")
    parser.add_argument("--processes", type=int, nargs="+", help="of trainings, divisors of 16; 1 and one a GPU (or 2)")
    parser.add_argument("--workers", type=int, default=4, help="processes that decode images, of each in training")
    parser.add_argument("--questions", type=int, default=64, help="questions, and images to embed")
    parser.add_argument("--write", action="store_true", help=f"write {RATES.relative_to(ROOT)} for `editjudge plan`")
    parser.add_argument("--json", type=Path, default=FIGURES)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args(arguments)
    words.processes = words.processes or sorted({1, next(n for n in (16, 8, 4, 2, 1) if n <= (gpus() or 2))})
    if any(accelerator.BATCH % count for count in words.processes):
        parser.error("--processes must divide 16")
    return words


def main(arguments: Sequence[str] | None = None) -> None:
    words = parse(arguments)
    if words.worker is not None:
        launch.worker(lambda: train(words.worker))
        return
    shape = SHAPES[words.shape] if words.layers is None else replace(SHAPES[words.shape], layers=words.layers)
    name = accelerator.device_name() + (f" x {count}" if (count := gpus()) > 1 else "")
    record: dict[str, Any] = {"device": name, "torch": torch.__version__, "shape": vars(shape), "pieces": {}}
    with tempfile.TemporaryDirectory(prefix="rates_") as folder:
        for piece in words.pieces:
            start = time.perf_counter()
            record["pieces"][piece] = PIECES[piece](shape, Path(folder), words)
            took = time.perf_counter() - start
            print(f"{piece}, {took:.0f} s: {json.dumps(record['pieces'][piece])}", file=sys.stderr, flush=True)
            write_bytes(words.json, (json.dumps(record, indent=2, default=list) + "\n").encode())
    if words.write:
        RATES.write_text(yaml.safe_dump(for_plan(record["pieces"], name), sort_keys=False))
    print(words.json)


if __name__ == "__main__":
    main()
