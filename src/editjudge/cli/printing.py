"""What several commands share: options, and results as Rich tables for people or as plain lines for programs."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

Params: TypeAlias = Annotated[
    Path | None, Parameter(help="Settings to use instead of params.yaml in this folder, or else the package's own.")
]
Box: TypeAlias = tuple[int, int, int, int]
Cell = str | int | float | None


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], digits: int = 4) -> None:
    """Prints a table. Numbers have so many digits after the point; a dash stands for None."""
    shown = [
        ["-" if cell is None else f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell) for cell in row]
        for row in rows
    ]
    numeric = [any(isinstance(row[n], int | float) for row in rows) for n in range(len(columns))]
    if sys.stdout.isatty():
        from rich.console import Console  # here: it takes a while, and only a terminal needs it
        from rich.table import Table

        drawn = Table()
        for name, right in zip(columns, numeric, strict=True):
            drawn.add_column(name, justify="right" if right else "left", overflow="fold")
        for row in shown:
            drawn.add_row(*row)
        Console(markup=False, highlight=False).print(drawn)
        return
    lines = [list(columns), *shown]
    wide = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        cells = [f"{text:>{width}}" if right else f"{text:<{width}}"
                 for text, width, right in zip(line, wide, numeric, strict=True)]  # fmt: skip
        print("  ".join(cells).rstrip())


def complain(command: str, sentence: str) -> None:
    """Tells people something that is not a result, on stderr."""
    print(f"{command}: {sentence}", file=sys.stderr)
