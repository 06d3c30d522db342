"""`editjudge rank`."""

from pathlib import Path
from typing import Any, Literal

import editjudge
from editjudge.cli.printing import complain, table

SHOWN = ("rank", "model", "rating", "low", "high", "matches")


def rank(
    *matches: Path,
    prior: str = "weak",
    weighting: str = "balanced",
    ties: str = "davidson",
    replicates: int = 2000,
    seed: int = 0,
    anchor: str | None = None,
    anchor_rating: float = 1000.0,
    exclude: list[str] | None = None,
    by: list[Literal["dimension", "task"]] | None = None,
    judge: str | None = None,
    models: Path | None = None,
    out: list[Path] | None = None,
    against: Path | None = None,
    column: str = "rating",
    json: Path | None = None,
) -> None:
    """Rank editing models from match files.

    A file (.jsonl, .csv or .parquet) is a dimension, named after it. Ratings have 95 % intervals over whole prompts.

    Args:
        matches: Match files.
        prior: How strongly abilities are drawn to each other: weak, or published.
        weighting: Of the dimensions: balanced, or by_matches.
        ties: A model with ties (davidson), or ties as half wins (halves, Bradley-Terry).
        replicates: For the intervals of ranks; 0 for no intervals.
        seed: Of the replicates.
        anchor: The model whose rating is --anchor-rating.
        anchor_rating: Rating of the anchor.
        exclude: Models whose matches are left out.
        by: Make boards of each dimension or task alone, too.
        judge: Whose matches to take, if the files have several judges.
        models: A file with all models, one a line, to resolve unclear keys.
        out: Write the board alone, as .md, .csv or .json.
        against: A published board (CSV); print how far this one agrees with it.
        column: Of that board: the figure of which more is better.
        json: Write all figures to this file.
    """
    from editjudge.core import records
    from editjudge.statistics import boards
    from editjudge.statistics.ranking import agreement_with

    listed = None if models is None else set(filter(None, models.read_text(encoding="utf-8-sig").splitlines()))
    found = editjudge.rank(
        *matches, prior=prior, weighting=weighting, ties=ties, replicates=replicates, seed=seed, anchor=anchor,
        anchor_rating=anchor_rating, exclude=exclude or (), judge=judge, models=listed, by=by or (),
    )  # fmt: skip
    board: dict[str, Any] = dict(found.details)
    for file in out or ():
        boards.write(file, board | {"dimensions": board.get("by_dimension", [])})
    table(SHOWN, [[row[name] for name in SHOWN] for row in found.models], digits=1)
    print(f"{found.matches} matches, {found.ties} ties, {found.unscored} unscored")
    if against:
        board["agreement"] = agreed = agreement_with(board, against, column)
        print(f"agreement with {against}: " + ", ".join(f"{name} {value}" for name, value in agreed.items()))
    if json:
        records.write_json(json, board)
    for sentence in found.warnings:
        complain("rank", sentence)
