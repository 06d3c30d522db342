"""The table `editors` of params.yaml: an entry for each editing model, of a class that its `kind` chooses.

configs/editors.yaml has an entry for each model that is known to work. Read without torch, diffusers or aiohttp."""

from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core import params
from editjudge.core.keys import FILE_NAME
from editjudge.core.settings import FORBID, Amount, Count, FileName, Flag, ModelName, Real, Text, Whole, Wrong
from editjudge.core.settings import read as read_setting
from editjudge.models.chat.settings import NO_KEY, Address, Program, Seconds, Tries, key_from

AS_PUBLISHED = "auto"  # in place of the name of a pipeline's class: the one that the model's own files name
_NAMES: dict[str, list[str]] = params.load(Path(__file__).with_name("names.yaml"))
RUNNING = frozenset(_NAMES["running"])
Api: TypeAlias = Literal["openai", "gemini", "chat_images", "seedream", "bfl", "fal", "replicate", "dashscope"]
CHOOSES_FIELD = ("bfl", "fal", "replicate", "seedream")  # whose models name the source's field themselves
BEFORE = {"ask": None, "api": "openai", "image_field": None}  # what fields are where an entry does not give them
Seed: TypeAlias = Annotated[Count, Field(le=2**63 - 1)]
Ask: TypeAlias = Annotated[Whole, Field(ge=1, le=5)]
Use: TypeAlias = Literal["pools", "benchmark"]  # training prompts; the arena's prompts and the suites' cases
USES: tuple[Use, ...] = ("pools", "benchmark")
Uses: TypeAlias = Annotated[tuple[Use, ...], Field(min_length=1)]


def _plain(why: str, lists: bool, *ours: str) -> AfterValidator:
    """Checks arguments that an entry gives: none of `ours`, for the reason `why`, and plain values (`lists`, too)."""

    def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
        for name, value in given.items():
            if name in ours:
                raise Wrong(name, f"cannot be given: {why}")
            of_one_kind = any(
                isinstance(value, list) and all(isinstance(each, kind) for each in value) for kind in (str, int | float)
            )
            if not (isinstance(value, str | int | float) or (lists and of_one_kind)):
                plain = f"a text, a number, true or false{', or a list of them' if lists else ''}"
                raise Wrong(name, f"must be {plain}, not {value!r}")
        return given

    return AfterValidator(check)


PipelineArguments: TypeAlias = Annotated[
    Mapping[Text, Any],
    _plain("it comes from the record or from `resolution`", True, *_NAMES["pipeline"]),
]
ApiArguments: TypeAlias = Annotated[
    Mapping[Text, Any],
    _plain("every request has its own, and asks for one image", False, *_NAMES["api"]),
]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ProceduralSetting:
    """An embedded editor. kind: how it works; its name, where that is one of these. amount: the damage it aims at, mean
    ΔE outside the edit, 0 or more. workers: processes; 0: one on each core. timeout: seconds that one edit may take.
    use: of training prompts (pools), and of the arena's prompts and the suites' cases (benchmark)."""

    kind: Literal["precise", "box", "leaky", "regenerated", "shifted", "style_transfer", "unedited"]
    amount: Amount = 0.0
    seed: Count
    workers: Count = 0
    timeout: Annotated[Real, Field(ge=0.1)] = 600.0
    use: Uses = USES


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Resolution:
    """The size, in pixels, that a source is resized to before it is edited, which is also the size of the edit.

    rule: pipeline (the source stays as it is and the pipeline chooses the edit's size), area (the source's aspect
    ratio at `pixels` pixels) or at_most (the source's own size, brought down to `pixels` where it is larger). Sides of
    area and at_most are multiples of `multiple`, rounded down: never more pixels."""

    rule: Literal["pipeline", "area", "at_most"] = "pipeline"
    pixels: Annotated[Count, Field(ge=4096, le=64_000_000)] = 1_048_576
    multiple: Annotated[Count, Field(ge=1, le=512)] = 16


