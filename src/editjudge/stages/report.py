"""Stage report: the results and a gallery of pairs as one page, report/index.html, with its images beside it."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import Item
from editjudge.core import params
from editjudge.core.files import write_bytes
from editjudge.core.main import stage
from editjudge.core.settings import read
from editjudge.core.tables import TableError
from editjudge.engine.progress import progress
from editjudge.labels import rules
from editjudge.labels.tiers import AreaRule
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.names import DIRECTIONS
from editjudge.report import figures, gallery, graph, page
from editjudge.report.files import Files
from editjudge.report.pictures import Pictures
from editjudge.report.settings import ReportSetting
from editjudge.stages.graph.arena import of_suite

OUT = Path("report")
PLOTS = ("measure_response", "coverage", "train_loss", "train_eval")
METRICS = ("leaderboard", "candidates", "compare_models", "train_pairs", "filter")
Items = dict[str, list[Item]]
Prompts = Sequence[gallery.Prompt]


def metrics_of(values: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """The metrics by name; those of a task or benchmark in a dict of their own."""
    several = {"raw_pairs": values["tasks"], "annotate": values["tasks"], "benchmarks": values["benchmarks"]}
    found = {name: files.details(f"metrics/{name}.json") for name in METRICS}
    for name, each in several.items():
        read_ = {one: files.details(f"metrics/{name}/{one}.json") for one in each}
        found[name] = {one: value for one, value in read_.items() if value is not None}
    return found


def results(values: Mapping[str, Any], metrics: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """What the page shows above the gallery."""
    plots = {name: files.table(f"plots/{name}.csv") for name in PLOTS}
    plots["learning_curve"] = files.table("plots/learning_curve.csv", wanted=False)
    curves = {name: files.table(f"plots/psychometric/{name}.csv") for name in metrics["benchmarks"]}
    measured = figures.judges(metrics["benchmarks"])
    return {
        "about": figures.about(metrics, len(values["tasks"])),
        "boards": figures.boards(metrics["leaderboard"]),
        "judges": measured,
        "judge_charts": list(figures.judge_charts(metrics["benchmarks"], curves)),
        "training": {
            "base": figures.against_base(measured, values["judges"], values["train_judge"]["base"]),
            "pairs": figures.pair_counts(metrics["train_pairs"]),
            "figures": list(figures.training_charts(plots)),
        },
        "response": list(figures.response_charts(plots["measure_response"])),
        "coverage": list(figures.coverage_charts(plots["coverage"])),
        "failures": figures.failures(metrics),
        "graph": graph.nodes(files.yaml("dvc.yaml") or {"stages": {}}, values, figures.records(metrics)),
    }


def rules_of(values: Mapping[str, Any]) -> dict[str, tuple[Recipe, Sequence[AreaRule]]]:
    """The recipe and the rules of each task; no rules where a VLM judges."""
    models = slot_settings.read(values["measures"])
    missing = slot_settings.unconfigured(models)
    found: dict[str, tuple[Recipe, Sequence[AreaRule]]] = {}
    for task, folder in values["tasks"].items():
        recipe = load_recipe(Path(f"pipelines/{folder}/{task}.yaml"))
        own = () if recipe.judge else rules.read_rules(recipe, values["train_pairs"]["thresholds"], missing)
        found[task] = (recipe, own)
    return found


def task_row(columns: Sequence[tuple[str, str]], own: Sequence[AreaRule]) -> dict[str, Any]:
    """What the page knows of a task's measures and rules."""
    roles = {(rule.area, rule.primary): "primary" for rule in own}
    roles |= {(rule.area, name): "votes" for rule in own for name, _ in rule.secondary}
    return {
        "measures": [
            {"area": area, "measure": name, "direction": DIRECTIONS[name], "role": roles.get((area, name))}
            for area, name in columns
        ],
        "rules": [
            {"area": rule.area, "primary": rule.primary, "elite": rule.elite, "failure": rule.failure}
            | {"secondary": [name for name, _ in rule.secondary]}
            for rule in own
        ],
    }


