"""The stages of dvc.yaml for the page's drawing: each stage lies below the stages that it reads from."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

PLACE = re.compile(r"\\\$\\\{[\w.]+\\\}")


def nodes(graph: Mapping[str, Any], values: Mapping[str, Any], records: Mapping[str, int]) -> list[dict[str, Any]]:
    """A row for each stage: name, description, number of items, depth, and the stages that it reads from.

    graph: dvc.yaml. values: params.yaml; `foreach` names its sections. records: how many each stage wrote. The stage
    `code` is left out: all others read it."""
    stages = {name: entry for name, entry in graph["stages"].items() if name != "code"}
    outs = {name: _outs(entry) for name, entry in stages.items()}
    reads = {
        name: [other for other in stages if other != name and _meet(outs[other], _body(entry).get("deps", ()))]
        for name, entry in stages.items()
    }
    depths: dict[str, int] = {}
    for name in stages:
        _depth(name, reads, depths)
    return [
        {
            "name": name,
            "desc": _body(entry)["desc"],
            "items": _items(entry, values),
            "depth": depths[name],
            "reads": reads[name],
            "records": records.get(name),
        }
        for name, entry in sorted(stages.items(), key=lambda each: depths[each[0]])
    ]


def _body(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return entry.get("do", entry)


def _outs(entry: Mapping[str, Any]) -> list[str]:
    listed = [out for kind in ("outs", "metrics", "plots") for out in _body(entry).get(kind, [])]
    return [out if isinstance(out, str) else next(iter(out)) for out in listed]


def _meet(outs: Sequence[str], deps: Sequence[str]) -> bool:
    """Whether one of the deps is one of the outs. A dep that begins with a placeholder is a user's file."""
    return any(_same(out, dep) for out, dep in product(outs, deps) if not dep.startswith("${"))


def _same(out: str, dep: str) -> bool:
    """Whether two paths can be equal for some values of their placeholders, such as ${key}."""
    parts, others = out.split("/"), dep.split("/")
    return len(parts) == len(others) and all(
        _pattern(part).fullmatch(other) or _pattern(other).fullmatch(part)
        for part, other in zip(parts, others, strict=True)
    )


@cache
def _pattern(part: str) -> re.Pattern[str]:
    return re.compile(PLACE.sub(".*", re.escape(part)))


def _items(entry: Mapping[str, Any], values: Mapping[str, Any]) -> int | None:
    """The number of items of a stage with `foreach`; None for a stage without."""
    if "foreach" not in entry:
        return None
    over = entry["foreach"]
    return len((values.get(over[2:-1]) or {}) if isinstance(over, str) else over)


def _depth(name: str, reads: Mapping[str, list[str]], depths: dict[str, int]) -> int:
    if name not in depths:
        depths[name] = 1 + max((_depth(other, reads, depths) for other in reads[name]), default=-1)
    return depths[name]
