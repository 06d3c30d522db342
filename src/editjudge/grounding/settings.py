"""What `grounding` of params.yaml says of the instruction parser and the grounder, checked before anything is asked."""

from dataclasses import field, replace
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core import hub
from editjudge.core.settings import FORBID, Count, Positive, Real, Share, Text, read, read_kind
from editjudge.grounding.prompts import Coordinates
from editjudge.models.chat.settings import EndpointSetting, TransformersSetting
from editjudge.models.endpoint.settings import NO_KEY, Address, Seconds, Tries
from editjudge.models.endpoint.spending import Budget, Price
from editjudge.vision import folders
from editjudge.vision.folders import Precision

Tokens = Annotated[Positive, Field(le=1_000_000)]


@dataclass(frozen=True, config=FORBID)
class EmbeddedSetting:
    """The record's own labels and boxes, and the grammar: nothing to be set."""


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ParserSetting:
    """An instruction parser behind an OpenAI-compatible endpoint; its fields are a judge's, see params.yaml."""

    model: Text
    base_url: Address
    api_key_env: Text = NO_KEY
    temperature: Annotated[Real, Field(ge=0, le=2)] = 0.0
    seed: Count = 0
    max_new_tokens: Tokens = 512
    reply_tries: Tries = 3
    max_in_flight: Annotated[Positive, Field(le=10_000)] = 64
    per_minute: Count = 0
    timeout: Seconds = 120.0
    connect_timeout: Seconds = 10.0
    tries: Tries = 6
    price: Price = field(default_factory=Price)
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True, kw_only=True, config=FORBID)
class VlmSetting(ParserSetting):
    """One that is shown an image. min_pixels, max_pixels: images outside of them are resized, 0: none."""

    max_new_tokens: Tokens = 1024
    min_pixels: Count = 0
    max_pixels: Count = 1_310_720


@dataclass(frozen=True, kw_only=True, config=FORBID)
class GrounderSetting(VlmSetting):
    """A grounder. coordinates: in which its boxes are."""

    coordinates: Coordinates = "thousandths"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LocalParserSetting:
    """A Qwen3-VL in this process, a folder or hub id, asked as one behind an endpoint; fields are a judge's."""

    model: Text
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    batch_size: Annotated[Positive, Field(le=10_000)] = 8
    workers: Count = 1
    temperature: Annotated[Real, Field(ge=0, le=2)] = 0.0
    seed: Count = 0
    max_new_tokens: Tokens = 512
    reply_tries: Tries = 3


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LocalVlmSetting(LocalParserSetting):
    """One that is shown an image; its boxes are in thousandths. min_pixels, max_pixels: 0: those of the checkpoint."""

    max_new_tokens: Tokens = 1024
    min_pixels: Count = 0
    max_pixels: Count = 1_310_720


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
            if not isinstance(setting, DetectorSetting):
                asked_setting(where, setting)
            read_roles[name] = setting
    return GroundingSetting(**read_roles)


def asked_setting(where: str, setting: ParserSetting | LocalParserSetting) -> EndpointSetting | TransformersSetting:
    """The same as judges are asked with: its budget, sizes of images and key are checked (ParamsError)."""
    values = {name: value for name, value in vars(setting).items() if name != "coordinates"} | {"rule": "agreement"}
    if isinstance(setting, ParserSetting):
        return read(where, EndpointSetting, values | {"logprobs": 0})
    del values["max_new_tokens"]  # the turn's own
    return read(where, TransformersSetting, values)


def found(setting: GroundingSetting) -> GroundingSetting:
    """The setting with each model of this machine by its local folder. ParamsError where it cannot be had."""
    roles: dict[str, Any] = {}
    for name, role in vars(setting).items():
        where = f"grounding.{name}.model"
        if isinstance(role, DetectorSetting):
            roles[name] = replace(role, model=str(folders.find(where, role.model, folders.GROUNDING_DINO)))
        elif isinstance(role, LocalParserSetting):
            roles[name] = replace(role, model=str(hub.checkpoint(where, role.model)))
    return replace(setting, **roles)
