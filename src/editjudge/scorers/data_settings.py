"""An entry of `scorer_data` in params.yaml: where a scorer's data comes from."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, Positive, Text, read_kind


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ProbeSource:
    """Edits of the probe set with known truth. per_task: prompts of each task to learn from; test_per_task: to test.

    side: the long side of an image, pixels.
    """

    source: Literal["probe"]
    tasks: Annotated[list[Text], Field(min_length=1)]
    per_task: Positive
    test_per_task: Positive
    side: Annotated[Positive, Field(ge=32)]
    seed: Count


Source: TypeAlias = ProbeSource
KINDS: dict[str, type] = {"probe": ProbeSource}


def read_source(where: str, given: Any) -> Source:
    """The setting at `where` (scorer_data.<name>) by its `source`. ParamsError names the field that is wrong."""
    setting: Source = read_kind(where, "source", KINDS, given)
    return setting
