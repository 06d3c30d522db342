"""`editjudge profile`.

A profile is a file of profiles/, a merge patch (RFC 7386) over params.yaml: its values replace those there, and null
removes an entry. `over` names a profile that is applied before it. An editing model that params.yaml does not have
starts as its entry in configs/editors.yaml.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from editjudge.cli.add_editor import PARAMS, TABLE
from editjudge.core.params import ParamsError
from editjudge.core.settings import known
from editjudge.stages.graph import lists as graph
from editjudge.stages.graph import plan

PROFILES = Path("profiles")
OVER = "over"


def patches(name: str) -> Iterator[Mapping[str, Any]]:
    """The patches of a profile, in the order in which they are applied. ParamsError for an unknown name."""
    file = PROFILES / f"{name}.yaml"
    if not file.is_file():
        names = sorted(path.stem for path in PROFILES.glob("*.yaml"))
        raise ParamsError(f"there is no profile {name!r}; {known(name, names)}")
    patch = dict(YAML().load(file.read_text()))
    if over := patch.pop(OVER, None):
        yield from patches(over)
    yield patch


def apply(values: CommentedMap, name: str) -> None:
    """Changes the parameters in place."""
    ready = YAML().load(TABLE.read_text())
    for patch in patches(name):
        new = set(patch.get("editors") or {}) - set(values["editors"])
        merge(values["editors"], {editor: ready[editor] for editor in ready if editor in new})
        merge(values, patch)


def merge(values: CommentedMap, patch: Mapping[str, Any]) -> None:
    """RFC 7386, in place. What the patch has by an alias is copied: params.yaml has none.

    New keys stand first: a comment behind the last one is the next section's.
    """
    place = 0
    for key, new in patch.items():
        if new is None:
            values.pop(key, None)
            continue
        if key not in values:
            values.insert(place, key, None)
            place += 1
        if isinstance(new, Mapping):
            if not isinstance(values[key], CommentedMap):
                values[key] = CommentedMap()
            merge(values[key], new)
        else:
            values[key] = list(new) if isinstance(new, list) else new


def put(name: str) -> None:
    """Writes the profile into params.yaml, with its comments, and mends dvc.yaml."""
    text = YAML()
    text.width = 200
    values = text.load(PARAMS.read_text())
    apply(values, name)
    with PARAMS.open("w") as out:
        text.dump(values, out)
    graph.put_right(write=True)


def needs(name: str) -> str:
    """What the parameters would need with the profile, as text."""
    values = YAML().load(PARAMS.read_text())
    apply(values, name)
    return plan.text(json.loads(json.dumps(values)))


def profile(name: str, *, dry: bool = False) -> None:
    """Put a profile, such as paper, into params.yaml, and update dvc.yaml.

    Args:
        name: A file of profiles/, without its ending.
        dry: Change nothing; say what the profile needs before anything runs: downloads, licences, keys, servers,
            memory, hours and money.
    """
    if dry:
        print(needs(name))
        return
    put(name)
    print(f"params.yaml and dvc.yaml have the profile {name}. Now: make check, then dvc repro")
