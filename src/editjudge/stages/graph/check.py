"""Reads all of params.yaml and every recipe, and lists everything that is wrong: before DVC deletes any output.

Looked up are also the files and folders that params.yaml names, unless a stage of dvc.yaml makes them, the environment
variables with keys, whether dvc.lock has lost stages that git's HEAD has, and whether dvc.yaml's lists are those of
params.yaml. Nothing is loaded: whether a model fits, its stage says.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.suites import suite_rating
from editjudge.benchmarks.suites.forms import SuiteSetting
from editjudge.core import hub, params
from editjudge.core.errors import UserError
from editjudge.core.main import guarded
from editjudge.core.params import ParamsError
from editjudge.core.settings import known, read
from editjudge.editors import settings as editors
from editjudge.editors.api.settings import ApiSetting
from editjudge.editors.diffusers.settings import DiffusersSetting
from editjudge.editors.folder import FolderSetting
from editjudge.engine.unfinished import Shares
from editjudge.grounding.settings import DetectorSetting, read_grounding
from editjudge.judges import rubrics
from editjudge.judges import settings as judges
from editjudge.judges.scorers.prompts import load_prompt
from editjudge.judges.scorers.settings import read_setting as read_scorer
from editjudge.labels import rules
from editjudge.labels.data_settings import RatingsSource, read_source
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.chat.settings import EmbeddedSetting, LocalParserSetting, LocalSetting
from editjudge.models.serve.launch import Serving
from editjudge.photos import settings as photos
from editjudge.report.settings import ReportSetting
from editjudge.rewards.reward_settings import RewardSetting
from editjudge.sources import formats
from editjudge.sources import settings as sources
from editjudge.sources.builtin import scenes
from editjudge.sources.builtin.settings import MeasureResponseSetting, ProbeBenchSetting
from editjudge.sources.selection.settings import EmbedSetting, FilterSetting
from editjudge.stages.graph import lists as graph
from editjudge.stages.graph.arena import ArenaPlan, ArenaSetting, ImportedSetting, LeaderboardSetting, read_panel
from editjudge.training.settings import (
    CurveSetting,
    MergeSetting,
    TrainJudgeSetting,
    TrainRaterSetting,
    read_training,
)
from editjudge.vision import faces_settings

T = TypeVar("T")
SECTIONS: dict[str, Any] = {
    "embed": EmbedSetting,
    "filter": FilterSetting,
    "measures": SlotSetting,
    "train_pairs": rules.PairsSetting,
    "measure_response": MeasureResponseSetting,
    "probe_bench": ProbeBenchSetting,
    "gedit_bench": ArenaSetting,
    "train_judge": TrainJudgeSetting,
    "merge_judge": MergeSetting,
    "serve": Serving,
    "reward_service": RewardSetting,
    "compare_models": ArenaPlan,
    "leaderboard": LeaderboardSetting,
    "report": ReportSetting,
    "unfinished": Shares,
}
ENTRIES = ("tasks", "photo_pool", "regions", "instructions", "raw_pairs", "editors", "imported", "suites", "pairwise",
           "grounding", "judges", "raters", "benchmarks", "arena", "learning_curve", "scorer_data",
           "train_scorer", "scorers")  # fmt: skip


class Check:
    """What is wrong in the parameters `values`, line by line. made: patterns of the files that stages make."""

    def __init__(self, values: Mapping[str, Any], made: list[str]) -> None:
        self.values, self.made, self.lines = values, made, list[str]()

    def attempt(self, where: str, work: Callable[..., T], *args: Any) -> T | None:
        """What `work` returns; None, and its lines, where it finds something wrong. where: put before other errors."""
        try:
            return work(*args)
        except ParamsError as error:
            self.lines += error.lines
        except UserError as error:
            self.lines.append(f"{where}: {error}")
        return None

    def entries(self, where: str) -> Iterator[tuple[str, Any]]:
        """The entries of a section of names, such as `judges`."""
        node: Any = self.values
        for part in where.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        yield from (self.attempt(where, read, where, dict[str, Any], node or {}) or {}).items()

    def there(self, where: str, path: str | None, local: bool = True) -> None:
        """A file or folder that is there or that a stage makes. local: no; a hub id is right, too."""
        if path is not None and (local or not hub.is_id(path)) and not Path(path).exists() and not self._made(path):
            self.lines.append(f"{where}: {path} not found")

    def _made(self, path: str) -> bool:
        return any(re.fullmatch(pattern, path.rstrip("/")) for pattern in self.made)

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

    def all(self) -> list[str]:
        """Everything that is wrong."""
        names = [*SECTIONS, *ENTRIES]
        self.lines += [f"{name} is unknown; {known(name, names)}" for name in self.values if name not in names]
        self.lines += [f"{name} is missing" for name in names if name not in self.values]
        found = {
            name: self.attempt(name, read, name, kind, self.values[name])
            for name, kind in SECTIONS.items()
            if name in self.values
        }
        self.kept("", self.values)
        recipes = self.recipes()
        self.paths(found)
        self.thresholds(recipes, found)
        self.photographs()
        self.raw_pairs()
        self.models()
        self.judges(recipes)
        for name, given in self.entries("benchmarks"):
            setting = self.attempt("benchmarks", forms.read_setting, f"benchmarks.{name}", given)
            for field in ("path", "images", "shuffle") if setting else ():
                self.there(f"benchmarks.{name}.{field}", getattr(setting, field))
        self.suites()
        self.scorers()
        if "grounding" in self.values:
            grounding = self.attempt("grounding", read_grounding, self.values["grounding"])
            for name, role in vars(grounding).items() if grounding else ():
                if isinstance(role, LocalParserSetting | DetectorSetting):
                    self.there(f"grounding.{name}.model", role.model, local=False)
        return list(dict.fromkeys(self.lines))

    def suites(self) -> None:
        """The suites, their files, and their raters."""
        given_raters = dict(self.entries("raters"))
        for name, given in self.entries("suites"):
            where = f"suites.{name}"
            if setting := self.attempt("suites", read, where, SuiteSetting, given):
                for field in ("path", "images", "people"):
                    self.there(f"{where}.{field}", getattr(setting, field))
                self.attempt(where, suite_rating.chosen, name, setting, given_raters)
        for name, given in self.entries("imported"):
            suite = given.get("suite") if isinstance(given, Mapping) else None
            if suite is not None and suite not in (self.values.get("suites") or {}):
                self.lines.append(f"imported.{name}.suite: {known(suite, list(self.values.get('suites') or {}))}")

    def scorers(self) -> None:
        """What scorers learn from, how they are trained, and those that are used; and the judge's learning curves."""
        for name, given in self.entries("learning_curve"):
            self.attempt("learning_curve", read, f"learning_curve.{name}", CurveSetting, given)
        for name, given in self.entries("scorer_data"):
            source = self.attempt("scorer_data", read_source, f"scorer_data.{name}", given)
            for field in ("path", "images", "people", "people_images") if isinstance(source, RatingsSource) else ():
                self.there(f"scorer_data.{name}.{field}", getattr(source, field))
        for name, given in self.entries("train_scorer"):
            where = f"train_scorer.{name}"
            if training := self.attempt("train_scorer", read_training, where, given):
                self.there(f"{where}.base", training.base, local=False)
                if isinstance(training, TrainRaterSetting):
                    self.attempt(where, rubrics.folder, training.rubrics)
                else:
                    self.attempt(where, load_prompt, training.prompt)
                if training.data not in (self.values.get("scorer_data") or {}):
                    self.lines.append(f"{where}.data: scorer_data has no {training.data}")
        for name, given in self.entries("scorers"):
            self.attempt("scorers", read_scorer, f"scorers.{name}", given)

    def recipes(self) -> list[Recipe]:
        """The recipes of the tasks; those in pipelines/ that no task uses are read too."""
        own = {Path(f"pipelines/{folder}/{task}.yaml"): f"tasks.{task}" for task, folder in self.entries("tasks")}
        others = sorted(set(Path("pipelines").glob("[!p]*/*.yaml")) - set(own))
        for path in others:
            self.attempt("pipelines", load_recipe, path)
        found = [self.attempt(where, load_recipe, path) for path, where in own.items()]
        return [recipe for recipe in found if recipe is not None]

    def paths(self, found: Mapping[str, Any]) -> None:
        """What single sections name."""
        embed, chosen, measures, arena = (found.get(name) for name in ("embed", "filter", "measures", "gedit_bench"))
        for task, _ in self.entries("tasks"):
            if embed and embed.backend == "precomputed":
                self.there("embed.vectors", embed.vectors.replace("{task}", task))
            if chosen and chosen.already_selected:
                self.there("filter.already_selected", chosen.already_selected.replace("{task}", task))
        if embed and embed.backend == "qwen3_vl":
            self.there("embed.model", embed.model, local=False)
        if training := found.get("train_judge"):
            self.there("train_judge.base", training.base, local=False)
        if "arena" in self.values and self.values.get("judges"):
            self.attempt("arena", read_panel, self.values["arena"], self.values["judges"])
        if arena:
            self.there("gedit_bench.path", arena.path)
            self.there("gedit_bench.images", arena.images)
        for slot in slot_settings.torch_slots(slot_settings.SLOTS, measures) - {"faces"} if measures else ():
            self.there(f"measures.{slot}", getattr(measures, slot), local=slot == "lpips")
        if measures and measures.faces == slot_settings.INSIGHTFACE:
            self.attempt("measures", faces_settings.check_files, "measures.insightface", measures.insightface)

    def thresholds(self, recipes: list[Recipe], found: Mapping[str, Any]) -> None:
        """Every task that measures decide has thresholds for measures that are configured."""
        setting, measures = found.get("train_pairs"), found.get("measures")
        if setting is None or measures is None:
            return
        missing = slot_settings.unconfigured(measures)
        for recipe in recipes:
            if recipe.judge is None:
                self.attempt("train_pairs", rules.read_rules, recipe, setting.thresholds, missing)

    def photographs(self) -> None:
        """Photographs to raw pairs: what the three sections name."""
        readers = {"photo_pool": photos.read_pool, "regions": photos.read_regions}
        found: dict[str, Any] = {}
        for name, read_section in (readers | {"instructions": photos.read_instructions}).items():
            section = self.attempt(name, read_section, self.values[name]) if name in self.values else None
            found[name] = section
            for field, each in vars(section).items() if section else ():
                if isinstance(each, photos.MODELS):
                    self.there(f"{name}.{field}.model", each.model, local=False)
                if isinstance(each, photos.LaionSetting):
                    self.there(f"{name}.{field}.head", each.head)
            if isinstance(section, photos.PhotoPool) and section.photos != photos.PROBE:
                self.there("photo_pool.photos", section.photos)
            if isinstance(section, photos.Instructions) and section.records != photos.GRAPH:
                self.there("instructions.records", section.records)
                self.there("instructions.images", section.images)
        if all(found.values()) and len(found) == len(readers) + 1:
            self._own_photographs(**found)

    def _own_photographs(self, photo_pool: photos.PhotoPool, regions: photos.RegionsSetting, instructions: Any) -> None:
        """What is embedded knows the probe's photos alone."""
        if photo_pool.photos == photos.PROBE or instructions.records != photos.GRAPH:
            return
        for where, each in (("photo_pool.captioner", photo_pool.captioner), ("regions.detector", regions.detector)):
            if isinstance(each, EmbeddedSetting):
                self.lines.append(f"{where} knows the probe's photos alone: {photo_pool.photos} needs a model")

    def raw_pairs(self) -> None:
        """Every task has raw pairs, and their sources are there."""
        for task, _ in self.entries("tasks") if "raw_pairs" in self.values else ():
            plan = self.attempt("raw_pairs", sources.plan, dict(self.values), task, formats.FORMATS)
            for name, source in plan.sources.items() if plan else ():
                where = f"raw_pairs.sources.{task}.{name}"
                if source.format != sources.PROBE:
                    if not self._made(str(source.path)):
                        self.attempt(f"{where}.path", source.folder)
                elif task not in scenes.EDITS:
                    self.lines.append(f"{where}: the probe set has no task {task}; {known(task, scenes.EDITS)}")

    def models(self) -> None:
        """Editing models and imported galleries."""
        for name, given in self.entries("imported"):
            setting = self.attempt("imported", read, f"imported.{name}", ImportedSetting, given)
            self.there(f"imported.{name}.path", setting.path if setting else None)
            if name in (self.values.get("editors") or {}):
                self.lines.append(f"imported.{name}: `editors` has a model of this name")
        for name, _ in self.entries("editors"):
            editor = self.attempt("editors", editors.read, self.values, name)
            if isinstance(editor, ApiSetting):
                try:
                    editor.key()
                except ParamsError as error:
                    self.lines.append(f"editors.{name}.api_key_env gives {error}")
            if isinstance(editor, FolderSetting):
                self.there(f"editors.{name}.path", editor.path)
            if isinstance(editor, DiffusersSetting):
                self.there(f"editors.{name}.model", editor.model, local=False)

    def judges(self, recipes: list[Recipe]) -> None:
        """The judges, those of the tasks that a VLM judges, and the raters."""
        for where, wanted in (("judges", True), ("pairwise.judges", any(recipe.judge for recipe in recipes))):
            found = dict(self.entries(where))
            for name, given in found.items():
                setting = self.attempt(where, judges.read_setting, f"{where}.{name}", given)
                if isinstance(setting, judges.ChatJudgeSetting) and isinstance(setting.model, LocalSetting):
                    self.there(f"{where}.{name}.model", setting.model.model, local=False)
            if wanted and not found:
                self.lines.append(f"{where} has no judge")
        for name, given in self.entries("raters"):
            rater = self.attempt("raters", judges.read_rater, f"raters.{name}", given)
            if rater and isinstance(rater.model, LocalSetting):
                self.there(f"raters.{name}.model", rater.model.model, local=False)


