"""A contact sheet a prompt: what was measured of its edits, where, and the pairs that came of it.

    python -m editjudge.commands.sheet --task color_alter --key color_alter-train-00069

Reads the graph's data and writes work/sheets/TASK/KEY.png. The models are asked again, to draw what they see: boxes,
masks, faces, joints. Beneath each edit is the colour difference to the source.
"""

import argparse
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from editjudge.core import images, params, records
from editjudge.core.files import replacing, work
from editjudge.core.main import guarded
from editjudge.core.params import ParamsError
from editjudge.core.settings import known, read
from editjudge.editors.galleries.pictures import aspect_change
from editjudge.engine import resume
from editjudge.engine.progress import progress
from editjudge.grounding.grounded import Grounded
from editjudge.grounding.grounding import ground
from editjudge.grounding.settings import read_grounding
from editjudge.labels import rules as tier_rules
from editjudge.labels import tiers
from editjudge.measures.annotation import batch, slot_settings
from editjudge.measures.annotation.features import FeatureStore
from editjudge.measures.annotation.looking import Asking
from editjudge.measures.annotation.picture import Pair, Picture
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SLOTS, SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.names import DIRECTIONS
from editjudge.training.pictures import Pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS, WIDE = 4, 3.3  # cells side by side, and their width in inches
LINE = 0.155  # inches of a line of text
MOST_DELTA = 20.0  # ΔE from which the map is brightest
BOX, MASK, FACE, JOINT = "#ffd400", "#00e5ff", "#ff4fd8", "#7dff3c"
SHADES = {"elite": "#1b8a3a", "normal": "#5b6770", "failure": "#c0392b"}
OTHER = "#9a9a9a"  # of candidates without a tier
MODES = {"boxes": BOX, "masks": MASK, "faces": FACE, "joints": JOINT}


@dataclass(frozen=True)
class Shown:
    """One candidate: its annotation, its picture beside the source (or why there is none), whether it was measured and
    edited, its tier or what stands for it, and its z by area.
    """

    row: records.Row
    pair: Pair | None
    why: str | None
    counts: bool
    tier: str
    graded: tiers.Graded | None
    changed: float | None  # its own aspect ratio over the source's, where they differ


@dataclass(frozen=True)
class Sheet:
    prompt: records.Row
    source: Picture
    recipe: Recipe
    rules: Sequence[tiers.AreaRule]
    shown: list[Shown]
    pairs: list[str]  # a line each


def shown_of(
    rows: Sequence[records.Row], edits: Mapping[str, Any], rules: Sequence[tiers.AreaRule], least_change: float
) -> tuple[list[Shown], list[tiers.Candidate]]:
    """The candidates of a prompt with their tiers, and those of them that count. edits: by model, see Shown."""
    counted = tiers.edited(rows, least_change, Counter())
    graded = {g.candidate.model: g for g in (tiers.grade(*tiers.counted(counted, rules)) if rules else ())}
    names = {c.model for c in counted}
    found = []
    for row in rows:
        model = row["model"]
        pair, why, changed = edits[model]
        if row["status"] == "failed":
            name = "failed"
        elif model not in names:
            name = f"unedited: change {row['change']:.2f} of {least_change:g}"
        else:
            name = graded[model].tier if model in graded else ("unscored" if rules else "")
        found.append(Shown(row, pair, row["reason"] or why, model in names, name, graded.get(model), changed))
    best_first = sorted(found, key=lambda each: (not each.counts, -each.graded.z if each.graded else 0.0))
    return best_first, counted


def pair_lines(outcome: tiers.Outcome) -> list[str]:
    """What came of a prompt, in words."""
    lines = [f"{p.winner}  over  {p.loser}   {p.tiers.replace('_', ' ')}, by {p.margin:.2f}" for p in outcome.pairs]
    fell = ", ".join(f"{number} {why.replace('_', ' ')}" for why, number in outcome.dropped.items())
    lines += [f"no pair: {outcome.reason.replace('_', ' ')}"] if outcome.reason else []
    return lines + ([f"not paired: {fell}"] if fell else [])


# --- drawing


