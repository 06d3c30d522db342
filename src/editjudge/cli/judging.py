"""`editjudge compare`, `score` and `measure`: edits of a user's own, by judges, scorers and measures."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from cyclopts import Parameter

from editjudge import api
from editjudge.cli.printing import Box, Params, complain, table
from editjudge.core import images, reading
from editjudge.core import masks as coded
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.files import replacing, work, write_bytes
from editjudge.core.records import Row, in_groups, write_json
from editjudge.core.tables import RowError, TableError
from editjudge.editors.galleries import pictures
from editjudge.editors.galleries.pictures import Given
from editjudge.engine import resume
from editjudge.judges.protocol import CONSISTENCY, Dimension
from editjudge.measures.annotation import batch, seen, slot_settings
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.sources import formats

Figures = dict[str, tuple[float | None, float | None]]  # the values of A and B by `area.measure`
AT_ONCE = 256  # sources in memory
SHOWN = 3  # keys of a reason on the terminal
TINY_BASE = "models/tiny_base"
WRITERS = {
    ".csv": lambda table, path: table.to_csv(path, index=False),
    ".jsonl": lambda table, path: table.to_json(path, orient="records", lines=True, force_ascii=False),
    ".parquet": lambda table, path: table.to_parquet(path, index=False),
}


def compare(
    *,
    source: Path,
    a: Path,
    b: Path,
    instruction: str,
    judge: list[str] | None = None,
    task: str | None = None,
    measures: list[str] | None = None,
    box: list[Box] | None = None,
    region: Literal["auto"] | None = None,
    dimension: Dimension = CONSISTENCY,
    html: Path | None = None,
    params: Params = None,
) -> None:
    """Say which of two edits kept better what had to stay.

    Each judge is asked in both orders of the edits; p(A) is its probability that A wins. A pair whose orders name
    different winners is undecided. What was asked is kept in work/ and not asked again. Without any verdict it ends
    with status 1.

    Args:
        source: The image before the edits: PNG, JPEG or WebP.
        a: The first edit.
        b: The second edit.
        instruction: What was asked for.
        judge: Names of judges in the settings, or folders or hub ids of models; the first one in the settings if none
            is given. The judge `measures` needs no model.
        task: Print the measures of this task's recipe, such as color_alter; the judge `measures` needs it.
        measures: Print these measures, such as ssim, or with an area, unedit_area.ssim.
        box: Where the edit is: X0 Y0 X1 Y1 in pixels. May be given several times.
        region: Or auto: where the two edits changed the source, and what stands out of it; it is printed first.
        dimension: In which respect the edits are compared.
        html: Write all of it with the images as one page."""
    if (task and measures) or (box and region):
        raise UserError("--task and --measures exclude each other, and so do --box and --region")
    if region:
        box = auto_region().of_files(source, a, b)
    values, boxes, names = settings.load_own(params), box or (), measures or []
    judges = judge or [next(iter(settings.leaf(values, "judges")))]
    for name in judges:
        if (values["judges"].get(name) or {}).get("backend") == "measures" and not task:
            raise UserError(f"--judge {name} needs --task, such as --task color_alter, and mostly --box")
    figures, about = Figures(), dict[str, Any](task=task, boxes=boxes, params=params)
    if task or names:
        api.recipe_asked(task, names, boxes, "--box")
        first, second = (api.measure(source, edit, names, **about).values for edit in (a, b))
        figures = {name: (value, second[name]) for name, value in first.items()}
    asked = about | {"dimension": dimension}
    found = {name: api.compare(source, a, b, instruction, judge=name, **asked) for name in judges}
    rows = []
    for name, both in found.items():
        verdict = "undecided: the verdict changes with the order" if both.undecided else _said(both)
        rows.append((name, verdict, both.p_a))
        rows += [(f"  asked as {order}", _said(each), each.p_a)
                 for order, each in (("A, B", both.forward), ("B, A", both.backward))]  # fmt: skip
        if is_tiny(values, name):
            complain("compare", f"{name} is a tiny judge for demonstration, it sees how much changed, not where: use"
                     " --judge measures --task TASK --box X0 Y0 X1 Y1, or a model's folder or hub id")  # fmt: skip
    table(("judge", "winner", "p(A)"), rows)
    print("".join(f"\n{name} said:\n{both.said}\n" for name, both in found.items() if both.said), end="")
    if figures:
        print()
        table(("measure", "A", "B", "better"), [(name, *both, _better(name, *both)) for name, both in figures.items()])
    if html:
        recipe = api.recipe_asked(task, names, boxes, "--box")
        write_bytes(html, page_of_pair((source, a, b), instruction, found, figures, recipe, boxes, values).encode())
    if all(both.winner is None for both in found.values()):
        raise UserError("no judge gave a verdict")


def auto_region() -> Any:
    """The module of `--region auto`, which a checkout alone has. UserError elsewhere."""
    try:
        return importlib.import_module("tools.auto_region")
    except ModuleNotFoundError:
        raise UserError("--region auto needs a checkout of editjudge (docs/small_models.md)") from None


def _said(answer: api.Answer | api.Comparison) -> str:
    return answer.winner or f"no verdict: {answer.reason}"


def is_tiny(values: dict[str, Any], name: str) -> bool:
    """Whether a judge is the graph's own, trained from the embedded base."""
    own = (values["judges"].get(name) or {}).get("model") in ("models/judge", TINY_BASE)
    return own and (values.get("train_judge") or {}).get("base") == TINY_BASE


