"""What the gallery shows: sources with their edits and pairs of these, as plain rows, and their images, in files beside
the page that are named by their hash.

On the page sides are "A" and "B", a tie is "T", no verdict is None, and numbers have four significant digits."""

import base64
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from PIL import Image

from editjudge.core import images, masks
from editjudge.core.files import write_bytes
from editjudge.core.records import Row, references

TRAINING, ARENA = "training", "arena"
JUDGED = ("judge", "dimension", "forward", "backward", "winner", "p_a", "reason", "p_a_forward", "p_a_backward", "said")
CODES = {"Image A": "A", "Image B": "B", "Tie": "T"}
DIGITS = 4
DETAILS = ("values", "z", "missing", "layers", "difference")  # of an edit: what the page loads with its pair
QUALITY = 80  # of JPEG, which changes blocks of pixels on their own: the map of differences stays where an edit is
Layers = Mapping[str, Sequence[Any]]
"""Shapes by name (boxes, masks, faces, joints, area), in the source's pixels: a box [x0, y0, x1, y1], a polygon of
points, or a point [x, y]."""


class PageImages:
    """The images of one page, each stored once. rows: size and file of each, by its number.

    folder: where they are written, as JPEG with no side longer than `side` pixels. None: the page holds the images, as
    they came if no side is longer."""

    def __init__(self, folder: Path | None, side: int) -> None:
        self.folder, self.side = folder, side
        self.rows: list[dict[str, Any]] = []
        self._numbers: dict[str, int | None] = {}

    def add(self, data: bytes | None) -> int | None:
        """The number of an encoded image; None for no image and for one that cannot be decoded."""
        if not data:
            return None
        given = hashlib.sha256(data).hexdigest()
        if given in self._numbers:
            return self._numbers[given]
        try:
            picture = Image.fromarray(images.decode(data))
        except images.ImageError:
            self._numbers[given] = None
            return None
        row = {"width": picture.width, "height": picture.height}  # which boxes and masks count in
        whole, kind = self._whole(picture, data)
        if self.folder is None:
            file = f"data:image/{kind};base64,{base64.b64encode(whole).decode()}"
        else:
            path = self.folder / f"{hashlib.sha256(whole).hexdigest()[:16]}.jpg"
            file = f"{self.folder.name}/{path.name}"
            write_bytes(path, whole)
        self._numbers[given] = len(self.rows)
        self.rows.append(row | {"file": file})
        return self._numbers[given]

    def _whole(self, picture: Image.Image, data: bytes) -> tuple[bytes, str]:
        """The image file that the page shows, and its format. Kept as it came if browsers decode it as we do."""
        with Image.open(io.BytesIO(data)) as given:
            kind, plain = str(given.format).lower(), given.mode == "RGB" and not given.getexif()
        if self.folder is None and plain and max(picture.size) <= self.side:
            return data, kind
        out = io.BytesIO()
        picture.thumbnail((self.side, self.side), Image.Resampling.BOX)
        picture.save(out, "JPEG", quality=QUALITY, optimize=True)
        return out.getvalue(), "jpeg"


@dataclass
class GalleryPrompt:
    """A source with an instruction, edits of it by name, and pairs of them.

    kind: TRAINING, ARENA or the name of a benchmark. edits: in each, `image` and `difference` are numbers of
    `PageImages`, and `layers` are its own. pairs: each names its edits as `a` and `b`, and has judges' verdicts as
    `judged`. source: the number of its image; more: those of its other sources. layers: of the source, and of each edit
    that has none of its own. photo: what the source is cut from, where that is known."""

    kind: str
    task: str
    key: str
    edits: dict[str, Row]
    pairs: list[Row]
    instruction: str = ""
    source: int | None = None
    layers: Layers = field(default_factory=dict)
    photo: str | None = None
    more: list[int | None] = field(default_factory=list)

    def show(self, row: Row, image: bytes | None, pictures: PageImages) -> None:
        """Takes what the prompt's own row says: its instruction, regions (with box and mask) and more sources."""
        boxes, pngs = masks.of_rows(row["regions"])
        self.instruction, self.source = row["instruction"], pictures.add(image)
        self.more = [pictures.add(bytes(each)) for each in references(row).values()]
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
        own = {name: value for name, value in vars(self).items() if name != "more" or value}
        return own | {"edits": edits, "pairs": pairs}


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


def details(prompt: Row) -> Row:
    """Takes out of a prompt of `as_json` what the page needs for an open pair alone."""
    edits = [{name: edit.pop(name) for name in DETAILS if name in edit} for edit in prompt["edits"]]
    said = [[verdict.pop() for verdict in pair["judged"]] for pair in prompt["pairs"]]  # the last of JUDGED
    return {"layers": prompt.pop("layers"), "edits": edits, "said": said}


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