def _file(name: str) -> str:
    if not name.endswith(".safetensors"):
        raise ValueError(f"must be a .safetensors file, not {name!r}: pickled weights are not loaded")
    return name


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Lora:
    """A LoRA on top of the model. model: a local folder or a hub id. file: its weights there, .safetensors.

    weight: how strongly it acts, 1.0 being as trained."""

    model: Text
    file: Annotated[Text, AfterValidator(_file)]
    weight: Annotated[Real, Field(ge=-10, le=10)] = 1.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class DiffusersSetting:
    """An editing model that diffusers runs. The comments of configs/editors.yaml say what the fields mean."""

    kind: Literal["diffusers"] = "diffusers"
    model: ModelName
    seed: Seed
    data: PipelineArguments
    benchmark: PipelineArguments
    pipeline: Text = AS_PUBLISHED
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    resolution: Resolution = field(default_factory=Resolution)
    lora: Lora | None = None
    offload: Literal["none", "model", "sequential"] = "none"
    gpus_per_worker: Annotated[Count, Field(ge=1, le=64)] = 1
    timeout: Annotated[Real, Field(ge=0.1)] = 3600.0
    ask: Ask | None = None
    use: Uses = USES

    def __post_init__(self) -> None:
        if self.gpus_per_worker > 1 and self.offload != "none":
            raise Wrong("offload", "must be none where gpus_per_worker is more than 1: the model is spread")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ImageBudget:
    """The most that one run may ask for; 0: no limit. images: requests, one image each; money: at the entry's price."""

    images: Count = 0
    money: Amount = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ApiSetting:
    """An editing model behind the API of a provider.

    api: the form that it speaks (`editors.api.forms`). base_url, model: such as https://api.openai.com/v1 and
    gpt-image-1.5. image_field: where the source goes, `name`, or `name[]` in a list; None: as usual in the form.
    sources: the most pictures that the model makes one edit from; one made from more has failed.
    api_key_env: the environment variable with the key. data, benchmark: more fields of a request for the pools and for
    the arena, such as size and quality. send_seed: whether each request has its record's seed. per_minute: requests; 0:
    no limit. max_in_flight: at a time. timeout: seconds of one try; tries: of an image. megabytes: of an image that
    comes. price: money an image. use: of training prompts (pools), and of the arena's and the suites' (benchmark).
    ask: the quality, 1 to 5, asked for in words. server: what is started; None: it runs already."""

    kind: Literal["api"] = "api"
    base_url: Address
    model: Text
    seed: Seed
    api: Api = "openai"
    image_field: Text | None = None
    sources: Annotated[Count, Field(ge=1, le=16)] = 1
    api_key_env: Text = NO_KEY
    data: ApiArguments = field(default_factory=dict)
    benchmark: ApiArguments = field(default_factory=dict)
    send_seed: Flag = False
    per_minute: Count = 0
    max_in_flight: Annotated[Count, Field(ge=1, le=1000)] = 4
    timeout: Seconds = 300.0
    tries: Tries = 6
    megabytes: Annotated[Real, Field(ge=0.001, le=1000)] = 32.0
    price: Amount = 0.0
    budget: ImageBudget = field(default_factory=ImageBudget)
    server: Program | None = None
    ask: Ask | None = None
    use: Uses = USES

    def __post_init__(self) -> None:
        if self.budget.money and not self.price:
            raise Wrong("price", "is missing: a budget of money needs it")
        if self.image_field is not None and self.api not in CHOOSES_FIELD:
            raise Wrong("image_field", f"is for {', '.join(CHOOSES_FIELD)}: the form {self.api} has a place of its own")
        if self.sources > 1 and self.api in ("fal", "replicate") and not (self.image_field or "").endswith("[]"):
            raise Wrong("image_field", "must be a list, such as image_urls[], where `sources` is more than 1")

    @property
    def module(self) -> str:
        """Where its form is."""
        return f"editjudge.editors.api.forms.{self.api}"

    def key(self) -> str | None:
        """The API key, from the environment; None where none is wanted. ParamsError where it is wanted and not set."""
        return key_from(self.api_key_env, self.model)


@dataclass(frozen=True, kw_only=True, config=FORBID)
class FolderSetting:
    """Edits that were made elsewhere: the images are taken as they are, for pools and arena alike.

    path: a folder of images named by key, a gallery, or a table. model: its name among several.
    use: of training prompts (pools), and of the arena's and the suites' (benchmark)."""

    kind: Literal["folder"] = "folder"
    path: FileName
    model: Text | None = None
    use: Uses = USES


Making: TypeAlias = ProceduralSetting | DiffusersSetting | ApiSetting
Setting: TypeAlias = Making | FolderSetting
PROCEDURAL = get_args(get_type_hints(ProceduralSetting)["kind"])


def with_kinds(entries: Any) -> Any:
    """The entries, each embedded editor without a kind having its name as its kind."""
    if not isinstance(entries, Mapping):
        return entries
    return {
        name: {"kind": name, **entry} if name in PROCEDURAL and isinstance(entry, Mapping) else entry
        for name, entry in entries.items()
    }


Editors: TypeAlias = Annotated[
    Mapping[str, Annotated[Setting, Field(discriminator="kind")]], BeforeValidator(with_kinds)
]


def read(values: Mapping[str, Any], model: str) -> Setting:
    """The setting of one model; the other entries are not looked at. Raises ParamsError that names the field."""
    if not FILE_NAME.fullmatch(model):
        raise params.ParamsError(f"editors: a model's name has 1 to 200 of A-Z a-z 0-9 . _ -, not {model!r}")
    entries = params.leaf(values, "editors")
    if not isinstance(entries, Mapping) or model not in entries:
        raise params.ParamsError(f"params.yaml has no key 'editors.{model}'")
    return read_setting("editors", Editors, {model: entries[model]})[model]


def used(entries: Mapping[str, Any], use: Use) -> list[str]:
    """The names of the entries that are for this use."""
    return [name for name, given in entries.items() if use in ((given or {}).get("use") or USES)]


def decides(setting: Making, use: Literal["data", "benchmark"]) -> dict[str, Any]:
    """What an image for this use depends on in the setting."""
    left_out = RUNNING | {"benchmark" if use == "data" else "data", "sources"}
    if isinstance(setting, ApiSetting) and not setting.send_seed:
        left_out |= {"seed"}
    # Images that were made before there were such fields stay.
    left_out |= {name for name, old in BEFORE.items() if getattr(setting, name, old) == old}
    program = setting.server if isinstance(setting, ApiSetting) else None
    found = {name: value for name, value in asdict(setting).items() if name not in left_out}
    return found | ({"command": program.command} if program else {})
