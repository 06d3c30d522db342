"""Writes docs/pair.jpg, the README's pair and an edit by a network, and prints what stands below it; tests hold all.

    python -m tools.example

The pair is made as the stage probe_bench makes it, the network's edit as the stage candidates does; the verdicts of the
pair are those in data/verdicts/probe.parquet.
"""

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

import editjudge
from editjudge.core import images, params, records
from editjudge.core.settings import section
from editjudge.editors import settings
from editjudge.editors.procedural import ProceduralEditor
from editjudge.editors.protocol import Edited, Request
from editjudge.sources.builtin import scenes
from editjudge.sources.settings import ProbeBenchSetting, RawPairs
from editjudge.stages import probe_bench

KEY, SHOWN = "color_alter-benchmark-00047", (0, 7)  # of the edits of the prompt, those of the pair
TASK, NEURAL = "color_alter", "style_transfer"
PICTURE, VERDICTS = Path("docs/pair.jpg"), Path("data/verdicts/probe.parquet")
WIDTH, GAP, LINE, SIZE = 200, 8, 24, 14  # in pixels
INK = (31, 35, 40)


def prompt() -> records.Row:
    """The pair's photo and instruction."""
    values = params.load()
    setting = section(values, "probe_bench", ProbeBenchSetting)
    side = section(values, "raw_pairs", RawPairs).image_side
    prompts = scenes.make_pairs(TASK, "benchmark", setting.per_task, side, setting.seed)
    [found] = [prompt for prompt in prompts if prompt["key"] == KEY]
    return found


def pair(asked: records.Row) -> records.Row:
    """The pair, as data/probe_bench.parquet has it; it is made without choosing all others."""
    made = probe_bench.make_edits(asked, section(params.load(), "probe_bench", ProbeBenchSetting).seed)
    better, worse = (made[n] for n in SHOWN)
    return probe_bench.probe_row(asked, (better, worse), swapped=False)


def neural(asked: records.Row) -> Edited:
    """What the graph's neural editor makes of the prompt."""
    setting = settings.read(params.load(), NEURAL)
    assert isinstance(setting, settings.ProceduralSetting)
    request = Request(KEY, asked["instruction"], asked["image"], asked["edit"], "benchmark", seed=0)
    return ProceduralEditor(NEURAL, setting).edit(request)


def picture(made: records.Row, painted: Edited) -> np.ndarray:
    """The instruction over source, A, B and the network's edit, side by side; RGB, uint8, (H, W, 3)."""
    shown = [images.decode(each["bytes"]) for each in (made["source_image"], *made["edited_images"])] + [painted.image]
    height = round(WIDTH * shown[0].shape[0] / shown[0].shape[1])
    page = Image.new("RGB", (GAP + len(shown) * (WIDTH + GAP), 2 * LINE + height + 2 * GAP), "white")
    draw = ImageDraw.Draw(page)
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), SIZE)
    draw.text((GAP, GAP), f"“{made['instruction']}”", INK, font)
    for n, (name, rgb) in enumerate(zip(("source", "A", "B", "C, by a network"), shown, strict=True)):
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


def of_network(made: records.Row, painted: Edited) -> str:
    """What the measures say of A beside the network's edit."""
    source, (a, _) = made["source_image"]["bytes"], (each["bytes"] for each in made["edited_images"])
    boxes = [tuple(region["box"]) for region in made["regions"]]
    said = editjudge.compare(source, a, painted.image, made["instruction"], judge="measures", task=TASK, boxes=boxes)
    assert said.winner == "Image A"
    told = f"C is by a network (`{NEURAL}`), which streaked the wall, too (ΔE {painted.damage:.1f})"
    return f"{told}: the measures prefer A."


def main() -> None:
    asked = prompt()
    made, painted = pair(asked), neural(asked)
    Image.fromarray(picture(made, painted)).save(PICTURE, quality=92, subsampling=0)
    rows = records.read(VERDICTS, "verdicts")
    print(sentence({row["judge"]: row for row in rows if row["key"] == KEY}))
    print(of_network(made, painted))


if __name__ == "__main__":
    main()
