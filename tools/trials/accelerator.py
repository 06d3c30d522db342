"""What a machine with a GPU does with a judge of Qwen3-VL-8B's size: `python -m tools.trials.accelerator`.

Weights are random (`random_base.py`), sizes and settings are the published ones: LoRA of rank 64 on the language model,
bfloat16, gradient checkpointing, 16 pairs a step as micro-batches, three images of 1280 x 32^2 pixels each. The work
goes through the project's own code: `trainer.train`, `merge_adapter`, `ChatModel`. It prints a table and
writes JSON. It first prints about how many GB it needs: for 8B a GPU of 24 GB with micro-batches of one pair (67 GB
with 16), 37 GB of disk and 26 GB of the host's memory. Of several GPUs it takes the first: trl refuses more of them in
one process.

Tokens a second are of steps alone: the difference between a long and a short run, after one that warms up. A token is
one that the language model reads, images included.

FLOPs are those of matrix products, two for a multiplication and an addition. n is the number of weights in the language
model's linear layers, S the tokens of a pair:
- forward: 2 n S, and 2 S^2 heads head_dim of attention a layer (half of the square, which is causal);
- backward: the same for the activations, twice as much for attention, which has two inputs, and for LoRA, which has
  weights to train; nothing for the other weights, which are frozen;
- the vision tower and what it hands on: forward only, since nothing before it is trained; the output layer: the reply.
Model FLOPs are these; hardware FLOPs also have the forward pass of the language model that checkpointing runs again.
"""

import argparse
import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from editjudge.core import images, params
from editjudge.core.winner import WINNERS
from editjudge.judges.protocol import Question, combine_all, in_both_orders
from editjudge.judges.styles import completion, style
from editjudge.models.chat.checkpoint import load_processor
from editjudge.models.chat.local_model import load
from editjudge.models.weights.merge import merge_adapter
from editjudge.stages import train_judge
from editjudge.training import trainer
from editjudge.training.lesson import Lesson
from editjudge.training.samples import SIDES, Sample
from tools.trials import random_base
from tools.trials.random_base import SHAPES, Shape

ROOT = Path(__file__).parents[2]
BATCH = 16  # pairs a step of one process
RANK, ALPHA = 64, 128
REPLY = 8  # tokens of a trained judge's reply, its end included, by Qwen's tokenizer
PATCH, MERGE, FRAMES = 16, 2, 2
# Dense bfloat16 peaks in TFLOP a second, by a part of the device's name, the first that fits; makers' data sheets.
PEAKS = {
    "B200": 2250.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,
    "H200": 989.0,
    "A100": 312.0,
    "A800": 312.0,
    "H800": 989.0,
    "H20": 148.0,
    "L40S": 362.0,
    "L40": 181.0,
    "L4": 121.0,
    "A6000": 155.0,
    "A40": 150.0,
    "A10G": 70.0,
    "A10": 125.0,
    "RTX 4090": 165.0,
    "MI300X": 1307.0,
}


@dataclass(frozen=True)
class Load:
    """What a pair costs. tokens: that the language model reads; patches: of each image."""

    tokens: int
    patches: tuple[int, ...]
    reply: int


@dataclass(frozen=True)
class Flops:
    """FLOPs of one training pair: of the model, and of the hardware with checkpointing."""

    model: float
    hardware: float


def linear_weights(shape: Shape) -> tuple[int, int]:
    """Weights of the language model's linear layers, the output layer apart, and of LoRA on them."""
    wide, narrow = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    layers = [(shape.hidden, wide), *[(shape.hidden, narrow)] * 2, (wide, shape.hidden)]
    layers += [(shape.hidden, shape.intermediate)] * 2 + [(shape.intermediate, shape.hidden)]
    return shape.layers * sum(a * b for a, b in layers), shape.layers * sum(RANK * (a + b) for a, b in layers)


