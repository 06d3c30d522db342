"""Stage examples: a picture of one pair of each task of a benchmark, with what people and every judge said of it.

`dvc plots show` has the pictures; `dvc plots diff` sets those of two commits side by side.
"""

import io
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import Item
from editjudge.core import images, params, records
from editjudge.core.files import write_bytes
from editjudge.core.main import stage

FONT = Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf")
SIDE, GAP = 256, 10  # pixels: the longer side of an image, and the space around it
SIZE, LINE = 14, 20  # of the letters, and from line to line
INK, RIGHT, WRONG, NONE = "#1c2430", "#1b8a3a", "#c0392b", "#5b6770"


def first_of_each_task(items: Iterable[Item]) -> list[Item]:
    """The item with the first key among each task's that can be shown, so that two commits show the same ones."""
    found: dict[str, Item] = {}
    for item in sorted(items, key=lambda item: item.key):
        if item.failed is None and item.verdict is not None:
            found.setdefault(item.task, item)
    return list(found.values())


def captions(item: Item) -> list[str]:
    """What stands over the source, A and B: who made it, and its known damage (mean ΔE), where there are such."""
    said = []
    for number, side in enumerate("AB"):
        model = f": {item.models[number]}" if item.models else ""
        said.append(f"{side}{model}" + (f", damage {item.damages[number]:.1f}" if item.damages else ""))
    return ["source", *said]


def lines(item: Item, verdicts: Sequence[records.Row]) -> list[tuple[str, str]]:
    """The truth, and a line each judge with its probability that A wins; with the colour of each."""
    found = [(f"better: {item.verdict}", INK)]
    for row in verdicts:
        sure = "" if row["p_a"] is None else f"   p(A) {row['p_a']:.2f}"
        colour = NONE if row["answer"] is None else RIGHT if row["answer"] == row["label"] else WRONG
        found.append((f"{row['judge']}: {row['answer'] or 'no verdict'}{sure}", colour))
    return found


def draw(item: Item, verdicts: Sequence[records.Row]) -> bytes:
    """Instruction, source, A and B, and beneath them what was said; JPEG. The same input gives the same bytes."""
    shown = [Image.fromarray(images.decode(image)) for image in (item.source, item.a, item.b)]
    scale = min(SIDE / max(side for image in shown for side in image.size), 2.0)
    sizes = [(max(1, round(wide * scale)), max(1, round(high * scale))) for wide, high in (i.size for i in shown)]
    shown = [image.resize(size, Image.Resampling.LANCZOS) for image, size in zip(shown, sizes, strict=True)]
    width = GAP + 3 * (SIDE + GAP)
    title = textwrap.wrap(textwrap.shorten(item.instruction, 180), 90)
    said, tall = lines(item, verdicts), max(image.height for image in shown)
    top = GAP + LINE * len(title)
    sheet = Image.new("RGB", (width, top + LINE + tall + GAP + LINE * len(said) + GAP), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.truetype(FONT, SIZE, layout_engine=ImageFont.Layout.BASIC)
    for number, text in enumerate(title):
        pen.text((GAP, GAP + LINE * number), text, INK, font)
    for number, (image, text) in enumerate(zip(shown, captions(item), strict=True)):
        left = GAP + number * (SIDE + GAP)
        pen.text((left, top), text, NONE, font)
        sheet.paste(image, (left, top + LINE))
    for number, (text, colour) in enumerate(said):
        pen.text((GAP, top + LINE + tall + GAP + LINE * number), text, colour, font)
    out = io.BytesIO()
    sheet.save(out, "JPEG", quality=92, subsampling=0)
    return out.getvalue()


def run(name: str) -> None:
    items = forms.load(name, params.leaf(params.load(), f"benchmarks.{name}"))
    said = records.grouped(records.iterate(Path(f"data/verdicts/{name}.parquet"), "verdicts"), "key")
    for item in first_of_each_task(items):
        write_bytes(Path(f"plots/examples/{name}/{item.task}.jpg"), draw(item, said.get(item.key, ())))


if __name__ == "__main__":
    stage(__doc__, run, "benchmark")
