"""What other thresholds would do to the training pairs, to choose your own.

    python -m tools.thresholds --out thresholds.csv --plot thresholds.png

For each task and area, each of its two thresholds of z is set to the quantiles of z in turn, all others staying as in
params.yaml: how many pairs there are, of all comparisons of two candidates, and how many of them name the truly less
damaged side, if that is known."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from cyclopts import App, Parameter

from editjudge.cli.printing import table
from editjudge.core import params, records
from editjudge.core.files import replacing
from editjudge.core.main import guarded
from editjudge.core.params import ParamsError
from editjudge.core.settings import section
from editjudge.engine.progress import progress
from editjudge.labels import tiers
from editjudge.measures.annotation.recipe import load_recipes

QUANTILES = np.round(np.arange(0.05, 1.0, 0.05), 2)
SIDES = ("failure", "elite")
SHOWN = ("task", "area", "measure", "threshold", "z", "pairs", "share_pairs", "known", "share_right")
NOW = ""  # the quantile's place, in the row of the threshold as it is set
Group: TypeAlias = tuple[list[tiers.MeasuredEdit], dict[str, float | None]]
"""A prompt's candidates that were edited, and their known damages by model."""


def counts(groups: Sequence[Group], rules: Sequence[tiers.AreaRule], mode: str, margin: float) -> records.Row:
    """Pairs that stand under the rules, and those that are true. share_right: None where no truth is known."""
    pairs = right = known = possible = 0
    for candidates, damages in groups:
        possible += comb(len(candidates), 2)
        for pair in tiers.build_pairs(candidates, rules, mode=mode, margin=margin)[0]:
            won, lost = damages[pair.winner], damages[pair.loser]
            pairs += 1
            if won is not None and lost is not None:
                known, right = known + 1, right + (won < lost)
    shares = {"share_pairs": pairs / possible if possible else None, "share_right": right / known if known else None}
    return {"pairs": pairs, "known": known} | shares


def table_of(
    task: str, annotations: Sequence[records.Row], rules: Sequence[tiers.AreaRule], setting: tiers.PairsSetting
) -> Iterator[records.Row]:
    """A row for each area of a task, threshold and quantile, and one for the threshold as it is set."""
    groups: list[Group] = [
        (tiers.edited(rows, setting.least_change, Counter()), {row["model"]: row["damage"] for row in rows})
        for rows in records.grouped(annotations, "key").values()
    ]
    graded = [each for candidates, _ in groups for each in tiers.grade(candidates, rules)[0]]
    for number, rule in enumerate(rules):
        zs = [each.zs[rule.area] for each in graded if rule.area in each.zs]
        for side in SIDES if zs else ():
            grid = [(float(q), float(np.quantile(zs, q))) for q in QUANTILES]
            for quantile, z in [*grid, (NOW, getattr(rule, side))]:
                moved = replace(rule, **{side: z})
                if moved.failure <= moved.elite:
                    found = counts(groups, [*rules[:number], moved, *rules[number + 1 :]], setting.mode, setting.margin)
                    named = {"task": task, "area": rule.area, "measure": rule.primary, "threshold": side}
                    yield named | {"quantile": quantile, "z": z} | found


def draw(rows: Sequence[records.Row], out: Path) -> None:
    """A panel for each task and area: share of pairs, and of true ones, by either threshold; dots: as it is set."""
    from matplotlib.figure import Figure

    panels = list(pd.DataFrame(rows).groupby(["task", "area", "measure"], sort=False))
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.7 * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, sharey=True, squeeze=False).flat)
    for axis, ((task, area, measure), panel) in zip(axes, panels, strict=False):
        for side, colour in zip(SIDES, ("tab:red", "tab:blue"), strict=True):
            for name, style in (("share_pairs", "-"), ("share_right", ":")):
                own = panel[(panel["threshold"] == side) & panel[name].notna()]
                for now, form in ((False, style), (True, "o")):
                    shown = own[(own["quantile"] == NOW) == now]
                    label = f"{'share of pairs' if style == '-' else 'share of true pairs'}, by {side}"
                    axis.plot(shown["z"], shown[name], form, color=colour, markersize=4, label="" if now else label)
        axis.set_title(f"{task}\n{area}: {measure}", fontsize=9)
        axis.grid(alpha=0.3)
    axes[0].set_ylim(0, 1.04)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    figure.supxlabel("threshold of z", fontsize=9)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9)
    with replacing(out) as partial:
        figure.savefig(partial, format=out.suffix.removeprefix(".") or "png", dpi=110)


def thresholds(*, out: Path, task: list[str] | None = None, plot: Path | None = None) -> None:
    """Write the table, and print the thresholds as they are set.

    Reads data/annotations. ParamsError and ContractError as they are.

    Args:
        out: The table, as CSV.
        task: Tasks of params.yaml; all without it.
        plot: A picture of it: PNG, PDF or SVG."""
    values = params.load()
    setting = section(values, "train_pairs", tiers.PairsSetting)
    tasks = params.leaf(values, "tasks")
    recipes = load_recipes({name: tasks[name] for name in task or tasks if name in tasks})
    measured = [recipe for recipe in recipes.values() if recipe.judge is None]
    rows: list[records.Row] = []
    for recipe in progress(measured, len(measured), "thresholds"):
        rules = tiers.rules_in(values, recipe)
        annotations = records.read(Path(f"data/annotations/{recipe.task}.parquet"), "annotations")
        rows += table_of(recipe.task, annotations, rules, setting)
    if not rows:
        raise ParamsError("no task that measures annotate has candidates to compare")
    records.write_csv(out, rows)
    if plot:
        draw(rows, plot)
    table(SHOWN, [[row[name] for name in SHOWN] for row in rows if row["quantile"] == NOW], digits=3)


if __name__ == "__main__":
    app = App(default_parameter=Parameter(negative=(), consume_multiple=True), help_format="plaintext")
    app.default(thresholds)
    guarded("thresholds", app)