def vision_flops(shape: Shape, patches: int) -> float:
    """FLOPs of the vision tower's forward pass for one image, with what it hands to the language model."""
    width = shape.vision_hidden
    block = 4 * width**2 + 2 * width * shape.vision_intermediate
    wide = MERGE**2 * width
    merger = (1 + len(shape.deepstack)) * (wide**2 + wide * shape.hidden) / MERGE**2
    weights = shape.vision_layers * block + merger + width * 3 * FRAMES * PATCH**2
    return 2 * weights * patches + shape.vision_layers * 4 * patches**2 * width


def flops(shape: Shape, load: Load) -> Flops:
    """FLOPs of training on one pair; how they are counted stands at the top."""
    weights, lora = linear_weights(shape)
    attention = shape.layers * 2 * load.tokens**2 * shape.heads * shape.head_dim
    forward = 2 * (weights + lora) * load.tokens + attention
    backward = (2 * weights + 4 * lora) * load.tokens + 2 * attention
    reply = 2 * 2 * shape.hidden * shape.vocabulary * load.reply
    model = forward + backward + reply + sum(vision_flops(shape, patches) for patches in load.patches)
    return Flops(model, model + forward)


def needs(shape: Shape, micro: int, judge_batch: int) -> dict[str, float]:
    """About how many GB it takes of the GPU's memory, of the host's and of the disk."""
    tokens = len(SIDES) * shape.pixels // (PATCH * MERGE) ** 2 + 150
    weights = sum(torch.Size(size).numel() for size in random_base.sizes(config_of(shape)).values())
    lora = linear_weights(shape)[1]
    kept = 2 * shape.layers * shape.hidden  # bytes a token: what checkpointing keeps, the input of each layer
    layer = 2 * (8 * shape.hidden + 6 * shape.intermediate + 14 * RANK)  # and what one layer keeps when it runs again
    cache = 4 * shape.layers * shape.key_value_heads * shape.head_dim  # keys and values of a token
    parts = {
        "GPU, training": 2 * weights + 16 * lora + (kept + 2 * layer) * tokens * micro,  # LoRA: float32, with Adam
        "GPU, judging": 2 * weights + (cache + layer) * tokens * judge_batch,
        "host": 1.5 * 2 * weights,
        "disk": 2 * 2 * weights + 3 * 4 * lora,  # base and merged model; three adapters
    }
    return {name: size / 1e9 for name, size in parts.items()}


def config_of(shape: Shape) -> Any:
    return random_base.config(shape, random_base.tiny.tokenizer())


def picture(rng: np.random.Generator, pixels: int) -> bytes:
    """A PNG of clouds, 5 : 4 where that fits, of `pixels` pixels at most and sides that are multiples of 32."""
    height = max(1, round((pixels * 4 / 5) ** 0.5 / 32)) * 32
    width = pixels // height // 32 * 32
    coarse = rng.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    return images.encode_png(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC))


def samples(count: int, pixels: int) -> tuple[list[Sample], dict[str, bytes]]:
    """Training pairs, each of three pictures of its own; and the pictures by name."""
    rng = np.random.default_rng(0)
    pairs = [
        Sample(
            f"pair_{i:04}",
            f"prompt_{i:04}",
            "Change the colour of the cup on the table to green",
            *(f"{name}_{i:04}" for name in SIDES),
            WINNERS[i % 2],
        )
        for i in range(count)
    ]
    return pairs, {getattr(pair, name): picture(rng, pixels) for pair in pairs for name in SIDES}


def load_of(base: Path, sample: Sample, pictures: Mapping[str, bytes]) -> Load:
    """What a pair costs, by the processor."""
    processor = load_processor(base)
    text = processor.apply_chat_template(
        style("pvc").messages(sample.instruction), tokenize=False, add_generation_prompt=True
    )
    shown = [images.decode(pictures[getattr(sample, name)]) for name in SIDES]
    inputs = processor(images=[shown], text=[text], input_data_format="channels_last", return_tensors="pt")
    reply = len(processor.tokenizer(completion(sample.winner))["input_ids"]) + 2  # its end, and the line's
    patches = tuple(inputs["image_grid_thw"].prod(dim=1).tolist())
    return Load(inputs["input_ids"].shape[1] + reply, patches, reply)


