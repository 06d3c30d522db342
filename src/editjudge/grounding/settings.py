"""What `grounding` of params.yaml says of the instruction parser and the grounder, checked before anything is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from editjudge.core.fields import read_fields
from editjudge.core.params import ParamsError
from editjudge.endpoints.spending import Budget, Price
from editjudge.grounding.prompts import Coordinates
from editjudge.judges.settings import RANGES, EndpointSetting, read_setting

EMBEDDED, ENDPOINT = "embedded", "endpoint"
ROLES = ("parser", "grounder")


@dataclass(frozen=True, kw_only=True)
class ParserSetting:
    """An instruction parser behind an OpenAI-compatible endpoint; its fields are a judge's, see params.yaml."""

    model: str
    base_url: str
    api_key_env: str = "none"
    temperature: float = 0.0
    seed: int = 0
    max_new_tokens: int = 512
    reply_tries: int = 3
    max_in_flight: int = 64
    per_minute: int = 0
    timeout: float = 120.0
    connect_timeout: float = 10.0
    tries: int = 6
    price: Price = field(default_factory=Price)
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True, kw_only=True)
class GrounderSetting(ParserSetting):
    """A grounder. coordinates: in which its boxes are; min_pixels, max_pixels: images outside are resized, 0: none."""

    coordinates: Coordinates = "thousandths"
    max_new_tokens: int = 1024
    min_pixels: int = 0
    max_pixels: int = 1_310_720


@dataclass(frozen=True)
class GroundingSetting:
    """None: the embedded backend, the record's own labels and boxes."""

    parser: ParserSetting | None = None
    grounder: GrounderSetting | None = None


def read_grounding(given: Any) -> GroundingSetting:
    """The section `grounding`. ParamsError names the field that is wrong, or the key's variable that is not set."""
    if not isinstance(given, Mapping) or set(given) != set(ROLES):
        raise ParamsError(f"grounding must have the fields parser and grounder, not {given!r}")
    return GroundingSetting(
        _read("grounding.parser", ParserSetting, given["parser"]),
        _read("grounding.grounder", GrounderSetting, given["grounder"]),
    )


def _read(where: str, kind: type, given: Any) -> Any:
    if not isinstance(given, Mapping) or given.get("backend") not in (EMBEDDED, ENDPOINT):
        raise ParamsError(f"{where}.backend must be {EMBEDDED} or {ENDPOINT}, not {given!r}")
    values = {name: value for name, value in given.items() if name != "backend"}
    if given["backend"] == EMBEDDED:
        if values:
            raise ParamsError(f"{where}.{min(values)} is unknown for the backend {EMBEDDED}")
        return None
    for name, part in (("price", Price), ("budget", Budget)):
        if name in values:
            values[name] = read_fields(f"{where}.{name}", part, values[name], RANGES)
    setting = read_fields(where, kind, values, {**RANGES, "max_new_tokens": (1, 1_000_000)})
    endpoint_setting(where, setting)
    return setting


def endpoint_setting(where: str, setting: ParserSetting) -> EndpointSetting:
    """The same as judges are asked with: its address, sizes of images and key are checked (ParamsError)."""
    values = {name: value for name, value in vars(setting).items() if name != "coordinates"}
    for name in ("price", "budget"):
        values[name] = vars(values[name])
    asked = read_setting(where, values | {"backend": ENDPOINT, "rule": "agreement", "logprobs": 0})
    assert isinstance(asked, EndpointSetting)
    return asked
