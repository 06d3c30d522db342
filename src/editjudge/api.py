"""Judge image edits from Python: `compare`, `score`, `measure`, `rank`, and `load_judge` for many calls.

An image is a file's path, the bytes of a PNG, JPEG or WebP, a PIL image, or an array: RGB, uint8, (H, W, 3).

Judges are entries of `judges`, `scorers` or `raters` in a params.yaml: the file `params`, else the one in the current
folder, else the one that comes with the package. A model without an entry is named by its folder or hub id. Answers are
kept in the folder `work`, or where the environment variable EDITJUDGE_WORK says, and a question that was answered is
not asked again. An error that a caller can fix is a `UserError` with one line: a file that is missing, a name that is
unknown, a model that cannot be loaded."""

import io
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageOps

from editjudge.core import hub, images
from editjudge.core import params as settings
from editjudge.core.errors import FileError, UserError
from editjudge.core.masks import mask_png
from editjudge.core.prompts import RECORDED_RUBRICS
from editjudge.core.regions import mask_box
from editjudge.core.settings import section
from editjudge.core.winner import Winner
from editjudge.engine.local import OwnProcess
from editjudge.judges import opening
from editjudge.judges.protocol import CONSISTENCY, Context, Dimension, Edit, Question, Unscored, mirrored
from editjudge.measures.annotation import batch, slot_settings
from editjudge.measures.annotation.recipe import Recipe, recipe_for, recipe_of
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.measures.names import DIRECTIONS
from editjudge.models.weights.adapter import ADAPTER, read_json
from editjudge.statistics import boards

Picture: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | np.ndarray
Boxes: TypeAlias = Sequence[tuple[int, int, int, int]]
VIESCORE = "viescore_10"
OwnProcess.imports_program = False


@dataclass(frozen=True)
class Answer:
    """One answer of a judge, in terms of the caller's A and B.

    winner: "Image A", "Image B", "Tie", or None if there is no verdict, for the `reason`. p_a: the judge's probability
    that A wins, 0..1, ties apart; None if it gives none. reply: its words, if it has any."""

    winner: Winner | None
    p_a: float | None
    reason: str | None
    reply: str


@dataclass(frozen=True)
class Comparison:
    """Which of two edits is better, asked in both orders of the edits.

    winner: "Image A", "Image B", "Tie", or None if there is no verdict, for the `reason`; from the mean of both orders,
    also where it is `undecided`. p_a: the mean probability that A wins over both orders, 0..1; None if the judge gives
    none. forward, backward: the answers with A first, and with B first. scores: A's and B's, higher is better, if the
    judge compares by scores; else None. said: what a model wrote beside its verdict; None if it wrote nothing else."""

    winner: Winner | None
    p_a: float | None
    reason: str | None
    forward: Answer
    backward: Answer
    scores: tuple[float | None, float | None] = (None, None)
    said: str | None = None

    @property
    def undecided(self) -> bool:
        """Whether the two orders name different winners."""
        return None not in (winners := {self.forward.winner, self.backward.winner}) and len(winners) == 2


@dataclass(frozen=True)
class ScoredEdit:
    """How good one edit is; higher is better.

    overall: in the scorer's own unit; None if there is no score, for the `reason`. dimensions: by name, in that unit.
    std, overall_std: their standard deviations, if the scorer knows them. calibrated: 0..1, the share of the edits the
    scorer was trained on that score lower; None if unknown. said: a rater's reply."""

    overall: float | None
    dimensions: Mapping[str, float] = field(default_factory=dict)
    std: Mapping[str, float] = field(default_factory=dict)
    overall_std: float | None = None
    calibrated: float | None = None
    said: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class EditMeasures:
    """Measures of one edit, by `area.measure`.

    values: None for a measure that could not be taken, for the reason in `reasons`. directions: 1 if a higher value is
    better (less has changed that should have stayed), -1 if a lower one is."""

    values: Mapping[str, float | None]
    reasons: Mapping[str, str]
    directions: Mapping[str, int]