class Peak:
    """The most memory, in GB, since it was made: on the GPU, or of this process since it began."""

    def __init__(self) -> None:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def read(self) -> float:
        if torch.cuda.is_available():
            return torch.cuda.max_memory_reserved() / 1e9
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def seconds(start: float) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def train(
    base: Path,
    folder: Path,
    pairs: list[Sample],
    pictures: Mapping[str, bytes],
    steps: Sequence[int],
    words: argparse.Namespace,
) -> float:
    """Seconds of one training step: the difference between the last two of the runs, which have so many `steps`."""
    took = []
    setting = train_judge.read_setting(params.load(ROOT / "params.yaml"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for run, count in enumerate(steps):
        checkpoints = folder / f"checkpoints_{run}"
        changes = {"lora_rank": RANK, "lora_alpha": ALPHA, "max_steps": count, "batch_size": words.micro}
        changes |= {"global_batch": BATCH, "held_out_share": 0.0, "test_share": 0.0, "workers": words.workers}
        changes |= {"deepspeed": getattr(words, "deepspeed", "none")}
        changes |= {"bf16": True, "gradient_checkpointing": True, "save_every": 100 * setting.log_every}
        lesson, shown = Lesson(replace(setting, **changes)), pairs[: count * BATCH]
        start = time.perf_counter()
        trainer.train(lesson, shown, base, pictures, folder / f"adapter_{run}", checkpoints, device)
        took.append(seconds(start))
        gc.collect()
    return (took[-1] - took[-2]) / (steps[-1] - steps[-2])


def judge(model: Path, pairs: Sequence[Sample], pictures: Mapping[str, bytes], words: argparse.Namespace) -> float:
    """Questions a second, each asked in both orders."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    asked = [
        Question(pair.key, pair.instruction, *(pictures[getattr(pair, name)] for name in SIDES))
        for pair in pairs[: words.questions]
    ]
    judging, form, how = load(model, "bfloat16", device=device), style("pvc"), {"temperature": 0.0, "max_tokens": REPLY}
    judging.ask_many(form, [(asked[0], how)], 1)
    start, both = time.perf_counter(), in_both_orders(asked)
    replies = judging.ask_many(form, [(question, how) for question in both], words.judge_batch)
    answers = combine_all(list(map(form.answer, both, replies)), "probability")
    return len(answers) / seconds(start)


def rates(shape: Shape, load: Load, step: float, peak: float | None) -> dict[str, float | None]:
    """Figures of training steps that take `step` seconds; None for all of them if that is not above 0."""
    per_pair = flops(shape, load)
    known = step > 0
    model, hardware = (BATCH * value / step / 1e12 if known else None for value in vars(per_pair).values())
    return {
        "training step of 16 pairs, s": step if known else None,
        "training tokens a second": BATCH * load.tokens / step if known else None,
        "FLOPs of a pair, model, TFLOP": per_pair.model / 1e12,
        "FLOPs of a pair, hardware, TFLOP": per_pair.hardware / 1e12,
        "TFLOP a second, model": model,
        "TFLOP a second, hardware": hardware,
        "model FLOPs utilisation": share(model, peak),
        "hardware FLOPs utilisation": share(hardware, peak),
    }


def share(rate: float | None, peak: float | None) -> float | None:
    return None if rate is None or peak is None else rate / peak


def reasons(figures: dict[str, float | None], peak: float | None) -> list[str]:
    """Why figures are None."""
    found = []
    if peak is None:
        found.append("no utilisation: the device's peak is not in the table; give --peak-tflops")
    if figures["training step of 16 pairs, s"] is None:
        found.append("no training speed: the long run took no longer than the short one; give --long more steps")
    return found


def measure(shape: Shape, folder: Path, words: argparse.Namespace) -> dict[str, float | None]:
    """All figures, by name."""
    start, base = time.perf_counter(), folder / "base"
    random_base.write(base, shape)
    figures: dict[str, float | None] = {"base written, s": seconds(start)}
    steps = (1, words.short, words.long)
    pairs, pictures = samples(max(*steps, -(-words.questions // BATCH)) * BATCH, shape.pixels)
    load = load_of(base, pairs[0], pictures)
    peak = Peak()
    figures |= {"tokens a pair": load.tokens}
    figures |= rates(shape, load, train(base, folder, pairs, pictures, steps, words), words.peak_tflops)
    figures |= {"peak memory in training, GB": peak.read()}
    start = time.perf_counter()
    merge_adapter(base, folder / f"adapter_{len(steps) - 1}", folder / "merged")
    figures |= {"merge, s": seconds(start)}
    peak = Peak()
    figures |= {"judge questions a second, both orders": judge(folder / "merged", pairs, pictures, words)}
    return figures | {"peak memory in judging, GB": peak.read()}


def one_gpu() -> None:
    """To be called before a GPU is used."""
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]


def device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def peak_of(device: str) -> float | None:
    """The device's peak in TFLOP a second; None if the table has none."""
    return next((peak for name, peak in PEAKS.items() if name in device), None)


def show(title: str, figures: Mapping[str, float | None]) -> None:
    print(f"\n{title}")
    for name, value in figures.items():
        text = "unknown" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
        print(f"  {name:40} {text}", flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="8b", help="tiny runs on a CPU in seconds")
    parser.add_argument("--layers", type=int, help="of the language model, for a smaller GPU; 36 in 8B")
    parser.add_argument("--micro", type=int, default=1, help="pairs of a micro-batch; a divisor of 16 (default 1)")
    parser.add_argument("--short", type=int, default=2, help="steps of the short run")
    parser.add_argument("--long", type=int, default=6, help="steps of the long run")
    parser.add_argument("--workers", type=int, default=4, help="processes that decode images in training")
    parser.add_argument("--questions", type=int, default=32, help="questions to the judge")
    parser.add_argument("--judge-batch", type=int, default=8, help="questions of one batch")
    parser.add_argument("--peak-tflops", type=float, help="the device's dense bfloat16 peak, if the table has it not")
    parser.add_argument("--work", type=Path, default=ROOT / "work", help="where the checkpoints lie while it runs")
    parser.add_argument("--json", type=Path, default=ROOT / "work" / "accelerator.json")
    words = parser.parse_args(arguments)
    if BATCH % words.micro or not 0 < words.short < words.long:
        parser.error("--micro must divide 16, and --short be positive and below --long")
    return words


def main(arguments: Sequence[str] | None = None) -> None:
    words = parse(arguments)
    one_gpu()
    shape = SHAPES[words.shape] if words.layers is None else replace(SHAPES[words.shape], layers=words.layers)
    device = device_name()
    words.peak_tflops = words.peak_tflops or peak_of(device)
    wanted = needs(shape, words.micro, words.judge_batch)
    show(f"{device}; {words.shape}, {shape.layers} layers. Needed, about, GB:", wanted)
    words.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="accelerator_", dir=words.work) as folder:
        figures = measure(shape, Path(folder), words)
    show("Measured", figures)
    unknown = reasons(figures, words.peak_tflops)
    print("\n".join(unknown))
    settings = {"shape": vars(shape), "micro": words.micro, "peak TFLOP a second": words.peak_tflops}
    record = {"device": device, "torch": torch.__version__, **settings, "needed, GB": wanted}
    record |= {"measured": figures, "unknown": unknown}
    words.json.parent.mkdir(parents=True, exist_ok=True)
    words.json.write_text(json.dumps(record, indent=2) + "\n")
    print(f"\n{words.json}", file=sys.stderr)


if __name__ == "__main__":
    main()
