"""`editjudge score`."""

from dataclasses import asdict
from pathlib import Path

import editjudge
from editjudge.cli.options import Params
from editjudge.cli.printing import table
from editjudge.core.errors import UserError


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
        from editjudge.core.records import write_json

        write_json(json, asdict(found))
