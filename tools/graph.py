"""Compares the lists of dvc.yaml that come from params.yaml with these, or updates them.

python -m tools.graph [--write]
"""

import sys

from cyclopts import App, Parameter

from editjudge.core.main import guarded
from editjudge.stages.graph import lists


def graph(*, write: bool = False) -> None:
    """Compare the lists of dvc.yaml that come from params.yaml. Status 1 if one is out of date.

    Args:
        write: Update them (`make graph`)."""
    stale = lists.put_right(write)
    word = "updated" if write else "out of date, run `make graph`"
    print(f"dvc.yaml: {word}: {', '.join(stale)}" if stale else "dvc.yaml: all lists are right")
    sys.exit(1 if stale and not write else 0)


if __name__ == "__main__":
    app = App(default_parameter=Parameter(negative=()), help_format="plaintext")
    app.default(graph)
    guarded("graph", app)
