"""What `grounding` of params.yaml says of the instruction parser and the grounder, checked before anything is asked."""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, Positive, Share, Text, read, read_kind
from editjudge.grounding.prompts import Coordinates
from editjudge.models.chat.models import at_hand
from editjudge.models.chat.settings import (
    EmbeddedSetting,
    LocalParserSetting,
    LocalVlmSetting,
    ParserSetting,
    VlmSetting,
)
from editjudge.vision import folders
from editjudge.vision.folders import Precision


@dataclass(frozen=True, kw_only=True, config=FORBID)
class GrounderSetting(VlmSetting):
    """A grounder. coordinates: in which its boxes are."""

    coordinates: Coordinates = "thousandths"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class DetectorSetting:
    """A Grounding DINO, a folder or hub id, as `grounding.grounder`.

    device, dtype, batch_size: as under `measures`; workers: processes on each GPU, or on the CPU one a core for 0.
    threshold: least score of a box; overlap: of two boxes of one name that overlap more, the surer one stands.
    """

    model: Text
    device: Text = "auto"
    dtype: Precision = "float32"
    batch_size: Annotated[Positive, Field(le=4096)] = 8
    workers: Count = 0
    threshold: Share = 0.3
    overlap: Share = 0.8


Parser = ParserSetting | LocalParserSetting
Grounder = GrounderSetting | LocalVlmSetting | DetectorSetting


@dataclass(frozen=True)
class GroundingSetting:
    """None: the embedded backend, the record's own labels and boxes."""

    parser: Parser | None = None
    grounder: Grounder | None = None


@dataclass(frozen=True, config=FORBID)
class _Roles:
    parser: Any
    grounder: Any


KINDS: dict[str, dict[str, type]] = {
    "parser": {"embedded": EmbeddedSetting, "endpoint": ParserSetting, "transformers": LocalParserSetting},
    "grounder": {
        "embedded": EmbeddedSetting,
        "endpoint": GrounderSetting,
        "transformers": LocalVlmSetting,
        "grounding_dino": DetectorSetting,
    },
}


def read_grounding(given: Any) -> GroundingSetting:
    """The section `grounding`. ParamsError names the field that is wrong, or the key's variable that is not set."""
    roles, read_roles = read("grounding", _Roles, given), {}
    for name, kinds in KINDS.items():
        where = f"grounding.{name}"
        setting = read_kind(where, "backend", kinds, getattr(roles, name))
        if not isinstance(setting, EmbeddedSetting):
            read_roles[name] = setting
    return GroundingSetting(**read_roles)


def found(setting: GroundingSetting) -> GroundingSetting:
    """The setting with each model of this machine by its local folder. ParamsError where it cannot be had."""
    roles: dict[str, Any] = {}
    for name, role in vars(setting).items():
        where = f"grounding.{name}.model"
        if isinstance(role, DetectorSetting):
            roles[name] = replace(role, model=str(folders.find(where, role.model, folders.GROUNDING_DINO)))
        elif isinstance(role, LocalParserSetting):
            roles[name] = at_hand(f"grounding.{name}", role)
    return replace(setting, **roles)
