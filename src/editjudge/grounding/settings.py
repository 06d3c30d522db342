"""What `grounding` of params.yaml says of the instruction parser and the grounder, checked before anything is asked."""

from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, ModelName, Positive, Share, Text
from editjudge.grounding.prompts import Coordinates
from editjudge.models.chat import settings as chat
from editjudge.models.chat.models import at_hand
from editjudge.vision import folders
from editjudge.vision.folders import Precision


@dataclass(frozen=True, kw_only=True, config=FORBID)
class GrounderSetting(chat.InquirySetting):
    """A grounder. coordinates: in which its boxes are."""

    coordinates: Coordinates = "thousandths"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class DetectorSetting:
    """A Grounding DINO, a folder or hub id, as `grounding.grounder`.

    device, dtype, batch_size: as under `measures`; workers: processes on each GPU, or on the CPU one a core for 0.
    threshold: least score of a box; overlap: of two boxes of one name that overlap more, the surer one stands."""

    backend: Literal["grounding_dino"] = "grounding_dino"
    model: ModelName
    device: Text = "auto"
    dtype: Precision = "float32"
    batch_size: Annotated[Positive, Field(le=4096)] = 8
    workers: Count = 0
    threshold: Share = 0.3
    overlap: Share = 0.8


Parser: TypeAlias = chat.AnyInquirySetting
Grounder: TypeAlias = GrounderSetting | chat.ServedInquirySetting | chat.LocalInquirySetting | DetectorSetting


@dataclass(frozen=True, kw_only=True, config=FORBID)
class GroundingSetting:
    """Section `grounding`: who names the objects of an edit, and who finds their boxes."""

    parser: Annotated[chat.EmbeddedSetting | Parser, Field(discriminator="backend")] = chat.EmbeddedSetting()
    grounder: Annotated[chat.EmbeddedSetting | Grounder, Field(discriminator="backend")] = chat.EmbeddedSetting()


def found(setting: GroundingSetting) -> GroundingSetting:
    """The setting with each model of this machine by its local folder. ParamsError where it cannot be had."""
    roles: dict[str, Any] = {}
    for name, role in vars(setting).items():
        where = f"grounding.{name}.model"
        if isinstance(role, DetectorSetting):
            roles[name] = replace(role, model=str(folders.find(where, role.model, folders.GROUNDING_DINO)))
        elif isinstance(role, chat.LocalSetting):
            roles[name] = at_hand(f"grounding.{name}", role)
    return replace(setting, **roles)
