"""`editjudge compare` and `score`: single edits, by judges, measures and scorers."""

from dataclasses import asdict
from pathlib import Path

import editjudge
from editjudge.cli.printing import Box, Params, table
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.files import write_bytes
from editjudge.core.records import write_json

Figures = dict[str, tuple[float | None, float | None]]  # the values of A and B by `area.measure`


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
    html: Path | None = None,
    params: Params = None,
) -> None:
    """Say which of two edits kept better what had to stay.

    Each judge is asked in both orders of the edits; p(A) is its probability that A wins. What was asked is kept in
    work/ and not asked again.

    Args:
        source: The image before the edits: PNG, JPEG or WebP.
        a: The first edit.
        b: The second edit.
        instruction: What was asked for.
        judge: Names of judges in the settings; the first one if none is given. The judge `measures` needs no model.
        task: Print the measures of this task's recipe, such as color_alter; the judge `measures` needs it.
        measures: Print these measures, such as ssim, or with an area, unedit_area.ssim.
        box: Where the edit is: X0 Y0 X1 Y1 in pixels. May be given several times.
        html: Write all of it with the images as one page.
    """
    if task and measures:
        raise UserError("--task and --measures exclude each other")
    values, boxes, names = settings.load_own(params), box or (), measures or []
    judges = judge or [next(iter(settings.leaf(values, "judges")))]
    for name in judges:
        if (values["judges"].get(name) or {}).get("backend") == "measures" and not task:
            raise UserError(f"--judge {name} needs --task, such as --task color_alter, and mostly --box")
    figures, found = Figures(), dict[str, "editjudge.Comparison"]()
    if task or names:
        editjudge.api.recipe_asked(task, names, boxes, "--box")
        first, second = (
            editjudge.measure(source, edit, names, task=task, boxes=boxes, params=params).values for edit in (a, b)
        )
        figures = {name: (value, second[name]) for name, value in first.items()}
    for name in judges:
        with editjudge.load_judge(name, params=params) as loaded:
            found[name] = loaded.compare(source, a, b, instruction, task=task, boxes=boxes)
    rows = [
        (what, each.winner or f"no verdict: {each.reason}", each.p_a)
        for name, both in found.items()
        for what, each in ((name, both), ("  asked as A, B", both.forward), ("  asked as B, A", both.backward))
    ]
    table(("judge", "winner", "p(A)"), rows)
    if figures:
        print()
        table(("measure", "A", "B", "better"), [(name, *both, _better(name, *both)) for name, both in figures.items()])
    if html:
        from editjudge.cli.show import page_of_pair  # here: it loads more

        recipe = editjudge.api.recipe_asked(task, names, boxes, "--box")
        write_bytes(html, page_of_pair((source, a, b), instruction, found, figures, recipe, boxes, values).encode())


def _better(name: str, a: float | None, b: float | None) -> str:
    """Whose value is the better one."""
    if a is None or b is None:
        return f"not measured of {'both' if a is b else 'A' if a is None else 'B'}"
    gain = editjudge.api.DIRECTIONS[name.rpartition(".")[2]] * (a - b)
    return "equal" if gain == 0 else "Image A" if gain > 0 else "Image B"


def score(
    *,
    scorer: str,
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
        scorer: A name in `scorers` or `raters` of the settings; dino_i needs no model.
        source: The image before the edit: PNG, JPEG or WebP.
        edit: The edited image.
        instruction: What was asked for.
        task: The kind of edit; a rater has a rubric for each.
        json: Write the figures to this file, too.
    """
    found = editjudge.score(source, edit, instruction, scorer=scorer, task=task, params=params)
    if found.overall is None:
        raise UserError(f"{edit} is unscored: {found.reason}")
    rows = [(name, value, found.std.get(name)) for name, value in found.dimensions.items()]
    rows += [("overall", found.overall, found.overall_std)]
    rows += [("calibrated", found.calibrated, None)] if found.calibrated is not None else []
    table(("dimension", "score", "standard deviation"), rows)
    if json:
        write_json(json, asdict(found))