@dataclass(frozen=True)
class Ranking:
    """Editing models, best first.

    models: one mapping for each, with model, rating (1000 is the mean), low and high (its 95 % interval, None if there
    is none), rank, rank_low, rank_high, p_best (0..1, how likely it is the best of all) and matches. matches, ties,
    unscored: how many there were; an unscored match is no tie. warnings: in words. details: all figures, such as tie
    parameters, win rates and separated groups, as `editjudge rank --json` writes them."""

    models: Sequence[Mapping[str, Any]]
    matches: int
    ties: int
    unscored: int
    warnings: Sequence[str]
    details: Mapping[str, Any]


class LoadedJudge(ExitStack):
    """A judge for many calls, from `load_judge`. Its models are loaded for the first question. They stay until `close`,
    or until its `with` block ends: then its processes and servers end, too."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        super().__init__()
        self.name = name
        self._measures = slot_setting_of(values)
        self.judge = self.enter_context(opening.find_judge(values, name))

    def compare(
        self,
        source: Picture,
        a: Picture,
        b: Picture,
        instruction: str,
        *,
        task: str | None = None,
        boxes: Boxes = (),
        dimension: Dimension = CONSISTENCY,
    ) -> Comparison:
        """Which of two edits is better; see the function `compare`."""
        context = None
        if task is not None:
            recipe = slot_settings.configured(recipe_of(task), self._measures)
            context = Context(recipe, tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in boxes), self._measures)
        pictures = to_bytes(source), to_bytes(a), to_bytes(b)
        question = Question("compared", instruction, *pictures, context=context, task=task or "")
        [found] = self.judge.compare([question], dimension)
        told = (found.combined, found.forward, mirrored(found.backward))
        both, forward, backward = (Answer(each.winner, each.p_a, each.reason, each.reply) for each in told)
        return Comparison(both.winner, both.p_a, both.reason, forward, backward, found.scores, self.judge.said(found))

    def score(self, source: Picture, edited: Picture, instruction: str, *, task: str = "") -> ScoredEdit:
        """How good one edit is; see the function `score`."""
        [score] = self.judge.score([Edit(instruction, to_bytes(source), to_bytes(edited), task=task)])
        if isinstance(score, Unscored):
            return ScoredEdit(None, reason=score.reason, said=score.said)
        return ScoredEdit(**vars(score))


def load_judge(
    name: str | None = None, *, prompt: str | None = None, params: str | os.PathLike[str] | None = None
) -> LoadedJudge:
    """A judge by its name in `judges`, `scorers` or `raters`, or by the folder or hub id of its model; the first of
    `judges` without one. prompt: what a model without an entry is asked, such as reason_first, or viescore_10 for
    scores of single edits; without it a judge that was trained here is asked its own question, a rater by its rubrics,
    others the general one.

    Raises ParamsError if there is none of this name, its settings are wrong or its model is not there.

    >>> with load_judge("measures") as judge:
    ...     found = judge.compare(photo, near, far, "Make it red", task="color_alter", boxes=[(30, 20, 66, 52)])
    ...     again = judge.compare(photo, far, near, "Make it red", task="color_alter", boxes=[(30, 20, 66, 52)])
    >>> found.winner, again.winner
    ('Image A', 'Image B')"""
    return _load(own_settings(params), name, prompt)


def _load(values: dict[str, Any], name: str | None, prompt: str | None, scores: bool = False) -> LoadedJudge:
    wanted = name or next(iter(settings.leaf(values, "judges")))
    named = any(wanted in (values.get(section) or {}) for section in opening.SECTIONS)
    if named or not (Path(wanted).is_dir() or hub.is_id(wanted)):
        return LoadedJudge(values, wanted)
    section, entry = entry_of(wanted, prompt, scores)
    return LoadedJudge(values | dict.fromkeys(opening.SECTIONS) | {section: {"model": entry}}, "model")


def entry_of(model: str, prompt: str | None = None, scores: bool = False) -> tuple[str, dict[str, Any]]:
    """The section and the entry of a model that has none: a scorer, a LoRA adapter, a rater with the rubrics that it
    learnt, or any chat model. model: its folder or hub id. scores: it shall score edits; without rubrics, by VIEScore.

    FileError: an adapter that names no base. ParamsError: there is no such model."""
    folder = hub.find("judge", model)
    if (folder / "scorer.json").is_file():
        return "scorers", {"kind": "checkpoint", "model": model}
    entry = {"backend": "transformers", "model": model}
    if (file := folder / ADAPTER).is_file():
        said = read_json(file)
        base, revision = (str(said.get(name) or "") for name in ("base_model_name_or_path", "revision"))
        if not base:
            raise FileError(f"{file} names no base_model_name_or_path")
        entry |= {"model": f"{base}@{revision}" if revision and hub.is_id(base) else base, "adapter": str(folder)}
    if prompt is None and (folder / RECORDED_RUBRICS).is_dir():
        return "raters", entry
    asked = prompt or (VIESCORE if scores else None)
    return "judges", entry | {"rule": "probability"} | ({"prompt": asked} if asked else {})


def compare(
    source: Picture,
    a: Picture,
    b: Picture,
    instruction: str,
    *,
    judge: str | None = None,
    task: str | None = None,
    boxes: Boxes = (),
    dimension: Dimension = CONSISTENCY,
    params: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Which of two edits of a source is better: by default, which kept better what had to stay.

    instruction: what was asked for. judge: its name or model, see `load_judge`. dimension: visual_consistency,
    instruction_following, visual_quality or overall. task, boxes: what the judge `measures`
    needs, and others ignore: a task with measures, such as color_alter, and where the edit is, (x0, y0, x1, y1) in
    pixels of the source, x1 and y1 exclusive. An image that cannot be used gives no winner but a reason.

    Raises UserError: a file that is missing, an unknown judge or task, a judge that cannot be asked.

    >>> found = compare(photo, near, far, "Make it red", judge="measures", task="color_alter", boxes=[(30, 20, 66, 52)])
    >>> found.winner, found.forward.winner, found.backward.winner
    ('Image A', 'Image A', 'Image A')"""
    with load_judge(judge, params=params) as loaded:
        return loaded.compare(source, a, b, instruction, task=task, boxes=boxes, dimension=dimension)


