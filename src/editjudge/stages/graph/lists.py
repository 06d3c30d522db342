"""Keeps dvc.yaml's lists true that come from params.yaml: what collectors collect, what stages write a task, and which
sections they read where that depends on others.

DVC cannot derive them: `deps` and `outs` are no templates. `editjudge graph` compares, `--write` updates (`make
graph`). Everything else in dvc.yaml is written by hand; tests hold it.
"""

import io
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from editjudge.core import hub, params
from editjudge.core.params import ParamsError
from editjudge.sources.selection.settings import EmbedSetting
from editjudge.stages.graph.arena import of_suite

ROOT = Path(__file__).parents[4]
NO_FOLDER = "stages/candidates.schema.json"  # a dep of every editor that has no folder of its own: DVC wants one
BENCHMARK_FILES = ("path", "shuffle", "images")  # of an entry of `benchmarks`
SOURCE_FILES = ("path", "images")  # of an entry of `raw_pairs.sources`, and of `gedit_bench`
NO_MODEL = ("none", "embedded")
PLACE = re.compile(r"(?<!\$)\{(\w+)\}")
SHORT = 6  # entries of a list that has a line for each
LISTS = Path(__file__).with_suffix(".yaml")


def fillings(values: Mapping[str, Any], stages: list[str]) -> dict[str, list[dict[str, str]]]:
    """What each name in a pattern stands for: (files that params.yaml names may lie anywhere)."""
    tasks, editors, imported = (values.get(name) or {} for name in ("tasks", "editors", "imported"))
    sources = (values.get("raw_pairs") or {}).get("sources")
    given = sources if isinstance(sources, Mapping) else {}
    entries = [entry for task in tasks for entry in _mappings(given.get(task))]
    embed, chosen = values.get("embed") or {}, (values.get("filter") or {}).get("already_selected")
    vectors = embed.get("vectors", EmbedSetting.vectors) if embed.get("backend") == "precomputed" else None
    judges, panel = _mappings(values.get("judges")), _mappings(values.get("arena"))
    ranking = [given for name, given in (values.get("judges") or {}).items() if given.get("arena") or name in panel]
    found = {
        "base": _models([{"model": (values.get("train_judge") or {}).get("base")}]),
        "scorer_base": _models([{"model": each.get("base")} for each in _mappings(values.get("train_scorer"))]),
        "labelled": [path for each in _mappings(values.get("scorer_data")) for path in labelled(each, values)],
        "judge": _models(judges) + _scorers(judges, values),
        "arena": _models(ranking) + _scorers(ranking, values),
        "pairwise": _models(
            _mappings((values.get("pairwise") or {}).get("judges")) + _mappings(values.get("grounding"))
        ),
        "editor": editors,
        "model": [*editors, *of_suite(imported, None)],
        "suite": list(values.get("suites") or {}),
        "suite_file": _files(_mappings(values.get("suites")), SOURCE_FILES),
        "suite_model": [name for name in imported if name not in of_suite(imported, None)],
        "people": _files(_mappings(values.get("suites")), ("people",)),
        "rater": _models(_mappings(values.get("raters"))),
        "pairwise_server": _served(_mappings((values.get("pairwise") or {}).get("judges"))),
        "judge_server": _served(judges),
        "arena_server": _served(ranking),
        "rater_server": _served(_mappings(values.get("raters"))),
        "labels": ["train_pairs", "measures", "tasks"] if _annotated(values) else [],
        "stage": [stage for stage in stages if stage != "code"],
        "photos": photographs(values),
        "region_models": region_models(values),
        "photo_records": photo_records(values),
        "source": _files(entries, SOURCE_FILES),
        "published": _files([values.get("gedit_bench")], SOURCE_FILES),
        "curve": list(values.get("learning_curve") or {}),
        "probe": _files([(values.get("benchmarks") or {}).get("probe")], BENCHMARK_FILES),
        "measured": list(values.get("benchmarks") or {}),
        "benchmark": _files(list(_mappings(values.get("benchmarks"))), BENCHMARK_FILES),
        "vectors": [path.replace("{task}", task) for task in tasks for path in _files([{"path": vectors}], ("path",))],
        "selected": [path.replace("{task}", task) for task in tasks for path in _files([{"path": chosen}], ("path",))],
    }
    both = [{"task": task, "pipeline": pipeline} for task, pipeline in tasks.items()]
    return {"task": both, "pipeline": both} | {name: [{name: each} for each in all_] for name, all_ in found.items()}


def photographs(values: Mapping[str, Any]) -> list[str]:
    """The folder or list of the pool's photographs, and its models."""
    pool = values.get("photo_pool") or {}
    found = [path for path in _files([pool], ("photos",)) if path != "probe"]
    return found + _files([pool.get("aesthetic")], ("head",)) + _models([pool.get("aesthetic"), pool.get("captioner")])


def region_models(values: Mapping[str, Any]) -> list[str]:
    """The models that find and rate regions."""
    aesthetic = (values.get("photo_pool") or {}).get("aesthetic")
    return _files([aesthetic], ("head",)) + _models([aesthetic, *_mappings(values.get("regions"))])


def photo_records(values: Mapping[str, Any]) -> list[str]:
    """What instructions are written for, the graph's own records or published ones with their photographs, and by."""
    section = values.get("instructions") or {}
    given = [path for path in _files([section], ("records", "images")) if path not in NO_MODEL]
    own = section.get("records") in (None, "graph")
    found = ["data/photos/pool.parquet", "data/photos/records.jsonl"] if own else given
    return found + _models([section.get("writer")])


def _mappings(section: Any) -> list[Any]:
    return list(section.values()) if isinstance(section, Mapping) else []


