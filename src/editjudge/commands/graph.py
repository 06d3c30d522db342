"""Keeps dvc.yaml's lists true: what each stage's code depends on, and what the collectors collect.

DVC cannot derive either. `python -m editjudge.commands.graph` compares, `--write` mends (`make graph`). A
stage depends on its own module, every module of ours that it imports, the data files those read, and its contracts; a collector on one file
for each task, editing model, judge or benchmark in params.yaml; the judges' plot has two columns for each judge.
"""

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import Any

from editjudge.core import params

ROOT = Path(__file__).parents[3]
DATA_FILES = {
    "editjudge.grounding.grounding": ["pipelines/prompts"],
    "editjudge.annotation.recipe": ["pipelines/recipe.schema.json"],
    "editjudge.probe.drawings": ["src/editjudge/probe/regions.json"],
}
JUDGES_PLOT = "Judges, accuracy by the gap of known damage"
BENCHMARK_FILES = ("path", "shuffle", "images")  # of an entry of `benchmarks`; under data/benchmarks but for our own
SOURCE_FILES = ("path", "images")  # of an entry of `raw_pairs.sources`, and of `gedit_bench`
MODELS = "editors and imported"  # all that stand in the arena
RECIPES = {"pipelines/{1}/{0}.yaml": "tasks"}
# Stage: all its deps but code and the files that params.yaml names, which may lie anywhere.
FIXED = {
    "raw_pairs": [],
    "gedit_bench": [],
    "embed": ["data/raw_pairs/${key}.parquet"],
    "filter": ["data/raw_pairs/${key}.parquet", "data/embeddings/${key}.npy"],
}
# Stage: the files it collects, {0} and {1} being the names and values of a section of params.yaml.
COLLECTED = {
    "candidates": {"data/pools/{0}.parquet": "tasks"},
    "candidates_report": {"metrics/candidates/{0}.json": "editors"},
    "annotate": {"data/candidates/{0}.parquet": "editors"},
    "train_pairs": {
        "data/annotations/{0}.parquet": "tasks",
        "data/pair_verdicts/{0}.parquet": "tasks",
        "data/pools/{0}.parquet": "tasks",
        "data/candidates/{0}.parquet": "editors",
    }
    | RECIPES,
    "judge_benchmark": RECIPES,  # and the benchmarks' own files: `_local`
    "measure_response": RECIPES,
    "compare_models": {"data/gallery/{0}.parquet": MODELS} | RECIPES,
}


def code_deps(stage: str) -> list[str]:
    """The files of ours that the stage's module runs: itself, what it imports, data files and contracts, sorted."""
    import grimp

    graph = grimp.build_graph("editjudge", cache_dir=None)
    modules = {f"editjudge.{stage}"} | graph.find_upstream_modules(f"editjudge.{stage}")
    files = {file for module in modules for file in [*_source(module), *DATA_FILES.get(module, [])]}
    return sorted(files | _contracts(ROOT / f"src/editjudge/{stage}.py"))


def _source(module: str) -> list[str]:
    """The module's file; none for a package without code."""
    base = ROOT / "src" / Path(*module.split("."))
    return [str(base.with_suffix(".py").relative_to(ROOT))] if base.with_suffix(".py").is_file() else []


def _contracts(source: Path) -> set[str]:
    """The contracts that a stage's module names."""
    constants = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant))
    texts = {node.value for node in constants if isinstance(node.value, str)}
    known = {path.name.removesuffix(".schema.json"): path for path in (ROOT / "stages").glob("*.schema.json")}
    return {str(known[text].relative_to(ROOT)) for text in texts & set(known)}


def collected(stage: str, values: dict[str, Any]) -> list[str]:
    """What a collector collects, and the files that params.yaml names, in the order of params.yaml."""
    if stage == "raw_pairs":
        return _sources(values["raw_pairs"].get("sources"))
    if stage == "gedit_bench":
        return _paths([values["gedit_bench"]])
    if stage == "embed":
        return _of_tasks(values["embed"].get("vectors")) if values["embed"].get("backend") == "precomputed" else []
    if stage == "filter":
        return _of_tasks(values["filter"].get("already_selected"))
    lists = COLLECTED.get(stage, {}).items()
    values = values | {MODELS: values["editors"] | (values.get("imported") or {})}
    files = [pattern.format(*item) for pattern, section in lists for item in values[section].items()]
    return files + (_local(values["benchmarks"]) if stage == "judge_benchmark" else [])