def score(
    source: Picture,
    edited: Picture,
    instruction: str,
    *,
    scorer: str,
    task: str = "",
    params: str | os.PathLike[str] | None = None,
) -> ScoredEdit:
    """How good one edit is, by an entry of `scorers` or `raters`, or by the folder or hub id of a scorer or of a chat
    model: by the rubrics that it learnt, or with VIEScore's prompts (0 to 10). task: raters have a rubric for each.

    An image that cannot be used gives no score but a reason. Raises UserError: a file that is missing, an unknown
    scorer, a model that is not there, a judge that only compares.

    >>> found = score(photo, near, "Make it red", scorer="dino_i")
    >>> -1 <= found.overall <= 1, found.reason
    (True, None)"""
    with _load(own_settings(params), scorer, None, scores=True) as loaded:
        return loaded.score(source, edited, instruction, task=task)


def measure(
    source: Picture,
    edited: Picture,
    names: Iterable[str] = (),
    *,
    task: str | None = None,
    boxes: Boxes = (),
    masks: Sequence[np.ndarray] = (),
    params: str | os.PathLike[str] | None = None,
) -> EditMeasures:
    """Measures of one edit, by their names, `ssim` or with an area, `unedit_area.ssim`; or those of a task's recipe.

    boxes: (x0, y0, x1, y1) in pixels of the source, x1 and y1 exclusive, or masks: bool, (H, W): where the edit is.
    Raises UserError: an unknown measure, one whose model is not configured, or images that cannot be measured.

    >>> found = measure(photo, near, ["unedit_area.delta_e", "edit_area.ssim"], boxes=[(30, 20, 66, 52)])
    >>> found.values["unedit_area.delta_e"], found.directions["unedit_area.delta_e"]
    (0.0, -1)"""
    setting = slot_setting_of(own_settings(params))
    recipe = recipe_for(list(names), bool(boxes or len(masks)))
    if task:
        recipe = slot_settings.configured(recipe_of(task), setting)
    missing = slot_settings.unconfigured(setting)
    for name in (name for _, name in recipe.measures if name in missing):
        raise settings.ParamsError(f"{name} is not configured: {missing[name]}")
    try:
        where = tuple(boxes) or tuple(map(mask_box, masks)), tuple(map(mask_png, masks))
        prompt = batch.prompt_of(to_bytes(source), [to_bytes(edited)], recipe, *where)
        [meta] = batch.measure_group([prompt], Models(setting))
    except ValueError as error:
        raise UserError(f"nothing can be measured: {error}") from None
    if meta["status"] == "failed":
        raise UserError(f"nothing can be measured: {meta['reason']}")
    values, reasons = batch.values_of(meta)
    return EditMeasures(values, reasons, {name: DIRECTIONS[name.rpartition(".")[2]] for name in values})


