"""All of params.yaml as one tree: the class of settings of every section."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, TypeAlias

from pydantic import PlainValidator
from pydantic.dataclasses import dataclass

from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.suites.forms import SuiteSetting
from editjudge.core.settings import FORBID, Text
from editjudge.editors.settings import Editors
from editjudge.engine.unfinished import Shares
from editjudge.grounding.settings import GroundingSetting
from editjudge.judges import settings as judges
from editjudge.judges.scorers.settings import ScorerEntry
from editjudge.judges.styles import Dimension
from editjudge.labels.data_settings import LabelSource
from editjudge.labels.rules import PairsSetting
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.serve.launch import Serving
from editjudge.photos import settings as photos
from editjudge.report.settings import ReportSetting
from editjudge.rewards.reward_settings import RewardSetting
from editjudge.sources.builtin.settings import MeasureResponseSetting, ProbeBenchSetting
from editjudge.sources.selection.settings import EmbedSetting, FilterSetting
from editjudge.sources.settings import RawPairs
from editjudge.stages.graph.arena import ArenaPlan, ArenaSetting, ImportedSetting, LeaderboardSetting
from editjudge.training.settings import CurveSetting, MergeSetting, TrainJudgeSetting, read_training


def _by(reader: Callable[[str, Any], Any]) -> PlainValidator:
    """Reads a value by a function of its key and itself."""
    return PlainValidator(lambda given: reader("", given))


Judge: TypeAlias = Annotated[Any, _by(judges.read_setting)]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PairwiseSetting:
    """Section `pairwise`: who compares the candidates of tasks that VLMs judge."""

    judges: Mapping[Text, Judge]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Params:
    """params.yaml. Sections are read one by one: a stage needs those alone that dvc.yaml names for it."""

    tasks: Mapping[Text, Text]
    photo_pool: photos.PhotoPool
    regions: photos.RegionsSetting
    instructions: photos.Instructions
    raw_pairs: RawPairs
    embed: EmbedSetting
    filter: FilterSetting
    editors: Editors
    imported: Mapping[Text, ImportedSetting]
    suites: Mapping[Text, SuiteSetting]
    measures: SlotSetting
    pairwise: PairwiseSetting
    grounding: GroundingSetting
    train_pairs: PairsSetting
    measure_response: MeasureResponseSetting
    probe_bench: ProbeBenchSetting
    gedit_bench: ArenaSetting
    train_judge: TrainJudgeSetting
    learning_curve: Mapping[Text, CurveSetting]
    merge_judge: MergeSetting
    scorer_data: Mapping[Text, LabelSource]
    train_scorer: Mapping[Text, Annotated[Any, _by(read_training)]]
    scorers: Mapping[Text, ScorerEntry]
    judges: Mapping[Text, Judge]
    raters: Mapping[Text, Annotated[Any, _by(judges.read_rater)]]
    serve: Serving
    reward_service: RewardSetting
    arena: Mapping[Dimension, Text]
    compare_models: ArenaPlan
    benchmarks: Mapping[Text, Annotated[Any, _by(forms.read_setting)]]
    leaderboard: LeaderboardSetting
    report: ReportSetting
    unfinished: Shares


SECTIONS: dict[str, Any] = {field.name: field.type for field in fields(Params)}
