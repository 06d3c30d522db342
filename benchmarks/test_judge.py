"""A judge in this process: batches that share images and beginnings, against the plain way on the same questions.

`OMP_NUM_THREADS=1 pytest benchmarks/test_judge.py -s`; the committed base on one core. Times of a shared machine vary;
read the ratios, and the counts, which are what a larger model saves.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch import nn
from transformers.models.qwen3_vl import Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionPatchEmbed

from editjudge.core import images
from editjudge.editors import procedural
from editjudge.judges.protocol import Question
from editjudge.judges.styles import style
from editjudge.models.chat.checkpoint import by_products
from editjudge.models.chat.forms import RawReply
from editjudge.models.chat.local_model import ChatModel, load
from editjudge.sources.builtin import scenes
from editjudge.stages.probe_bench import AMOUNTS

ROOT = Path(__file__).parents[1]
BATCH = 32


@pytest.fixture(scope="module")
def judge() -> ChatModel:
    return load(ROOT / "models/tiny_base")


@pytest.fixture(scope="module")
def arena() -> list[Question]:
    """All 30 ordered pairs of six edits, of each of four prompts on held-out photos."""
    asked = []
    for prompt in scenes.make_pairs("color_alter", "benchmark", 4, 192, 9):
        source, edit = images.decode(prompt["image"]), procedural.parse_edit(prompt["edit"])
        rng = np.random.default_rng(0)
        edits = [procedural.edit_image(source, edit, kind, AMOUNTS[kind], rng)[0] for kind in AMOUNTS]
        encoded = [images.encode_png(each) for each in edits]
        for a, b in permutations(range(len(edits)), 2):
            asked.append(Question(prompt["key"], prompt["instruction"], prompt["image"], encoded[a], encoded[b]))
    return asked


@pytest.fixture(scope="module")
def both_orders() -> list[Question]:
    """Both orders of 32 questions, each on a source of its own."""
    asked = []
    for prompt in scenes.make_pairs("tone_transfer", "benchmark", 32, 192, 9):
        source, edit = images.decode(prompt["image"]), procedural.parse_edit(prompt["edit"])
        rng = np.random.default_rng(0)
        a, b = (
            images.encode_png(procedural.edit_image(source, edit, kind, AMOUNTS[kind], rng)[0])
            for kind in ("precise", "regenerated")
        )
        for first, second in ((a, b), (b, a)):
            asked.append(Question(prompt["key"], prompt["instruction"], prompt["image"], first, second))
    return asked


@torch.inference_mode()
def plain(judge: ChatModel, questions: Sequence[Question]) -> list[str]:
    """Every image of every question through the processor and the model, as they come."""
    model, processor, replies = judge.model, judge.processor, []
    for start in range(0, len(questions), BATCH):
        batch = questions[start : start + BATCH]
        decoded = {data: images.decode(data) for q in batch for data in (q.source, q.a, q.b)}
        inputs = processor(
            images=[[decoded[data] for data in (q.source, q.a, q.b)] for q in batch],
            text=[judge.render(style("pvc").messages(q.instruction)) for q in batch],
            padding=True,
            padding_side="left",
            return_tensors="pt",
        )
        new = model.generate(**inputs, max_new_tokens=24, do_sample=False)[:, inputs["input_ids"].shape[1] :]
        replies += processor.batch_decode(new, skip_special_tokens=True)
    return replies


def shared(judge: ChatModel, questions: Sequence[Question]) -> list[str]:
    how = {"temperature": 0.0, "max_tokens": 24}
    replies = judge.ask_many(style("pvc"), [(question, how) for question in questions], BATCH)
    return [said.text for said in replies if isinstance(said, RawReply)]


@contextmanager
def counted(judge: ChatModel) -> Iterator[dict[str, int]]:
    """Patches through the vision tower, and tokens of prompts through the language model, padding included."""
    counts = {"patches": 0, "prompt tokens": 0}

    def seen(module: object, given: tuple, named: dict) -> None:
        counts["patches"] += len(given[0] if given else named["hidden_states"])

    def read(module: object, given: tuple, named: dict) -> None:
        rows, columns = named["inputs_embeds"].shape[:2]
        counts["prompt tokens"] += rows * columns if columns > 1 else 0

    net = judge.model.model
    hooks = [
        net.visual.register_forward_pre_hook(seen, with_kwargs=True),
        net.language_model.register_forward_pre_hook(read, with_kwargs=True),
    ]
    yield counts
    for hook in hooks:
        hook.remove()


def compare(
    benchmark: BenchmarkFixture, judge: ChatModel, questions: Sequence[Question], least: dict[str, float]
) -> None:
    """The same replies, `least` times fewer patches and tokens, and in less time."""
    with counted(judge) as few:
        replies = shared(judge, questions)
    with counted(judge) as many:
        assert plain(judge, questions) == replies
    saved = {name: many[name] / few[name] for name in few}
    took = {}
    for name, way in (("plain", plain), ("shared", shared)):
        rounds = []
        for _ in range(3):
            start = time.perf_counter()
            way(judge, questions)
            rounds.append(time.perf_counter() - start)
        took[name] = min(rounds)
    benchmark.pedantic(shared, (judge, questions), rounds=3)
    words = ", ".join(f"{ratio:.2f} times fewer {name}" for name, ratio in saved.items())
    print(
        f"\n{len(questions)} questions: {words}; plain {took['plain']:.2f} s, shared {took['shared']:.2f} s: "
        f"{took['plain'] / took['shared']:.2f} times as fast"
    )
    assert all(saved[name] > least[name] for name in least)
    assert took["shared"] < took["plain"]


@pytest.mark.benchmark(group="judge, both orders of 32 questions")
def test_both_orders(benchmark: BenchmarkFixture, judge: ChatModel, both_orders: list[Question]) -> None:
    compare(benchmark, judge, both_orders, {"patches": 1.99, "prompt tokens": 1.1})


@pytest.mark.benchmark(group="judge, all ordered pairs of 6 edits of 4 sources")
def test_arena(benchmark: BenchmarkFixture, judge: ChatModel, arena: list[Question]) -> None:
    compare(benchmark, judge, arena, {"patches": 8.0, "prompt tokens": 1.3})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_patches_by_a_product(benchmark: BenchmarkFixture, dtype: torch.dtype) -> None:
    """The patches of an image of 1024 x 1024 pixels, embedded at the size of Qwen3-VL-8B.

    In the settings that give the same bytes on every CPU (`core.portable`), by which benchmarks run, float32 gains
    little, as MKL is held back; without them both precisions gain three to five times."""
    tower = nn.ModuleDict({"patch_embed": Qwen3VLVisionPatchEmbed(Qwen3VLVisionConfig(hidden_size=1152))}).to(dtype)
    patches = torch.randn(64 * 64, 3 * 2 * 16 * 16, generator=torch.Generator().manual_seed(0))

    def seconds() -> tuple[float, torch.Tensor]:
        times = []
        for _ in range(2):
            start = time.perf_counter()
            found = tower["patch_embed"](patches)
            times.append(time.perf_counter() - start)
        return min(times), found

    plain, expected = seconds()
    by_products(tower)
    product, found = seconds()
    torch.testing.assert_close(found, expected, atol=1e-4 if dtype == torch.float32 else 0.02, rtol=0.02)
    benchmark.pedantic(lambda: tower["patch_embed"](patches), rounds=2)
    print(f"\n{dtype}: {plain:.2f} s plain, {product:.2f} s by a product: {plain / product:.1f} times faster")
    assert plain / product > (0.8 if dtype == torch.float32 else 1.5)