def rank(
    *files: str | os.PathLike[str],
    prior: str = "weak",
    weighting: str = "balanced",
    ties: str = "davidson",
    replicates: int = 2000,
    seed: int = 0,
    anchor: str | None = None,
    anchor_rating: float = 1000.0,
    exclude: Collection[str] = (),
    judge: str | None = None,
    models: Collection[str] | None = None,
    by: Collection[str] = (),
) -> Ranking:
    """Ratings of editing models from match files (JSON lines, CSV or Parquet); each file is a dimension.

    prior: of the abilities, weak or published. weighting of the dimensions: balanced or by_matches. ties: davidson, or
    halves (Bradley-Terry). replicates: for the intervals of ranks, 0 for none. anchor: the model that stands at
    anchor_rating. exclude: models whose matches are left out. judge: whose matches count, if the files have several.
    models: all names, to resolve unclear keys. by: columns (dimension, task) whose values get a board of their own.

    Raises UserError: a file that is missing or malformed, a model that is unknown, matches that cannot be rated.

    >>> found = rank("matches.jsonl", replicates=0)
    >>> [row["model"] for row in found.models], found.unscored
    (['x', 'y'], 1)"""
    setting = {"prior": prior, "weighting": weighting, "ties": ties, "replicates": replicates, "seed": seed}
    setting |= {"anchor": anchor or boards.NO_ANCHOR, "anchor_rating": anchor_rating, "exclude": tuple(exclude)}
    paths = [Path(file) for file in files]
    details = boards.rank_files(paths, setting, models, judge, by)
    counts = {name: details[name] for name in ("models", "matches", "ties", "unscored", "warnings")}
    return Ranking(**counts, details=details)


def to_bytes(picture: Picture) -> bytes:
    """An image as encoded bytes. FileError, ParamsError: no such file, or an array of another form."""
    if isinstance(picture, bytes):
        return picture
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise UserError(f"an image array must be RGB, uint8, (H, W, 3), not {picture.dtype} {picture.shape}")
        return images.encode_png(picture)
    if isinstance(picture, Image.Image):
        upright, out = ImageOps.exif_transpose(picture), io.BytesIO()
        (upright.convert("RGB") if upright.mode in ("CMYK", "YCbCr", "LAB", "HSV", "F") else upright).save(out, "PNG")
        return out.getvalue()
    file = Path(picture)
    if not file.is_file():
        raise FileError(f"{file}: no such file")
    return file.read_bytes()


def slot_setting_of(values: Mapping[str, Any]) -> SlotSetting:
    """The section `measures`, or its defaults without one. ParamsError."""
    return section(values, "measures", SlotSetting) if "measures" in values else SlotSetting()


def recipe_asked(task: str | None, names: Sequence[str], regions: object, options: str) -> Recipe:
    """The recipe of a task, or of measures. ParamsError: it must know where the edit is, which these options say."""
    recipe = recipe_of(task) if task else recipe_for(names, bool(regions))
    if not regions and {"image"} != {recipe.changed_area, *dict(recipe.areas)}:
        raise settings.ParamsError(f"these measures need to know where the edit is: {options}")
    return recipe


def own_settings(given: str | os.PathLike[str] | None) -> dict[str, Any]:
    """All settings; dino_i, which needs no weights, is a scorer without an entry, too. ParamsError."""
    values = settings.load_own(Path(given) if given is not None else None)
    return values | {"scorers": {"dino_i": {"kind": "dino_i"}} | (values.get("scorers") or {})}
