"""What `grounding` of params.yaml says of the instruction parser and the grounder, checked before anything is asked."""

from dataclasses import field
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, Positive, Real, Text, read, read_kind
from editjudge.endpoints.settings import NO_KEY, Address, Seconds, Tries
from editjudge.endpoints.spending import Budget, Price
from editjudge.grounding.prompts import Coordinates
from editjudge.judges.settings import EndpointSetting

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
class GrounderSetting(ParserSetting):
    """A grounder. coordinates: in which its boxes are; min_pixels, max_pixels: images outside are resized, 0: none."""

    coordinates: Coordinates = "thousandths"
    max_new_tokens: Tokens = 1024
    min_pixels: Count = 0
    max_pixels: Count = 1_310_720


@dataclass(frozen=True)
class GroundingSetting:
    """None: the embedded backend, the record's own labels and boxes."""

    parser: ParserSetting | None = None
    grounder: GrounderSetting | None = None


@dataclass(frozen=True, config=FORBID)
class _Roles:
    parser: Any
    grounder: Any


def read_grounding(given: Any) -> GroundingSetting:
    """The section `grounding`. ParamsError names the field that is wrong, or the key's variable that is not set."""
    roles, read_roles = read("grounding", _Roles, given), {}
    for name, kind in (("parser", ParserSetting), ("grounder", GrounderSetting)):
        where, kinds = f"grounding.{name}", {"embedded": EmbeddedSetting, "endpoint": kind}
        setting = read_kind(where, "backend", kinds, getattr(roles, name))
        if not isinstance(setting, EmbeddedSetting):
            endpoint_setting(where, setting)
            read_roles[name] = setting
    return GroundingSetting(**read_roles)


def endpoint_setting(where: str, setting: ParserSetting) -> EndpointSetting:
    """The same as judges are asked with: its budget, sizes of images and key are checked (ParamsError)."""
    values = {name: value for name, value in vars(setting).items() if name != "coordinates"}
    return read(where, EndpointSetting, values | {"rule": "agreement", "logprobs": 0})