def draw(sheet: Sheet, out: Path) -> None:
    """Writes the sheet as PNG."""
    from matplotlib.figure import Figure

    height, width = sheet.source.rgb.shape[:2]
    tall = min(WIDE * height / width, 1.6 * WIDE)
    lines = 3 + sum(len(names) + 1.2 for _, names in sheet.recipe.areas)
    cells = 1 + len(sheet.shown)
    columns = min(COLUMNS, cells)
    bands = -(-cells // columns)
    head, foot = 4.2 * LINE, (len(sheet.pairs) + 2.5) * LINE
    band = 2 * tall + (lines + 1.5) * LINE
    total = head + bands * band + foot
    figure = Figure(figsize=(columns * WIDE + 0.3, total), facecolor="white")
    _words(figure, sheet, total)
    for number in range(cells):
        top = total - head - (number // columns) * band
        left = 0.15 + (number % columns) * WIDE
        inches = [left, WIDE - 0.12, columns * WIDE + 0.3, total]
        upper = _axis(figure, inches, top - tall, tall - 0.05)
        lower = _axis(figure, inches, top - 2 * tall, tall - 0.05)
        text = _axis(figure, inches, top - band + 1.5 * LINE, lines * LINE)
        text.set_xlim(0, 1)
        text.set_ylim(-lines, 0)
        if number == 0:
            _picture(upper, sheet.source)
            _legend(lower, sheet)
        else:
            _candidate(upper, lower, text, sheet, sheet.shown[number - 1])
    _paired(figure, sheet, total)
    with replacing(out) as partial:
        figure.savefig(partial, format="png", dpi=110)


def _axis(figure: "Figure", inches: Sequence[float], bottom: float, tall: float) -> "Axes":
    left, wide, whole_wide, whole_tall = inches
    axis = figure.add_axes((left / whole_wide, bottom / whole_tall, wide / whole_wide, tall / whole_tall))
    axis.set_axis_off()
    return axis


def _words(figure: "Figure", sheet: Sheet, total: float) -> None:
    prompt = sheet.prompt
    wide = int(figure.get_figwidth() * 11)
    figure.text(0.012, 1 - 1.3 * LINE / total, f"{prompt['task']}   {prompt['key']}", fontsize=9, color="#5b6770")
    words = textwrap.shorten(prompt["instruction"], 2 * wide)
    figure.text(0.012, 1 - 1.8 * LINE / total, textwrap.fill(words, wide), fontsize=12, weight="bold", va="top")


def _picture(axis: "Axes", picture: Picture, mask: np.ndarray | None = None) -> None:
    """An image and what is known of it. mask: of the edit's area, where it is not the boxes."""
    from matplotlib.patches import Rectangle

    axis.imshow(picture.rgb, aspect="equal")

    def frame(box: Sequence[float], colour: str, style: str = "-") -> None:
        corner, sides = (box[0] - 0.5, box[1] - 0.5), (box[2] - box[0], box[3] - box[1])
        axis.add_patch(Rectangle(corner, *sides, fill=False, color="black", linewidth=2.6, alpha=0.6))
        axis.add_patch(Rectangle(corner, *sides, fill=False, color=colour, linewidth=1.4, linestyle=style))

    for box in picture.boxes:
        frame(box, BOX)
    for each in _said(picture, "masks"):
        if each.any() and not each.all():
            axis.contour(each, levels=[0.5], colors=[MASK], linewidths=1.6)
    for face in _said(picture, "faces"):
        frame(face.box, FACE, "--")
        if face.landmarks is not None:
            axis.plot(*face.landmarks.T, ".", color=FACE, markersize=1.5)
    joints = picture.found.get("pose")
    if joints is not None and not isinstance(joints, ValueError):
        axis.plot(*joints.points[joints.seen].T, "o", color=JOINT, markersize=3.5, markeredgecolor="black")
    axis.set_xlim(-0.5, picture.rgb.shape[1] - 0.5)
    axis.set_ylim(picture.rgb.shape[0] - 0.5, -0.5)


def _said(picture: Picture, what: str) -> Sequence[Any]:
    found = picture.found.get(what)
    return [] if found is None or isinstance(found, ValueError) else found


def _candidate(upper: "Axes", lower: "Axes", text: "Axes", sheet: Sheet, shown: Shown) -> None:
    if shown.pair is None:
        upper.text(0.5, 0.5, textwrap.fill(shown.why or "no image", 34), ha="center", va="center", fontsize=9)
    else:
        _picture(upper, shown.pair.edited)
        lower.imshow(shown.pair.delta_e, cmap="magma", vmin=0, vmax=MOST_DELTA, aspect="equal")
        mask = _area(shown.pair)
        if mask is not None:
            lower.contour(mask, levels=[0.5], colors=["black"], linewidths=1.0)
            lower.contour(mask, levels=[0.5], colors=["white"], linewidths=0.8, linestyles="--")
    shade = SHADES.get(shown.tier, OTHER)
    tag = {"boxstyle": "square,pad=0.24", "color": shade}
    text.text(0.02, -0.8, shown.row["model"], fontsize=9.5, weight="bold", color="white", va="center", bbox=tag)
    z = "" if shown.graded is None else f"   z {shown.graded.z:+.2f}"
    text.text(1.0, -0.8, f"{shown.tier}{z}", fontsize=8.5, ha="right", va="center", color=shade)
    figures = {"change": shown.row["change"], "true damage": shown.row["damage"], "aspect changed by": shown.changed}
    said = [f"{name} {value:.2f}" for name, value in figures.items() if value is not None]
    _line(text, 2.0, "   ".join(said), colour="#b3541e" if shown.changed else "#5b6770")
    primary = {(rule.area, rule.primary) for rule in sheet.rules}
    at = 3.2
    for area, names in sheet.recipe.areas:
        z = f"z {shown.graded.zs[area]:+.2f}" if shown.graded and area in shown.graded.zs else ""
        _line(text, at, area, z, weight="bold")
        for name in names:
            at += 1
            value, colour = _value(sheet, shown, area, name)
            mark, arrow = "●" if (area, name) in primary else "  ", "↑" if DIRECTIONS[name] > 0 else "↓"
            _line(text, at, f"{mark} {name} {arrow}", value, colour=colour)
        at += 1.2


def _line(axis: "Axes", at: float, left: str, right: str = "", colour: str = "black", weight: str = "normal") -> None:
    axis.text(0.0, -at, left, fontsize=7.8, va="center", color=colour, weight=weight)
    axis.text(1.0, -at, right, fontsize=7.8, va="center", ha="right", color=colour, weight=weight)


def _value(sheet: Sheet, shown: Shown, area: str, name: str) -> tuple[str, str]:
    """A value in words, and its colour: of the candidates that count, the best is green and the worst red."""
    [row] = [m for m in shown.row["measures"] if (m["area"], m["measure"]) == (area, name)] or [{}]
    if row.get("value") is None:
        return textwrap.shorten(row.get("reason") or "left out", 34, placeholder="…"), OTHER
    own, text = row["value"] * DIRECTIONS[name], f"{row['value']:.4f}"
    if not shown.counts:
        return text, OTHER
    every = [m for s in sheet.shown if s.counts for m in s.row["measures"] if (m["area"], m["measure"]) == (area, name)]
    values = sorted(DIRECTIONS[name] * m["value"] for m in every if m["value"] is not None)
    ends = {values[0]: SHADES["failure"], values[-1]: SHADES["elite"]}
    return text, ends.get(own, "black") if len(ends) == 2 else "black"


def _area(pair: Pair) -> np.ndarray | None:
    """Where the edit is, as the measures take it; None where that is the whole image."""
    try:
        mask = pair.areas.mask("edit_area")
    except ValueError:
        return None
    return mask if mask.any() and not mask.all() else None


def _legend(axis: "Axes", sheet: Sheet) -> None:
    """Beneath the source: what colours mean, and the rules."""
    axis.set_xlim(0, 1)
    axis.set_ylim(0, 1)
    axis.text(0, 0.97, "source", fontsize=9.5, weight="bold", va="top")
    for number, (name, colour) in enumerate(MODES.items()):
        axis.text(0.02 + 0.25 * number, 0.84, name, fontsize=8, va="top", bbox={"color": colour, "pad": 1.5})
    rules = [
        f"{rule.area}: {rule.primary}\n    elite: z > {rule.elite:+.2f},  failure: z ≤ {rule.failure:+.2f}\n"
        + textwrap.fill(
            f"vote: {', '.join(name for name, _ in rule.secondary) or 'none'}",
            50, initial_indent="    ", subsequent_indent="    ",
        )
        for rule in sheet.rules
    ]  # fmt: skip
    words = f"beneath each edit: colour difference to the\nsource, black 0 to bright {MOST_DELTA:g} ΔE and more"
    axis.text(0, 0.72, "\n".join([words, "", *rules]), fontsize=7.8, va="top", linespacing=1.45)


def _paired(figure: "Figure", sheet: Sheet, total: float) -> None:
    top = (len(sheet.pairs) + 2) * LINE / total
    figure.text(0.012, top, "pairs", fontsize=9.5, weight="bold", va="top")
    figure.text(0.012, top - 1.3 * LINE / total, "\n".join(sheet.pairs), fontsize=8.2, va="top", linespacing=1.25)


# --- the graph's data


class Task:
    """What a task's sheets are made from. Raises ParamsError and ContractError."""

    def __init__(self, task: str) -> None:
        values = params.load()
        folders = params.leaf(values, "tasks")
        if task not in folders:
            raise ParamsError(f"tasks: {task!r} is none; {known(task, folders)}")
        self.task, self.recipe = task, load_recipe(Path(f"pipelines/{folders[task]}/{task}.yaml"))
        self.models: SlotSetting = slot_settings.read(params.leaf(values, "measures"))
        self.pairing = read("train_pairs", tier_rules.PairsSetting, params.leaf(values, "train_pairs"))
        self.grounding = read_grounding(params.leaf(values, "grounding"))
        missing = slot_settings.unconfigured(self.models)
        judged = self.recipe.judge is not None
        self.rules = () if judged else tier_rules.read_rules(self.recipe, self.pairing.thresholds, missing)
        self.recipe = slot_settings.configured(self.recipe, self.models)
        self.asking = Asking(Models(self.models), dict.fromkeys(SLOTS, ""), FeatureStore(Path(), 0.0))

    def prompts(self, keys: Sequence[str], limit: int) -> list[records.Row]:
        """The prompts with these keys; the first ones of the pool where there are none."""
        rows = records.iterate(Path(f"data/pools/{self.task}.parquet"), "pools")
        found = list(islice((row for row in rows if not keys or row["key"] in keys), None if keys else limit))
        absent = set(keys) - {row["key"] for row in found}
        if absent:
            raise ParamsError(f"data/pools/{self.task}.parquet has no key {', '.join(sorted(absent))}")
        return found

    def annotations(self, keys: Iterable[str]) -> dict[str, list[records.Row]]:
        found: dict[str, list[records.Row]] = {key: [] for key in keys}
        for row in records.iterate(Path(f"data/annotations/{self.task}.parquet"), "annotations"):
            if row["key"] in found:
                found[row["key"]].append(row)
        return found

    def sheet(self, prompt: records.Row, rows: list[records.Row], verdicts: list[records.Row]) -> Sheet:
        names = {row["model"]: f"data/candidates/{row['model']}/{self.task}.parquet/{prompt['key']}" for row in rows}
        pictures = Pictures(names.values())
        data = {model: pictures(name) for model, name in names.items()}
        shown = {model: image for model, image in data.items() if image}
        candidates = [{"key": prompt["key"], "model": m, "image": i, "status": "done"} for m, i in shown.items()]
        with resume.RecordCache(work("annotate", f"{self.task}.sqlite")) as cache:  # replies are kept there
            where = ground([prompt], candidates, self.recipe, self.grounding, cache).found
        at = {model: where[prompt["key"], model] for model in shown}
        first = next(iter(at.values()), Grounded())
        edits = tuple(batch.Edit(shown[model], at[model].edited, at[model].attributes) for model in shown)
        asked = batch.Prompt(prompt["image"], first.source, self.recipe, edits, first.masks)
        looked = dict(zip(shown, batch.looked_at([asked], self.asking), strict=True))
        rgb = images.decode(prompt["image"])
        every: dict[str, tuple[Pair | None, str | None, float | None]] = {}
        for model in names:
            seen = looked.get(model)
            pair, why = (seen[0], None) if isinstance(seen, tuple) else (None, str(seen or "no image"))
            changed = aspect_change(rgb, images.decode(shown[model])) if pair else None
            every[model] = (pair, why, changed)
        found, counted = shown_of(rows, every, self.rules, self.pairing.least_change)
        source = next((pair.source for pair, *_ in every.values() if pair), Picture(rgb, ()))
        return Sheet(prompt, source, self.recipe, self.rules, found, self._pairs(counted, verdicts))

    def _pairs(self, counted: Sequence[tiers.Candidate], verdicts: Iterable[records.Row]) -> list[str]:
        if self.rules:
            how = self.pairing
            return pair_lines(tiers.build_pairs(counted, self.rules, mode=how.mode, margin=how.margin))
        sides = {"Image A": "over", "Image B": "under", "Tie": "ties with"}
        return [
            f"{v['model_a']}  {sides.get(v['winner'], 'undecided against')}  {v['model_b']}   {v['reason'] or ''}"
            for v in verdicts
        ]


def run(options: argparse.Namespace) -> None:
    """The command."""
    task = Task(options.task)
    prompts = task.prompts(options.key, options.limit)
    annotations = task.annotations(prompt["key"] for prompt in prompts)
    judged = records.iterate(Path(f"data/pair_verdicts/{task.task}.parquet"), "pair_verdicts") if not task.rules else ()
    verdicts = [row for row in judged if row["key"] in annotations]
    folder = options.out or work("sheets", task.task)
    for prompt in progress(prompts, len(prompts), f"sheets of {task.task}"):
        key = prompt["key"]
        sheet = task.sheet(prompt, annotations[key], [row for row in verdicts if row["key"] == key])
        draw(sheet, folder / f"{key}.png")
    print(f"sheet: {len(prompts)} in {folder}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--task", required=True, metavar="T")
    add("--key", nargs="+", default=[], metavar="KEY", help="prompts; the first ones of the pool, if not given")
    add("--limit", type=int, default=12, metavar="N", help="how many of them (12)")
    add("--out", type=Path, metavar="FOLDER", help="work/sheets/T, if not given")
    guarded("sheet", run, parser.parse_args())


if __name__ == "__main__":
    main()
