"""What is known of where a candidate's edit is."""

from collections.abc import Sequence
from dataclasses import dataclass

from editjudge.regions import Box


@dataclass(frozen=True)
class Grounded:
    """Where one candidate's edit is.

    source, edited: boxes in the source and in the edited image, both in the pixels of the source as it is stored (the
    edited image laid over it), in the order of the objects; empty where the recipe seeks none there. attributes: of
    measures.attributes, those that the instruction changes. reason: why the record has failed; then there are no boxes,
    and `kind` is a short word for it.
    """

    source: tuple[Box, ...] = ()
    edited: tuple[Box, ...] = ()
    attributes: tuple[str, ...] = ()
    reason: str | None = None
    kind: str | None = None


def edited_area_ratio(source: Sequence[Box], edited: Sequence[Box], height: int, width: int) -> float:
    """The sum of the boxes' areas over the image's area, halved where both images have boxes; 0 or more."""
    area = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in (*source, *edited))
    return area / (height * width) / (2 if source and edited else 1)
