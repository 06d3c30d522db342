"""What an editor is asked and what it answers: one edit of one picture."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np


@dataclass(frozen=True)
class Request:
    """One edit that is wanted. image: the source as it came (PNG, JPEG or WebP bytes). use: which call arguments."""

    key: str
    instruction: str
    image: bytes
    edit: str | None  # JSON of the embedded editors' settings; None where a source has none
    use: Literal["data", "benchmark"]
    seed: int  # of this record and model, 0..2**63-1: fingerprint of (setting seed, model, key)


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
