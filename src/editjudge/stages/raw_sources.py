"""Stage raw_sources: what the raw pairs of each task are made from: its settings, and the MD5s of its sources' files.

A change of one task's source so runs the raw pairs of that task alone: the deps of DVC's `foreach` cannot differ."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from editjudge.core import hub, params, records
from editjudge.core.files import md5
from editjudge.core.main import stage
from editjudge.sources.importing import settings_of

TABLE = ("path", "shuffle", "images")  # fields of a published table
MODEL = ("model", "adapter", "base", "clip", "dino")
NO_FILE = ("", "none", "embedded", "probe", "graph")


def named(node: Any, *fields: str) -> list[str]:
    """What the fields of a section name as files and folders, at any depth. Of a hub id models.lock holds the commit;
    what is no text is passed over: the stage says what is wrong with it."""
    if isinstance(node, list):
        return [path for each in node for path in named(each, *fields)]
    if not isinstance(node, Mapping) or node.get("backend") == "endpoint":
        return []
    own = [(field, node[field]) for field in fields if isinstance(node.get(field), str)]
    paths = [path for field, path in own if path not in NO_FILE and not (field in MODEL and hub.is_id(path))]
    return paths + named(list(node.values()), *fields)


def run() -> None:
    values = params.load()
    for task in params.leaf(values, "tasks"):
        own = settings_of(values, task)
        files = {path: md5(Path(path)) for path in named([own["sources"]], *TABLE)}
        records.write_json(Path(f"data/raw_sources/{task}.json"), own | {"files": files})


if __name__ == "__main__":
    stage(__doc__, run)
