"""A model is ranked on ImgEdit-Bench with one command; two months are compared with another."""

import csv
import json
from pathlib import Path

import forks
import program
import pytest
import suite_files
from chat_client import chat_server
from suite_files import reply

from editjudge.core import records
from editjudge.editors.galleries.metadata import GalleryError


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDITJUDGE_WORK", raising=False)
    return tmp_path


def test_a_model_is_ranked_with_one_command_and_drift_is_told(work: Path) -> None:
    file = suite_files.basic(Path("b"), 4)
    cases = suite_files.load("imgedit_basic", file)
    for n, name in enumerate(("mine", "theirs")):
        suite_files.gallery(Path("edits") / name, cases, 100 * (n + 1))
    Path("edits/theirs/4.png").unlink()
    words = ["--suite", "imgedit_basic", "--cases", str(file), "--gallery", "edits/mine", "edits/theirs"]
    words += ["--model", "gpt-4.1"]
    for month, numbers in (("old", (4, 4, 4)), ("new", (5, 4, 3))):
        replies = {f"edit {n}": [reply(*numbers) if n < 3 else reply(2, 2, 2)] for n in range(1, 5)}
        with chat_server(replies=replies) as server:
            done = forks.program("suite", *words, "--base-url", server.url, "--out", month)
        assert done.returncode == 0, done.stderr
        (work / "work/judge/raters.vlm.sqlite").unlink()
    assert "suite: theirs: 1 missing: 4" in done.stderr
    assert "suite: theirs: unscored are 1 of 4 ratings by vlm: 1 no edit: no image for this key" in done.stderr
    assert "| vlm | theirs | here |" in done.stdout
    assert "| GPT-4.1 | GPT-4o | published:" in done.stdout
    [lacking] = csv.DictReader(Path("new/gallery.csv").read_text().splitlines())
    assert lacking == {"model": "theirs", "kind": "missing", "name": "4", "reason": "no image for this key"}
    rows = records.read(Path("new/ratings.parquet"), "ratings")
    assert len(rows) == 8
    assert sum(row["scores"] is None for row in rows) == 1
    models = json.loads(Path("new/metrics.json").read_text())["raters"][0]["models"]
    assert [model["unscored"] for model in models] == [0, 1]
    told = forks.program("drift", "old/ratings.parquet", "new/ratings.parquet", "--json", "drift.json")
    assert told.returncode == 0, told.stderr
    found = {row["dimension"]: row for row in json.loads(Path("drift.json").read_text())}
    assert (found["score"]["change"], found["score"]["changed"]) == (0.0, 0.0)
    assert (found["adherence"]["edits"], found["adherence"]["changed"]) == (7, pytest.approx(4 / 7, abs=1e-6))
    assert "vlm: gpt-4.1 (20" in told.stdout


def test_a_mistake_is_one_line(work: Path) -> None:
    file = suite_files.basic(Path("b"), 1)
    whole = ["--suite", "imgedit_basic", "--cases", str(file)]
    for words, said in (
        (whole, "suite: who rates? --rater"),
        ([*whole, "--rater", "x"], "suite: raters has no 'x'; known: "),
        ([*whole[:3], "nowhere", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"], "suite: nowhere not found"),
        ([*whole, "--model", "m", "--base-url", "http://127.0.0.1:1/v1"], "suite: whose edits? --gallery"),
        (
            [*whole, "--model", "m", "--base-url", "http://127.0.0.1:1/v1", "--gallery", "a/m", "b/m"],
            "suite: a/m not found",
        ),
    ):
        done = forks.program("suite", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
        assert done.stderr.startswith(said)
    done = forks.program("drift", "a", "b")
    assert done.stderr.startswith("drift: a not found")


def test_folders_name_their_models_and_what_is_no_case_is_counted(work: Path) -> None:
    file = suite_files.basic(Path("b"), 3)
    cases = suite_files.load("imgedit_basic", file)
    Path("b/photos/1.jpg").unlink()
    for name in ("m-4.1", "m-4.5"):
        suite_files.gallery(Path("edits") / name, cases)
    words = ["--suite", "imgedit_basic", "--cases", str(file), "--gallery", "edits/m-4.1", "edits/m-4.5/"]
    with chat_server(replies={f"edit {n}": [reply(4, 4, 4)] for n in range(1, 4)}) as server:
        done = forks.program("suite", *words, "--model", "j", "--base-url", server.url, "--out", "o")
    assert done.returncode == 0, done.stderr
    assert "suite: 1 rows are no cases: o/refused.csv" in done.stderr
    assert "image missing" in Path("o/refused.csv").read_text()
    found = json.loads(Path("o/metrics.json").read_text())
    assert found["suite"] == {"form": "imgedit_basic", "cases": 2, "refused": 1}
    assert [model["model"] for model in found["raters"][0]["models"]] == ["m-4.1", "m-4.5"]


def test_an_endpoint_that_never_answers_is_no_ranking(work: Path) -> None:
    file = suite_files.basic(Path("b"), 1)
    suite_files.gallery(Path("edits/m"), suite_files.load("imgedit_basic", file))
    words = ["--suite", "imgedit_basic", "--cases", str(file), "--gallery", "edits/m"]
    done = forks.program("suite", *words, "--model", "j", "--base-url", "http://127.0.0.1:1/v1", "--out", "o")
    assert done.returncode == 1
    assert "suite: 1 of 1 answers of raters.vlm are missing" in done.stderr.splitlines()[-1]
    assert records.read(Path("o/ratings.parquet"), "ratings")[0]["scores"] is None


def test_a_suites_gallery_is_written_and_read(work: Path) -> None:
    cases = suite_files.load("imgedit_basic", suite_files.basic(Path("b"), 3))
    records.write(Path("data/suites/s.parquet"), cases, "suites")

    def told(words: str) -> str:
        return program.run(f"gallery {words}")

    folder = suite_files.gallery(Path("g/m"), cases[:2])
    (folder / "no.png").write_bytes(b"x")
    said = told("read --suite s --model m --gallery g/m --out data/suite_gallery/m/s.parquet")
    assert said.splitlines() == ["m: 2 images of 3 cases", "m: 1 missing: 3", "m: 1 of no case: no.png"]
    names = [row["name"] for row in csv.DictReader(Path("data/suite_gallery/m/s.csv").read_text().splitlines())]
    assert names == ["3", "no.png"]
    assert told("read --suite s --model m --gallery g/m") == said
    assert told("write --suite s --model m --out out") == "m: 2 images of 3 cases"
    assert sorted(file.name for file in Path("out/m").iterdir()) == ["1.png", "2.png"]
    assert Path("out/m/1.png").read_bytes() == (folder / "1.png").read_bytes()
    with pytest.raises(GalleryError, match="is there already"):
        told("write --suite s --model m --out out")
