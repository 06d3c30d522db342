"""Section `report` of params.yaml."""

from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Positive


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ReportSetting:
    """pairs: the most pairs in the gallery. image_side: pixels of the long side of its images."""

    pairs: Positive
    image_side: Positive
