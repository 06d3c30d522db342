"""Where a judge that is asked by `changed_boxes` says that edits changed their source, held against where they did."""

import re

import cv2
import numpy as np

from editjudge.benchmarks.preferences.item import Item
from editjudge.core import images, regions
from editjudge.judges.asking import ChatJudge
from editjudge.judges.protocol import BothOrders, Judge
from editjudge.judges.styles import style
from editjudge.models.endpoint.replies import END_OF_THINKING, first_object
from editjudge.statistics import clustered

GRID, CHANGED, LEAST = 250, 5.0, 25  # cells of a side; the ΔE from which on they changed; the fewest side by side
ASKS = "[x0, y0, x1, y1] in thousandths"  # what a way of asking says if it asks for boxes
SIDE = re.compile(r"\b([AB])\b[:*]*\s*(?=\[(?:[\d.\s]+,){3}[\d.\s]+\]|none\b)")  # before a whole box
BOX = re.compile(r"\[" + ",".join([r"\s*(\d+(?:\.\d+)?)\s*"] * 4) + r"\]")


def measured(source: bytes, edited: bytes) -> np.ndarray:
    """The cells of the boxes around all areas that changed: bool, (GRID, GRID). ImageError."""
    cells = [cv2.resize(images.decode(each), (GRID, GRID), interpolation=cv2.INTER_AREA) for each in (source, edited)]
    areas = cv2.connectedComponentsWithStats((images.delta_e(*cells) > CHANGED).astype(np.uint8), connectivity=8)[2][1:]
    return regions.boxes_mask([(x, y, x + w, y + h) for x, y, w, h, size in areas if size >= LEAST], GRID, GRID)


def claimed(reply: str) -> list[np.ndarray]:
    """The cells of the boxes that a reply names of A and of B; [] where it lacks one of the two, or a box is none."""
    body = reply.rpartition(END_OF_THINKING)[2]
    parts = SIDE.split(str((first_object(body, body.find("{"))[0] or {}).get("reason")))
    said = ["".join(parts[n + 1] for n in range(1, len(parts), 2) if parts[n] == side) for side in "AB"]
    boxes = [np.array(BOX.findall(words), float).reshape(-1, 4) for words in said]
    broken = any((each > 1000).any() or (each[:, 2:] <= each[:, :2]).any() for each in boxes)
    return [] if broken or not all(said) else [regions.boxes_mask(b * GRID / 1000, GRID, GRID) for b in boxes]


def overlap(judge: Judge, items: list[Item], answers: list[BothOrders]) -> list[dict[str, float | None]]:
    """iou: intersection over union of the cells named and measured (1: none are), the mean over both edits and over the
    `scored` of n questions (an order of a pair) that have boxes. Empty of a judge that is not asked for them."""
    if not isinstance(judge, ChatJudge) or judge.outline or ASKS not in str(style(judge.form).user):
        return []
    of, found = {item.key: item for item in items}, list[tuple[float, str]]()
    for item, verdict, turn in [(of[a.forward.key], *o) for a in answers for o in ((a.forward, 1), (a.backward, -1))]:
        edits = (item.a, item.b)[::turn]
        both = [(own, measured(item.source, edit)) for own, edit in zip(claimed(verdict.reply), edits, strict=False)]
        shares = [(a & b).sum() / (a | b).sum() if (a | b).any() else 1.0 for a, b in both]
        found += [(float(np.mean(shares)), item.cluster)] if shares else []
    mean = clustered.mean([share for share, _ in found], [photo for _, photo in found]) if found else None
    figures = {"iou": mean.value, **mean.ends()} if mean else dict.fromkeys(("iou", "low", "high"))
    return [figures | {"scored": len(found), "n": 2 * len(answers)}]
