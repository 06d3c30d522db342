"""Compares the lists of dvc.yaml that come from params.yaml with these, or updates them.

python -m tools.graph [--write]
"""

import io
import sys

from cyclopts import App, Parameter
from ruamel.yaml import YAML

from editjudge.core import params
from editjudge.core.main import guarded
from editjudge.core.params import ParamsError
from editjudge.stages.graph import lists

SHORT = 6  # entries of a list that has a line for each


def put_right(write: bool) -> list[str]:
    """What is stale in dvc.yaml; with `write` it is mended. ParamsError: an entry whose name DVC cannot find, and a
    section that is not as its settings are."""
    yaml, file = YAML(), lists.ROOT / "dvc.yaml"
    yaml.width = 160
    graph, values = yaml.load(file.read_text()), params.load(lists.ROOT / "params.yaml")
    for name in lists.dotted(graph, values):
        raise ParamsError(f"params.yaml: {name}: a name with a dot is none that DVC can find; write - or _ instead")
    try:
        stale = lists.mend(graph, values)
    except (AttributeError, KeyError, TypeError) as error:
        raise ParamsError("params.yaml: a section is not as its settings are: run `editjudge check`") from error
    if write:
        # Long lists stand side by side: with a line an entry they would be most of the file.
        for body in (entry.get("do", entry) for entry in graph["stages"].values()):
            for listed in (body[kind] for kind in ("deps", "outs") if kind in body):
                (listed.fa.set_flow_style if len(listed) > SHORT else listed.fa.set_block_style)()
        out = io.StringIO()
        yaml.dump(graph, out)
        file.write_text("".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines()))
    return stale


def graph(*, write: bool = False) -> None:
    """Compare the lists of dvc.yaml that come from params.yaml. Status 1 if one is out of date.

    Args:
        write: Update them (`make graph`)."""
    stale = put_right(write)
    word = "updated" if write else "out of date, run `make graph`"
    print(f"dvc.yaml: {word}: {', '.join(stale)}" if stale else "dvc.yaml: all lists are right")
    sys.exit(1 if stale and not write else 0)


if __name__ == "__main__":
    app = App(default_parameter=Parameter(negative=()), help_format="plaintext")
    app.default(graph)
    guarded("graph", app)
