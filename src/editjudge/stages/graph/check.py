"""Reads all of params.yaml and every recipe, and lists everything that is wrong: before DVC deletes any output.

Checked are also the files and folders that params.yaml names, unless a stage of dvc.yaml makes them, the environment
variables with keys, whether dvc.lock has lost stages that git's HEAD has, and whether dvc.yaml's lists are those of
params.yaml. Nothing is loaded: whether a model fits, its stage says.
"""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from editjudge.benchmarks.suites import suite_rating
from editjudge.core import hub, params
from editjudge.core.errors import UserError
from editjudge.core.params import ParamsError
from editjudge.core.settings import known, named, read_what_is_right
from editjudge.editors.api.settings import ApiSetting
from editjudge.judges import rubrics
from editjudge.judges.scorers.prompts import load_prompt
from editjudge.labels import rules
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.models.chat.settings import EmbeddedSetting
from editjudge.photos.settings import GRAPH, DrawnSetting
from editjudge.photos.settings import PROBE as PROBE_PHOTOS
from editjudge.sources import formats
from editjudge.sources import settings as sources
from editjudge.sources.builtin import scenes
from editjudge.stages.graph import lists as graph
from editjudge.stages.graph.arena import read_panel
from editjudge.stages.graph.tree import SECTIONS
from editjudge.training.settings import TrainRaterSetting
from editjudge.vision import faces_settings

T = TypeVar("T")
# What stands in the place of a file's or a model's name.
NO_FILES = ("none", "embedded", GRAPH, PROBE_PHOTOS, slot_settings.GRABCUT)


def wrong(values: Mapping[str, Any], made: Sequence[str]) -> list[str]:
    """A line for everything that is wrong in the parameters. made: patterns of the files that stages make."""
    lines = [f"{name} is unknown; {known(name, SECTIONS)}" for name in values if name not in SECTIONS]
    lines += [f"{name} is missing" for name in SECTIONS if name not in values]
    tree = {
        name: read_what_is_right(name, kind, values[name], lines) for name, kind in SECTIONS.items() if name in values
    }
    check = Check({name: section for name, section in tree.items() if section is not None}, made, lines)
    check.kept("", values)
    check.files()
    check.across(values, check.recipes())
    return list(dict.fromkeys(lines))


