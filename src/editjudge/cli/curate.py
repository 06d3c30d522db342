"""`editjudge curate`."""

import json
from pathlib import Path
from typing import Any

import editjudge
from editjudge.cli.options import Params
from editjudge.core.errors import UserError


def curate(
    *,
    out: Path,
    pairs: Path | None = None,
    source: Path | None = None,
    edited: list[str] | None = None,
    instructions: Path | None = None,
    scorer: str | None = None,
    rater: str | None = None,
    by: str | None = None,
    top: int | None = None,
    share: float | None = None,
    per_prompt: int | None = None,
    per_task: int | None = None,
    near_bits: int = 4,
    params: Params = None,
) -> None:
    """Keep the best edits of a data set, by a scorer or a rater: with their scores, and why the others were left out.

    Writes selection.parquet, dropped.csv and report.json. An edit without a score is never kept, and never a 0.

    Args:
        out: Folder of the results.
        pairs: Parquet with source_image, edited_image and instruction, and perhaps key, task, model and damage.
        source: Or a folder, gallery or table of photos by key, with --edited and --instructions.
        edited: One of edits by key for each model, [NAME=]PATH; without NAME, the folder names the model.
        instructions: A table of key and instruction, and perhaps task.
        scorer: A name in `scorers` of the settings; dino_i needs no entry.
        rater: Or a name in `raters`: a VLM that rates each edit by the rubric of its task, 1 to 5.
        by: Of the scorer's dimensions, the one whose score counts instead of the overall score.
        top: Keep at most so many edits.
        share: Keep at most this share of them, such as 0.5.
        per_prompt: Keep at most so many edits of each key, the best ones.
        per_task: Keep at most so many of each task.
        near_bits: Edits that differ in at most so many of 64 bits are one; -1 for equal bytes only.
    """
    from editjudge.cli import candidates
    from editjudge.core.settings import known
    from editjudge.engine.progress import bar
    from editjudge.rewards import curation

    if bool(scorer) == bool(rater):
        raise UserError("give either --scorer or --rater")
    if share is not None and not 0 < share <= 1:
        raise UserError(f"--share {share:g}: above 0, at most 1")
    if pairs:
        edits = candidates.of_pairs(pairs)
    elif source and edited and instructions:
        edits = candidates.of_folders(source, edited, instructions)
    else:
        raise UserError("give either --pairs, or --source, --edited and --instructions")
    asked = [candidate for candidate in edits if candidate.reason is None]
    done = [candidate for candidate in edits if candidate.reason is not None]
    with editjudge.api.open_scorer(str(scorer or rater), "raters" if rater else "scorers", params) as judge:
        if by is not None and by not in judge.dimensions:
            raise UserError(f"--by {by}: {known(by, judge.dimensions)}")
        done += bar(len(asked), "edits scored", items=curation.scored(asked, judge, by))
    curation.write(out, *curation.select(done, curation.Quotas(top, share, per_task, per_prompt, near_bits)))
    _tell(json.loads((out / "report.json").read_text()))


def _tell(found: dict[str, Any]) -> None:
    print(f"curate: {found['kept']} of {found['edits']} edits kept, {found['scored']} scored")
    for each in found["dropped"]:
        print(f"  {each['edits']} {each['reason']}")
    for what in ("score", "damage"):
        if found[what]["kept"] is not None and found[what]["all"] is not None:
            print(f"  mean {what}: {found[what]['kept']:.4f} of what is kept, {found[what]['all']:.4f} of all")
