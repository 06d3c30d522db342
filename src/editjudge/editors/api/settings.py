"""What `editors` of params.yaml says of an editing model behind an OpenAI-compatible images/edits endpoint."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Amount, Count, Flag, Real, Text, Wrong
from editjudge.editors.asked import Ask
from editjudge.models.chat.settings import NO_KEY, Address, Seconds, Tries, key_from

Plain: TypeAlias = str | bool | int | float
# Fields of a request that no entry may give: an edit's own, and what would change the form of the answer.
OURS = frozenset({"image", "image[]", "mask", "prompt", "model", "n", "stream", "partial_images", "seed"})


def _argument(value: Any) -> Any:
    if not isinstance(value, Plain):
        raise ValueError(f"must be a text, a number, true or false, not {value!r}")
    return value


def _name(name: Any) -> Any:
    if name in OURS:
        raise ValueError("cannot be given: every request has its own, and asks for one image")
    return name


Arguments: TypeAlias = Mapping[Annotated[Text, BeforeValidator(_name)], Annotated[Any, BeforeValidator(_argument)]]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ImageBudget:
    """The most that one run may ask for; 0: no limit. images: requests that may cost something, one image each.

    money: at the entry's price an image.
    """

    images: Count = 0
    money: Amount = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ApiSetting:
    """An editing model behind an API.

    base_url, model: such as https://api.openai.com/v1 and gpt-image-1.5. api_key_env: the environment variable with the
    key. data, benchmark: more fields of a request for the pools and for the arena, such as size and quality. send_seed:
    whether each request has its record's seed. per_minute: requests; 0: no limit. timeout, connect_timeout: seconds of
    one try. megabytes: of an image that comes. price: money an image. ask: 1 to 5, the quality that is asked for in
    words, of an editor trained with them.
    """

    kind: Literal["api"] = "api"
    base_url: Address
    model: Text
    seed: Annotated[Count, Field(le=2**63 - 1)]
    api_key_env: Text = NO_KEY
    data: Arguments = field(default_factory=dict)
    benchmark: Arguments = field(default_factory=dict)
    send_seed: Flag = False
    per_minute: Count = 0
    max_in_flight: Annotated[Count, Field(ge=1, le=1000)] = 4
    timeout: Seconds = 300.0
    connect_timeout: Seconds = 10.0
    tries: Tries = 6
    megabytes: Annotated[Real, Field(ge=0.001, le=1000)] = 32.0
    price: Amount = 0.0
    budget: ImageBudget = field(default_factory=ImageBudget)
    ask: Ask | None = None

    def __post_init__(self) -> None:
        if self.budget.money and not self.price:
            raise Wrong("price", "is missing: a budget of money needs it")

    def key(self) -> str | None:
        """The API key, from the environment; None where none is wanted. ParamsError where it is wanted and not set."""
        return key_from(self.api_key_env, self.model)

    def arguments(self, use: Literal["data", "benchmark"]) -> Mapping[str, Plain]:
        return self.data if use == "data" else self.benchmark

    def decides(self, use: Literal["data", "benchmark"]) -> dict[str, Any]:
        """What an image depends on: not how the endpoint is reached, waits, price or budget."""
        more = {"seed": self.seed} if self.send_seed else {}
        more |= {} if self.ask is None else {"ask": self.ask}
        return {"kind": self.kind, "model": self.model, "arguments": dict(self.arguments(use))} | more