def _better(name: str, a: float | None, b: float | None) -> str:
    """Whose value is the better one."""
    if a is None or b is None:
        return f"not measured of {'both' if a is b else 'A' if a is None else 'B'}"
    gain = api.DIRECTIONS[name.rpartition(".")[2]] * (a - b)
    return "equal" if gain == 0 else "Image A" if gain > 0 else "Image B"


def page_of_pair(
    files: Sequence[Path],
    instruction: str,
    found: dict[str, api.Comparison],
    figures: Figures,
    recipe: Recipe,
    boxes: Sequence[Box],
    values: dict[str, Any],
) -> str:
    """The page of two compared edits, with its images inside.

    files: source, A and B. found: by judge. recipe: its models are asked what they see. values: of params.yaml."""
    from editjudge.report.page import one_pair  # here: it loads more

    setting, shown = api.slot_setting_of(values), [file.read_bytes() for file in files]
    prompt = batch.prompt_of(shown[0], shown[1:], slot_settings.configured(recipe, setting), tuple(boxes))
    source, edits = seen.seen(prompt, Models(setting))
    layers, differences = zip(*(each if isinstance(each, tuple) else ({}, None) for each in edits), strict=True)
    verdicts = [
        {"judge": name, "winner": None if both.undecided else both.winner, "p_a": both.p_a}
        | {"reason": "the verdict changes with the order" if both.undecided else both.reason}
        | {"forward": both.forward.winner, "backward": both.backward.winner, "said": both.said}
        for name, both in found.items()
    ]
    measured: list[Row] = []
    for name, sides in figures.items():
        area, _, measure = name.rpartition(".")
        measured += [{"area": area, "measure": measure, "direction": api.DIRECTIONS[measure], "values": sides}]
    names = files[1].name, files[2].name
    return one_pair(instruction, shown, names, verdicts, measured, [source or {"boxes": boxes}, *layers], differences)


