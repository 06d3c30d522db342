"""Where a candidate's edit is: boxes in the source and in the edited image, or the reason why there are none."""

from dataclasses import dataclass

from editjudge.core.regions import Box


@dataclass(frozen=True)
class Grounded:
    """Where one candidate's edit is.

    source, edited: boxes in the source and in the edited image, both in the pixels of the source as it is stored (the
    edited image laid over it), in the order of the objects; empty where the recipe seeks none there. attributes: of
    measures.names, those that the instruction changes. masks: of the record's own regions, where it has them: PNG,
    one an object, in the pixels of the source; they say more exactly than the boxes where the edit is. reason: why the
    record has failed; then there are no boxes, and `kind` is a short word for it.
    """

    source: tuple[Box, ...] = ()
    edited: tuple[Box, ...] = ()
    attributes: tuple[str, ...] = ()
    masks: tuple[bytes, ...] = ()
    reason: str | None = None
    kind: str | None = None
