"""Results on the terminal: Rich tables where people read them, plain lines where a program or a file does."""

import sys
from collections.abc import Sequence

Cell = str | int | float | None


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], digits: int = 4) -> None:
    """Prints a table. Numbers have so many digits after the point; a dash stands for None."""
    shown = [[_text(cell, digits) for cell in row] for row in rows]
    numeric = [any(isinstance(row[n], int | float) for row in rows) for n in range(len(columns))]
    if sys.stdout.isatty():
        _rich(columns, shown, numeric)
        return
    lines = [list(columns), *shown]
    wide = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        cells = [f"{text:>{width}}" if right else f"{text:<{width}}"
                 for text, width, right in zip(line, wide, numeric, strict=True)]  # fmt: skip
        print("  ".join(cells).rstrip())


def _text(cell: Cell, digits: int) -> str:
    if cell is None:
        return "-"
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)


def _rich(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich.console import Console  # here: it takes a while, and only a terminal needs it
    from rich.table import Table

    drawn = Table()
    for name, right in zip(columns, numeric, strict=True):
        drawn.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    Console(markup=False, highlight=False).print(drawn)


def complain(command: str, sentence: str) -> None:
    """Tells people something that is not a result, on stderr."""
    print(f"{command}: {sentence}", file=sys.stderr)
