"""`editjudge compare`."""

from collections.abc import Sequence
from pathlib import Path

import editjudge
from editjudge.cli.options import Box, Params
from editjudge.cli.printing import table
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.files import write_bytes
from editjudge.core.shipped import settings_file


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
    values, boxes, found = settings.load(settings_file(params)), box or (), dict[str, "editjudge.Comparison"]()
    judges = judge or [next(iter(settings.leaf(values, "judges")))]
    for name in judges:
        if (values["judges"].get(name) or {}).get("backend") == "measures" and not task:
            raise UserError(f"--judge {name} needs --task, such as --task color_alter, and mostly --box")
    figures = measured((source, a, b), task, measures or [], boxes, params)
    for name in judges:
        with editjudge.load_judge(name, params=params) as loaded:
            found[name] = loaded.compare(source, a, b, instruction, task=task, boxes=boxes)
    table(("judge", "winner", "p(A)"), [row for name, each in found.items() for row in verdict_rows(name, each)])
    if figures:
        print()
        table(("measure", "A", "B", "better"), [(name, *both, better(name, *both)) for name, both in figures.items()])
    if html:
        from editjudge.cli.pair_page import page_of

        page = page_of((source, a, b), instruction, found, figures, (task, measures or []), boxes, params)
        write_bytes(html, page.encode())


def verdict_rows(judge: str, found: "editjudge.Comparison") -> list[tuple[str, str, float | None]]:
    """The verdict over both orders, and beneath it each order's."""
    orders = (judge, found), ("  asked as A, B", found.forward), ("  asked as B, A", found.backward)
    return [(what, each.winner or f"no verdict: {each.reason}", each.p_a) for what, each in orders]


def measured(
    pictures: Sequence[Path], task: str | None, names: Sequence[str], boxes: Sequence[Box], params: Path | None
) -> dict[str, tuple[float | None, float | None]]:
    """The values of A and B by `area.measure`; none if neither a task nor measures are given."""
    if not task and not names:
        return {}
    editjudge.api.check_regions(task, names, boxes, "--box")
    source, *edits = pictures
    first, second = (
        editjudge.measure(source, edit, names, task=task, boxes=boxes, params=params).values for edit in edits
    )
    return {name: (value, second[name]) for name, value in first.items()}


def better(name: str, a: float | None, b: float | None) -> str:
    """Whose value is the better one."""
    if a is None or b is None:
        return f"not measured of {'both' if a is b else 'A' if a is None else 'B'}"
    gain = editjudge.api.DIRECTIONS[name.rpartition(".")[2]] * (a - b)
    return "equal" if gain == 0 else "Image A" if gain > 0 else "Image B"
