"""What `judges` of params.yaml says of each judge, checked before anything is asked.

Its comments say what the fields mean; those without a default here must be given there.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core import hub
from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Amount, Count, Flag, Positive, Real, Text, Wrong, known, read_kind
from editjudge.judges.protocol import Rule
from editjudge.judges.styles import GENERAL, STYLES, TRAINED
from editjudge.judges.viescore import SCALES
from editjudge.models.endpoint.settings import NO_KEY, Address, Seconds, Tries, key_from
from editjudge.models.endpoint.spending import Budget, Price

NONE = "none"  # no adapter


def _prompt(name: str) -> str:
    if name not in (names := [*STYLES, *SCALES]):
        raise ValueError(f"is {name!r}; {known(name, names)}")
    return name


Prompt: TypeAlias = Annotated[Text, AfterValidator(_prompt)]


def _check_pixels(setting: Any) -> None:
    if 0 < setting.max_pixels < setting.min_pixels:
        raise Wrong("min_pixels", f"is {setting.min_pixels}, above max_pixels, {setting.max_pixels}")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class MeasuresSetting:
    """A judge by measures. arena: whether the judge also ranks the editing models."""

    arena: Flag = False
    rule: Rule
    tie_margin: Annotated[Real, Field(ge=0, le=0.5)] = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ScorerSetting(MeasuresSetting):
    """A scorer of section `scorers`. dimension: by which of its own it answers about one that it has not; its overall
    score where none is named. score_margin: scores that differ by at most so much, in its unit, are a Tie.
    """

    scorer: Text
    dimension: Text | None = None
    score_margin: Amount = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ModelSetting(MeasuresSetting):
    """What all models share: how they are asked, how often, and for how much."""

    model: Text
    prompt: Prompt = TRAINED
    score_margin: Annotated[Real, Field(ge=0, le=10)] = 0.0
    temperature: Annotated[Real, Field(ge=0, le=2)] = 0.0
    passes: Annotated[Positive, Field(le=1000)] = 1
    reply_tries: Tries = 1
    seed: Count = 0
    price: Price = field(default_factory=Price)
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        if self.passes > 1 and self.temperature == 0:
            raise Wrong("temperature", f"must be above 0 for {self.passes} passes: they would all be equal")
        if self.budget.money and self.price == Price():
            raise Wrong("price", "is missing: a budget of money needs it")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class LocalSetting(ModelSetting):
    """A model on this machine. model: its folder or hub id. adapter: the folder of a LoRA adapter of it, or none.

    workers: processes in which transformers has it, on the GPUs in turn; 0: one on each, or on each core without any. A
    served one is not asked so: its entry can change its backend alone.
    """

    adapter: Text = NONE
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: Annotated[Positive, Field(le=10_000)] = 32
    workers: Count = 1

    @property
    def lora(self) -> str | None:
        """The adapter's folder."""
        return None if self.adapter == NONE else self.adapter


@dataclass(frozen=True, kw_only=True, config=FORBID)
class TransformersSetting(LocalSetting):
    """A model in this process. min_pixels, max_pixels: images are resized to between these; 0: the checkpoint's."""

    min_pixels: Count = 0
    max_pixels: Count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_pixels(self)


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ChatSetting(ModelSetting):
    """A model that is asked over HTTP."""

    logprobs: Annotated[Count, Field(le=20)] = 20
    max_new_tokens: Count = 0
    reply_tries: Tries = 3
    max_in_flight: Annotated[Positive, Field(le=10_000)] = 64
    per_minute: Count = 0
    timeout: Seconds = 120.0
    connect_timeout: Seconds = 10.0
    tries: Tries = 6
    min_pixels: Count = 0
    max_pixels: Count = 1_310_720

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_pixels(self)


@dataclass(frozen=True, kw_only=True, config=FORBID)
class EndpointSetting(ChatSetting):
    """A model behind an endpoint that runs already. model: its name there."""

    base_url: Address
    prompt: Prompt = GENERAL
    api_key_env: Text = NO_KEY

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
class ServedSetting(LocalSetting, ChatSetting):
    """A model that is served as long as it is asked. Its own processor bounds the pixels."""

    max_pixels: Count = 0


Setting = MeasuresSetting | ScorerSetting | TransformersSetting | EndpointSetting | ServedSetting
BACKENDS: dict[str, type] = {"endpoint": EndpointSetting, "measures": MeasuresSetting, "scorer": ScorerSetting}
BACKENDS |= {"served": ServedSetting, "transformers": TransformersSetting}


def read_setting(where: str, given: Any) -> Setting:
    """The setting at `where` (judges.<name>) by its `backend`. ParamsError names the field that is wrong.

    A model of the hub has not been trained here: it is asked as general models are, unless a prompt is given.
    """
    if isinstance(given, Mapping) and isinstance(model := given.get("model"), str) and hub.is_id(model):
        given = {"prompt": GENERAL, **given}
    setting: Setting = read_kind(where, "backend", BACKENDS, given)
    return setting