def score(
    *,
    scorer: Annotated[str, Parameter(name=("--scorer", "--judge"))],
    source: Path,
    edit: Path,
    instruction: str,
    task: str = "",
    json: Path | None = None,
    params: Params = None,
) -> None:
    """Say how good one edit is, by a scorer or a rater.

    Prints each dimension and the overall score; with `calibrated`, the share of the scorer's training edits that
    score lower.

    Args:
        scorer: A name in `scorers` or `raters` of the settings (dino_i needs no model), or the folder or hub id of a
            scorer, a rater, or a chat model, which is asked with VIEScore's prompts.
        source: The image before the edit: PNG, JPEG or WebP.
        edit: The edited image.
        instruction: What was asked for.
        task: The kind of edit; a rater has a rubric for each.
        json: Write the figures to this file, too."""
    found = api.score(source, edit, instruction, scorer=scorer, task=task, params=params)
    if found.overall is None:
        raise UserError(f"{edit} is unscored: {found.reason}")
    rows = [(name, value, found.std.get(name)) for name, value in found.dimensions.items()]
    rows += [("overall", found.overall, found.overall_std)]
    rows += [("calibrated", found.calibrated, None)] if found.calibrated is not None else []
    table(("dimension", "score", "standard deviation"), rows)
    if json:
        write_json(json, asdict(found))


class EditRegions:
    """Where the edit of each key is, from --boxes or --masks; nowhere without them."""

    def __init__(self, boxes: Path | None, masks: Path | None) -> None:
        rows = formats.by_key(boxes) if boxes else ()
        self.cells = {key: coded.own_cells(values.get) for key, values in rows}
        self.folder = boxes.parent if boxes else Path()
        self.masks = Given(masks) if masks else None

    def __call__(self, key: str, source: bytes, edits: Iterable[bytes] = ()) -> tuple[batch.Boxes, tuple[bytes, ...]]:
        """Boxes and masks. Raises RowError and ImageError."""
        cells = self.cells.get(key, {})
        if self.masks:
            found = self.masks(key)
            if isinstance(found, str):
                raise RowError(f"mask: {found}")
            cells = {"masks": found}
        shape = images.decode(source).shape[:2] if cells else (0, 0)
        return coded.of_rows(coded.read_own(cells, lambda path: reading.at_path(self.folder, path), *shape))


def rows_of(
    keys: Sequence[str],
    source: Given,
    edited: dict[str, Given],
    regions: Callable[[str, bytes, Iterable[bytes]], tuple[batch.Boxes, tuple[bytes, ...]]],
    recipe: Recipe,
    setting: SlotSetting,
    cache: resume.RecordCache,
) -> Iterator[Row]:
    """A row for each key and model, in order; what cannot be measured has failed with its reason."""
    for number, group in enumerate(in_groups(keys, AT_ONCE)):
        rows: dict[tuple[str, str], Row] = {}
        prompts, places = [], []
        for key in group:
            own, where, given = source(key), None, {name: edit(key) for name, edit in edited.items()}
            try:
                known = (image for image in given.values() if isinstance(image, bytes))
                where = regions(key, own, known) if isinstance(own, bytes) else None
                why = None if where else f"source: {own!s}"
            except (RowError, images.ImageError) as error:
                why = f"regions: {error}" if isinstance(error, RowError) else f"source: {error}"
            found = {name: why or image for name, image in given.items()}
            for name, image in found.items():
                rows[key, name] = {"key": key, "model": name, "status": "failed", "reason": image}
            edits = [(name, image) for name, image in found.items() if isinstance(image, bytes)]
            if edits and where and isinstance(own, bytes):
                prompts.append(batch.prompt_of(own, [image for _, image in edits], recipe, *where))
                places.append((key, own, edits))
        what = f"sources {number * AT_ONCE + 1} to {number * AT_ONCE + len(group)} of {len(keys)}"
        taken = batch.measure_all(prompts, [recipe], setting, cache, what)
        for (key, data, edits), metas in zip(places, taken, strict=True):
            for (name, image), meta in zip(edits, metas, strict=True):
                rows[key, name] = {"key": key, "model": name} | _row(data, image, meta)
        yield from rows.values()


