"""Edits made elsewhere, in every layout that they may lie in: as a model's candidates, and of a suite's cases."""

import csv
import json
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import suite_files
import yaml
from cases import each_row
from pictures import picture, png

from editjudge.core import images, records
from editjudge.editors.galleries.metadata import GalleryError
from editjudge.editors.galleries.pictures import GalleryReport, Given, read_suite, write_suite
from editjudge.stages import candidates

TASK = "subject_remove"


@pytest.fixture
def edits(workdir: Path) -> Path:
    """Three images in every layout: `folder`, `gallery`, tables."""
    data = {f"k{n}": png(n) for n in range(3)}
    for key, image in data.items():
        for folder in ("folder", "gallery/Mine 1.0"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, f"{key}.png").write_bytes(image)
    lines = [{"key": k, "candidates": [{"model": m, "image": f"{m}/{k}.png"} for m in ("Mine 1.0", "x")]} for k in data]
    Path("gallery/metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Path("table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("key", "image"), *((key, f"folder/{key}.png") for key in data)])
    Path("table.jsonl").write_text("".join(json.dumps({"key": k, "image": f"folder/{k}.png"}) + "\n" for k in data))
    shown = [{"bytes": image, "path": None} for image in data.values()]
    pq.write_table(pa.table({"key": list(data), "image": shown, "model": ["mine"] * 3}), "table.parquet")
    pq.write_table(pa.table({"key": list(data), "image": list(data.values())}), "bytes.parquet", row_group_size=1)
    return workdir


@pytest.mark.parametrize(
    "path",
    ["folder", "gallery", "gallery/metadata.jsonl", "table.csv", "table.jsonl", "table.parquet", "bytes.parquet"],
)
def test_the_same_images_in_every_layout(path: str, edits: Path) -> None:
    given = Given(Path(path), "Mine 1.0")
    assert given.listed() == ["k0", "k1", "k2"]
    assert [given(key) for key in given.listed()] == [png(0), png(1), png(2)]
    assert given("k9") == "no image for this key"


@each_row("path, model, told")
def test_what_is_no_such_thing_is_named(path: str, model: str | None, told: str, edits: Path) -> None:
    Path("twice.csv").write_text("key,image\na,1.png\na,2.png\n")
    Path("half.jsonl").write_text('{"key": "a", "image": "b"}\n{"key": "b"}\n')
    pq.write_table(pa.table({"key": ["a"]}), "other.parquet")
    with pytest.raises(GalleryError, match=told):
        Given(Path(path), model)


