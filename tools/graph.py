"""Keeps dvc.yaml's lists true that come from params.yaml: what collectors collect, what stages write a task, and which
sections they read where that depends on others. DVC cannot derive them: `deps` and `outs` are no templates.

`python -m tools.graph` compares, `--write` updates (`make graph`). Everything else in dvc.yaml is written by hand;
tests hold it."""

import io
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from cyclopts import App, Parameter
from ruamel.yaml import YAML

from editjudge.core import params
from editjudge.core.main import guarded
from editjudge.core.params import ParamsError
from editjudge.editors.settings import used
from editjudge.sources.settings import EmbedSetting
from editjudge.stages.graph.arena import of_suite
from editjudge.stages.graph.paths import TABLE, named

ROOT = Path(__file__).parents[1]
NO_FOLDER = "stages/candidates.schema.json"  # a dep of every editor that has no folder of its own: DVC wants one
LABELLED = ("path", "images", "people", "people_images", "sequences", "sequence_images", "clip", "dino")
PLACE = re.compile(r"(?<!\$)\{(\w+)\}")
SHORT = 6  # entries of a list that has a line for each
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


def put_right(write: bool) -> list[str]:
    """What is stale in dvc.yaml; with `write` it is mended. ParamsError: an entry whose name DVC cannot find, and a
    section that is not as its settings are."""
    yaml, file = YAML(), ROOT / "dvc.yaml"
    yaml.width = 160
    graph, values = yaml.load(file.read_text()), params.load(ROOT / "params.yaml")
    for name in dotted(graph, values):
        raise ParamsError(f"params.yaml: {name}: a name with a dot is none that DVC can find; write - or _ instead")
    try:
        stale = mend(graph, values)
    except (AttributeError, KeyError, TypeError) as error:
        raise ParamsError("params.yaml: a section is not as its settings are: run `editjudge check`") from error
    if write:
        # Long lists stand side by side: with a line an entry they would be most of the file.
        for body in (entry.get("do", entry) for entry in graph["stages"].values()):
            for listed in (body[kind] for kind in ("deps", "outs") if kind in body):
                (listed.fa.set_flow_style if len(listed) > SHORT else listed.fa.set_block_style)()
        out = io.StringIO()
        yaml.dump(graph, out)
        file.write_text("".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines()))
    return stale


def graph(*, write: bool = False) -> None:
    """Compare the lists of dvc.yaml that come from params.yaml. Status 1 if one is out of date.

    Args:
        write: Update them (`make graph`)."""
    stale = put_right(write)
    word = "updated" if write else "out of date, run `make graph`"
    print(f"dvc.yaml: {word}: {', '.join(stale)}" if stale else "dvc.yaml: all lists are right")
    sys.exit(1 if stale and not write else 0)


if __name__ == "__main__":
    app = App(default_parameter=Parameter(negative=()), help_format="plaintext")
    app.default(graph)
    guarded("graph", app)
