"""What `scorers` of params.yaml says of each scorer, checked before anything is scored."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, ModelName, Positive, Text, Wrong


@dataclass(frozen=True, kw_only=True, config=FORBID)
class CheckpointSetting:
    """A trained scorer. model: its folder. device: auto takes a GPU where there is one."""

    kind: Literal["checkpoint"] = "checkpoint"
    model: ModelName
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: Positive = 32
    device: Text = "auto"


BASELINES = ("clip_t", "clip_d", "clip_i", "dino_i")
EMBEDDED = "embedded"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class FeatureSetting:
    """One of ADIEE's four baselines, see features.py.

    model: a folder or hub id, of CLIP for clip_*, of DINOv2 or DINOv3 for dino_i; or, for dino_i, `embedded`. against:
    what clip_i and dino_i compare the edit with: its source, or the true edit where the data has one.
    """

    kind: Literal["clip_t", "clip_d", "clip_i", "dino_i"]
    model: ModelName = EMBEDDED
    against: Literal["source", "truth"] = "source"
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: Positive = 16
    device: Text = "auto"

    def __post_init__(self) -> None:
        if self.model == EMBEDDED and self.kind != "dino_i":
            raise Wrong("model", f"must name a CLIP, a folder or a hub id: none is built in for {self.kind}")
        if self.against == "truth" and self.kind not in ("clip_i", "dino_i"):
            raise Wrong("against", f"cannot be truth: {self.kind} compares an edit with words")


ScorerEntry: TypeAlias = Annotated[CheckpointSetting | FeatureSetting, Field(discriminator="kind")]
