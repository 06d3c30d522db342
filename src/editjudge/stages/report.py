"""Stage report: the results and a gallery of pairs as one page, report/index.html, with what it loads beside it."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import Item
from editjudge.core import params, records
from editjudge.core.main import stage
from editjudge.core.records import Row
from editjudge.core.settings import section
from editjudge.core.tables import TableError
from editjudge.editors.settings import used
from editjudge.engine.progress import progress
from editjudge.labels import explained, tiers
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.names import DIRECTIONS
from editjudge.report import figures, gallery, page
from editjudge.report.figures import Files, ReportSetting
from editjudge.report.gallery import PageImages
from editjudge.stages.graph.arena import of_suite
from editjudge.statistics import power

OUT = Path("report")
PLOTS = ("coverage", "train_loss", "train_eval")
TRAIN_PAIRS = "data/train_pairs.parquet"
METRICS = ("leaderboard", "compare_models", "train_pairs", "filter")
Items = dict[str, list[Item]]
Prompts = Sequence[gallery.GalleryPrompt]


def results(values: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """What the page shows above the gallery."""
    several = {"raw_pairs": values["tasks"], "annotate": values["tasks"], "benchmarks": values["benchmarks"]}
    several |= {"candidates": values["editors"], "train_scorer": values["train_scorer"]}
    metrics = {name: files.details(f"metrics/{name}.json") for name in METRICS}
    for name, each in several.items():  # of a task, benchmark or editing model
        found = {one: files.details(f"metrics/{name}/{one}.json") for one in each}
        metrics[name] = {one: value for one, value in found.items() if value is not None}
    names = [*PLOTS, *(f"learning_curve/{name}" for name in values["learning_curve"])]
    scored = [(name, row) for name, found in metrics["train_scorer"].items() for row in found["agreement"]]
    plots = {name: files.table(f"plots/{name}.csv") for name in names}
    curves = {name: files.table(f"plots/psychometric/{name}.csv") for name in metrics["benchmarks"]}
    measured = figures.judges(metrics["benchmarks"])
    told = dict[str, list[Row]]()
    for bench in measured:
        photos, every = bench["rows"][0]["photos"] or 0, bench["differences"]
        known = [row | {"needed": power.of_interval(row, photos)} for row in every]
        told[bench["benchmark"]] = [row for row in known if row["needed"]]
    charts = [figures.figure("power", rows, name) for name, rows in told.items() if rows]
    return {
        "editors": {name: given.get("kind", name) for name, given in values["editors"].items()},
        "boards": figures.boards(metrics["leaderboard"]),
        "judges": measured,
        "judge_charts": [*figures.judge_charts(metrics["benchmarks"], curves), *charts],
        "training": {
            "base": figures.against_base(measured, values["judges"], values["train_judge"]["base"]),
            "scorers": [{"scorer": name} | row for name, row in scored if row.get("baselines")],
            "raters": [{"scorer": name} | row for name, row in scored if row.get("constant")],
            "pairs": figures.pair_counts(metrics["train_pairs"]),
            "figures": list(figures.training_charts(plots)),
        },
        "coverage": list(figures.coverage_charts(plots["coverage"])),
        "failures": figures.failures(metrics),
        "graph": figures.nodes(files.yaml("dvc.yaml") or {"stages": {}}, values, figures.record_counts(metrics)),
    }


def rules_of(values: Mapping[str, Any], task: str) -> tuple[Recipe, Sequence[tiers.AreaRule]]:
    """The recipe and the rules of a task; no rules where a VLM judges."""
    recipe = load_recipe(Path(f"pipelines/{values['tasks'][task]}/{task}.yaml"))
    return recipe, () if recipe.judge else tiers.rules_in(values, recipe)


def training_pairs(files: Files) -> list[Row] | None:
    """The training pairs of all tasks; None where they are not here."""
    rows = list(files.rows(TRAIN_PAIRS, "train_pairs"))
    return None if TRAIN_PAIRS in files.missing else rows


def training(
    values: Mapping[str, Any], task: str, trained: Sequence[Row] | None, files: Files
) -> tuple[list[gallery.GalleryPrompt], Row]:
    """The task's prompts with every two candidates, and what the page knows of its measures and rules."""
    setting = section(values, "train_pairs", tiers.PairsSetting)
    _, own = rules_of(values, task)
    names = ("annotations", "pair_verdicts")
    annotations, verdicts = (list(files.rows(f"data/{name}/{task}.parquet", name)) for name in names)
    its = None if trained is None else [row for row in trained if row["task"] == task]
    found = explained.explained(annotations, verdicts, its, own, setting)
    roles = {(rule.area, rule.primary): "primary" for rule in own}
    roles |= {(rule.area, name): "votes" for rule in own for name, _ in rule.secondary}
    measures = [
        {"area": area, "measure": name, "direction": DIRECTIONS[name], "role": roles.get((area, name))}
        for area, name in explained.columns_of(annotations)
    ]
    shown = [
        {"area": rule.area, "primary": rule.primary, "elite": rule.elite, "failure": rule.failure}
        | {"secondary": [name for name, _ in rule.secondary]}
        for rule in own
    ]
    prompts = [gallery.GalleryPrompt(gallery.TRAINING, task, key, *each) for key, each in found.items()]
    return prompts, {"measures": measures, "rules": shown, "least_change": setting.least_change if own else None}


