"""What `judges`, `raters` and `scorers` of params.yaml say of each entry, checked before anything is asked.

A judge or rater that asks a chat model *has* a model (models.chat.settings): in the file the fields of both stand side
by side. docs/judges.md has a table of the fields."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core import hub
from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Amount, Flag, ModelName, Positive, Real, Text, Wrong, known, read_kind
from editjudge.judges.protocol import Rule
from editjudge.judges.rubrics import SCALES, SETS
from editjudge.judges.styles import GENERAL, STYLES, TRAINED
from editjudge.models.chat.settings import BACKENDS, AnyModelSetting, read_with_model

MOST_RUNS = 1000
EMBEDDED = "embedded"


def _one_of(names: list[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"is {name!r}; {known(name, names)}")
        return name

    return AfterValidator(check)


Prompt: TypeAlias = Annotated[Text, _one_of([*STYLES, *SCALES])]
Rubrics: TypeAlias = Annotated[Text, _one_of([*SETS, *SCALES])]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class MeasuresSetting:
    """A judge by measures. arena: whether the judge also ranks the editing models."""

    arena: Flag = False
    rule: Rule
    tie_margin: Annotated[Real, Field(ge=0, le=0.5)] = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ScorerSetting(MeasuresSetting):
    """A judge by a scorer of section `scorers`. dimension: the scorer's dimension that answers about a dimension the
    scorer does not have; without it, its overall score. score_margin: scores that differ by at most this are a Tie."""

    scorer: Text
    dimension: Text | None = None
    score_margin: Amount = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ChatJudgeSetting(MeasuresSetting):
    """A judge that asks a chat model. prompt: of pairs, or of VIEScore, whose scores are a Tie up to score_margin."""

    model: AnyModelSetting
    prompt: Prompt = TRAINED
    score_margin: Annotated[Real, Field(ge=0, le=10)] = 0.0


@dataclass(frozen=True, kw_only=True, config=FORBID)
class RaterSetting:
    """A rater. rubrics: a set of rubrics, or viescore_10 or viescore_25. runs: ratings of each edit; more than 1 need a
    temperature."""

    model: AnyModelSetting
    rubrics: Rubrics
    runs: Annotated[Positive, Field(le=MOST_RUNS)] = 1


@dataclass(frozen=True, kw_only=True, config=FORBID)
class CheckpointSetting:
    """A trained scorer. model: its folder. device: auto takes a GPU where there is one."""

    kind: Literal["checkpoint"] = "checkpoint"
    model: ModelName
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: Positive = 32
    device: Text = "auto"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class FeatureSetting:
    """One of ADIEE's four baselines, see scorers/features.py.

    model: a folder or hub id, of CLIP for clip_*, of DINOv2 or DINOv3 for dino_i; or, for dino_i, `embedded`. against:
    what clip_i and dino_i compare the edit with: its source, or the true edit where the data has one."""

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
JudgeSetting: TypeAlias = MeasuresSetting | ScorerSetting | ChatJudgeSetting
OF_PAIRS = ("arena", "rule", "tie_margin", "prompt", "passes", "score_margin")  # fields that raters do not have


def read_setting(where: str, given: Any) -> JudgeSetting:
    """The judge at `where` (judges.<name>) by its `backend`. ParamsError names the field that is wrong.

    A model of the hub or behind an endpoint was not trained here: its default prompt is the one for general models."""
    if isinstance(given, Mapping) and given.get("backend") in BACKENDS:
        model = given.get("model")
        if given["backend"] == "endpoint" or (isinstance(model, str) and hub.is_id(model)):
            given = {"prompt": GENERAL, **given}
        return cast(ChatJudgeSetting, read_with_model(where, ChatJudgeSetting, given, {}))
    kinds = {"measures": MeasuresSetting, "scorer": ScorerSetting, **dict.fromkeys(BACKENDS, ChatJudgeSetting)}
    return cast(JudgeSetting, read_kind(where, "backend", dict(sorted(kinds.items())), given))


def read_rater(where: str, given: Any) -> RaterSetting:
    """The rater at `where` (raters.<name>). ParamsError names the field that is wrong."""
    if not isinstance(given, Mapping):
        raise ParamsError(f"{where} must have fields of its own")
    if unknown := [field for field in given if field in OF_PAIRS]:
        raise ParamsError(f"{where}.{unknown[0]} belongs to judges that compare: a rater has none")
    if given.get("backend") not in BACKENDS:
        raise ParamsError(f"{where}.backend is {given.get('backend')!r}; known: {', '.join(BACKENDS)}")
    runs = given.get("runs")
    passes = runs if isinstance(runs, int) and 1 <= runs <= MOST_RUNS else 1  # a wrong one is named as `runs`
    return cast(RaterSetting, read_with_model(where, RaterSetting, given, {"passes": passes}))
