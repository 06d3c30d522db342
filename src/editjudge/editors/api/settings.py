"""What `editors` of params.yaml says of an editing model behind an OpenAI-compatible images/edits endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from editjudge.core.fields import Ranges, read_fields
from editjudge.core.params import ParamsError
from editjudge.endpoints.client import NO_KEY, check_url, key_from

Plain: TypeAlias = str | bool | int | float
RANGES: Ranges = {
    "seed": (0, 2**63 - 1),
    "max_in_flight": (1, 1000),
    "timeout": (0.001, 86_400),
    "connect_timeout": (0.001, 86_400),
    "tries": (1, 100),
    "megabytes": (0.001, 1000),
}
# Fields of a request that no entry may give: an edit's own, and what would change the form of the answer.
OURS = frozenset({"image", "image[]", "mask", "prompt", "model", "n", "stream", "partial_images", "seed"})


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that one run may ask for; 0: no limit. images: requests that may cost something, one image each.

    money: at the entry's price an image.
    """

    images: int = 0
    money: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ApiSetting:
    """An editing model behind an API. The comments of params.yaml say what the fields mean."""

    kind: Literal["api"] = "api"
    base_url: str
    model: str
    seed: int
    api_key_env: str = NO_KEY
    data: Mapping[str, Plain] = field(default_factory=dict)
    benchmark: Mapping[str, Plain] = field(default_factory=dict)
    send_seed: bool = False
    per_minute: int = 0
    max_in_flight: int = 4
    timeout: float = 300.0
    connect_timeout: float = 10.0
    tries: int = 6
    megabytes: float = 32.0
    price: float = 0.0
    budget: Budget = field(default_factory=Budget)

    def key(self) -> str | None:
        """The API key, from the environment; None where none is wanted. ParamsError where it is wanted and not set."""
        return key_from(self.api_key_env, self.model)

    def arguments(self, use: Literal["data", "benchmark"]) -> Mapping[str, Plain]:
        """The extra fields of a request for this use."""
        return self.data if use == "data" else self.benchmark

    def decides(self, use: Literal["data", "benchmark"]) -> dict[str, Any]:
        """All of the setting that an image depends on, for the name of its record.

        Not how the endpoint is reached, waits, price or budget: raising a budget makes no image again.
        """
        seed = {"seed": self.seed} if self.send_seed else {}
        return {"kind": self.kind, "model": self.model, "arguments": dict(self.arguments(use))} | seed


def read(where: str, given: Mapping[str, Any]) -> ApiSetting:
    """The setting of the section `where` of params.yaml. ParamsError names the field that is wrong."""
    if not isinstance(given, Mapping):
        raise ParamsError(f"{where} must have the fields of an editing model, not {given!r}")
    parts = dict(given)
    for use in ("data", "benchmark"):
        parts[use] = _arguments(f"{where}.{use}", given.get(use, {}))
    if "budget" in given:
        parts["budget"] = read_fields(f"{where}.budget", Budget, given["budget"], RANGES)
    setting: ApiSetting = read_fields(where, ApiSetting, parts, RANGES)
    check_url(where, setting.base_url)
    if setting.budget.money and not setting.price:
        raise ParamsError(f"{where}.price is missing: a budget of money needs it")
    return setting


def _arguments(where: str, given: Any) -> dict[str, Plain]:
    if not isinstance(given, Mapping):
        raise ParamsError(f"{where} must have fields of the request, such as size: 1024x1024, not {given!r}")
    for name, value in given.items():
        if name in OURS:
            raise ParamsError(f"{where}.{name} cannot be given: every request has its own, and asks for one image")
        if not isinstance(name, str) or not isinstance(value, Plain):
            raise ParamsError(f"{where}.{name} must be a text, a number, true or false, not {value!r}")
    return dict(given)
