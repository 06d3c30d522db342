"""The arena's prompts from the published benchmark."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from pictures import picture
from table_files import parquet

from editjudge.core import params, records
from editjudge.stages import gedit_bench

HARD = 'Say "hi"\n日本 🎨 ../../etc/passwd ' + "x" * 10_000

pytestmark = pytest.mark.usefixtures("workdir")
RAW_PAIRS = params.load(Path(__file__).parents[2] / "params.yaml")["raw_pairs"] | {"image_side": 96}


def run(**setting: Any) -> list[dict]:
    """The stage's rows."""
    section = {"per_task": 1, "seed": 3} | setting
    values = {"tasks": {"color_alter": "x", "tone_transfer": "x"}, "raw_pairs": RAW_PAIRS}
    Path("params.yaml").write_text(json.dumps(values | {"gedit_bench": section}))
    gedit_bench.run()
    return records.read(Path("data/gedit_bench.parquet"), "gedit_bench")


def row(key: Any, image: Any, **changes: Any) -> dict:
    return {"key": key, "instruction": HARD, "source_image": image, "task": "hybrid", "level": 3} | changes


@pytest.mark.parametrize("form", ["struct", "bytes"])
def test_the_published_prompts_come_as_they_are(workdir: Path, form: str) -> None:
    data = [picture(1), picture(2, "JPEG"), picture(3, "WEBP")]
    images = [{"bytes": each, "path": "s.png"} for each in data] if form == "struct" else data
    for n in (0, 1):
        part = [row(f"k.{i}", image) for i, image in enumerate(images)][2 * n : 2 * n + 2]
        parquet(workdir / f"bench/data/test-0000{n}.parquet", part)
    rows = run(path="bench")
    assert [r["key"] for r in rows] == ["k.0", "k.1", "k.2"]
    assert [r["source_image"]["bytes"] for r in rows] == data
    assert {(r["task"], r["instruction"], r["regions"], r["edit"]) for r in rows} == {("hybrid", HARD, None, None)}
    assert rows[2]["origin"] == "bench/data/test-00001.parquet: row 0"
    [report] = json.loads(Path("metrics/gedit_bench.json").read_text())
    assert report == {"records": 3, "refused": 0, "tasks": [{"task": "hybrid", "prompts": 3}]}
    assert records.prompt_of(rows[0])["image"] == data[0]
    one = run(path="bench/data", files="*1.parquet")
    assert [r["key"] for r in one] == ["k.2"]


def test_other_names_and_images_beside_the_table(workdir: Path) -> None:
    (workdir / "bench/source").mkdir(parents=True)
    (workdir / "bench/source/a.png").write_bytes(picture(1))
    line = {"key": 7, "prompt": "p", "task_type": "openset", "input_image": "source/a.png", "candidates": []}
    lines = [line, line | {"key": 8, "prompt": "\ud800"}, line | {"key": 9, "task_type": "\udfff"}]
    (workdir / "bench/metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    [found] = run(path="bench")
    assert (found["key"], found["task"], found["instruction"]) == ("7", "openset", "p")
    assert found["source_image"]["bytes"] == picture(1)
    told = json.loads(Path("metrics/gedit_bench.json").read_text())
    assert told[0]["refused"] == 2, "half of a surrogate pair refuses its row alone"


def test_bad_rows_are_counted_and_named(workdir: Path) -> None:
    good = {"bytes": picture(1), "path": None}
    bad = [
        row("a/b", good), row("..", good), row("x" * 201, good), row("é", good), row(None, good), row("good", good),
        row("e1", good, instruction=" "), row("e2", good, instruction=None), row("e3", good, task=""),
        row("e4", {"bytes": None, "path": None}), row("e5", {"bytes": b"hello", "path": None}),
        row("e6", {"bytes": picture(2)[:-40], "path": None}), row("e7", {"bytes": None, "path": "../params.yaml"}),
        row("e8", None),
    ]  # fmt: skip
    parquet(workdir / "bench.parquet", [row("good", good), *bad])
    assert [r["key"] for r in run(path="bench.parquet")] == ["good"]
    assert json.loads(Path("metrics/gedit_bench.json").read_text())[0]["refused"] == len(bad)
    with Path("data/refused/gedit_bench.csv").open() as file:
        refused = list(csv.DictReader(file))
    assert [int(line["row"]) for line in refused] == list(range(1, 15))
    told = " ".join(line["reason"] for line in refused)
    for words in (
        "stands already", "empty field: instruction", ": task", "missing field: ", "200 at most",
        "not a PNG, JPEG or WebP image", "broken image", "path leaves the folder: ../params.yaml",
    ):  # fmt: skip
        assert words in told


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda file: file.write_bytes(b"PAR1 no"), "bench.parquet: not readable as Parquet"),
        (lambda file: None, "bench.parquet not found"),
        (lambda file: parquet(file, [{"id": "a", "text": "t"}]), "no row can be used as a prompt"),
        (lambda file: parquet(file, [row("a/b", {"bytes": b"x", "path": None})]), "no row can be used as a prompt"),
    ],
    ids=["broken", "missing", "no fields", "no rows"],
)
def test_a_file_that_cannot_be_read_is_named_and_the_prompts_before_stay(workdir: Path, make: Any, told: str) -> None:
    before = run()
    make(workdir / "bench.parquet")
    with pytest.raises(ValueError, match=told):
        run(path="bench.parquet")
    assert records.read(Path("data/gedit_bench.parquet"), "gedit_bench") == before


def test_the_probe_sets_prompts_are_what_they_were(workdir: Path) -> None:
    rows = run()
    assert [r["task"] for r in rows] == ["color_alter", "tone_transfer"]
    assert all(r["regions"] is not None and r["edit"] for r in rows)
