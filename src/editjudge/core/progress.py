"""Progress bars: on stderr, quiet in logs that are no terminal, with records a second and time left."""

from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def progress(items: Iterable[T], total: int, what: str) -> Iterable[T]:
    """`items`, with a bar that names `what` and counts to `total`."""
    return tqdm(items, total=total, desc=what, unit="record", mininterval=1.0, dynamic_ncols=True)
