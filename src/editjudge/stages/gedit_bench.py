"""Stage gedit_bench: the arena's prompts: the published GEditBench v2, or some of our own from held-out photos.

A published row that cannot be used is counted in metrics/gedit_bench.json, and stands with its reason in
data/refused/gedit_bench.csv."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from editjudge.core import images, masks, params, reading, records, scans
from editjudge.core.keys import FILE_NAME
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.core.tables import RowError
from editjudge.engine import progress
from editjudge.sources.builtin import scenes
from editjudge.sources.settings import RawPairs
from editjudge.stages.graph.arena import ArenaSetting

COLUMNS = ("key", "task", "instruction", "origin", "regions", "edit")
REFUSED = ("file", "row", "reason")
# The published names of the fields, and names that the same fields have elsewhere.
FIELDS = (("key",), ("task", "task_type"), ("instruction", "prompt"), ("source_image", "input_image", "image"))


def prompts_of(values: dict[str, Any], setting: ArenaSetting) -> Iterator[records.Row]:
    """The published prompts in order, else the probe set's of every task that it has; of a row that is none, REFUSED's
    columns. TableError: no such file, field. Rows of one's own may say regions, see `core.masks`."""
    if not (setting.path or setting.hub):
        side = section(values, "raw_pairs", RawPairs).image_side
        count, tasks = setting.per_task, (task for task in params.leaf(values, "tasks") if task in scenes.EDITS)
        for place, task in enumerate(tasks):  # each goes on with the photos where the one before has ended
            for pair in scenes.make_pairs(task, "benchmark", count, side, setting.seed, place * count):
                yield {name: pair[name] for name in COLUMNS} | {"source_image": {"bytes": pair["image"], "path": None}}
        return
    seen: set[str] = set()
    for record in reading.read(setting):
        try:
            given = (next((name for name in names if name in record.values), names[0]) for names in FIELDS)
            key_field, task, instruction, image = given
            key = record.identifier(key_field)
            if not FILE_NAME.fullmatch(key):
                raise RowError(f"key {key!r:.80}: letters, digits, dots, - and _ expected, 200 at most")
            if key in seen:
                raise RowError(f"key {key} stands already in an earlier row")
            [data] = record.pictures(record[image])
            height, width = scans.decode(data).shape[:2]
            own = masks.read_own(masks.own_cells(record.get), record.file_bytes, height, width)
            row: records.Row = {"key": key, "task": record.text(task), "instruction": record.text(instruction)}
            seen.add(key)
            row |= {"source_image": {"bytes": data, "path": None}, "origin": f"{record.file}: row {record.number}"}
            row |= {"regions": list(own) or None, "edit": None}
        except (RowError, images.ImageError) as error:
            row = dict(zip(REFUSED, (str(record.file), record.number, str(error)), strict=True))
        yield row


def run() -> None:
    values = params.load()
    setting = section(values, "gedit_bench", ArenaSetting)
    out, bad_rows = Path("data/gedit_bench.parquet"), Path("data/refused/gedit_bench.csv")
    with records.sifted(out, "gedit_bench", bad_rows, REFUSED, "no row can be used as a prompt") as (prompts, refuse):
        shown = progress.bar(None, "prompts of the arena", "prompt", prompts_of(values, setting))
        report = records.sort_out(shown, prompts, refuse, "task", "prompts")
        records.write_details(Path("metrics/gedit_bench.json"), report)


if __name__ == "__main__":
    stage(__doc__, run)
