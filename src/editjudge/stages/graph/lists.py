"""Keeps dvc.yaml's lists true that come from params.yaml: what collectors collect, what stages write a task, and which
sections they read where that depends on others.

DVC cannot derive them: `deps` and `outs` are no templates. `python -m tools.graph` compares, `--write` updates (`make
graph`). Everything else in dvc.yaml is written by hand; tests hold it."""

import re
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from editjudge.core import hub, params
from editjudge.editors.settings import used
from editjudge.sources.settings import EmbedSetting
from editjudge.stages.graph.arena import of_suite

ROOT = Path(__file__).parents[4]
NO_FOLDER = "stages/candidates.schema.json"  # a dep of every editor that has no folder of its own: DVC wants one
TABLE = ("path", "shuffle", "images")  # fields of a published table
MODEL = ("model", "adapter", "base", "clip", "dino")
LABELLED = ("path", "images", "people", "people_images", "sequences", "sequence_images", "clip", "dino")
NO_FILE = ("", "none", "embedded", "probe", "graph")
PLACE = re.compile(r"(?<!\$)\{(\w+)\}")
Values = Mapping[str, Any]


def fillings(values: Values, stages: Iterable[str]) -> dict[str, list[str]]:
    """What each name in a pattern stands for (files that params.yaml names may lie anywhere)."""
    tasks, editors, imported, suites = (values[name] for name in ("tasks", "editors", "imported", "suites"))
    judges, paired, raters = values["judges"], values["pairwise"]["judges"], values["raters"]
    pool, edits, embed = values["photo_pool"], values["instructions"], values["embed"]
    ranking = {name: each for name, each in judges.items() if each.get("arena") or name in values["arena"].values()}
    sources = values["raw_pairs"].get("sources")
    vectors = embed.get("vectors", EmbedSetting.vectors) if embed.get("backend") == "precomputed" else ""
    templates = {"vectors": vectors, "selected": values["filter"].get("already_selected") or ""}
    ours = any(each["source"] == "annotations" for each in values["scorer_data"].values())
    asked = {"pairwise": {**paired, **values["grounding"]}, "judge": judges, "arena": ranking, "rater": raters}
    asked |= {"captioner": pool, "writer": edits}
    photos = ["data/photos/pool.parquet", "data/photos/records.jsonl"] if edits.get("records") == "graph" else []
    found = {
        "task": list(tasks),
        "recipe": [f"pipelines/{pipeline}/{task}.yaml" for task, pipeline in tasks.items()],
        "stage": [stage for stage in stages if stage != "code"],
        "editor": list(editors),
        "pools": used(editors, "pools"),
        "benchmark_model": used(editors, "benchmark"),
        "model": [*used(editors, "benchmark"), *of_suite(imported, None)],
        "suite": list(suites),
        "suite_model": [name for name in imported if name not in of_suite(imported, None)],
        "curve": list(values["learning_curve"]),
        "measured": list(values["benchmarks"]),
        "labels": ["train_pairs", "measures", "tasks"] if ours else [],
        "labelled": [path for each in values["scorer_data"].values() for path in labelled(each, values)],
        "base": named(values["train_judge"], "base"),
        "scorer": list(values["train_scorer"]),
        "scorer_base": named(values["train_scorer"], "base"),
        "judge": _models(judges, values),
        "arena": _models(ranking, values),
        "pairwise": named([*paired.values(), *values["grounding"].values()], "model", "adapter"),
        "rater": named(raters, "model", "adapter"),
        "photos": named(pool, "photos", "head", "model", "adapter"),
        "region_models": named([pool.get("aesthetic"), values["regions"]], "head", "model", "adapter"),
        "photo_records": photos + named(edits, "records", "images", "model", "adapter"),
        "source": named([sources.get(task) for task in tasks] if isinstance(sources, Mapping) else [], *TABLE),
        "published": named(values["gedit_bench"], *TABLE),
        "probe": named(values["benchmarks"].get("probe_easy"), *TABLE),
        "benchmark": named(values["benchmarks"], *TABLE),
        "suite_file": named(suites, *TABLE),
        "people": named(suites, "people"),
    }
    found |= {name: [path.replace("{task}", task) for task in tasks if path] for name, path in templates.items()}
    for role, given in asked.items():
        served = (isinstance(each, Mapping) and each.get("backend") == "served" for each in given.values())
        found[f"{role}_server"] = ["serve"] if any(served) else []
    return found


