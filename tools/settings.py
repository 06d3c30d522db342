"""`editjudge check`, `profile` and `add-editor`: params.yaml, and what comes of it.

A profile is a file of profiles/, a merge patch (RFC 7386) over params.yaml: its values replace those there, and null
removes an entry. `over` names a profile that is applied before it. An editing model that params.yaml does not have
starts as its entry in configs/editors.yaml."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from editjudge import api
from editjudge.core import hub, params
from editjudge.core.params import ParamsError
from editjudge.core.settings import known
from editjudge.editors.settings import Api
from tools.check import mistakes
from tools.graph import put_right

PARAMS, PROFILES = Path("params.yaml"), Path("profiles")
TABLE = Path("configs/editors.yaml")
OVER = "over"


def check(
    *,
    model: str | None = None,
    dtype: Literal["float32", "bfloat16"] = "float32",
    machine: bool = False,
    online: bool = False,
) -> None:
    """List all that is wrong with params.yaml, every recipe and the files they name, before DVC deletes any output.

    Looks also at environment variables with keys, at dvc.lock, which must not have lost stages that git's HEAD has, and
    at the lists of dvc.yaml. Loads nothing: whether a model fits, its stage says. Status 1 if something is wrong.

    Args:
        model: Instead, load this scorer, LoRA adapter or chat model, a folder or a hub id, and say whether its weights
            are dead: zero, constant, or blind to the images.
        dtype: In which it is loaded.
        machine: List, too, what this machine lacks: extras, driver, GPUs, vLLM, disk, sources.
        online: With --machine, ask the hub once for each licence, and each server that you start."""
    if model is not None:
        from tools.blind import check_sight  # it loads torch

        _, entry = api.entry_of(model)
        check_sight(hub.find("--model", entry["model"]), entry.get("adapter"), dtype)
        print(f"{model}: it loads, and its answers depend on the images")
        return
    found = mistakes()
    if machine:
        from tools.machine import gaps, look  # here: it loads torch

        found += gaps(params.load(), look(), online)
    print("\n".join(found) if found else "params.yaml and the recipes: nothing is wrong")
    sys.exit(1 if found else 0)


def _read(path: Path) -> CommentedMap:
    if not path.is_file():
        raise ParamsError(f"{path} not found: run from the root of the repository")
    return YAML().load(path.read_text())


def _write(values: CommentedMap) -> None:
    """params.yaml with its comments."""
    text = YAML()
    text.width = 200
    with PARAMS.open("w") as out:
        text.dump(values, out)


def patches(name: str) -> Iterator[Mapping[str, Any]]:
    """The patches of a profile, in the order in which they are applied. ParamsError for an unknown name."""
    file = PROFILES / f"{name}.yaml"
    if not file.is_file():
        names = sorted(path.stem for path in PROFILES.glob("*.yaml"))
        raise ParamsError(f"there is no profile {name!r}; {known(name, names)}")
    patch = dict(_read(file))
    if over := patch.pop(OVER, None):
        yield from patches(over)
    yield patch


def apply(values: CommentedMap, name: str) -> None:
    """Changes the parameters in place."""
    ready = _read(TABLE)
    for patch in patches(name):
        new = set(patch.get("editors") or {}) - set(values["editors"])
        merge(values["editors"], {editor: ready[editor] for editor in ready if editor in new})
        merge(values, patch)


def profiled(name: str) -> CommentedMap:
    """params.yaml with a profile."""
    values = _read(PARAMS)
    apply(values, name)
    return values


def merge(values: CommentedMap, patch: Mapping[str, Any]) -> None:
    """RFC 7386, in place. What the patch has by an alias is copied: params.yaml has none.

    New keys stand first: a comment behind the last one is the next section's."""
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


def profile(name: str) -> None:
    """Put a profile, such as paper, into params.yaml, and update dvc.yaml.

    `editjudge plan NAME` says before what it needs.

    Args:
        name: A file of profiles/, without its ending."""
    _write(profiled(name))
    put_right(write=True)
    print(f"params.yaml and dvc.yaml have the profile {name}. Now: make check, then dvc repro")


def add_editor(*names: str, form: Annotated[Api | None, Parameter("--api")] = None) -> None:
    """Put ready editing models into params.yaml, before those that are there. The file's comments stay.

    Args:
        names: Entries of configs/editors.yaml.
        form: All entries whose API speaks this form, too."""
    values, ready = _read(PARAMS), _read(TABLE)
    spoken = {name: each.get("api", "openai") for name, each in ready.items() if each["kind"] == "api"}
    names += tuple(name for name, own in spoken.items() if own == form and name not in names)
    if not names:
        raise ParamsError(f"name entries of {TABLE}")
    if not isinstance(values, CommentedMap) or not isinstance(entered := values.get("editors"), CommentedMap):
        raise ParamsError(f"{PARAMS} has no section editors")
    for name in names:
        if name not in ready:
            raise ParamsError(f"{TABLE} has no entry {name}; it has {', '.join(ready)}")
        if name in entered:
            raise ParamsError(f"editors.{name} is in {PARAMS} already")
    merge(entered, {name: ready[name] for name in names})
    _write(values)
    print(f"{PARAMS} has {', '.join(names)}. Now: make graph && dvc repro")