def benchmark(name: str, items: Sequence[Item], verdicts: Sequence[Row]) -> list[gallery.GalleryPrompt]:
    """The items of a benchmark with what each judge said of them; the truth is people's verdict."""
    said = records.grouped(verdicts, "key")
    found = []
    for item in items:
        a, b = item.models or ("A", "B")
        if a == b:
            a, b = f"{a} (A)", f"{b} (B)"
        damages, judged = item.damages or (None, None), said.get(item.key, [])
        edits = {side: {"damage": damage, "reason": item.failed} for side, damage in zip((a, b), damages, strict=True)}
        truth = next((row["truth"] for row in judged), None)
        pairs = [pair_of(f"{name}.{item.key}", a, b, truth, judged)]
        shown = gallery.GalleryPrompt(name, item.task, item.key, edits, pairs, item.instruction, photo=item.cluster)
        shown.layers = {"boxes": item.regions or ()}
        found.append(shown)
    return found


def pair_of(key: str, a: str, b: str, truth: str | None, judged: Sequence[Row]) -> Row:
    return {"key": key, "a": a, "b": b, "truth": truth, "winner": truth, "why": None, "judged": judged}


def arena(matches: Sequence[Row]) -> list[gallery.GalleryPrompt]:
    """The prompts of the arena with their matches; the truth is the side that is less damaged, where that is known."""
    prompts = []
    for key, rows in records.grouped(matches, "prompt").items():
        sides = {row[f"model_{side}"]: row[f"damage_{side}"] for row in rows for side in "ab"}
        edits = {model: {"damage": damage, "reason": None} for model, damage in sides.items()}
        pairs = []
        for pair, judged in records.grouped(rows, "key").items():
            a, b = judged[0]["model_a"], judged[0]["model_b"]
            pairs.append(pair_of(pair, a, b, explained.less_damaged(sides[a], sides[b]), judged))
        about = rows[0]["task"], key, edits, pairs
        prompts.append(gallery.GalleryPrompt(gallery.ARENA, *about, photo=rows[0]["origin"]))
    return prompts


def prompts_of(values: Mapping[str, Any], items: Items, files: Files) -> tuple[Prompts, dict[str, Row]]:
    """Every prompt with its pairs, without images, and what is known of each task."""
    found, tasks, trained = list[gallery.GalleryPrompt](), {}, training_pairs(files)
    for task in values["tasks"]:
        its, tasks[task] = training(values, task, trained, files)
        found += its
    for name, listed in items.items():
        found += benchmark(name, listed, list(files.rows(f"data/verdicts/{name}.parquet", "verdicts")))
    return found + arena(list(files.rows("data/matches.parquet", "matches"))), tasks


def items_of(values: Mapping[str, Any], files: Files) -> Items:
    """The items of every benchmark that is here."""
    found = {}
    for name, given in values["benchmarks"].items():
        try:
            found[name] = forms.load(name, given)
        except (TableError, OSError) as error:
            files.missing.append(f"benchmarks.{name}: {error}")
    return found


def illustrate(values: Mapping[str, Any], prompts: Prompts, items: Items, files: Files, pictures: PageImages) -> None:
    """Gives the prompts their instructions and images, file by file."""
    arena = {prompt.key: prompt for prompt in prompts if prompt.kind == gallery.ARENA}
    for task in progress(values["tasks"], len(values["tasks"]), "report"):
        own = {prompt.key: prompt for prompt in prompts if (prompt.kind, prompt.task) == (gallery.TRAINING, task)}
        for row in files.rows(f"data/pools/{task}.parquet", "pools"):
            if prompt := own.get(row["key"]):
                prompt.show(row, row["image"], pictures)
        for model in used(values["editors"], "pools"):
            for row in files.rows(f"data/candidates/{model}/{task}.parquet", "candidates"):
                show_edit(own.get(row["key"]), row, pictures)
    for row in files.rows("data/gedit_bench.parquet", "gedit_bench") if arena else ():
        if prompt := arena.get(row["key"]):
            prompt.show(row, row["source_image"]["bytes"], pictures)
    for model in [*used(values["editors"], "benchmark"), *of_suite(values.get("imported"), None)] if arena else ():
        for row in files.rows(f"data/gallery/{model}.parquet", "candidates"):
            show_edit(arena.get(row["key"]), row, pictures)
    by = {(prompt.kind, prompt.task, prompt.key): prompt for prompt in prompts}
    for name, listed in items.items():
        for item in listed:
            if prompt := by.get((name, item.task, item.key)):
                prompt.source = pictures.add(item.source)
                for edit, image in zip(prompt.edits.values(), (item.a, item.b), strict=True):
                    edit["image"] = pictures.add(image)


def show_edit(prompt: gallery.GalleryPrompt | None, row: Mapping[str, Any], pictures: PageImages) -> None:
    """Gives one of the prompt's edits its image, or the reason why there is none."""
    if prompt is not None and row["model"] in prompt.edits:
        edit = prompt.edits[row["model"]]
        edit["image"] = pictures.add(row["image"])
        edit["reason"] = edit["reason"] or row["reason"]


def report(values: dict[str, Any], files: Files, folder: Path) -> None:
    """Writes the page and what it loads into `folder`."""
    setting, shown = section(values, "report", ReportSetting), results(values, files)
    items, pictures = items_of(values, files), PageImages(folder / "images", setting.image_side)
    every, tasks = prompts_of(values, items, files)
    prompts = gallery.chosen(every, setting.pairs)
    illustrate(values, prompts, items, files, pictures)
    data: dict[str, Any] = {"results": shown, "tasks": tasks, "images": pictures.rows}
    data |= {name: sum(len(prompt.pairs) for prompt in own) for name, own in (("pairs", every), ("shown", prompts))}
    page.write(folder, "Image edits, compared", data | {"missing": files.missing} | gallery.as_json(prompts))


def run() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    report(params.load(), Files(), OUT)


if __name__ == "__main__":
    stage(__doc__, run)
