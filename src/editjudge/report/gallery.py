"""What the gallery shows: sources with their edits and pairs of these, as plain rows.

On the page sides are "A" and "B", a tie is "T", no verdict is None, and numbers have four significant digits."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from editjudge.core import images, masks
from editjudge.core.records import Row
from editjudge.report.pictures import PageImages

TRAINING, ARENA = "training", "arena"
JUDGED = ("judge", "dimension", "forward", "backward", "winner", "p_a", "reason", "p_a_forward", "p_a_backward")
CODES = {"Image A": "A", "Image B": "B", "Tie": "T"}
DIGITS = 4
Layers = Mapping[str, Sequence[Any]]
"""Shapes by name (boxes, masks, faces, joints, area), in the source's pixels: a box [x0, y0, x1, y1], a polygon of
points, or a point [x, y]."""


@dataclass
class GalleryPrompt:
    """A source with an instruction, edits of it by name, and pairs of them.

    kind: TRAINING, ARENA or the name of a benchmark. edits: in each, `image` and `difference` are numbers of
    `PageImages`, and `layers` are its own. pairs: each names its edits as `a` and `b`, and has judges' verdicts as
    `judged`. source: the number of its image. layers: of the source, and of each edit that has none of its own."""

    kind: str
    task: str
    key: str
    edits: dict[str, Row]
    pairs: list[Row]
    instruction: str = ""
    source: int | None = None
    layers: Layers = field(default_factory=dict)

    def show(self, instruction: str, image: bytes | None, regions: Any, pictures: PageImages) -> None:
        """Takes what the prompt's own row says. regions: as in the contracts, with box and mask."""
        boxes, pngs = masks.of_rows(regions)
        self.instruction, self.source = instruction, pictures.add(image)
        self.layers = {"boxes": boxes, "masks": [outline for png in pngs for outline in outlines_of(png)]}

    def row(self, judges: Sequence[str]) -> Row:
        """As JSON: edits in order of their names, pairs with their numbers, verdicts as lists of JUDGED columns."""
        names = list(self.edits)
        pairs = [
            brief({name: value for name, value in pair.items() if name != "judged"})
            | {side: names.index(pair[side]) for side in "ab"}
            | {name: CODES.get(pair[name]) for name in ("truth", "winner")}
            | {"judged": [_judged(verdict, judges) for verdict in pair.get("judged", ())]}
            for pair in self.pairs
        ]
        edits = [{"image": None} | brief(edit) | {"model": name} for name, edit in self.edits.items()]
        return vars(self) | {"edits": edits, "pairs": pairs}


def outlines_of(png: bytes) -> list[list[list[int]]]:
    """The outlines of what a mask shows; none where it cannot be read."""
    try:
        return masks.outlines(masks.png_mask(png))
    except images.ImageError:
        return []


def brief(value: Any) -> Any:
    """A value of a row with its floats at DIGITS significant digits, which is what a page shows."""
    if isinstance(value, dict):
        return {name: brief(each) for name, each in value.items()}
    if isinstance(value, list):
        return [brief(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _judged(verdict: Mapping[str, Any], judges: Sequence[str]) -> list[Any]:
    row = {name: brief(verdict.get(name)) for name in JUDGED} | {"judge": judges.index(verdict["judge"])}
    return list((row | {name: CODES.get(verdict[name]) for name in ("forward", "backward", "winner")}).values())


def as_json(prompts: Sequence[GalleryPrompt]) -> Row:
    """`prompts`, and the names of the `judges` that stand in them by number."""
    judged = (verdict["judge"] for prompt in prompts for pair in prompt.pairs for verdict in pair.get("judged", ()))
    judges = list(dict.fromkeys(judged))
    return {"judges": judges, "prompts": [prompt.row(judges) for prompt in prompts]}


def chosen(prompts: Sequence[GalleryPrompt], most: int) -> list[GalleryPrompt]:
    """Whole prompts with `most` pairs in all, the same number of each kind and task as far as they go.

    Of a kind and task those come first whose key has the smaller hash. In the order in which they were given."""
    if sum(len(prompt.pairs) for prompt in prompts) <= most:
        return list(prompts)
    by_kind: dict[tuple[str, str], list[GalleryPrompt]] = {}
    for prompt in sorted(prompts, key=lambda prompt: hashlib.sha256(prompt.key.encode()).digest()):
        by_kind.setdefault((prompt.kind, prompt.task), []).append(prompt)
    kept, left = set[int](), most
    turns: Iterable[tuple[GalleryPrompt | None, ...]] = zip_longest(*(each for _, each in sorted(by_kind.items())))
    for prompt in (prompt for turn in turns for prompt in turn if prompt is not None):
        if len(prompt.pairs) <= left:
            kept.add(id(prompt))
            left -= len(prompt.pairs)
    return [prompt for prompt in prompts if id(prompt) in kept]
