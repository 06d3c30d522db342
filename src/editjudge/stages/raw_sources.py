"""Stage raw_sources: what the raw pairs of each task are made from: its settings, and the MD5s of its sources' files.

A change of one task's source so runs the raw pairs of that task alone: the deps of DVC's `foreach` cannot differ."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.files import md5
from editjudge.core.main import stage
from editjudge.stages.graph.lists import TABLE, named


def settings_of(values: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Section `raw_pairs` with the task's own sources alone."""
    setting = params.leaf(values, "raw_pairs")
    sources = setting.get("sources")
    return {**setting, "sources": sources.get(task) if isinstance(sources, Mapping) else sources}


def run() -> None:
    values = params.load()
    for task in params.leaf(values, "tasks"):
        own = settings_of(values, task)
        files = {path: md5(Path(path)) for path in named([own["sources"]], *TABLE)}
        records.write_json(Path(f"data/raw_sources/{task}.json"), own | {"files": files})


if __name__ == "__main__":
    stage(__doc__, run)
