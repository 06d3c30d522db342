"""Sections `embed` and `filter` of params.yaml."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, ModelName, Positive, Text


@dataclass(frozen=True, kw_only=True, config=FORBID)
class EmbedSetting:
    """Section `embed` of params.yaml.

    model: a folder or hub id, of backend qwen3_vl; model_dtype: of its weights; batch_size: pairs that a process embeds
    at a time. dtype: of the stored vectors. shard: pairs that are embedded and kept together. vectors: of backend
    precomputed, a .npy file in the pool's order or a .parquet file with key and embedding.
    """

    backend: Literal["embedded", "qwen3_vl", "precomputed"]
    model: ModelName
    batch_size: Positive
    dtype: Literal["float16", "float32"] = "float32"
    shard: Positive = 1024
    model_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    vectors: Text = "data/vectors/{task}.npy"


def _named(quotas: Any) -> Any:
    """Names of sources that are numbers, as texts."""
    return {str(name): most for name, most in quotas.items()} if isinstance(quotas, dict) else quotas or {}


@dataclass(frozen=True, kw_only=True, config=FORBID)
class FilterSetting:
    """Section `filter` of params.yaml.

    sample_num: pairs kept of each task. start: the first centre. seed: of start: seeded, and of the random choices.
    random_draws: random choices that the coverage is compared with. device: auto takes a GPU where there is one and the
    pool is large. quotas: source: the most pairs kept of it. already_selected: a .npy file of vectors that the choice
    keeps away from, such as data/vectors/{task}.npy.
    """

    sample_num: Positive
    start: Literal["first", "farthest_from_mean", "seeded"]
    seed: Count
    random_draws: Positive = 5
    device: Annotated[Text, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    quotas: Annotated[Mapping[Text, Count], BeforeValidator(_named)] = field(default_factory=dict)
    already_selected: Text | None = None
