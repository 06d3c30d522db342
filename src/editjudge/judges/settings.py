"""What `judges` of params.yaml says of each judge, checked before anything is asked.

Its comments say what the fields mean; those without a default here must be given there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from editjudge.core.fields import Ranges, read_fields
from editjudge.core.params import ParamsError
from editjudge.endpoints.client import NO_KEY, check_url, key_from
from editjudge.endpoints.spending import Budget, Price
from editjudge.judges.protocol import Rule
from editjudge.judges.styles import STYLES
from editjudge.judges.viescore import POINTWISE

# Field: lowest and highest value.
RANGES: Ranges = {
    "tie_margin": (0, 0.5),
    "score_margin": (0, 10),
    "temperature": (0, 2),
    "passes": (1, 1000),
    "batch_size": (1, 10_000),
    "logprobs": (0, 20),
    "reply_tries": (1, 100),
    "max_in_flight": (1, 10_000),
    "timeout": (0.001, 86_400),
    "connect_timeout": (0.001, 86_400),
    "tries": (1, 100),
}


@dataclass(frozen=True, kw_only=True)
class MeasuresSetting:
    """A judge by measures."""

    rule: Rule
    tie_margin: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ModelSetting(MeasuresSetting):
    """What all models share: how they are asked, how often, and for how much."""

    model: str
    prompt: str = "decision"
    score_margin: float = 0.0
    temperature: float = 0.0
    passes: int = 1
    seed: int = 0
    price: Price = field(default_factory=Price)
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True, kw_only=True)
class TransformersSetting(ModelSetting):
    """A model in this process. model: its folder."""

    dtype: Literal["float32", "bfloat16"]
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class ChatSetting(ModelSetting):
    """A model that is asked over HTTP."""

    logprobs: int = 20
    max_new_tokens: int = 0
    reply_tries: int = 3
    max_in_flight: int = 64
    per_minute: int = 0
    timeout: float = 120.0
    connect_timeout: float = 10.0
    tries: int = 6
    min_pixels: int = 0
    max_pixels: int = 1_310_720


@dataclass(frozen=True, kw_only=True)
class EndpointSetting(ChatSetting):
    """A model behind an endpoint that runs already. model: its name there."""

    base_url: str
    api_key_env: str = NO_KEY

    def key(self) -> str | None:
        """The API key, from the environment; None where none is wanted. ParamsError where it is wanted and not set."""
        return key_from(self.api_key_env, self.model)


@dataclass(frozen=True, kw_only=True)
class ServedSetting(ChatSetting):
    """A model that is served on this machine as long as it is asked. model: its folder."""

    dtype: Literal["float32", "bfloat16"]
    batch_size: int


Setting = MeasuresSetting | TransformersSetting | EndpointSetting | ServedSetting
BACKENDS: dict[str, type] = {
    "endpoint": EndpointSetting,
    "measures": MeasuresSetting,
    "served": ServedSetting,
    "transformers": TransformersSetting,
}


def read_setting(where: str, given: Mapping[str, Any]) -> Setting:
    """The setting at `where` (judges.<name>) by its `backend`. ParamsError names the field that is wrong."""
    if not isinstance(given, Mapping):
        raise ParamsError(f"{where} must have fields, `backend` among them, not {given!r}")
    if given.get("backend") not in list(BACKENDS):
        raise ParamsError(f"{where}: unknown judge backend {given.get('backend')!r}; known: {', '.join(BACKENDS)}")
    if not isinstance(given.get("arena", False), bool):
        raise ParamsError(f"{where}.arena must be true or false, not {given['arena']!r}")
    values = {name: value for name, value in given.items() if name not in ("backend", "arena")}
    for name, kind in (("price", Price), ("budget", Budget)):
        if name in values:
            values[name] = read_fields(f"{where}.{name}", kind, values[name], RANGES)
    setting = read_fields(where, BACKENDS[given["backend"]], values, RANGES)
    if isinstance(setting, ModelSetting):
        _check_model(where, setting)
    if isinstance(setting, ChatSetting) and 0 < setting.max_pixels < setting.min_pixels:
        raise ParamsError(f"{where}.min_pixels is {setting.min_pixels}, above max_pixels, {setting.max_pixels}")
    if isinstance(setting, EndpointSetting):
        check_url(where, setting.base_url)
        setting.key()
    return setting


def _check_model(where: str, setting: ModelSetting) -> None:
    known = [*STYLES, *POINTWISE]
    if setting.prompt not in known:
        raise ParamsError(f"{where}.prompt is {setting.prompt!r}; known: {', '.join(known)}")
    if setting.passes > 1 and setting.temperature == 0:
        raise ParamsError(f"{where}.temperature must be above 0 for {setting.passes} passes: they would all be equal")
    if setting.budget.money and setting.price == Price():
        raise ParamsError(f"{where}.price is missing: a budget of money needs it")
