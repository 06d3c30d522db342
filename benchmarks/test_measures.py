"""Records a second of the measures with real models, against the plain way, in one run: `pytest benchmarks`.

Random weights in the true architectures of CLIP ViT-B/32, DINOv3 ViT-B/16 and LPIPS with AlexNet, and SSIM: seven
candidates of a prompt, images of 512 x 512, one thread, so that CPU seconds are counted, which other programs on
the machine do not change much. The plain way takes each measure by itself and each pair by
itself, so that the source is decoded and encoded again for every measure of every candidate.
"""

import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from random_models import write_clip, write_dinov3, write_lpips
from skimage.metrics import structural_similarity

from editjudge import images, regions
from editjudge.encoders_transformers import ClipEncoder, DinoEncoder
from editjudge.measures import batch, lpips, patches
from editjudge.measures.features import FeatureStore
from editjudge.measures.looking import Asking
from editjudge.measures.lpips_torch import Lpips
from editjudge.measures.recipe import Recipe
from editjudge.measures.slot_settings import SlotSetting
from editjudge.measures.slots import Models

SIDE, CANDIDATES, PROMPTS = 512, 7, 1
BOX = (128, 96, 352, 384)
RECIPE = Recipe(
    "color_alter",
    (("unedit_area", ("lpips", "ssim", "emd")), ("edit_area", ("dinov3_structure_similarity",))),
    "edit_area",
)
LEAST = 2.5  # times the plain way's records a second
Take = Callable[[np.ndarray, np.ndarray], float]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> SlotSetting:
    folder = tmp_path_factory.mktemp("models")
    clip, dinov3 = write_clip(folder / "clip"), write_dinov3(folder / "dinov3")
    file = write_lpips(folder / "lpips.safetensors")
    return SlotSetting(device="cpu", clip=str(clip), dinov3=str(dinov3), lpips=str(file))


@pytest.fixture(scope="module")
def prompts() -> list[tuple[bytes, list[bytes]]]:
    """Sources of smooth noise and edits that differ by a few levels, as PNG."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(PROMPTS):
        noise = np.stack([images.smooth_noise(SIDE, SIDE, 6, rng) for _ in range(3)], -1)
        source = (noise * 50 + 128).clip(0, 255)
        edits = [(source + rng.normal(0, 2 + n, source.shape)).clip(0, 255) for n in range(CANDIDATES)]
        made.append(
            (images.encode_png(source.astype(np.uint8)), [images.encode_png(e.astype(np.uint8)) for e in edits])
        )
    return made


def png(rgb: np.ndarray) -> bytes:
    return images.encode_png(rgb.astype(np.uint8))


def ours(asking: Asking, prompts: list[tuple[bytes, list[bytes]]]) -> list[list[float]]:
    """Values in the recipe's order, a list an edit."""
    rows = []
    for source, edits in prompts:
        payloads = [(0, batch.Edit(data, (), ())) for data in edits]
        rows += batch.measure_group([(source, (BOX,), RECIPE)], payloads, asking)
    return [[m["value"] for m in row["measures"]] for row in rows]


def plain(takes: list[Take], prompts: list[tuple[bytes, list[bytes]]]) -> list[list[float]]:
    """Each measure decodes and encodes both images of each pair for itself."""
    return [
        [take(images.decode(source), images.decode(edited)) for take in takes]
        for source, edits in prompts
        for edited in edits
    ]


def plain_measures(clip: ClipEncoder, dinov3: DinoEncoder, net: Lpips) -> list[Take]:
    inside = regions.boxes_mask([BOX], SIDE, SIDE)
    outside = ~inside

    def take_lpips(first: np.ndarray, second: np.ndarray) -> float:
        return net.distances(first, [lpips.pasted(first, second, outside)])[0] / outside.mean()

    def take_ssim(first: np.ndarray, second: np.ndarray) -> float:
        how = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 255}
        return structural_similarity(first, second, channel_axis=-1, full=True, **how)[1][outside].mean()

    def take_emd(first: np.ndarray, second: np.ndarray) -> float:
        one, other = (clip.encode([rgb])[0].patches for rgb in (first, second))
        return patches.emd(one, other, clip.cells(outside, patches.CELL_SHARE))

    def take_structure(first: np.ndarray, second: np.ndarray) -> float:
        one, other = (dinov3.encode([rgb])[0].patches for rgb in (first, second))
        return patches.structure_similarity(one, other, dinov3.cells(inside, patches.CELL_SHARE))

    return [take_lpips, take_ssim, take_emd, take_structure]


@pytest.mark.benchmark(group="7 candidates a prompt: CLIP, DINOv3, LPIPS, SSIM")
def test_ours_and_the_plain_way(
    benchmark: BenchmarkFixture, setting: SlotSetting, prompts: list[tuple[bytes, list[bytes]]]
) -> None:
    """In turn, the best round of each; the values agree."""

    asking = Asking(Models(setting), {"clip": "clip", "dinov3": "dinov3"}, FeatureStore(Path(), 0.0))
    models = asking.models
    assert isinstance(models.clip, ClipEncoder)
    assert isinstance(models.dinov3, DinoEncoder)
    takes = plain_measures(models.clip, models.dinov3, models.lpips)
    times: dict[str, list[float]] = {"ours": [], "plain": []}

    def both() -> tuple[list[list[float]], list[list[float]]]:
        start = time.process_time()
        mine = ours(asking, prompts)
        middle = time.process_time()
        theirs = plain(takes, prompts)
        times["ours"].append(middle - start)
        times["plain"].append(time.process_time() - middle)
        return mine, theirs

    mine, theirs = benchmark.pedantic(both, rounds=2, warmup_rounds=1)
    assert np.allclose(mine, theirs, atol=1e-4)
    records = PROMPTS * CANDIDATES
    speed = {name: records / min(each) for name, each in times.items()}
    ratio = speed["ours"] / speed["plain"]
    benchmark.extra_info.update({name: round(each, 2) for name, each in speed.items()})
    print(f"\nrecords a second: ours {speed['ours']:.2f}, plain {speed['plain']:.2f}; {ratio:.2f} times")
    if benchmark.stats is not None:  # none with --benchmark-disable
        assert ratio >= LEAST
