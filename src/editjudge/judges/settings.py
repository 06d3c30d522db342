"""What `judges`, `raters` and `scorers` of params.yaml say of each entry, checked before anything is asked.

A judge or rater that asks a chat model *has* a model (models.chat.settings): in the file the fields of both stand side
by side. docs/judges.md has a table of the fields."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from editjudge.core.params import ParamsError
from editjudge.core.prompts import RECORDED, RECORDED_RUBRICS
from editjudge.core.settings import FORBID, Amount, Flag, ModelName, Positive, Real, Text, Wrong, one_of, side_by_side
from editjudge.judges import styles
from editjudge.judges.protocol import Rule
from editjudge.judges.rubrics import RATERS, SETS
from editjudge.judges.styles import GENERAL, STYLES
from editjudge.models.chat.settings import AnyModelSetting, LocalSetting

MOST_RUNS = 1000
EMBEDDED = "embedded"
OF_PAIRS = ("arena", "rule", "tie_margin", "prompt", "passes", "score_margin")  # fields that raters do not have


Prompt: TypeAlias = Annotated[Text, one_of([*STYLES, *styles.PUBLISHED, *RATERS], or_file=True)]
Rubrics: TypeAlias = Annotated[Text, one_of([*SETS, *RATERS], or_file=True)]


def beside(model: AnyModelSetting, name: str) -> str | None:
    """What lies beside the weights of a model in a folder: the adapter's before the base's."""
    folders = [model.lora, model.model] if isinstance(model, LocalSetting) else []
    return next((str(path) for folder in folders if folder and (path := Path(folder, name)).exists()), None)


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ComparingSetting:
    """What all judges have. arena: whether the judge also ranks the editing models. rule: how the answers to both
    orders become a verdict: agreement, by a side that wins in both; probability, by a side's mean probability.
    tie_margin: mean probabilities nearer to 0.5 are a Tie."""

    arena: Flag = False
    rule: Rule
    tie_margin: Annotated[Real, Field(ge=0, le=0.5)] = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class MeasuresSetting(ComparingSetting):
    """A judge by measures."""

    backend: Literal["measures"] = "measures"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ScorerSetting(ComparingSetting):
    """A judge by a scorer of section `scorers`. dimension: the scorer's dimension that answers about a dimension the
    scorer does not have; without it, its overall score. score_margin: scores that differ by at most this are a Tie."""

    backend: Literal["scorer"] = "scorer"
    scorer: Text
    dimension: Text | None = None
    score_margin: Amount = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ChatJudgeSetting(ComparingSetting):
    """A judge that asks a chat model. prompt: of pairs, or a rater's, whose scores are a Tie up to score_margin; left
    out: the one that lies beside the weights, else that for general models."""

    backend: Literal["endpoint", "served", "transformers"]
    model: AnyModelSetting
    prompt: Prompt | None = None
    score_margin: Annotated[Real, Field(ge=0, le=10)] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return side_by_side(cls, given)

    def asked(self, where: str, at_hand: AnyModelSetting) -> str:
        """The prompt. at_hand: the model, in a folder if it is one of the hub."""
        return self.prompt or beside(at_hand, RECORDED) or GENERAL


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RaterSetting:
    """A rater. rubrics: a set of rubrics, viescore_10, viescore_25, or a published rater's, by its name or file; left
    out: those that lie beside the weights. runs: ratings of each edit; more than 1 need a temperature."""

    model: AnyModelSetting
    rubrics: Rubrics | None = None
    runs: Annotated[Positive, Field(le=MOST_RUNS)] = 1

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            if unknown := next((field for field in given if field in OF_PAIRS), None):
                raise Wrong(unknown, "belongs to judges that compare: a rater has none")
            runs = given.get("runs")  # a wrong one is named as `runs`
            given = {**given, "passes": runs if isinstance(runs, int) and 1 <= runs <= MOST_RUNS else 1}
        return side_by_side(cls, given)

    def asked(self, where: str, at_hand: AnyModelSetting) -> str:
        """The rubrics, as `ChatJudgeSetting.asked`. ParamsError: there are none."""
        if found := self.rubrics or beside(at_hand, RECORDED_RUBRICS):
            return found
        raise ParamsError(f"{where}.rubrics is missing, and no {RECORDED_RUBRICS} lie beside the weights")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class CheckpointSetting:
    """A trained scorer. model: its folder. dtype: of its weights. batch_size: edits at a time. device: auto takes a GPU
    where there is one."""

    kind: Literal["checkpoint"] = "checkpoint"
    model: ModelName
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: Positive = 32
    device: Text = "auto"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class FeatureSetting:
    """One of ADIEE's four baselines, see scorers/features.py.

    model: a folder or hub id, of CLIP for clip_*, of DINOv2 or DINOv3 for dino_i; or, for dino_i, `embedded`. against:
    what clip_i and dino_i compare the edit with: its source, or the true edit where the data has one.
    dtype: of its weights. batch_size: edits at a time. device: auto takes a GPU where there is one."""

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
JudgeSetting: TypeAlias = Annotated[MeasuresSetting | ScorerSetting | ChatJudgeSetting, Field(discriminator="backend")]
