"""Sections `embed` and `filter` of params.yaml."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Count, Positive, Text


@dataclass(frozen=True, kw_only=True, config=FORBID)
class EmbedSetting:
    """Section `embed` of params.yaml, whose comments say what the fields mean."""

    backend: Literal["embedded", "qwen3_vl", "precomputed"]
    dtype: Literal["float16", "float32"]
    shard: Positive
    model: Text
    model_dtype: Literal["bfloat16", "float32"]
    batch_size: Positive
    vectors: Text


def _named(quotas: Any) -> Any:
    """Names of sources that are numbers, as texts."""
    return {str(name): most for name, most in quotas.items()} if isinstance(quotas, dict) else quotas or {}


@dataclass(frozen=True, kw_only=True, config=FORBID)
class FilterSetting:
    """Section `filter` of params.yaml. quotas: source: the most pairs kept of it."""

    sample_num: Positive
    start: Literal["first", "farthest_from_mean", "seeded"]
    seed: Count
    random_draws: Positive
    device: Annotated[Text, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]
    quotas: Annotated[Mapping[Text, Count], BeforeValidator(_named)] = field(default_factory=dict)
    already_selected: Text | None = None
