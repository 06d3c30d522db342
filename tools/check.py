"""Reads all of params.yaml and every recipe, and lists everything that is wrong: before DVC deletes any output.

Checked are also the files and folders that params.yaml names, unless a stage of dvc.yaml makes them, the environment
variables with keys, whether dvc.lock has lost stages that git's HEAD has, and whether dvc.yaml's lists are those of
params.yaml. Nothing is loaded: whether a model fits, its stage says."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import TypeAdapter, ValidationError, with_config
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from editjudge.benchmarks.preferences.item import BenchmarkSetting
from editjudge.benchmarks.suites import forms as suites
from editjudge.core import hub, params
from editjudge.core.errors import UserError
from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, MODEL, Names, Text, fields, known, line_of, members
from editjudge.editors.settings import ApiSetting, Editors
from editjudge.engine.unfinished import Shares
from editjudge.engine.workers import Kind
from editjudge.grounding.settings import GroundingSetting
from editjudge.judges import rubrics
from editjudge.judges.scorers.questions import ScorerPrompt
from editjudge.judges.settings import JudgeSetting, RaterSetting, ScorerEntry
from editjudge.judges.styles import Dimension
from editjudge.labels import tiers
from editjudge.labels.rows import AdieeSource, LabelSource
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.models.chat.settings import BuiltInSetting
from editjudge.models.serve.launch import Serving
from editjudge.photos import settings as photos
from editjudge.report.figures import ReportSetting
from editjudge.rewards.reward_settings import RewardSetting
from editjudge.sources import importing
from editjudge.sources.builtin import scenes
from editjudge.sources.settings import EmbedSetting, FilterSetting, ProbeBenchSetting, RawPairs
from editjudge.stages.graph.arena import ArenaPlan, ArenaSetting, ImportedSetting, LeaderboardSetting, read_panel
from editjudge.training.settings import CurveSetting, MergeSetting, SingleEdits, TrainJudgeSetting, TrainRaterSetting
from editjudge.vision import folders, packaged
from tools.graph import mend

T = TypeVar("T")
# What stands in the place of a file's or a model's name.
NO_FILES = ("none", "embedded", photos.GRAPH, photos.PROBE, slot_settings.GRABCUT, packaged.U2NETP)


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PairwiseSetting:
    """Section `pairwise`: who compares the candidates of tasks that VLMs judge."""

    judges: Mapping[Text, JudgeSetting]


@with_config(FORBID)
class Params(TypedDict, total=False):
    """All of params.yaml. A stage reads those sections alone that dvc.yaml names for it."""

    engine: Kind
    tasks: Mapping[Text, Text]
    photo_pool: photos.PhotoPool
    regions: photos.RegionsSetting
    instructions: photos.Instructions
    raw_pairs: RawPairs
    embed: EmbedSetting
    filter: FilterSetting
    editors: Editors
    imported: Mapping[Text, ImportedSetting]
    suites: Mapping[Text, suites.SuiteSetting]
    measures: slot_settings.SlotSetting
    pairwise: PairwiseSetting
    grounding: GroundingSetting
    train_pairs: tiers.PairsSetting
    probe_bench: ProbeBenchSetting
    gedit_bench: ArenaSetting
    train_judge: TrainJudgeSetting
    learning_curve: Mapping[Text, CurveSetting]
    merge_judge: MergeSetting
    scorer_data: Mapping[Text, LabelSource]
    train_scorer: Mapping[Text, SingleEdits]
    scorers: Mapping[Text, ScorerEntry]
    judges: Mapping[Text, JudgeSetting]
    raters: Mapping[Text, RaterSetting]
    serve: Serving
    reward_service: RewardSetting
    arena: Mapping[Dimension, Text]
    compare_models: ArenaPlan
    benchmarks: Mapping[Text, BenchmarkSetting]
    leaderboard: LeaderboardSetting
    report: ReportSetting
    unfinished: Shares


def read_what_is_right(kind: type[T], given: Mapping[str, Any]) -> tuple[T, list[str]]:
    """A tree of sections (a TypedDict) without those that are wrong, and of sections of entries without those entries.

    And a line for each mistake."""
    lines = list[str]()
    while True:
        try:
            return TypeAdapter(kind).validate_python(given), lines
        except ValidationError as error:
            for each in error.errors():
                lines.append(line_of("", kind, each))
                name, entry = (*each["loc"], None)[:2]
                section = given.get(str(name))
                of_entries = name in fields(kind) and get_origin(members(fields(kind)[str(name)].annotation)[0])
                given = {key: value for key, value in given.items() if key != name}
                if of_entries in (dict, Mapping) and isinstance(section, Mapping) and entry is not None:
                    given |= {str(name): {key: value for key, value in section.items() if str(key) != str(entry)}}


def named(where: str, setting: Any) -> Iterator[tuple[str, Literal["file", "model"], str]]:
    """Every file and model that a setting names, at any depth: its key, what it is, and its name."""
    if isinstance(setting, Mapping):
        for name, each in setting.items():
            yield from named(f"{where}.{name}" if where else str(name), each)
    elif is_dataclass(setting):
        for name, field in fields(type(setting)).items():
            key, value = f"{where}.{name}" if where else name, getattr(setting, name)
            marks = [*field.metadata, *(mark for each in get_args(field.annotation) for mark in get_args(each)[1:])]
            for mark in marks if isinstance(value, str) else ():
                if isinstance(mark, Names):
                    yield key, mark.what, value
            # In the file the fields of a judge's model stand beside the judge's own.
            yield from named(where if name == MODEL else key, value)


def wrong(values: Mapping[str, Any], made: Sequence[str]) -> list[str]:
    """A line for everything that is wrong in the parameters. made: patterns of the files that stages make."""
    tree, lines = read_what_is_right(Params, values)
    lines += [f"{name} is missing" for name in Params.__annotations__ if name not in values]
    check = Check(values, tree, made, lines)
    check.kept("", values)
    check.files()
    check.labels()
    check.across()
    return list(dict.fromkeys(lines))


class Check:
    """What files and machines say of settings, and sections of each other. values: as they are given. tree: the
    sections that are right, and of mappings the entries that are. lines: gets what is wrong."""

    def __init__(self, values: Mapping[str, Any], tree: Params, made: Sequence[str], lines: list[str]) -> None:
        self.values, self.tree, self.made, self.lines = values, tree, made, lines

    def attempt(self, where: str, work: Callable[..., Any], *args: Any) -> Any:
        """What `work` returns; None, and its lines, where it finds something wrong. where: put before other errors."""
        try:
            return work(*args)
        except ParamsError as error:
            self.lines += error.lines
        except UserError as error:
            self.lines.append(f"{where}: {error}")
        return None

    def files(self) -> None:
        """Every file or folder that is named is there, or a stage makes it; a model may be a hub id."""
        for where, what, path in named("", self.tree):
            if path not in NO_FILES and not (what == "model" and hub.is_id(path)):
                self.there(where, path)
        embed, chosen, measures = self.tree.get("embed"), self.tree.get("filter"), self.tree.get("measures")
        for task in self.tree.get("tasks", {}):
            if embed and embed.backend == "precomputed":
                self.there("embed.vectors", embed.vectors.replace("{task}", task))
            if chosen and chosen.already_selected:
                self.there("filter.already_selected", chosen.already_selected.replace("{task}", task))
        if measures and measures.faces == slot_settings.INSIGHTFACE:
            self.attempt("measures", folders.check_faces, "measures.insightface", measures.insightface)

    def there(self, where: str, path: str) -> None:
        if not Path(path).exists() and not any(re.fullmatch(pattern, path.rstrip("/")) for pattern in self.made):
            self.lines.append(f"{where}: {path} not found")

    def kept(self, where: str, node: Any) -> None:
        """No path in `node`, at any depth, lies in a folder that a stage makes: DVC deletes what is there."""
        if isinstance(node, Mapping | list):
            for name, each in node.items() if isinstance(node, Mapping) else enumerate(node):
                self.kept(f"{where}.{name}" if where else str(name), each)
        elif isinstance(node, str) and "/" in node:
            path = os.path.relpath(os.path.abspath(node))
            inside = (re.match(f"({pattern})/.", path) for pattern in self.made)
            if found := next(filter(None, inside), None):
                self.lines.append(f"{where}: {node} lies in {found[1]}, which a stage makes anew: keep it elsewhere")

    def labels(self) -> None:
        """Every recipe is right, also one in pipelines/ that no task uses. Every task has raw pairs; one that measures
        decide has thresholds for measures that are configured, and one that a VLM decides has a judge."""
        tasks = self.tree.get("tasks", {}).items()
        own = {Path(f"pipelines/{folder}/{task}.yaml"): f"tasks.{task}" for task, folder in tasks}
        for path in sorted(set(Path("pipelines").glob("[!p]*/*.yaml")) - set(own)):
            self.attempt("pipelines", load_recipe, path)
        found = [self.attempt(where, load_recipe, path) for path, where in own.items()]
        recipes: list[Recipe] = [recipe for recipe in found if recipe is not None]
        pairs, measures = self.tree.get("train_pairs"), self.tree.get("measures")
        for recipe in recipes:
            if recipe.judge is None and pairs is not None and measures is not None:
                missing = slot_settings.unconfigured(measures)
                self.attempt("train_pairs", tiers.rules_of, recipe, pairs, missing)
        if any(recipe.judge for recipe in recipes) and not (self.values.get("pairwise") or {}).get("judges"):
            self.lines.append("pairwise.judges has no judge")
        for task in self.tree.get("tasks", {}) if "raw_pairs" in self.tree else ():
            plan = self.attempt("raw_pairs", importing.plan, dict(self.values), task)
            for name, source in plan.sources.items() if plan else ():
                if source.format == importing.PROBE and task not in scenes.EDITS:
                    where = f"raw_pairs.sources.{task}.{name}"
                    self.lines.append(f"{where}: the probe set has no task {task}; {known(task, scenes.EDITS)}")

    def across(self) -> None:
        """What sections say of each other: what is embedded knows the probe's photos alone, every name is there."""
        values, lines = self.values, self.lines
        pool, regions, asked = self.tree.get("photo_pool"), self.tree.get("regions"), self.tree.get("instructions")
        if pool and regions and asked and pool.photos != photos.PROBE and asked.records == photos.GRAPH:
            for where, each in (("photo_pool.captioner", pool.captioner), ("regions.detector", regions.detector)):
                if isinstance(each, BuiltInSetting):
                    lines.append(f"{where} knows the probe's photos alone: {pool.photos} needs a model")
        for name, editor in self.tree.get("editors", {}).items():
            try:
                _ = isinstance(editor, ApiSetting) and editor.key()
            except ParamsError as error:
                lines.append(f"editors.{name}.api_key_env gives {error}")
            if editor.kind == packaged.STYLE:
                self.attempt("editors", packaged.find, f"editors.{name}", packaged.STYLE)
        names = list(values.get("suites") or {})
        for name, imported in self.tree.get("imported", {}).items():
            if imported.suite is not None and imported.suite not in names:
                lines.append(f"imported.{name}.suite: {known(imported.suite, names)}")
            if name in self.tree.get("editors", {}):
                lines.append(f"imported.{name}: `editors` has a model of this name")
        for name, suite in self.tree.get("suites", {}).items():
            self.attempt(f"suites.{name}", suites.chosen, name, suite, values.get("raters") or {})
        if not values.get("judges"):
            lines.append("judges has no judge")
        elif self.tree.get("arena"):
            self.attempt("arena", read_panel, values["arena"], values["judges"])
        for name, training in self.tree.get("train_scorer", {}).items():
            if isinstance(training, TrainRaterSetting):
                if (own := training.rubrics) not in rubrics.SETS:
                    lines.append(f"train_scorer.{name}: no rubrics {own!r}; {known(own, rubrics.SETS)}")
            else:
                self.attempt(f"train_scorer.{name}", ScorerPrompt.load, training.prompt)
            if training.data not in (values.get("scorer_data") or {}):
                lines.append(f"train_scorer.{name}.data: scorer_data has no {training.data}")
        pools = [name for name, editor in self.tree.get("editors", {}).items() if "pools" in editor.use]
        for name, source in self.tree.get("scorer_data", {}).items():
            for own in source.editors if isinstance(source, AdieeSource) else ():
                if own not in pools:
                    lines.append(f"scorer_data.{name}: {own} is no editor that edits the pools (editors.*.use)")