def _files(entries: list[Any], fields: tuple[str, ...]) -> list[str]:
    """What entries name as files and folders; what is no path is passed over: the stage says what is wrong with it."""
    paths = [entry.get(field) for entry in entries if isinstance(entry, Mapping) for field in fields]
    return [path for path in paths if isinstance(path, str) and path]


def _models(entries: list[Any]) -> list[str]:
    """The folders among the entries' models and adapters; of a hub id models.lock holds the commit."""
    asked = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("backend") != "endpoint"]
    return [model for model in _files(asked, ("model", "adapter")) if model not in NO_MODEL and not hub.is_id(model)]


def _served(entries: list[Any]) -> list[str]:
    """The section of the server that models of these entries need, if one of them does."""
    served = any(isinstance(entry, Mapping) and entry.get("backend") == "served" for entry in entries)
    return ["serve"] if served else []


def _annotated(values: Mapping[str, Any]) -> bool:
    """Whether a scorer learns from the pipeline's own annotations, by the rules of its pairs."""
    return any(
        isinstance(entry, Mapping) and entry.get("source") == "annotations"
        for entry in _mappings(values.get("scorer_data"))
    )


def labelled(entry: Any, values: Mapping[str, Any]) -> list[str]:
    """What an entry of scorer_data reads: files of its own, and of the graph those of its tasks."""
    if not isinstance(entry, Mapping):
        return []
    kind, tasks = entry.get("source"), entry.get("tasks") or []
    found = _files([entry], ("path", "images", "people", "people_images", "sequences", "sequence_images"))
    found += [model for model in _files([entry], ("clip", "dino")) if model not in NO_MODEL and not hub.is_id(model)]
    if kind == "annotations":
        pipelines = values.get("tasks") or {}
        found += [f"pipelines/{pipelines[task]}/{task}.yaml" for task in tasks if task in pipelines]
        found += [f"data/{folder}/{task}.parquet" for task in tasks for folder in ("pools", "annotations")]
    if kind == "adiee":
        editors = [entry.get("truth"), *(name for role in ("bad", "good", "others") for name in entry.get(role) or [])]
        found += [f"data/pools/{task}.parquet" for task in tasks]
        found += [f"data/candidates/{editor}/{task}.parquet" for editor in editors for task in tasks]
    return found


def _scorers(judges: list[Any], values: Mapping[str, Any]) -> list[str]:
    """The folders of the scorers that judges ask."""
    scorers = values.get("scorers") or {}
    return _models([scorers.get(judge["scorer"]) for judge in judges if judge.get("backend") == "scorer"])


def expand(patterns: list[str], filling: Mapping[str, list[dict[str, str]]]) -> list[str]:
    """The list that the patterns stand for, each entry once."""
    listed = []
    for pattern in patterns:
        found = PLACE.findall(pattern)
        names = dict.fromkeys("task" if name == "pipeline" else name for name in found)
        for rows in product(*(filling[name] for name in names)):
            text, words = pattern, {name: word for row in rows for name, word in row.items()}
            for name in found:
                text = text.replace(f"{{{name}}}", words[name])
            listed.append(text)
    return list(dict.fromkeys(listed))


def mend(graph: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """Puts every list right in place; the names of what was not."""
    stale, filling = [], fillings(values, list(graph["stages"]))
    lists = [(stage, kind, each) for stage, own in params.load(LISTS).items() for kind, each in own.items()]
    for stage, kind, patterns in lists:
        body = graph["stages"][stage]
        listed, right = body.get("do", body)[kind], expand(patterns, filling)
        # Outs and metrics with settings of their own are written by hand, behind the list.
        by_hand = [each for each in listed if not isinstance(each, str)]
        if right + by_hand != list(listed):
            stale.append(f"{stage}.{kind}")
            listed[:] = right + by_hand
    candidates, folders = graph["stages"]["candidates"], folders_of(values)
    if list(folders.items()) != list(candidates["foreach"].items()):
        stale.append("candidates.foreach")
        candidates["foreach"] = folders
    return stale


def folders_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Each editor with the path of the images that a user has of it, so that it alone depends on them."""
    editors = values.get("editors") or {}
    return {name: next(iter(_files([given], ("path",))), NO_FOLDER) for name, given in editors.items()}


def dotted(graph: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """The entries of params.yaml that DVC cannot find: it takes a dot in a stage's params for a step further down."""
    bodies = [entry["do"] for entry in graph["stages"].values() if "foreach" in entry]
    given = [name for body in bodies for name in body.get("params", []) if name.endswith(".${key}")]
    sections = dict.fromkeys(name.partition(".")[0] for name in given)
    return [f"{section}.{name}" for section in sections for name in values.get(section) or {} if "." in str(name)]


def fold(graph: dict[str, Any]) -> None:
    """Long lists stand side by side: with a line an entry they would be most of the file."""
    for body in (entry.get("do", entry) for entry in graph["stages"].values()):
        for listed in (body[kind] for kind in ("deps", "outs") if kind in body):
            (listed.fa.set_flow_style if len(listed) > SHORT else listed.fa.set_block_style)()


def put_right(write: bool) -> list[str]:
    """What is stale in dvc.yaml; with `write` it is mended. ParamsError: an entry whose name DVC cannot find."""
    yaml = YAML()
    yaml.width = 160
    file = ROOT / "dvc.yaml"
    graph, values = yaml.load(file.read_text()), params.load(ROOT / "params.yaml")
    for name in dotted(graph, values):
        raise ParamsError(f"params.yaml: {name}: a name with a dot is none that DVC can find; write - or _ instead")
    stale = mend(graph, values)
    if write:
        fold(graph)
        out = io.StringIO()
        yaml.dump(graph, out)
        file.write_text("".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines()))
    return stale