def named(node: Any, *fields: str) -> list[str]:
    """What the fields of a section name as files and folders, at any depth. Of a hub id models.lock holds the commit;
    what is no text is passed over: the stage says what is wrong with it."""
    if isinstance(node, list):
        return [path for each in node for path in named(each, *fields)]
    if not isinstance(node, Mapping) or node.get("backend") == "endpoint":
        return []
    own = [(field, node[field]) for field in fields if isinstance(node.get(field), str)]
    paths = [path for field, path in own if path not in NO_FILE and not (field in MODEL and hub.is_id(path))]
    return paths + named(list(node.values()), *fields)


def _models(judges: Values, values: Values) -> list[str]:
    """The folders of the judges, and of the scorers that they ask."""
    scorers = [values["scorers"].get(each["scorer"]) for each in judges.values() if each.get("backend") == "scorer"]
    return named([judges, scorers], "model", "adapter")


def labelled(entry: Values, values: Values) -> list[str]:
    """What an entry of scorer_data reads: files of its own, and of the graph those of its tasks."""
    found, tasks = named(entry, *LABELLED), entry.get("tasks", [])
    if entry["source"] == "annotations":
        found += [f"pipelines/{values['tasks'][task]}/{task}.yaml" for task in tasks if task in values["tasks"]]
        found += [f"data/{folder}/{task}.parquet" for task in tasks for folder in ("pools", "annotations")]
    if entry["source"] == "adiee":
        editors = [entry.get("truth"), *(name for role in ("bad", "good", "others") for name in entry.get(role) or [])]
        found += [f"data/pools/{task}.parquet" for task in tasks]
        found += [f"data/candidates/{editor}/{task}.parquet" for editor in filter(None, editors) for task in tasks]
    return found


def mend(graph: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """Puts every list right in place; the names of what was not."""
    stale, filling = [], fillings(values, graph["stages"])
    patterns = params.load(Path(__file__).with_suffix(".yaml"))
    for stage, kind, each in ((stage, *pair) for stage, own in patterns.items() for pair in own.items()):
        body = graph["stages"][stage]
        listed = body.get("do", body)[kind]
        found: list[str] = []
        for pattern in each:  # one entry for each choice of words in the places of its names
            parts = PLACE.split(pattern)  # text, name, text, ...
            choices = [filling[part] if n % 2 else [part] for n, part in enumerate(parts)]
            found += ["".join(chosen) for chosen in product(*choices)]
        right: list[Any] = list(dict.fromkeys(found))
        # Outs and metrics with settings of their own are written by hand, behind the list.
        right += [entry for entry in listed if not isinstance(entry, str)]
        if right != list(listed):
            stale.append(f"{stage}.{kind}")
            listed[:] = right
    # Each editor with the path of the images that a user has of it, so that it alone depends on them.
    candidates = graph["stages"]["candidates"]
    folders = {name: given.get("path") or NO_FOLDER for name, given in values["editors"].items()}
    if list(folders.items()) != list(candidates["foreach"].items()):
        stale.append("candidates.foreach")
        candidates["foreach"] = folders
    return stale


def dotted(graph: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """The entries of params.yaml that DVC cannot find: it takes a dot in a stage's params for a step further down."""
    bodies = [entry["do"] for entry in graph["stages"].values() if "foreach" in entry]
    given = [name for body in bodies for name in body.get("params", []) if name.endswith(".${key}")]
    sections = dict.fromkeys(name.partition(".")[0] for name in given)
    return [f"{section}.{name}" for section in sections for name in values.get(section) or {} if "." in str(name)]
