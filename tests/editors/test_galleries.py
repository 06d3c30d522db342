"""Edits made elsewhere, in every layout that they may lie in: as a model's candidates, and of a suite's cases."""

import csv
import json
import string
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import suite_files
import yaml
from cases import each_row
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import picture, png

from editjudge.core import images, records
from editjudge.core.keys import plain
from editjudge.editors.galleries import metadata
from editjudge.editors.galleries.metadata import GalleryError, GalleryLine
from editjudge.editors.galleries.pictures import GalleryReport, Given, read_suite
from editjudge.stages import candidates
from tools import gallery

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


def test_a_folder_without_a_list_has_the_images_that_lie_in_it_alone(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.png", "a.webp", "deep/c.png", "notes.txt"):
        (tmp_path / name).write_bytes(picture(1))
    assert Given(tmp_path).listed() == ["a", "b"]


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
    (tmp_path / "m/fullset/ps_human/en/ps_human0.png").rename(tmp_path / "m/ps_human0.en.png")
    rows, report = read(tmp_path / "m", cases)
    assert (report.done, report.rows) == (8, []), "by its key it is of a case, too"
    assert gallery.write_suite(rows, {case["key"]: case["file"] for case in cases}, tmp_path / "again") == 8
    again, report = read(tmp_path / "again", cases)
    assert [row["image"] for row in again] == [row["image"] for row in rows]
    bad = {cases[0]["key"]: "../out"}
    with pytest.raises(GalleryError, match="cannot be a file's name"):
        gallery.write_suite(rows, bad, tmp_path / "third")


# metadata.jsonl: what is read, merged and written; unknown fields stay.

TEXT = st.text(max_size=12)  # surrogates too: JSON can say them
NAMES = st.text(string.ascii_letters + string.digits + " .[]()-é", min_size=1, max_size=8)
KEYS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def prompt_lines(draw: st.DrawFn) -> list[dict]:
    """Lines of a gallery with fields that nobody knows, in any order."""
    rows = []
    for key in draw(st.lists(KEYS, unique=True, max_size=5)):
        models = draw(st.lists(NAMES, unique_by=plain, max_size=3))
        candidates = [draw(st.dictionaries(TEXT, JSON, max_size=2)) | {"model": m, "image": draw(TEXT)} for m in models]
        known = {"key": key, "candidates": candidates}
        row = draw(st.dictionaries(TEXT, JSON, max_size=3)) | known
        rows.append(dict(draw(st.permutations(list(row.items())))))
    return rows


def as_lines(rows: list[dict], ascii_only: bool = True) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows).encode()


@settings(max_examples=150)
@given(prompt_lines(), NAMES, st.data())
def test_a_merge_adds_one_model_and_changes_nothing_else(rows: list[dict], model: str, data: st.DataObject) -> None:
    before = metadata.parse(as_lines(rows), "m")
    assert gallery.dump(before) == gallery.dump(gallery.merge(before, "m", {})) == as_lines(rows)
    free = [line.key for line in before if line.image(model) is None and data.draw(st.booleans())]
    images = {key: f"{model}/{key}.png" for key in free} | {"nowhere": "x"}
    merged = gallery.merge(before, model, images)
    after = metadata.parse(gallery.dump(merged), "m")
    assert after == merged
    assert [line.key for line in after] == [row["key"] for row in rows]
    for row, old, new in zip(rows, before, after, strict=True):
        assert list(new.values) == list(row) or "candidates" not in row
        assert new.values | {"candidates": []} == row | {"candidates": []}
        own = row["key"] in images
        added = [{"model": model, "image": images[row["key"]]}] if own else []
        assert new.candidates() == [*row["candidates"], *added]
        if not own:
            assert new.raw == old.raw


def test_order_spelling_and_foreign_fields_stay_as_they_were() -> None:
    kept = '{"task": "hybrid", "key": "a", "candidates": [{"model": "X", "score": 1.50, "image": "X/a.png"}], "n":1e3}'
    other = '{"key": "b", "instruction": "加 \\u2028 \\ud83d\\ude00", "candidates": []}'
    raw = f"\ufeff{kept}\r\n\n{other}\n".encode()
    lines = metadata.parse(raw, "m")
    merged = gallery.dump(gallery.merge(lines, "new", {"b": "new/b.png"})).decode()
    first, second, _ = merged.split("\n")
    assert first == kept
    assert json.loads(second) == {
        "key": "b", "instruction": "加 \u2028 😀", "candidates": [{"model": "new", "image": "new/b.png"}]
    }  # fmt: skip
    assert "加" in second
    [line] = gallery.merge(metadata.parse(b'{"key": "b", "i": "\\u52a0"}', "m"), "new", {"b": "x"})
    assert gallery.dump([line]).isascii(), "as the line was"
    assert line.values == {"key": "b", "i": "加", "candidates": [{"model": "new", "image": "x"}]}


def test_a_model_that_is_there_is_a_conflict() -> None:
    lines = [GalleryLine("a", {"key": "a", "candidates": [{"model": "GPT Image 1.5", "image": "old.png"}]})]
    for model in ("GPT Image 1.5", plain("GPT Image 1.5")):
        with pytest.raises(GalleryError, match="has candidates already, in 1 lines, 'a' the first"):
            gallery.merge(lines, model, {"a": "new.png"})


@each_row("raw, words", ("[" * 100_000, "not JSON"))
def test_a_file_that_is_none_is_named_with_its_line(raw: str, words: str) -> None:
    with pytest.raises(GalleryError, match=words):
        metadata.parse(raw.encode("latin-1"), "m")
