"""Settings of chat models: which model, where it runs, how it samples, what it may cost.

Judges, raters, parsers, grounders and captioners have a model. docs/judges.md has a table of the fields."""

import os
from dataclasses import field
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Count, FileName, Flag, ModelName, Positive, Real, Text, Wrong
from editjudge.models.endpoint.spending import Budget, Price

NONE = "none"  # no adapter
Named = TypeVar("Named", bound=str)
NO_KEY = "none"  # the name of the environment variable of an endpoint that wants no key


def key_from(variable: str, model: str) -> str | None:
    """The API key in an environment variable; None where none is wanted. ParamsError where it is wanted and not set."""
    if variable == NO_KEY:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ParamsError(f"no API key for {model}: set the environment variable {variable}")
    return key


def _check_url(base_url: str) -> str:
    wrong = ValueError("must be like http://127.0.0.1:8000/v1, without a key in it")
    try:
        url = urlsplit(base_url)
        _ = url.port
    except ValueError:  # brackets without an address, or a port above 65535
        raise wrong from None
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query or url.fragment:
        raise wrong
    return base_url


Address: TypeAlias = Annotated[Text, AfterValidator(_check_url)]
Seconds: TypeAlias = Annotated[Real, Field(ge=0.001, le=86_400)]
Tries: TypeAlias = Annotated[Positive, Field(le=100)]
BatchSize: TypeAlias = Annotated[Positive, Field(le=10_000)]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Program:
    """A program that serves the model as long as the stage asks it: a copy on each group of `gpus` GPUs, which it alone
    sees, on the port of base_url and those behind it.

    command: its words, {port} and {model} filled in. health: the path that answers 200 when it is ready. start_seconds:
    until it must be ready; stop_seconds: between SIGTERM and SIGKILL."""

    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    gpus: Annotated[Positive, Field(le=64)] = 1
    health: Text = "/health"
    start_seconds: Seconds = 1800.0
    stop_seconds: Seconds = 15.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ChatModelSetting:
    """What all chat models share: how they sample, how often they are asked, and for how much.

    temperature: above 0 replies are sampled, of the top_k likeliest tokens (0: of all) from those that have top_p of
    the probability. passes: replies to each question, of which the majority decides; more than one need a temperature.
    reply_tries: replies to a question until one can be read; the second and later ones are sampled. seed: of the first
    pass; the next ones count on. min_pixels, max_pixels: images are resized to between these; 0: the checkpoint's, or
    no limit for what is sent over HTTP. max_new_tokens: that a reply may take, thinking included; 0: what the prompt
    needs."""

    model: Text
    temperature: Annotated[Real, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[Real, Field(gt=0, le=1)] = 1.0
    top_k: Count = 0
    passes: Annotated[Positive, Field(le=1000)] = 1
    reply_tries: Tries = 1
    seed: Count = 0
    price: Price = field(default_factory=Price)
    budget: Budget = field(default_factory=Budget)
    min_pixels: Count = 0
    max_pixels: Count = 0
    max_new_tokens: Count = 0

    def __post_init__(self) -> None:
        if self.passes > 1 and self.temperature == 0:
            raise Wrong("temperature", f"must be above 0 for {self.passes} passes: they would all be equal")
        if self.budget.money and self.price == Price():
            raise Wrong("price", "is missing: a budget of money needs it")
        if 0 < self.max_pixels < self.min_pixels:
            raise Wrong("min_pixels", f"is {self.min_pixels}, above max_pixels, {self.max_pixels}")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LocalSetting(ChatModelSetting):
    """A model on this machine. model: its folder or hub id. adapter: the folder of its LoRA adapter, or none. dtype: of
    its weights. batch_size: chats at a time. enable_thinking: false is told to the chat template, where that of a
    reasoning model asks.

    workers: processes that run the model by transformers, on the GPUs in turn; 0: one on each GPU, or without GPUs one
    on each core. A served model ignores it, so that an entry can change its backend alone."""

    model: ModelName
    adapter: FileName = NONE
    enable_thinking: Flag = True
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: BatchSize = 32
    workers: Count = 1

    @property
    def lora(self) -> str | None:
        """The adapter's folder."""
        return None if self.adapter == NONE else self.adapter


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TransformersSetting(LocalSetting):
    """A model in this process."""

    backend: Literal["transformers"] = "transformers"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class HttpSetting(ChatModelSetting):
    """A model that is asked over HTTP.

    logprobs: how many likeliest tokens are asked for, where confidence is read; 0: none. max_in_flight: requests at a
    time. per_minute: requests; 0: no limit. timeout: seconds of one try, until the whole reply has come. tries: of a
    question that is not answered."""

    logprobs: Annotated[Count, Field(le=20)] = 20
    reply_tries: Tries = 3
    max_in_flight: Annotated[Positive, Field(le=10_000)] = 64
    per_minute: Count = 0
    timeout: Seconds = 120.0
    tries: Tries = 6
    max_pixels: Count = 1_310_720


@dataclass(frozen=True, kw_only=True, config=FORBID)
class EndpointSetting(HttpSetting):
    """A model behind an endpoint that runs already. model: its name there. base_url: such as https://api.openai.com/v1.
    api_key_env: the environment variable with the key, or none. reasoning_effort: how long it shall think;
    default: nothing is sent."""

    backend: Literal["endpoint"] = "endpoint"
    base_url: Address
    api_key_env: Text = NO_KEY
    reasoning_effort: Literal["default", "none", "minimal", "low", "medium", "high", "xhigh"] = "default"

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self.key()
        except ParamsError as error:
            raise Wrong("api_key_env", f"gives {error}") from None

    def key(self) -> str | None:
        """The API key, from the environment; None where none is wanted. ParamsError where it is wanted and not set."""
        return key_from(self.api_key_env, self.model)


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ServedSetting(LocalSetting, HttpSetting):
    """A model that is served as long as it is asked. Its own processor bounds the pixels."""

    backend: Literal["served"] = "served"
    reply_tries: Tries = 3  # HttpSetting's: the other base's would stand before it
    max_pixels: Count = 0


@dataclass(frozen=True, config=FORBID)
class BuiltInSetting(Generic[Named]):
    """A backend that needs no model: nothing to be set."""

    backend: Named


@dataclass(frozen=True, kw_only=True, config=FORBID)
class EmbeddedSetting(BuiltInSetting[Literal["embedded"]]):
    """The record's own labels and boxes."""

    backend: Literal["embedded"] = "embedded"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class InquirySetting(EndpointSetting):
    """A model behind an endpoint that answers inquiries in words (forms.Inquiry), one reply each."""

    passes: Literal[1] = 1
    logprobs: Literal[0] = 0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ServedInquirySetting(ServedSetting):
    """A model that is asked so, and served as long as a stage asks it."""

    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    passes: Literal[1] = 1
    logprobs: Literal[0] = 0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LocalInquirySetting(TransformersSetting):
    """A model on this machine that is asked so."""

    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    batch_size: BatchSize = 8
    passes: Literal[1] = 1
    reply_tries: Tries = 3
    max_pixels: Count = 1_310_720


AnyInquirySetting: TypeAlias = InquirySetting | ServedInquirySetting | LocalInquirySetting
AnyModelSetting: TypeAlias = Annotated[
    TransformersSetting | EndpointSetting | ServedSetting, Field(discriminator="backend")
]
