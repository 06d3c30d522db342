"""Writes docs/pair.jpg, the README's pair, and prints the sentence below it; a test holds both to the graph.

    python -m tools.example

The pair is made as the stage probe_bench makes it; the verdicts are those in data/verdicts/probe.parquet.
"""

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from editjudge.core import images, params, records
from editjudge.core.settings import section
from editjudge.sources.builtin import scenes
from editjudge.sources.settings import ProbeBenchSetting, RawPairs
from editjudge.stages import probe_bench

KEY, SHOWN = "color_alter-benchmark-00047", (0, 7)  # of the edits of the prompt, those of the pair
PICTURE, VERDICTS = Path("docs/pair.jpg"), Path("data/verdicts/probe.parquet")
WIDTH, GAP, LINE, SIZE = 256, 10, 26, 15  # in pixels
INK = (31, 35, 40)


def pair() -> records.Row:
    """The pair, as data/probe_bench.parquet has it; it is made without choosing all others."""
    values = params.load()
    setting = section(values, "probe_bench", ProbeBenchSetting)
    side = section(values, "raw_pairs", RawPairs).image_side
    prompts = scenes.make_pairs(KEY.partition("-")[0], "benchmark", setting.per_task, side, setting.seed)
    [prompt] = [prompt for prompt in prompts if prompt["key"] == KEY]
    made = probe_bench.make_edits(prompt, setting.seed)
    better, worse = (made[n] for n in SHOWN)
    return probe_bench.probe_row(prompt, (better, worse), swapped=False)


def picture(made: records.Row) -> np.ndarray:
    """The instruction over source, A and B side by side; RGB, uint8, (H, W, 3)."""
    shown = [images.decode(each["bytes"]) for each in (made["source_image"], *made["edited_images"])]
    height = round(WIDTH * shown[0].shape[0] / shown[0].shape[1])
    page = Image.new("RGB", (GAP + len(shown) * (WIDTH + GAP), 2 * LINE + height + 2 * GAP), "white")
    draw = ImageDraw.Draw(page)
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), SIZE)
    draw.text((GAP, GAP), f"“{made['instruction']}”", INK, font)
    for n, (name, rgb) in enumerate(zip(("source", "A", "B"), shown, strict=True)):
        left = GAP + n * (WIDTH + GAP)
        draw.text((left, GAP + LINE), name, INK, font)
        page.paste(
            Image.fromarray(cv2.resize(rgb, (WIDTH, height), interpolation=cv2.INTER_CUBIC)), (left, 2 * LINE + GAP)
        )
    return np.asarray(page)


def sentence(verdicts: Mapping[str, records.Row]) -> str:
    """What the judges say of it, by judge."""
    judge, measures = verdicts["pvc_judge"], verdicts["measures"]
    assert measures["winner"] == measures["truth"] == "Image A" != judge["winner"]
    return (
        "A pair of the probe. A did what was asked and kept the rest. B did half of it and damaged a cheek. The"
        " measures look there: A. The tiny trained judge sees that B changed less in all:"
        f" B (p {1 - judge['p_a']:.2f})."
    )


def main() -> None:
    Image.fromarray(picture(pair())).save(PICTURE, quality=92)
    rows = records.read(VERDICTS, "verdicts")
    print(sentence({row["judge"]: row for row in rows if row["key"] == KEY}))


if __name__ == "__main__":
    main()
