"""Reads params.yaml, whose sections `settings.section` reads; and files of the repository that a wheel carries too."""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from editjudge.core.errors import UserError

PACKAGE = Path(__file__).parents[1]
FOLDER = PACKAGE / "shipped"  # only in a wheel: setup.py copies there what stands at the top level in git
ROOT = FOLDER if FOLDER.is_dir() else PACKAGE.parents[1]
PARAMS, PIPELINES, CONTRACTS = ROOT / "params.yaml", ROOT / "pipelines", ROOT / "stages"
DEEPEST, MOST = 50, 1_000_000  # lists in each other, values


class ParamsError(UserError, ValueError):
    """Settings that are missing, unknown or wrong. lines: a line for each, which names its key; str: the first."""

    def __init__(self, *lines: str) -> None:
        super().__init__(lines[0])
        self.lines = lines


def load(path: Path = Path("params.yaml")) -> dict[str, Any]:
    """All parameters as plain dicts, lists and scalars.

    Raises ParamsError: the file is missing or no mapping, or has more than DEEPEST lists in each other or MOST values.
    """
    if not path.is_file():
        raise ParamsError(f"{path} not found: run from the root of the repository")
    data, loader = path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_form(path, yaml.parse(data, Loader=loader))
        values = yaml.load(data, Loader=loader)
    except yaml.YAMLError as error:
        raise ParamsError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ParamsError(f"{path}: a mapping is expected at the top")
    return values


def load_own(given: Path | None = None) -> dict[str, Any]:
    """The settings of a program outside of the graph, as `load`.

    They are in `given`, else in params.yaml of the current folder, else in the file that comes with the package.
    """
    own = Path("params.yaml")
    return load(given or (own if own.is_file() else PARAMS))


def _check_form(path: Path, events: Iterable[Any]) -> None:
    """Before anything is built: the C loader ends the process where lists stand in each other too deeply, and aliases
    of aliases are more than any memory holds."""
    total, sizes = 0, dict[str | None, int]()
    around: list[tuple[str | None, int]] = []  # the lists and mappings that an event is in
    for event in events:
        total += sizes.get(event.anchor, 1) if isinstance(event, yaml.AliasEvent) else 1
        if isinstance(event, yaml.CollectionStartEvent):
            around.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = around.pop()
            sizes |= {anchor: total - before} if anchor else {}
        if len(around) > DEEPEST or total > MOST:
            why = "stand in each other too deeply" if len(around) > DEEPEST else "are too many with their aliases"
            raise ParamsError(f"{path}:{event.start_mark.line + 1}: lists or mappings {why}")


def leaf(values: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, such as `filter.sample_num`. ParamsError: no such key, with those that are there."""
    node: Any = values
    for number, part in enumerate(key.split(".")):
        if not isinstance(node, Mapping) or part not in node:
            around = ".".join(key.split(".")[:number])
            where = f"; {around}: {known(part, list(node))}" if around and isinstance(node, Mapping) else ""
            raise ParamsError(f"params.yaml has no key {key!r}{where}")
        node = node[part]
    return node


def known(word: Any, names: Collection[str]) -> str:
    """The names that there are, the nearest to `word` before them."""
    near = get_close_matches(str(word), names, 1)
    return f"{f'did you mean {near[0]}? ' if near else ''}known: {', '.join(names)}"
