"""The one row that every reward benchmark becomes, whatever its published form."""

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

from editjudge.core.winner import WINNERS, Winner

HumanVerdict: TypeAlias = Winner | Literal["Both good", "Both bad"]
VERDICTS: tuple[HumanVerdict, ...] = (*WINNERS, "Both good", "Both bad")
Box: TypeAlias = tuple[int, int, int, int]


def photo(source: bytes, otherwise: str) -> str:
    """A name of the source image that items on it share, by its bytes; `otherwise` where there is none."""
    return hashlib.sha256(source).hexdigest()[:16] if source else otherwise


@dataclass(frozen=True)
class Item:
    """One comparison of two edits of an image, with what people said of it.

    key: `[A-Za-z0-9._-]{1,200}`, one an item. source, a, b: PNG, JPEG or WebP as they came; empty where `failed`.
    verdict: the people's; None only where `failed`. cluster: what stands or falls together: the photo.
    group: the tuple (or the prompt) whose items stand or fall together, and how many edits it has (`size`).
    models: who made a and b. ratings: each side's scores, one a rater, for benchmarks that rate one edit at a time.
    damages: known damage of each side (mean ΔE, 0 or more; lower is better). regions: boxes of what the edit is about.
    failed: why the item cannot be asked; such an item stays in the counts, and in the denominator where it has a
    verdict. where: the file and row that it came from.
    """

    key: str
    task: str
    dimension: str
    instruction: str
    source: bytes
    a: bytes
    b: bytes
    verdict: HumanVerdict | None
    cluster: str
    group: str | None = None
    size: int = 2
    models: tuple[str, str] | None = None
    ratings: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    damages: tuple[float, float] | None = None
    regions: tuple[Box, ...] | None = None
    failed: str | None = None
    where: str = ""