def _local(benchmarks: dict[str, Any]) -> list[str]:
    """The files and folders that benchmarks are read from; those of the hub have none."""
    entries = (entry or {} for entry in benchmarks.values())
    return list(dict.fromkeys(entry[key] for entry in entries for key in BENCHMARK_FILES if entry.get(key)))


def _sources(sources: Any) -> list[str]:
    """The files and folders that raw pairs are read from; the probe set and what is downloaded have none.

    What is no path is passed over: the stage says what is wrong with it.
    """
    tasks = sources.values() if isinstance(sources, dict) else ()
    entries = [entry for task in tasks if isinstance(task, dict) for entry in task.values()]
    return _paths(entries)


def _paths(entries: list[Any]) -> list[str]:
    """What entries name as files and folders."""
    paths = [entry.get(key) for entry in entries if isinstance(entry, dict) for key in SOURCE_FILES]
    return list(dict.fromkeys(path for path in paths if isinstance(path, str) and path))


def _of_tasks(path: Any) -> list[str]:
    """A file of each task, as the stages of `foreach` name it."""
    return [path.replace("{task}", "${key}")] if isinstance(path, str) and path else []


def wanted(stage: str, deps: list[str], values: dict[str, Any]) -> list[str]:
    """The stage's deps as they should be: code first, then collected files, then the others as they stand."""
    ours = [*code_deps(stage), *collected(stage, values)]
    if stage in FIXED:
        return [*ours, *(dep for dep in FIXED[stage] if dep not in ours)]
    patterns = [re.sub(r"\{\d\}", r"[^/{}$]+", pattern) for pattern in COLLECTED.get(stage, {})]
    patterns += [r"src/.+", r"stages/.+\.schema\.json", r"data/benchmarks/.+"]
    patterns += [re.escape(file) for files in DATA_FILES.values() for file in files]
    others = (dep for dep in deps if not any(re.fullmatch(pattern, dep) for pattern in patterns))
    return [*ours, *(dep for dep in others if dep not in ours)]


def dotted(graph: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """The entries of params.yaml that DVC cannot find: it takes a dot in a stage's params for a step further down."""
    stages = [entry for entry in graph["stages"].values() if "foreach" in entry]
    params_of = [(entry["foreach"].strip("${}"), entry["do"].get("params", [])) for entry in stages]
    sections = dict.fromkeys(section for section, given in params_of if f"{section}.${{key}}" in given)
    return [f"{section}.{name}" for section in sections for name in values.get(section) or {} if "." in str(name)]


def mend_plot(graph: dict[str, Any], values: dict[str, Any]) -> bool:
    """Puts each judge's two columns into the judges' plot; whether they were others before."""
    [plot] = [entry[JUDGES_PLOT] for entry in graph["plots"] if JUDGES_PLOT in entry]
    [(file, columns)] = plot["y"].items()
    right = [column for judge in values["judges"] for column in (judge, f"{judge}_fit")]
    stale = right != list(columns)
    if stale:
        plot["y"][file] = right
    return stale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="mend dvc.yaml")
    write = parser.parse_args().write
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 200
    file = ROOT / "dvc.yaml"
    graph, values = yaml.load(file.read_text()), params.load(ROOT / "params.yaml")
    for name in dotted(graph, values):
        sys.exit(f"params.yaml: {name}: a name with a dot is none that DVC can find; write - or _ instead")
    stale = []
    for stage, entry in graph["stages"].items():
        body = entry.get("do", entry)
        right = wanted(stage, list(body["deps"]), values)
        if right != list(body["deps"]):
            stale.append(stage)
            body["deps"][:] = right
    if mend_plot(graph, values):
        stale.append("plots")
    if stale and write:
        with file.open("w") as out:
            yaml.dump(graph, out)
    print(
        f"dvc.yaml: {'mended' if write else 'stale'}: {', '.join(stale)}" if stale else "dvc.yaml: all lists are true"
    )
    sys.exit(1 if stale and not write else 0)


if __name__ == "__main__":
    main()