def prompts_of(values: Mapping[str, Any], items: Items, files: Files, judges: list[str]) -> tuple[Prompts, dict]:
    """Every prompt with its pairs, without images, and what is known of each task."""
    setting = read("train_pairs", rules.PairsSetting, values["train_pairs"])
    pairs = list(files.rows("data/train_pairs.parquet", "train_pairs"))
    found, tasks = list[gallery.Prompt](), {}
    for task, (_, own) in rules_of(values).items():
        annotations = list(files.rows(f"data/annotations/{task}.parquet", "annotations"))
        verdicts = list(files.rows(f"data/pair_verdicts/{task}.parquet", "pair_verdicts"))
        its = [pair for pair in pairs if pair["task"] == task]
        found += gallery.training(task, annotations, verdicts, its, own, setting, judges)
        tasks[task] = task_row(gallery.columns_of(annotations), own)
    for name, listed in items.items():
        said = list(files.rows(f"data/verdicts/{name}.parquet", "verdicts"))
        found += gallery.benchmark(name, listed, said, judges)
    return found + gallery.arena(list(files.rows("data/matches.parquet", "matches")), judges), tasks


def items_of(values: Mapping[str, Any], files: Files) -> Items:
    """The items of every benchmark that is here."""
    found = {}
    for name, given in values["benchmarks"].items():
        try:
            found[name] = forms.load(name, given)
        except (TableError, OSError) as error:
            files.missing.append(f"benchmarks.{name}: {error}")
    return found


def illustrate(values: Mapping[str, Any], prompts: Prompts, items: Items, files: Files, pictures: Pictures) -> None:
    """Gives the prompts their instructions and images, file by file."""
    by = {(prompt.kind, prompt.task, prompt.key): prompt for prompt in prompts}
    arena = {prompt.key: prompt for prompt in prompts if prompt.kind == gallery.ARENA}
    for task in progress(values["tasks"], len(values["tasks"]), "report"):
        for row in files.rows(f"data/pools/{task}.parquet", "pools"):
            if prompt := by.get((gallery.TRAINING, task, row["key"])):
                prompt.show(row["instruction"], row["image"], row["regions"], pictures)
        for model in values["editors"]:
            for row in files.rows(f"data/candidates/{model}/{task}.parquet", "candidates"):
                _edit(by.get((gallery.TRAINING, task, row["key"])), row, pictures)
    for row in files.rows("data/gedit_bench.parquet", "gedit_bench") if arena else ():
        if prompt := arena.get(row["key"]):
            prompt.show(row["instruction"], row["source_image"]["bytes"], row["regions"], pictures)
    for model in [*values["editors"], *of_suite(values.get("imported"), None)] if arena else ():
        for row in files.rows(f"data/gallery/{model}.parquet", "candidates"):
            _edit(arena.get(row["key"]), row, pictures)
    for name, listed in items.items():
        for item in listed:
            if prompt := by.get((name, item.task, item.key)):
                prompt.source = pictures.add(item.source)
                for edit, image in zip(prompt.edits.values(), (item.a, item.b), strict=True):
                    edit["image"] = pictures.add(image)


def _edit(prompt: gallery.Prompt | None, row: Mapping[str, Any], pictures: Pictures) -> None:
    if prompt is not None and row["model"] in prompt.edits:
        edit = prompt.edits[row["model"]]
        edit["image"] = pictures.add(row["image"])
        edit["reason"] = edit["reason"] or row["reason"]


def report(values: dict[str, Any], files: Files, folder: Path) -> str:
    """The page. folder: where its images are written."""
    setting = read("report", ReportSetting, params.leaf(values, "report"))
    judges: list[str] = []
    shown = results(values, metrics_of(values, files), files)
    items, pictures = items_of(values, files), Pictures(folder, setting.image_side)
    every, tasks = prompts_of(values, items, files, judges)
    prompts = gallery.chosen(every, setting.pairs)
    illustrate(values, prompts, items, files, pictures)
    data = {
        "results": shown,
        "tasks": tasks,
        "judges": judges,
        "prompts": [prompt.row() for prompt in prompts],
        "images": pictures.rows,
        "pairs": sum(len(prompt.pairs) for prompt in every),
        "shown": sum(len(prompt.pairs) for prompt in prompts),
        "missing": files.missing,
    }
    return page.render("Image edits, compared", data)


def run() -> None:
    values = params.load()
    shutil.rmtree(OUT, ignore_errors=True)
    text = report(values, Files(), OUT / "images")
    write_bytes(OUT / "index.html", text.encode())


if __name__ == "__main__":
    stage(__doc__, run)
