"""Progress bars: on stderr, with records a second and time left, and nothing at all where stderr is no terminal."""

from collections.abc import Iterable
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")


def bar(total: int | None, what: str, unit: str = "record", items: Iterable[T] | None = None) -> "tqdm[Any]":
    """A bar that names `what` and counts to `total`: by going through `items`, or by its `update`."""
    shown: dict[str, Any] = {"mininterval": 1.0, "dynamic_ncols": True, "disable": None}
    return tqdm(items, total=total, desc=what, unit=unit, **shown)


def progress(items: Iterable[T], total: int, what: str) -> Iterable[T]:
    """`items`, with a bar that names `what` and counts to `total`."""
    return bar(total, what, items=items)
