"""Files and folders that sections of params.yaml name."""

from collections.abc import Mapping
from typing import Any

from editjudge.core import hub

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