def test_a_folder_is_an_editing_model_for_pool_and_arena(edits: Path) -> None:
    """Whole keys and own ones, an image that is missing, one that is broken, one of another shape: each by its name."""
    wide = images.encode_png(np.zeros((40, 80, 3), np.uint8) + 90)
    named = {f"{TASK}.mine.whole.png": png(5), "own.png": png(6), "both.png": png(7), "wide.png": wide}
    named |= {"broken.png": png(8)[:-40], "arena.jpg": cv2.imencode(".jpg", images.decode(png(9)))[1].tobytes()}
    for name, data in named.items():
        Path("folder", name).write_bytes(data)
    keys = ["mine.whole", "mine.own", "a.both", "b.both", "mine.wide", "mine.broken", "mine.none"]
    own = {"instruction": "Remove the cup.", "image": png(1), "edit": None, "origin": None, "regions": []}
    prompts = [own | {"key": f"{TASK}.{key}", "task": TASK} for key in keys]
    records.write(Path(f"data/pools/{TASK}.parquet"), prompts, "pools")
    arena = {"key": "arena", "task": "any", "instruction": "x", "source_image": {"bytes": png(1), "path": None}}
    records.write(Path("data/gedit_bench.parquet"), [arena], "gedit_bench")
    values = {"tasks": {TASK: "object_centric"}, "editors": {"mine": {"kind": "folder", "path": "folder"}}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    candidates.run("mine")
    rows = {row["key"]: row for row in records.iterate(Path(f"data/candidates/mine/{TASK}.parquet"), "candidates")}
    assert list(rows) == [f"{TASK}.{key}" for key in keys]
    assert rows[f"{TASK}.mine.whole"]["image"] == png(5), "as it came"
    assert rows[f"{TASK}.mine.own"]["image"] == png(6)
    assert rows[f"{TASK}.mine.wide"]["image"] == wide, "its own size"
    [shown] = records.read(Path("data/gallery/mine.parquet"), "candidates")
    assert (shown["key"], shown["image"]) == ("arena", named["arena.jpg"])
    [report] = json.loads(Path("metrics/candidates/mine.json").read_text())
    assert (report["records"], report["failed"]) == (8, 4)
    assert report["aspect_changed"] == [{"key": f"{TASK}.mine.wide", "factor": 2.0}]
    lacking = {each["key"]: (each["kind"], each["reason"]) for each in report["lacking"]}
    assert lacking[f"{TASK}.mine.none"] == ("missing", "no image for this key")
    assert lacking[f"{TASK}.mine.broken"][0] == "unusable"
    assert "2 prompts have the own key both" in lacking[f"{TASK}.a.both"][1]
    assert set(lacking) == {f"{TASK}.{key}" for key in ("a.both", "b.both", "mine.broken", "mine.none")}
    assert not Path("work").exists(), "nothing is copied"
    Path("folder/own.png").write_bytes(png(11))
    candidates.run("mine")
    again = records.read(Path(f"data/candidates/mine/{TASK}.parquet"), "candidates")
    assert again[1]["image"] == png(11), "a changed image is seen"


@pytest.fixture
def cases(tmp_path: Path) -> list[records.Row]:
    return suite_files.load("imgedit_basic", suite_files.basic(tmp_path / "b", 5))


def read(folder: Path, cases: list[records.Row]) -> tuple[list[records.Row], GalleryReport]:
    report = GalleryReport()
    return list(read_suite(folder, cases, "m", report)), report


def names(report: GalleryReport, kind: str) -> list[str]:
    return [row["name"] for row in report.rows if row["kind"] == kind]


def test_missing_broken_and_extra_files_are_named_and_others_read(tmp_path: Path, cases: list[records.Row]) -> None:
    folder = suite_files.gallery(tmp_path / "m", cases)
    (folder / "2.png").unlink()
    (folder / "3.png").write_bytes(picture(9)[:60])
    (folder / "4.png").unlink()
    (folder / "4.png").symlink_to("/etc/hostname")
    (folder / "99.png").write_bytes(picture(1))
    (folder / "deep").mkdir()
    (folder / "deep/1.png").write_bytes(picture(1))
    (folder / "notes.txt").write_text("x")
    rows, report = read(folder, cases)
    assert [row["status"] for row in rows] == ["done", "failed", "failed", "failed", "done"]
    assert rows[0]["image"] == picture(100)
    assert (report.done, names(report, "missing"), names(report, "broken")) == (2, ["2"], ["3", "4"])
    assert names(report, "extra") == ["99.png", "deep/1.png", "notes.txt"]
    lines = report.lines()
    assert lines[0] == "2 images of 5 cases"
    assert lines[1] == "1 missing: 2"
    assert lines[3] == "3 of no case: 99.png, deep/1.png, notes.txt"
    assert [row["name"] for row in report.rows] == ["2", "3", "4", "99.png", "deep/1.png", "notes.txt"]


def test_other_endings_serve_and_so_do_tables(tmp_path: Path, cases: list[records.Row]) -> None:
    folder = suite_files.gallery(tmp_path / "m", cases)
    (folder / "1.png").rename(folder / "1.jpg")
    (tmp_path / "table.csv").write_text("key,image\n1,m/1.jpg\n5,m/5.png\nx,m/2.png\n")
    assert read(folder, cases)[1].rows == []
    rows, report = read(tmp_path / "table.csv", cases)
    assert [row["status"] for row in rows] == ["done", "failed", "failed", "failed", "done"]
    assert names(report, "extra") == ["x"]


def test_gedit_lies_in_folders_and_what_is_written_is_read(tmp_path: Path) -> None:
    cases = suite_files.load("gedit_v1", suite_files.gedit(tmp_path / "g"))
    rows, report = read(suite_files.gallery(tmp_path / "m", cases), cases)
    assert (report.done, report.rows) == (8, [])
    assert (tmp_path / "m/fullset/ps_human/en/ps_human0.png").is_file()
    assert write_suite(rows, {case["key"]: case["file"] for case in cases}, tmp_path / "again") == 8
    again, report = read(tmp_path / "again", cases)
    assert [row["image"] for row in again] == [row["image"] for row in rows]
    bad = {cases[0]["key"]: "../out"}
    with pytest.raises(GalleryError, match="cannot be a file's name"):
        write_suite(rows, bad, tmp_path / "third")
