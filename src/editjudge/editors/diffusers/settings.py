"""What `editors` of params.yaml says of an editing model that diffusers runs, checked before anything is loaded.

configs/editors.yaml has an entry for each model that is known to work.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from editjudge.core.fields import Ranges, read_fields
from editjudge.core.params import ParamsError

AS_PUBLISHED = "auto"
DEFAULT_REVISION = "main"
RANGES: Ranges = {
    "seed": (0, 2**63 - 1),
    "gpus_per_worker": (1, 64),
    "pixels": (4096, 64_000_000),
    "multiple": (1, 512),
    "timeout": (0.1, float("inf")),
    "weight": (-10, 10),
}
# Arguments that no entry may give: an edit's own, and what would change the form of the answer.
OURS = frozenset(
    {"prompt", "prompt_2", "image", "generator", "width", "height", "max_area", "output_type", "return_dict",
     "num_images_per_prompt"}
)  # fmt: skip
Number: TypeAlias = bool | int | float
Value: TypeAlias = str | Number | list[Number] | list[str]


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The size, in pixels, that a source is resized to before it is edited, which is also the size of the edit.

    rule: pipeline (the source stays as it is and the pipeline chooses the edit's size), area (the source's aspect
    ratio at `pixels` pixels) or at_most (the source's own size, brought down to `pixels` where it is larger). Sides of
    area and at_most are multiples of `multiple`, rounded down: never more pixels.
    """

    rule: Literal["pipeline", "area", "at_most"] = "pipeline"
    pixels: int = 1_048_576
    multiple: int = 16

    def size(self, width: int, height: int) -> tuple[int, int] | None:
        """The width and height at which a source of this width and height is edited; None: the pipeline chooses."""
        if self.rule == "pipeline":
            return None
        scale = math.sqrt(self.pixels / (width * height))
        scale = min(scale, 1.0) if self.rule == "at_most" else scale
        return self._floored(width * scale), self._floored(height * scale)

    def _floored(self, side: float) -> int:
        return max(math.floor(side / self.multiple + 1e-6), 1) * self.multiple


@dataclass(frozen=True, kw_only=True)
class Lora:
    """A LoRA on top of the model. model: a local folder or a hub id. file: its weights there, .safetensors.

    weight: how strongly it acts, 1.0 being as trained. revision: of the hub id.
    """

    model: str
    file: str
    revision: str = DEFAULT_REVISION
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class DiffusersSetting:
    """An editing model. The comments of configs/editors.yaml say what the fields mean."""

    kind: Literal["diffusers"] = "diffusers"
    model: str
    seed: int
    revision: str = DEFAULT_REVISION
    pipeline: str = AS_PUBLISHED
    data: Mapping[str, Value] = field(default_factory=dict)
    benchmark: Mapping[str, Value] = field(default_factory=dict)
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    resolution: Resolution = field(default_factory=Resolution)
    lora: Lora | None = None
    offload: Literal["none", "model", "sequential"] = "none"
    gpus_per_worker: int = 1
    timeout: float = 3600.0


def read(where: str, given: Mapping[str, Any]) -> DiffusersSetting:
    """The setting of the section `where` of params.yaml. ParamsError names the field that is wrong."""
    if not isinstance(given, Mapping):
        raise ParamsError(f"{where} must have the fields of an editing model, not {given!r}")
    parts = dict(given)
    for use in ("data", "benchmark"):
        parts[use] = _call(f"{where}.{use}", given.get(use))
    parts["resolution"] = read_fields(f"{where}.resolution", Resolution, given.get("resolution", {}), RANGES)
    if "lora" in given:
        parts["lora"] = _lora(f"{where}.lora", given["lora"])
    setting: DiffusersSetting = read_fields(where, DiffusersSetting, parts, RANGES)
    if setting.gpus_per_worker > 1 and setting.offload != "none":
        raise ParamsError(f"{where}.offload must be none where gpus_per_worker is more than 1: the model is spread")
    return setting


def _lora(where: str, given: Any) -> Lora:
    lora: Lora = read_fields(where, Lora, given, RANGES)
    if not lora.file.endswith(".safetensors"):
        raise ParamsError(
            f"{where}.file must be a .safetensors file, not {lora.file!r}: pickled weights are not loaded"
        )
    return lora


def _call(where: str, given: Any) -> dict[str, Value]:
    """The arguments of a pipeline's call. Whether the pipeline has them, `diffusers_check` says."""
    if not isinstance(given, Mapping):
        raise ParamsError(f"{where} must have arguments of the pipeline's call, such as num_inference_steps: 28")
    for name, value in given.items():
        if name in OURS:
            raise ParamsError(f"{where}.{name} cannot be given: it comes from the record or from `resolution`")
        if not _plain(value):
            raise ParamsError(
                f"{where}.{name} must be a text, a number, true or false, or a list of them, not {value!r}"
            )
    return dict(given)


def _plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(each, int | float) for each in value) or all(isinstance(each, str) for each in value)
    return isinstance(value, str | int | float)
