"""Enters ready editing models into params.yaml: python -m editjudge.commands.add_editor NAME [NAME ...]

The entries come from configs/editors.yaml. All else in params.yaml stays as it is, to the byte.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import yaml

from editjudge.core.main import guarded
from editjudge.core.params import ParamsError

TABLE = Path("configs/editors.yaml")
PARAMS = Path("params.yaml")
SECTION = "editors"


def add(values: str, table: str, names: list[str]) -> str:
    """The text of params.yaml with these entries of the table at the end of its section `editors`.

    Raises ParamsError for a name that the table has not or that is entered already, and for a params.yaml in which
    the section cannot be found as a block.
    """
    known, entered = entries(table), _section(values)
    for name in names:
        if name not in known:
            raise ParamsError(f"{TABLE} has no entry {name}; it has {', '.join(known)}")
        if name in entered:
            raise ParamsError(f"{SECTION}.{name} is in {PARAMS} already")
    new = [f"  {line}" for name in dict.fromkeys(names) for line in known[name]]
    text, ready = _inserted(values.splitlines(), new), yaml.safe_load(table)
    if not _reads_as(text, entered | {name: ready[name] for name in names}):
        raise ParamsError(f"{PARAMS}: {SECTION} is not in block style with 2 spaces; copy the entries by hand")
    return text


def entries(table: str) -> dict[str, list[str]]:
    """The lines of each entry, without comments."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in table.splitlines():
        key = re.match(r"([A-Za-z0-9._-]+):", line)
        if key:
            lines = found[key[1]] = [key[0]]
        elif line.startswith(" "):
            lines.append(line)
    return found


def _section(values: str) -> dict[str, Any]:
    section = (yaml.safe_load(values) or {}).get(SECTION)
    if not isinstance(section, dict):
        raise ParamsError(f"{PARAMS} has no section {SECTION}")
    return section


def _inserted(lines: list[str], new: list[str]) -> str:
    """The lines as text, with the new ones after the section's last indented line."""
    start = lines.index(f"{SECTION}:") if f"{SECTION}:" in lines else len(lines) - 1
    following = (at for at in range(start + 1, len(lines)) if lines[at] and not lines[at].startswith(" "))
    end = next(following, len(lines))
    while not lines[end - 1].strip():
        end -= 1
    return "\n".join([*lines[:end], *new, *lines[end:]]) + "\n"


def _reads_as(text: str, section: dict[str, Any]) -> bool:
    try:
        return _section(text) == section
    except yaml.YAMLError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    names = parser.parse_args().names
    guarded("add_editor", lambda: PARAMS.write_text(add(PARAMS.read_text(), TABLE.read_text(), names)))
    print(f"{PARAMS} has {', '.join(names)}. Now: make graph && dvc repro")


if __name__ == "__main__":
    main()
