"""One edit: what an editor is asked and answers, what its image must be like, and what became of it.

An image that fails `check` is a failed record: no judge or measure ever sees it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import numpy as np

from editjudge.core import images, records
from editjudge.engine.store import Kept

BLACK = 2  # of 255; an image no lighter than this anywhere is what a safety checker leaves
ASPECT_MOST = 1.25
SIDE_SHARE, SIDE_ENOUGH = 0.25, 512
# Failures that the same editor would only repeat. The others depend on the machine, the network or the hour: they are
# not kept, and the next run tries them again.
LASTING = frozenset(
    {"bad_source", "no_edit", "wrong_output", "not_finite", "all_black", "wrong_size", "safety_checker", "refused"}
    | {"several_sources"}
)
DAMAGE_DECIMALS = 4
BEST = 5  # the highest quality of reward-conditioned instructions


@dataclass(frozen=True)
class Request:
    """One edit that is wanted. image: the source as it came (PNG, JPEG or WebP). more: others that it is made from, in
    their order. use: which call arguments."""

    key: str
    instruction: str
    image: records.Image | Kept
    edit: str | None  # JSON of the embedded editors' settings; None where a source has none
    use: Literal["data", "benchmark"]
    seed: int  # of this record and model, 0..2**63-1: fingerprint of (setting seed, model, key)
    more: tuple[records.Image, ...] = ()

    @property
    def sources(self) -> tuple[bytes, ...]:
        return bytes(self.image), *map(bytes, self.more)


Requests: TypeAlias = Iterator[tuple[str, Request]]
"""Edits that are wanted, each with a name; read as they are made."""


@dataclass(frozen=True)
class Edited:
    """image: RGB, uint8, (H, W, 3). damage: known truth, None where it is not known."""

    image: np.ndarray
    damage: float | None


class EditFailed(ValueError):
    """The edit cannot be made; the message is the record's reason. kind: a short word that metrics count."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Editor(Protocol):
    """An editor in this process. It may raise EditFailed; any other error is the edit's failure, too."""

    def edit(self, request: Request) -> Edited: ...


@dataclass(frozen=True)
class Outcome:
    """image: PNG, None where the edit failed. damage: None where it is not known. kind and reason: of a failure."""

    image: bytes | Kept | None
    damage: float | None = None
    kind: str | None = None
    reason: str | None = None

    @property
    def lasting(self) -> bool:
        """Whether another try would give the same."""
        return self.kind is None or self.kind in LASTING


Keep: TypeAlias = Callable[[str, Outcome], None]
"""Gets the name of each edit with what became of it, as soon as it is there."""


def check_count(request: Request, most: int) -> None:
    """Raises EditFailed: the edit is made from more pictures than the editor takes."""
    if (count := 1 + len(request.more)) > most:
        raise EditFailed("several_sources", f"{count} source images: this editor takes {most}")


def attempt(edit: Callable[[Request], Edited], request: Request) -> Outcome:
    """Have one edit made and check it beside its first source. Sources that cannot be decoded are not asked for. What
    else the editor raises is the worker's failure."""
    request = replace(request, image=bytes(request.image))
    try:
        source, *_ = map(images.decode, request.sources)
    except images.ImageError as error:
        return Outcome(None, kind="bad_source", reason=str(error))
    try:
        edited = edit(request)
        check(source, edited.image)
    except EditFailed as error:
        return Outcome(None, kind=error.kind, reason=str(error))
    damage = None if edited.damage is None else round(edited.damage, DAMAGE_DECIMALS)
    return Outcome(images.encode_png(edited.image), damage)


def check(source: np.ndarray, edited: np.ndarray) -> None:
    """Raise EditFailed where `edited` is no image, or not one of `source` edited; both RGB, uint8, (H, W, 3).

    Kinds: wrong_output (not of that form), all_black (unless the source is), wrong_size: once resized to the source, it
    would not lie over it. Editing models snap sizes to their own steps, and APIs to a few formats: an aspect ratio that
    differs by a factor of up to ASPECT_MOST is allowed (16:9 made 3:2 is 1.19; 4:3 made square is 1.33), and any size
    from a quarter of the source's long side, or 512 pixels, on."""
    if edited.dtype != np.uint8 or edited.ndim != 3 or edited.shape[2] != 3 or not edited.size:
        raise EditFailed("wrong_output", f"the editor returned {edited.dtype} of shape {edited.shape}, no RGB image")
    if edited.max() <= BLACK < source.max():
        raise EditFailed("all_black", "the edited image is all black, as a safety checker leaves it")
    (height, width), (own_height, own_width) = edited.shape[:2], source.shape[:2]
    too_small = max(height, width) < min(SIDE_SHARE * max(own_height, own_width), SIDE_ENOUGH)
    if too_small or not 1 / ASPECT_MOST <= (width * own_height) / (height * own_width) <= ASPECT_MOST:
        sizes = f"{width} x {height} from {own_width} x {own_height} pixels"
        how = "too small" if too_small else "of another shape"
        raise EditFailed("wrong_size", f"the edited image is {how}: {sizes}")


def with_score(instruction: str, score: int | None) -> str:
    """A reward-conditioned instruction (ADIEE, Chen et al. 2025; after HIVE): behind it, the edit's quality in words.

    An editor that was trained with the score of each edit in its instruction is asked for the best one at inference.
    None: the instruction as it is. ValueError: the score is not 1..5."""
    if score is None:
        return instruction
    if not 1 <= score <= BEST:
        raise ValueError(f"1 to {BEST} expected, not {score}")
    told = instruction.rstrip()
    stop = "" if told[-1:] in (".", "!", "?") else "."
    return f"{told}{stop} The image quality is {score} out of five."