def _row(source: bytes, edited: bytes, meta: Row) -> Row:
    values, reasons = batch.values_of(meta)
    changed = pictures.aspect_change(images.decode(source), images.decode(edited)) if meta["status"] == "done" else None
    unscored = "; ".join(f"{name}: {why}" for name, why in reasons.items()) or None
    row = {name: meta[name] for name in ("status", "reason", "change", "edited_area_ratio")}
    return row | {"aspect_change": changed, "unscored": unscored} | values


def measure(
    *,
    source: Path,
    edited: list[Path],
    out: Path,
    task: str | None = None,
    measures: list[str] | None = None,
    boxes: Path | None = None,
    masks: Path | None = None,
    region: Literal["auto"] | None = None,
    limit: int | None = None,
    params: Params = None,
) -> None:
    """Measure many edits of your own: a table with a row for each edit.

    A folder has an image for each key, KEY.png, .jpg, .jpeg or .webp; a gallery or a table serves too. What is finished
    is kept in work/measure and not measured again.

    Args:
        source: Folder of the photos.
        edited: Folders of edits, one for each model, which it gives its name.
        out: The table: CSV, JSON lines or Parquet, by its ending.
        task: Measures of this task's recipe, such as color_alter.
        measures: Or these measures, such as ssim, or with an area, unedit_area.ssim.
        boxes: A table with the columns key and boxes or masks: where each edit is.
        masks: Or a folder with a mask for each key, whose brighter half is where the edit is.
        region: Or auto: where the edits of a key changed it, and what stands out of it. Each box is printed and drawn
            into OUT.regions, whose boxes.csv you can correct and give as --boxes.
        limit: Only so many photos."""
    if out.suffix not in WRITERS:
        raise TableError(f"--out {out}: {', '.join(WRITERS)} expected")
    if bool(task) == bool(measures) or sum(map(bool, (boxes, masks, region))) > 1:
        raise UserError("give either --task or --measures, and at most one of --boxes, --masks and --region auto")
    setting = api.slot_setting_of(settings.load_own(params))
    recipe = api.recipe_asked(task, measures or [], boxes or masks or region, "--boxes, --masks or --region auto")
    configured, missing = slot_settings.configured(recipe, setting), slot_settings.unconfigured(setting)
    for name in dict.fromkeys(n for _, names in recipe.areas for n in names if n in missing):
        complain("measure", f"{name} is left out: {missing[name]}")
    if not configured.areas:
        raise settings.ParamsError("no measure is left: configure a model under `measures` of the settings")
    sources, edits = Given(source), {path.name: Given(path, path.name) for path in edited}
    auto = auto_region().AutoRegions(out.with_suffix(".regions")) if region else None
    keys, regions = sources.listed(), auto or EditRegions(boxes, masks)
    without = sorted({key for each in edits.values() for key in each.listed()} - set(keys))
    with resume.RecordCache(work("measure", "records.sqlite")) as cache:
        rows = list(rows_of(keys[:limit], sources, edits, regions, configured, setting, cache))
    names = [f"{area}.{name}" for area, own in configured.areas for name in own]  # whether taken of any edit or not
    first = ["key", "model", "status", "reason", "change", "edited_area_ratio", "aspect_change"]
    found = pd.DataFrame(rows, columns=[*first, *names, "unscored"])
    with replacing(out) as partial:
        WRITERS[out.suffix](found, partial)
    failed = found[found["status"] == "failed"]
    if auto:
        print(f"regions: {auto.write()}, for --boxes; look at the pictures beside it")
    print(f"measure: {len(found)} edits, {len(failed)} failed")
    for reason, its in failed.groupby("reason"):
        print(f"  {len(its)} {reason}: {_some([f'{row.model}/{row.key}' for row in its.itertuples()])}")
    if without:
        print(f"  {len(without)} keys of edits have no source: {_some(without)}")
    means: list[Any] = []
    for name in (name for name in names if found[name].notna().any()):
        of_model = found.groupby("model", sort=False)[name]
        means += [(name, str(model), float(own.mean()), int(own.count())) for model, own in of_model]
    table(("measure", "model", "mean", "edits"), means)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