def cut_lock(lock: Path = Path("dvc.lock")) -> list[str]:
    """A line where dvc.lock has lost stages that git's HEAD has: DVC, when it is killed, leaves it cut, and then runs
    these stages again, having deleted what they made. None outside of git, or where HEAD has no dvc.lock."""
    said = subprocess.run(["git", "show", f"HEAD:./{lock}"], capture_output=True, check=False)
    if said.returncode:
        return []
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        had, has = (set(yaml.load(text, loader)["stages"]) for text in (said.stdout, lock.read_bytes()))
    except OSError as error:
        return [f"{lock} cannot be read ({error}): git restore {lock}"]
    except (yaml.YAMLError, LookupError, TypeError):
        return [f"{lock} cannot be read (no list of stages): git restore {lock}"]
    lost = sorted(had - has)
    shown = ", ".join(lost[:3]) + (", ..." if len(lost) > 3 else "")
    return [f"{lock} lacks {len(lost)} stages that git's HEAD has ({shown}): git restore {lock}"] if lost else []


def mistakes() -> list[str]:
    """A line for each mistake. ParamsError: params.yaml or dvc.yaml cannot be read."""
    graph_now, values = params.load(Path("dvc.yaml")), params.load()
    bodies = [entry.get("do", entry) for entry in graph_now["stages"].values()]
    listed = [out for body in bodies for kind in ("outs", "metrics", "plots") for out in body.get(kind, [])]
    outs = [out if isinstance(out, str) else next(iter(out)) for out in listed]
    made = [re.sub(r"\\\$\\\{\w+\\\}", "[^/]+", re.escape(out)) for out in outs]
    lines = [*cut_lock(), *wrong(values, made)]
    if not lines and (stale := mend(graph_now, values)):
        lines = [f"dvc.yaml: {', '.join(stale)}: not what params.yaml says; run `make graph`"]
    return lines