def made_by(graph: Mapping[str, Any]) -> list[str]:
    """Patterns of what the stages of dvc.yaml make."""
    bodies = [entry.get("do", entry) for entry in graph["stages"].values()]
    listed = [out for body in bodies for kind in ("outs", "metrics", "plots") for out in body.get(kind, [])]
    outs = [out if isinstance(out, str) else next(iter(out)) for out in listed]
    return [re.sub(r"\\\$\\\{\w+\\\}", "[^/]+", re.escape(out)) for out in outs]


def lock_entries(lock: str | bytes) -> set[str]:
    """The stages in the text of a dvc.lock. ValueError: it is none."""
    try:
        value = yaml.load(lock, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return set(value["stages"])
    except (yaml.YAMLError, LookupError, TypeError) as error:
        raise ValueError("no list of stages") from error


def cut_lock(lock: Path = Path("dvc.lock")) -> list[str]:
    """A line where dvc.lock has lost stages that git's HEAD has: DVC, when it is killed, leaves it cut, and then runs
    these stages again, having deleted what they made. None outside of git, or where HEAD has no dvc.lock.
    """
    said = subprocess.run(["git", "show", f"HEAD:./{lock}"], capture_output=True, check=False)
    if said.returncode:
        return []
    try:
        lost = sorted(lock_entries(said.stdout) - lock_entries(lock.read_bytes()))
    except (OSError, ValueError) as error:
        return [f"{lock} cannot be read ({error}): git restore {lock}"]
    named = ", ".join(lost[:3]) + (", ..." if len(lost) > 3 else "")
    return [f"{lock} lacks {len(lost)} stages that git's HEAD has ({named}): git restore {lock}"] if lost else []


def run() -> None:
    """Ends with status 1 after a line for each mistake."""
    graph_now, values = params.load(Path("dvc.yaml")), params.load()
    lines = [*cut_lock(), *Check(values, made_by(graph_now)).all()]
    if not lines and (stale := graph.mend(graph_now, values)):
        lines = [f"dvc.yaml: {', '.join(stale)}: not what params.yaml says; run `make graph`"]
    print("\n".join(lines) if lines else "params.yaml and the recipes: nothing is wrong")
    sys.exit(1 if lines else 0)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    guarded("check", run)


if __name__ == "__main__":
    main()
