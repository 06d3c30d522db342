"""`editjudge rank`: editing models, by match files."""

from pathlib import Path
from typing import Literal

from editjudge.cli.printing import complain, table
from editjudge.statistics import boards

RANKED = ("rank", "model", "rating", "low", "high", "matches")
TOLD = ("better", "worse", "difference", "needed")


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
        out: Write the board alone, as .md, .tex, .csv or .json.
        against: A published board (CSV); print how far this one agrees with it.
        column: Of that board: the figure of which more is better.
        json: Write all figures to this file."""
    listed = None if models is None else set(filter(None, models.read_text(encoding="utf-8-sig").splitlines()))
    setting = {"prior": prior, "weighting": weighting, "ties": ties, "replicates": replicates, "seed": seed}
    setting |= {"anchor": anchor or boards.NO_ANCHOR, "anchor_rating": anchor_rating, "exclude": tuple(exclude or ())}
    board = boards.rank_files(matches, setting, listed, judge, by or ())
    for file in out or ():
        boards.write(file, board | {"dimensions": board.get("by_dimension", [])})
    table(RANKED, [[row[name] for name in RANKED] for row in board["models"]], digits=1)
    print("{matches} matches, {ties} ties, {unscored} unscored".format_map(board))
    if board["power"]:
        print(
            f"prompts, or photos, that would tell neighbours apart (80 % power, 5 % level), of {board['clusters']} here"
        )
        table(TOLD, [[row[name] for name in TOLD] for row in board["power"]], digits=1)
    if against:
        rated = {row["model"]: row["rating"] for row in board["models"]}
        board["agreement"] = agreed = boards.agreement(rated, boards.read(against, column))
        print(f"agreement with {against}: " + ", ".join(f"{name} {value}" for name, value in agreed.items()))
    if json:
        from editjudge.core.records import write_json  # here: it loads more

        write_json(json, board)
    for sentence in board["warnings"]:
        complain("rank", sentence)
