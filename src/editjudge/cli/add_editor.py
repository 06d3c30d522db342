"""`editjudge add-editor`."""

import re
from pathlib import Path
from typing import Any

import yaml

from editjudge.core.params import ParamsError

TABLE = Path("configs/editors.yaml")
PARAMS = Path("params.yaml")
SECTION = "editors"
BLOCK = re.compile(rf"^{SECTION}:(\n+ .*)+", re.MULTILINE)  # up to its last indented line
ENTRY = re.compile(r"^([\w.-]+):.*((?:\n .*)+)", re.MULTILINE)


def add(values: str, table: str, names: list[str]) -> str:
    """The text of params.yaml with these entries of the table at the end of its section `editors`.

    Raises ParamsError for a name that the table has not or that is entered already, and for a params.yaml in which
    the section cannot be found as a block.
    """
    entered, ready = _section(values), yaml.safe_load(table)
    for name in names:
        if name not in ready:
            raise ParamsError(f"{TABLE} has no entry {name}; it has {', '.join(ready)}")
        if name in entered:
            raise ParamsError(f"{SECTION}.{name} is in {PARAMS} already")
    lines = dict(ENTRY.findall(table))
    new = "".join(f"\n{name}:{lines[name]}".replace("\n", "\n  ") for name in dict.fromkeys(names))
    text = BLOCK.sub(lambda found: found[0] + new, values)
    try:
        if _section(text) == entered | {name: ready[name] for name in names}:
            return text
    except yaml.YAMLError:
        pass
    raise ParamsError(f"{PARAMS}: {SECTION} is not in block style with 2 spaces; copy the entries by hand")


def _section(values: str) -> dict[str, Any]:
    section = (yaml.safe_load(values) or {}).get(SECTION)
    if not isinstance(section, dict):
        raise ParamsError(f"{PARAMS} has no section {SECTION}")
    return section


def add_editor(*names: str) -> None:
    """Put ready editing models into params.yaml. Everything else in the file stays as it is, to the byte.

    Args:
        names: Entries of configs/editors.yaml.
    """
    if not names:
        raise ParamsError(f"name entries of {TABLE}")
    PARAMS.write_text(add(PARAMS.read_text(), TABLE.read_text(), list(names)))
    print(f"{PARAMS} has {', '.join(names)}. Now: make graph && dvc repro")
