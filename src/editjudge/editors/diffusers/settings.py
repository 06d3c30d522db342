"""What `editors` of params.yaml says of an editing model that diffusers runs, checked before anything is loaded.

configs/editors.yaml has an entry for each model that is known to work.
"""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, ModelName, Real, Text, Wrong
from editjudge.editors.asked import Ask

AS_PUBLISHED = "auto"
# Arguments that no entry may give: an edit's own, and what would change the form of the answer.
OURS = frozenset(
    {"prompt", "prompt_2", "image", "generator", "width", "height", "max_area", "output_type", "return_dict",
     "num_images_per_prompt"}
)  # fmt: skip


def _argument(value: Any) -> Any:
    """Whether the pipeline has the argument, `check` says."""
    plain = isinstance(value, str | int | float)
    if isinstance(value, list):
        plain = all(isinstance(each, int | float) for each in value) or all(isinstance(each, str) for each in value)
    if not plain:
        raise ValueError(f"must be a text, a number, true or false, or a list of them, not {value!r}")
    return value


def _name(name: Any) -> Any:
    if name in OURS:
        raise ValueError("cannot be given: it comes from the record or from `resolution`")
    return name


def _file(name: str) -> str:
    if not name.endswith(".safetensors"):
        raise ValueError(f"must be a .safetensors file, not {name!r}: pickled weights are not loaded")
    return name


Arguments: TypeAlias = Mapping[Annotated[Text, BeforeValidator(_name)], Annotated[Any, BeforeValidator(_argument)]]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Resolution:
    """The size, in pixels, that a source is resized to before it is edited, which is also the size of the edit.

    rule: pipeline (the source stays as it is and the pipeline chooses the edit's size), area (the source's aspect
    ratio at `pixels` pixels) or at_most (the source's own size, brought down to `pixels` where it is larger). Sides of
    area and at_most are multiples of `multiple`, rounded down: never more pixels.
    """

    rule: Literal["pipeline", "area", "at_most"] = "pipeline"
    pixels: Annotated[Count, Field(ge=4096, le=64_000_000)] = 1_048_576
    multiple: Annotated[Count, Field(ge=1, le=512)] = 16

    def size(self, width: int, height: int) -> tuple[int, int] | None:
        """The width and height at which a source of this width and height is edited; None: the pipeline chooses."""
        if self.rule == "pipeline":
            return None
        scale = math.sqrt(self.pixels / (width * height))
        scale = min(scale, 1.0) if self.rule == "at_most" else scale
        wide, high = (max(math.floor(side * scale / self.multiple + 1e-6), 1) for side in (width, height))
        return wide * self.multiple, high * self.multiple


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Lora:
    """A LoRA on top of the model. model: a local folder or a hub id. file: its weights there, .safetensors.

    weight: how strongly it acts, 1.0 being as trained.
    """

    model: Text
    file: Annotated[Text, AfterValidator(_file)]
    weight: Annotated[Real, Field(ge=-10, le=10)] = 1.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class DiffusersSetting:
    """An editing model. The comments of configs/editors.yaml say what the fields mean."""

    kind: Literal["diffusers"] = "diffusers"
    model: ModelName
    seed: Annotated[Count, Field(le=2**63 - 1)]
    data: Arguments
    benchmark: Arguments
    pipeline: Text = AS_PUBLISHED
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    resolution: Resolution = field(default_factory=Resolution)
    lora: Lora | None = None
    offload: Literal["none", "model", "sequential"] = "none"
    gpus_per_worker: Annotated[Count, Field(ge=1, le=64)] = 1
    timeout: Annotated[Real, Field(ge=0.1)] = 3600.0
    ask: Ask | None = None

    def __post_init__(self) -> None:
        if self.gpus_per_worker > 1 and self.offload != "none":
            raise Wrong("offload", "must be none where gpus_per_worker is more than 1: the model is spread")
