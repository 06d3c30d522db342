"""`editjudge check`, `plan` and `graph`: all of params.yaml, and the lists of dvc.yaml that come from it."""

import sys

from editjudge.core import params


def check() -> None:
    """List all that is wrong with params.yaml, every recipe and the files they name, before DVC deletes any output.

    Looks also at environment variables with keys, at dvc.lock, which must not have lost stages that git's HEAD has, and
    at the lists of dvc.yaml. Loads nothing: whether a model fits, its stage says. Status 1 if something is wrong.
    """
    from editjudge.stages.graph.check import mistakes

    found = mistakes()
    print("\n".join(found) if found else "params.yaml and the recipes: nothing is wrong")
    sys.exit(1 if found else 0)


def plan_needs() -> None:
    """Say what params.yaml needs, without a network: downloads, licences, keys, servers, memory, hours and money."""
    from editjudge.stages.graph import plan

    print(plan.text(params.load()))


def graph(*, write: bool = False) -> None:
    """Compare the lists of dvc.yaml that come from params.yaml. Status 1 if one is out of date.

    Args:
        write: Update them (`make graph`).
    """
    from editjudge.stages.graph import lists

    stale = lists.put_right(write)
    word = "updated" if write else "out of date, run `make graph`"
    print(f"dvc.yaml: {word}: {', '.join(stale)}" if stale else "dvc.yaml: all lists are right")
    sys.exit(1 if stale and not write else 0)
