"""Folders of edits of a suite's cases: what is missing, broken and besides is named."""

from pathlib import Path

import pytest
import suite_files
from pictures import picture

from editjudge.core.records import Row
from editjudge.editors.galleries import suite_gallery
from editjudge.editors.galleries.metadata import GalleryError


@pytest.fixture
def cases(tmp_path: Path) -> list[Row]:
    return suite_files.load("imgedit_basic", suite_files.basic(tmp_path / "b", 5))


def read(folder: Path, cases: list[Row]) -> tuple[list[Row], suite_gallery.GalleryReport]:
    report = suite_gallery.GalleryReport()
    return list(suite_gallery.read(folder, cases, "m", report)), report


def names(report: suite_gallery.GalleryReport, kind: str) -> list[str]:
    return [row["name"] for row in report.rows if row["kind"] == kind]


def test_missing_broken_and_extra_files_are_named_and_the_rest_is_read(tmp_path: Path, cases: list[Row]) -> None:
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


def test_other_endings_serve_and_so_do_tables(tmp_path: Path, cases: list[Row]) -> None:
    folder = suite_files.gallery(tmp_path / "m", cases)
    (folder / "1.png").rename(folder / "1.jpg")
    (tmp_path / "table.csv").write_text("key,image\n1,m/1.jpg\n5,m/5.png\nx,m/2.png\n")
    assert read(folder, cases)[1].rows == []
    rows, report = read(tmp_path / "table.csv", cases)
    assert [row["status"] for row in rows] == ["done", "failed", "failed", "failed", "done"]
    assert names(report, "extra") == ["x"]
    with pytest.raises(GalleryError, match="not found"):
        read(tmp_path / "nowhere", cases)


def test_gedit_lies_in_folders_and_what_is_written_is_read(tmp_path: Path) -> None:
    cases = suite_files.load("gedit_v1", suite_files.gedit(tmp_path / "g"))
    rows, report = read(suite_files.gallery(tmp_path / "m", cases), cases)
    assert (report.done, report.rows) == (8, [])
    assert (tmp_path / "m/fullset/ps_human/en/ps_human0.png").is_file()
    assert suite_gallery.write(rows, {case["key"]: case["file"] for case in cases}, tmp_path / "again") == 8
    again, report = read(tmp_path / "again", cases)
    assert [row["image"] for row in again] == [row["image"] for row in rows]
    bad = {cases[0]["key"]: "../out"}
    with pytest.raises(GalleryError, match="cannot be a file's name"):
        suite_gallery.write(rows, bad, tmp_path / "third")
