"""Stage raw_sources: what the raw pairs of each task are made from: its settings, and the MD5s of its sources' files.

A change of one task's source so runs the raw pairs of that task alone: the deps of DVC's `foreach` cannot differ."""

from pathlib import Path

from editjudge.core import params, records
from editjudge.core.files import md5
from editjudge.core.main import stage
from editjudge.sources.importing import settings_of
from editjudge.stages.graph.paths import TABLE, named


def run() -> None:
    values = params.load()
    for task in params.leaf(values, "tasks"):
        own = settings_of(values, task)
        files = {path: md5(Path(path)) for path in named([own["sources"]], *TABLE)}
        records.write_json(Path(f"data/raw_sources/{task}.json"), own | {"files": files})


if __name__ == "__main__":
    stage(__doc__, run)
