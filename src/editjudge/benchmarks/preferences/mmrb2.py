"""MMRB2's editing part (Hu et al. 2025, arXiv 2512.16899; CC BY-NC): pairs, none of them tied.

`edit.json`, as its scripts build it: {"pairs": [...]} with id (or pair_id), prompt_content and response_a/b.
response_content (lists of ["image", path] and ["text", words]), chosen (A, B) and prompt_source. A judge is shown one
image of each: a prompt of several is a failed item that says so."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from editjudge.benchmarks.preferences.item import BenchmarkSetting, HumanVerdict, Item, collect, content, photo
from editjudge.core.keys import plain
from editjudge.core.reading import Record, locate, matching
from editjudge.core.tables import RowError, TableError, json_object

CHOSEN: Mapping[str, HumanVerdict] = {"A": "Image A", "B": "Image B"}


def load(setting: BenchmarkSetting) -> list[Item]:
    """The benchmark's items; their task is where the prompt comes from. Raises TableError."""
    return collect(_pairs(setting), _item)


def _pairs(setting: BenchmarkSetting) -> Iterator[Record]:
    for file in matching(locate(setting), setting.files or "**/edit.json", (".json",)):
        if not isinstance(rows := json_object(file).get("pairs"), list):
            raise TableError(f"{file}: no list `pairs`")
        for number, row in enumerate(rows):
            values = row if isinstance(row, dict) else RowError("wrong type", "an object expected")
            yield Record(file, number, values, Path(setting.images) if setting.images else file.parent)


def _item(record: Record) -> Item:
    parts = {side: _parts(record, side) for side in ("prompt", "response_a", "response_b")}
    images = {side: [value for kind, value in own if kind == "image"] for side, own in parts.items()}
    text = replace(record, row={"text": "\n".join(str(value) for kind, value in parts["prompt"] if kind == "text")})
    several = [f"{side} has {len(own)} images" for side, own in images.items() if len(own) != 1]
    found = content(text, "text", *(None if several else own[0] for own in images.values()))
    found["failed"] = f"{', '.join(several)}: a judge is shown one" if several else found["failed"]
    key, task = plain(str(record.get("id") or record["pair_id"])), str(record.get("prompt_source") or "editing")
    chosen, cluster = CHOSEN[record.choice("chosen", CHOSEN)], photo(found["source"], key)
    verdict = None if several else chosen  # it leaves the counts
    return Item(key=key, task=task, dimension="overall", verdict=verdict, cluster=cluster, **found)


def _parts(record: Record, side: str) -> list[Any]:
    value = record["prompt_content"] if side == "prompt" else record[side]
    value = value.get("response_content") if isinstance(value, Mapping) else value
    if not isinstance(value, list) or not all(isinstance(part, list) and len(part) == 2 for part in value):
        raise RowError("wrong type", f"{side}: a list of [kind, value] expected, not {value!r:.40}")
    return value
