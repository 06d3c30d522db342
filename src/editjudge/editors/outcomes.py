"""What became of one edit: an image that passed the checks, or why there is none."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from editjudge.core import images
from editjudge.core.errors import PIPELINE_ERRORS, describe
from editjudge.editors import checks
from editjudge.editors.request import Edited, EditFailed, Request

# By name, so that torch need not be imported: its out-of-memory error is a RuntimeError, and after the other one the
# process cannot use its GPU any more.
KINDS = {"OutOfMemoryError": "out_of_memory", "AcceleratorError": "device_error"}
# Failures that the same editor would only repeat. The others depend on the machine, the network or the hour: they are
# not kept, and the next run tries them again.
LASTING = frozenset(
    {"bad_source", "no_edit", "wrong_output", "not_finite", "all_black", "wrong_size", "safety_checker", "refused"}
)
DAMAGE_DECIMALS = 4


@dataclass(frozen=True)
class Outcome:
    """image: PNG, None where the edit failed. damage: None where it is not known. kind and reason: of a failure."""

    image: bytes | None
    damage: float | None = None
    kind: str | None = None
    reason: str | None = None

    @property
    def lasting(self) -> bool:
        """Whether another try would give the same."""
        return self.kind is None or self.kind in LASTING


Keep: TypeAlias = Callable[[str, Outcome], None]
"""Gets the name of each edit with what became of it, as soon as it is there."""


class Editor(Protocol):
    """An editor in this process. It may raise EditFailed, and what core.errors.PIPELINE_ERRORS names."""

    def edit(self, request: Request) -> Edited: ...


def failed(error: EditFailed) -> Outcome:
    return failure(error.kind, str(error))


def failure(kind: str, reason: str) -> Outcome:
    return Outcome(None, kind=kind, reason=reason)


def attempt(edit: Callable[[Request], Edited], request: Request) -> Outcome:
    """Have one edit made and check it. A source that cannot be decoded is not asked for."""
    try:
        source = images.decode(request.image)
    except images.ImageError as error:
        return Outcome(None, kind="bad_source", reason=str(error))
    try:
        edited = _edited(edit, request)
        checks.check(source, edited.image)
    except EditFailed as error:
        return failed(error)
    damage = None if edited.damage is None else round(edited.damage, DAMAGE_DECIMALS)
    return Outcome(images.encode_png(edited.image), damage)


def _edited(edit: Callable[[Request], Edited], request: Request) -> Edited:
    try:
        return edit(request)
    except EditFailed:
        raise
    except MemoryError as error:
        raise EditFailed("out_of_memory", describe(error)) from error
    except PIPELINE_ERRORS as error:
        names = (kind.__name__ for kind in type(error).__mro__)
        kind = next((KINDS[name] for name in names if name in KINDS), "exception")
        raise EditFailed(kind, describe(error)) from error
