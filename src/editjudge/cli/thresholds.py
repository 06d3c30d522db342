"""`editjudge thresholds`."""

from pathlib import Path

from editjudge.cli.printing import table
from editjudge.labels import thresholds as moving

SHOWN = ("task", "area", "measure", "threshold", "z", "pairs", "share_pairs", "known", "share_right")


def thresholds(*, out: Path, task: list[str] | None = None, plot: Path | None = None) -> None:
    """Say what other thresholds of z would do to the training pairs, to choose your own.

    Reads data/annotations. Each threshold is set to the quantiles of z in turn, all others staying as in params.yaml:
    how many pairs there are, and how many of them name the truly less damaged side, if that is known.

    Args:
        out: The table, as CSV.
        task: Tasks of params.yaml; all without it.
        plot: A picture of it: PNG, PDF or SVG.
    """
    rows = moving.run(out, task or [], plot)
    table(SHOWN, [[row[name] for name in SHOWN] for row in rows], digits=3)