class Check:
    """What files and machines say of settings, and sections of each other. tree: the sections that are right, and of
    mappings the entries that are. lines: gets what is wrong."""

    def __init__(self, tree: Mapping[str, Any], made: Sequence[str], lines: list[str]) -> None:
        self.tree, self.made, self.lines = tree, made, lines

    def attempt(self, where: str, work: Callable[..., T], *args: Any) -> T | None:
        """What `work` returns; None, and its lines, where it finds something wrong. where: put before other errors."""
        try:
            return work(*args)
        except ParamsError as error:
            self.lines += error.lines
        except UserError as error:
            self.lines.append(f"{where}: {error}")
        return None

    def section(self, name: str) -> Any:
        """A section that is right; an empty one in the place of another."""
        return self.tree.get(name) or {}

    def files(self) -> None:
        """Every file or folder that is named is there, or a stage makes it; a model may be a hub id."""
        for where, what, path in named("", self.tree):
            if path not in NO_FILES and not (what == "model" and hub.is_id(path)):
                self.there(where, path)
        embed, chosen, measures = (self.tree.get(name) for name in ("embed", "filter", "measures"))
        for task in self.section("tasks"):
            if embed and embed.backend == "precomputed":
                self.there("embed.vectors", embed.vectors.replace("{task}", task))
            if chosen and chosen.already_selected:
                self.there("filter.already_selected", chosen.already_selected.replace("{task}", task))
        if measures and measures.faces == slot_settings.INSIGHTFACE:
            self.attempt("measures", faces_settings.check_files, "measures.insightface", measures.insightface)

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

    def recipes(self) -> list[Recipe]:
        """The recipes of the tasks; those in pipelines/ that no task uses are read too."""
        tasks = self.section("tasks").items()
        own = {Path(f"pipelines/{folder}/{task}.yaml"): f"tasks.{task}" for task, folder in tasks}
        for path in sorted(set(Path("pipelines").glob("[!p]*/*.yaml")) - set(own)):
            self.attempt("pipelines", load_recipe, path)
        found = [self.attempt(where, load_recipe, path) for path, where in own.items()]
        return [recipe for recipe in found if recipe is not None]

    def across(self, values: Mapping[str, Any], recipes: Sequence[Recipe]) -> None:
        """What sections say of each other."""
        self.thresholds(recipes)
        self.photographs()
        if "raw_pairs" in self.tree:
            self.raw_pairs(dict(values))
        for name, editor in self.section("editors").items():
            try:
                _ = isinstance(editor, ApiSetting) and editor.key()
            except ParamsError as error:
                self.lines.append(f"editors.{name}.api_key_env gives {error}")
        suites = list(values.get("suites") or {})
        for name, imported in self.section("imported").items():
            if imported.suite is not None and imported.suite not in suites:
                self.lines.append(f"imported.{name}.suite: {known(imported.suite, suites)}")
            if name in self.section("editors"):
                self.lines.append(f"imported.{name}: `editors` has a model of this name")
        for name, suite in self.section("suites").items():
            self.attempt(f"suites.{name}", suite_rating.chosen, name, suite, values.get("raters") or {})
        if not values.get("judges"):
            self.lines.append("judges has no judge")
        if any(recipe.judge for recipe in recipes) and not (values.get("pairwise") or {}).get("judges"):
            self.lines.append("pairwise.judges has no judge")
        if self.tree.get("arena") and values.get("judges"):
            self.attempt("arena", read_panel, values["arena"], values["judges"])
        self.trainings(values.get("scorer_data") or {})

    def thresholds(self, recipes: Sequence[Recipe]) -> None:
        """Every task that measures decide has thresholds for measures that are configured."""
        pairs, measures = self.tree.get("train_pairs"), self.tree.get("measures")
        if pairs is None or measures is None:
            return
        missing = slot_settings.unconfigured(measures)
        for recipe in recipes:
            if recipe.judge is None:
                self.attempt("train_pairs", rules.read_rules, recipe, pairs.thresholds, missing)

    def photographs(self) -> None:
        """What is embedded knows the probe's photos alone."""
        pool, regions, asked = (self.tree.get(name) for name in ("photo_pool", "regions", "instructions"))
        if not (pool and regions and asked) or pool.photos == PROBE_PHOTOS or asked.records != GRAPH:
            return
        for where, each in (("photo_pool.captioner", pool.captioner), ("regions.detector", regions.detector)):
            if isinstance(each, EmbeddedSetting | DrawnSetting):
                self.lines.append(f"{where} knows the probe's photos alone: {pool.photos} needs a model")

    def raw_pairs(self, values: dict[str, Any]) -> None:
        """Every task has raw pairs."""
        for task in self.section("tasks"):
            plan = self.attempt("raw_pairs", sources.plan, values, task, formats.FORMATS)
            for name, source in plan.sources.items() if plan else ():
                if source.format == sources.PROBE and task not in scenes.EDITS:
                    where = f"raw_pairs.sources.{task}.{name}"
                    self.lines.append(f"{where}: the probe set has no task {task}; {known(task, scenes.EDITS)}")

    def trainings(self, data: Mapping[str, Any]) -> None:
        """What scorers and raters are trained on, and the words that they are asked with."""
        for name, training in self.section("train_scorer").items():
            if isinstance(training, TrainRaterSetting):
                self.attempt(f"train_scorer.{name}", rubrics.folder, training.rubrics)
            else:
                self.attempt(f"train_scorer.{name}", load_prompt, training.prompt)
            if training.data not in data:
                self.lines.append(f"train_scorer.{name}.data: scorer_data has no {training.data}")


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


def mistakes() -> list[str]:
    """A line for each mistake. ParamsError: params.yaml or dvc.yaml cannot be read."""
    graph_now, values = params.load(Path("dvc.yaml")), params.load()
    lines = [*cut_lock(), *wrong(values, made_by(graph_now))]
    if not lines and (stale := graph.mend(graph_now, values)):
        lines = [f"dvc.yaml: {', '.join(stale)}: not what params.yaml says; run `make graph`"]
    return lines
