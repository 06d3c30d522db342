"""What other thresholds would do to the training pairs: `editjudge thresholds`.

For each task and area, each of its two thresholds of z is set to the quantiles of z in turn, all others staying as in
params.yaml: how many pairs there are, of all comparisons of two candidates, and how many of them name the truly less
damaged side, if that is known.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from editjudge.core import params, records
from editjudge.core.files import replacing
from editjudge.core.params import ParamsError
from editjudge.core.settings import section
from editjudge.engine.progress import progress
from editjudge.labels import rules as tier_rules
from editjudge.labels import tiers
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting

QUANTILES = np.round(np.arange(0.05, 1.0, 0.05), 2)
SIDES = ("failure", "elite")
NOW = ""  # the quantile's place, in the row of the threshold as it is set


@dataclass(frozen=True)
class Group:
    """A prompt's candidates that were edited, and their known damages by model."""

    candidates: list[tiers.MeasuredEdit]
    damages: Mapping[str, float | None]


def groups_of(annotations: Sequence[records.Row], least_change: float) -> list[Group]:
    """The prompts of a task, in order."""
    return [
        Group(tiers.edited(rows, least_change, Counter()), {row["model"]: row["damage"] for row in rows})
        for rows in records.grouped(annotations, "key").values()
    ]


def z_values(groups: Sequence[Group], rules: Sequence[tiers.AreaRule]) -> dict[str, list[float]]:
    """All z by area."""
    found: dict[str, list[float]] = {rule.area: [] for rule in rules}
    for group in groups:
        for graded in tiers.grade(*tiers.counted(group.candidates, rules)):
            for area, z in graded.zs.items():
                found[area].append(z)
    return found


def counts(groups: Sequence[Group], rules: Sequence[tiers.AreaRule], mode: str, margin: float) -> records.Row:
    """Pairs that stand under the rules, and those that are true. share_right: None where no truth is known."""
    pairs = right = known = possible = 0
    for group in groups:
        possible += len(list(combinations(group.candidates, 2)))
        for pair in tiers.build_pairs(group.candidates, rules, mode=mode, margin=margin).pairs:
            won, lost = group.damages[pair.winner], group.damages[pair.loser]
            pairs += 1
            if won is not None and lost is not None:
                known, right = known + 1, right + (won < lost)
    shares = {"share_pairs": pairs / possible if possible else None, "share_right": right / known if known else None}
    return {"pairs": pairs, "known": known} | shares


def table_of(
    task: str, groups: Sequence[Group], rules: Sequence[tiers.AreaRule], how: Mapping
) -> Iterator[records.Row]:
    """A row for each area, threshold and quantile, and one for the threshold as it is set."""
    for area, zs in z_values(groups, rules).items():
        [number] = [n for n, rule in enumerate(rules) if rule.area == area]
        rule = rules[number]
        for side in SIDES if zs else ():
            grid = [(float(q), float(np.quantile(zs, q))) for q in QUANTILES]
            for quantile, z in [*grid, (NOW, getattr(rule, side))]:
                moved = replace(rule, **{side: z})
                if moved.failure > moved.elite:
                    continue
                found = counts(groups, [*rules[:number], moved, *rules[number + 1 :]], how["mode"], how["margin"])
                named = {"task": task, "area": area, "measure": rule.primary, "threshold": side}
                yield named | {"quantile": quantile, "z": z} | found


def draw(rows: Sequence[records.Row], out: Path) -> None:
    """A panel for each task and area: share of pairs, and of true ones, by either threshold; dots: as it is set."""
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((row["task"], row["area"]) for row in rows))
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.7 * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, sharey=True, squeeze=False).flat)
    for axis, (task, area) in zip(axes, panels, strict=False):
        own = [row for row in rows if (row["task"], row["area"]) == (task, area)]
        for side, colour in zip(SIDES, ("tab:red", "tab:blue"), strict=True):
            for name, style in (("share_pairs", "-"), ("share_right", ":")):
                curve = [r for r in own if r["threshold"] == side and r["quantile"] != NOW and r[name] is not None]
                axis.plot([r["z"] for r in curve], [r[name] for r in curve], style, color=colour)
                now = [r for r in own if r["threshold"] == side and r["quantile"] == NOW and r[name] is not None]
                axis.plot([r["z"] for r in now], [r[name] for r in now], "o", color=colour, markersize=4)
        axis.set_title(f"{task}\n{area}: {own[0]['measure']}", fontsize=9)
        axis.grid(alpha=0.3)
    axes[0].set_ylim(0, 1.04)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    figure.supxlabel("threshold of z", fontsize=9)
    labels = [f"{what}, by {side}" for side in SIDES for what in ("share of pairs", "share of true pairs")]
    drawn = figure.axes[0].get_lines()
    figure.legend([drawn[n] for n in (0, 2, 4, 6)], labels, loc="outside upper center", ncols=4, fontsize=9)
    with replacing(out) as partial:
        figure.savefig(partial, format=out.suffix.removeprefix(".") or "png", dpi=110)


def run(out: Path, chosen: Sequence[str], plot: Path | None) -> list[records.Row]:
    """Writes the table, and a picture of it to `plot`; the rows of the thresholds as they are set.

    chosen: tasks of params.yaml, none for all. Raises ParamsError and ContractError.
    """
    values = params.load()
    setting = section(values, "train_pairs", tier_rules.PairsSetting)
    missing = slot_settings.unconfigured(section(values, "measures", SlotSetting))
    tasks = params.leaf(values, "tasks")
    recipes = [load_recipe(Path(f"pipelines/{tasks[t]}/{t}.yaml")) for t in chosen or tasks if t in tasks]
    measured = [recipe for recipe in recipes if recipe.judge is None]
    rows: list[records.Row] = []
    for recipe in progress(measured, len(measured), "thresholds"):
        rules = tier_rules.read_rules(recipe, setting.thresholds, missing)
        annotations = records.read(Path(f"data/annotations/{recipe.task}.parquet"), "annotations")
        rows += table_of(recipe.task, groups_of(annotations, setting.least_change), rules, vars(setting))
    if not rows:
        raise ParamsError("no task that measures annotate has candidates to compare")
    out.parent.mkdir(parents=True, exist_ok=True)
    records.write_csv(out, rows)
    if plot:
        draw(rows, plot)
    return [row for row in rows if row["quantile"] == NOW]
