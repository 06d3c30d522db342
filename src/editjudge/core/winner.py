"""Who wins a comparison of two edits: the words of prompts, replies, records and reports."""

from typing import Literal, TypeAlias

Winner: TypeAlias = Literal["Image A", "Image B", "Tie"]
SIDES: tuple[Winner, Winner] = ("Image A", "Image B")
WINNERS: tuple[Winner, ...] = (*SIDES, "Tie")
OTHER_SIDE: dict[Winner, Winner] = {"Image A": "Image B", "Image B": "Image A", "Tie": "Tie"}
SIGNS: dict[str, int] = {"Image A": 1, "Tie": 0, "Image B": -1}
WORTH: dict[Winner, float] = {"Image A": 1.0, "Tie": 0.5, "Image B": 0.0}  # of the first image


def ahead(lead: float) -> Winner:
    """The winner by a lead of A over B."""
    return "Tie" if lead == 0 else "Image A" if lead > 0 else "Image B"
