"""The stages suite, candidates and rate on small suites, with a rater behind an endpoint."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import suite_files
from chat_client import chat_server
from fake_server import Server
from suite_files import reply

from editjudge.core import images, records
from editjudge.core.params import ParamsError
from editjudge.core.tables import TableError
from editjudge.editors import making
from editjudge.editors.protocol import Edited, EditFailed, Request
from editjudge.stages import candidates, import_gallery, rate, suite

GREY = {"kind": "leaky", "amount": 2.0, "seed": 1}
REPLIES = {
    "edit 1": [reply(5, 4, 3)],
    "edit 2": [reply(2, 5, 5)],  # the cap: 2
    "edit 3": ["I cannot judge this image."],
    "edit 4": ["Instruction Adherence: 7\nEditing Quality: 3\nDetail Preservation: 3"],
}


class Brighter:
    """Adds 10 to each value; fails where it is told."""

    def __init__(self, model: str, *_: object) -> None: ...

    def edit(self, request: Request) -> Edited:
        if "fail" in request.instruction:
            raise EditFailed("refused", "will not")
        return Edited((images.decode(request.image).astype(int) + 10).clip(0, 255).astype(np.uint8), None)


@pytest.fixture
def work(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(making, "load", Brighter)
    records.write(Path("data/gedit_bench.parquet"), [], "gedit_bench")
    return workdir


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with chat_server(replies=REPLIES) as running:
        yield running


def write_params(suites: dict[str, Any], raters: dict[str, Any] | None = None, **more: Any) -> None:
    values = {"tasks": {}, "editors": {"m": GREY}, "suites": suites, "raters": raters or {}}
    Path("params.yaml").write_text(json.dumps(values | {"imported": {}} | more))


def rater(server: Server, **fields: Any) -> dict[str, Any]:
    plain = {"backend": "endpoint", "base_url": server.url, "model": "gpt", "rubrics": "imgedit", "reply_tries": 1}
    return plain | fields


def run(name: str) -> dict[str, Any]:
    """All three stages; metrics/suites/NAME.json."""
    suite.run(name)
    candidates.run("m")
    rate.run(name)
    return records.read_details(Path(f"metrics/suites/{name}.json"))


def figure(model: dict[str, Any], scores: str, name: str = "score") -> dict[str, Any]:
    [board] = [board for board in model["boards"] if board["scores"] == scores]
    return next(each for each in board["figures"] if each["figure"] == name)


def test_a_suite_from_its_table_to_its_board(work: Path, server: Server) -> None:
    file = suite_files.basic(Path("b"), 4)
    write_params({"s": {"form": "imgedit_basic", "path": str(file)}}, {"gpt": rater(server)}, unfinished={"rate": 1.0})
    found = run("s")
    [model] = found["raters"][0]["models"]
    assert (model["cases"], model["scored"], model["unscored"]) == (4, 2, 2)
    assert figure(model, "published")["mean"] == pytest.approx((4 + 4) / 2)
    assert figure(model, "capped")["mean"] == pytest.approx((4 + 2) / 2)
    assert figure(model, "published", "adherence")["mean"] == 3.5
    assert len(model["reasons"]) == 2
    rows = records.read(Path("data/ratings/s.parquet"), "ratings")
    assert [row["reply"] for row in rows] == [REPLIES[f"edit {n}"][0] for n in range(1, 5)]
    assert {(row["judge"], row["rater"], len(row["asked"])) for row in rows} == {("gpt", "gpt", 10)}
    assert rows[0]["rubric"].startswith("imgedit/add@")
    assert [row["scores"] is None for row in rows] == [row["reason"] is not None for row in rows]
    board = list(csv.DictReader(Path("data/suite_boards/s/board.csv").read_text().splitlines()))
    assert (board[0]["model"], board[0]["from"], board[0]["score"]) == ("m", "here", "4.0")
    assert (board[1]["model"], board[1]["score"], board[1]["rater"]) == ("GPT-4o", "4.2", "GPT-4.1")
    assert board[1]["from"].startswith("published: ")
    assert "| gpt | m | here | 4.00 |" in Path("data/suite_boards/s/board.md").read_text()
    files = [Path("data/ratings/s.parquet"), Path("metrics/suites/s.json"), Path("plots/suites/s.csv")]
    before = [file.read_bytes() for file in files]
    server.log(forget=True)
    rate.run("s")
    assert [file.read_bytes() for file in files] == before
    assert not server.log()["answered"], "kept replies, with their day"


def test_what_there_is_no_edit_of_is_unscored_and_never_zero(work: Path, server: Server) -> None:
    file = suite_files.basic(Path("b"), 2)
    cases = json.loads(file.read_text())
    file.write_text(json.dumps(cases | {"3": cases["1"] | {"prompt": "fail"}}))
    write_params({"s": {"form": "imgedit_basic", "path": str(file)}}, {"gpt": rater(server)})
    [model] = run("s")["raters"][0]["models"]
    assert (model["scored"], model["unscored"]) == (2, 1)
    assert model["reasons"] == [{"reason": "no edit: will not", "ratings": 1}]
    assert figure(model, "published")["mean"] == 4.0
    [told] = records.read_details(Path("metrics/suite_candidates/m.json"))["suites"]
    assert (told["suite"], told["records"], told["failed"]) == ("s", 3, 1)
    assert records.read_details(Path("metrics/candidates/m.json"))["records"] == 0, "pools and arena alone"


def test_each_turn_edits_what_came_of_the_one_before(work: Path) -> None:
    file = suite_files.multi_turn(Path("d"), 2)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1]["turn2"] = "fail here"
    file.write_text("\n".join(map(json.dumps, lines)))
    Path("people.csv").write_text(
        "id,model,rater,content_memory,content_understanding,version_backtracking\n"
        "d0,m,a,yes,no,\nd0,m,b,yes,yes,no\nd1,m,a,no,no,no\nd1,m,b,no,no,no\n"
    )
    write_params({"t": {"form": "imgedit_multi_turn", "path": str(file), "people": "people.csv"}})
    found = run("t")
    rows = {row["key"]: row for row in records.iterate(Path("data/suite_gallery/m/t.parquet"), "candidates")}
    photo = images.decode((Path("d") / "d0.png").read_bytes()).astype(int)
    for turn in (1, 2, 3):
        assert np.array_equal(images.decode(rows[f"d0.{turn}"]["image"]), (photo + 10 * turn).clip(0, 255))
    assert [rows[f"d1.{turn}"]["status"] for turn in (1, 2, 3)] == ["done", "failed", "failed"]
    assert rows["d1.3"]["reason"] == "the turn before: will not"
    assert found["raters"] == []
    [model] = found["people"]["models"]
    assert [(each["yes"], each["answers"], each["unanswered"]) for each in model["aspects"]] == [
        (0.5, 4, 0), (0.25, 4, 0), (0.0, 3, 1)]  # fmt: skip
    assert found["people"]["agreement"][0]["alpha"] == 1.0
    before = Path("data/suite_gallery/m/t.parquet").read_bytes()
    candidates.run("m")
    assert Path("data/suite_gallery/m/t.parquet").read_bytes() == before
    assert json.loads(Path("metrics/resume/candidates_m.json").read_text()) == {"computed": 0, "reused": 5}


def test_gedit_v1_by_viescore_in_both_languages_and_sets(work: Path) -> None:
    file = suite_files.gedit(Path("g"))
    replies = {f"{task} {n} {language}": ['{"score": [8, 6]}'] for task in ("ps_human", "subject-add") for n in (0, 1)
               for language in ("en", "cn")}  # fmt: skip
    replies["subject-add 1 en"] = ["no idea"]
    with chat_server(replies=replies | {"": ['{"score": [9, 9]}']}) as server:
        raters = {"v": rater(server, rubrics="viescore_10"), "unfit": rater(server)}
        write_params({"g": {"form": "gedit_v1", "path": str(file)}}, raters, unfinished={"rate": 1.0})
        found = run("g")
    assert [each["rater"] for each in found["raters"]] == ["v"]
    [model] = found["raters"][0]["models"]
    assert (model["scored"], model["unscored"]) == (7, 1)
    assert [(b["language"], b["set"]) for b in model["boards"]] == [
        ("en", "full"), ("en", "intersection"), ("cn", "full"), ("cn", "intersection")]  # fmt: skip
    means = {each["figure"]: each["mean"] for each in model["boards"][0]["figures"]}
    assert means == {"SC": 6.0, "PQ": 9.0, "O": pytest.approx(54**0.5, abs=1e-6)}
    assert [each["cases"] for each in model["boards"][0]["figures"]] == [3, 3, 3]


def test_a_model_from_elsewhere_takes_part(work: Path, server: Server) -> None:
    file = suite_files.basic(Path("b"), 2)
    cases = suite_files.load("imgedit_basic", file)
    folder = suite_files.gallery(Path("theirs"), cases)
    (folder / "2.png").write_bytes(b"broken")
    (folder / "notes.txt").write_text("x")
    imported = {"theirs": {"path": "theirs", "suite": "s"}}
    suites = {"s": {"form": "imgedit_basic", "path": str(file)}}
    write_params(suites, {"gpt": rater(server)}, imported=imported)
    suite.run("s")
    import_gallery.run("theirs")
    found = run("s")
    assert [model["model"] for model in found["raters"][0]["models"]] == ["m", "theirs"]
    assert found["raters"][0]["models"][1]["unscored"] == 1
    lacking = records.read_details(Path("metrics/gallery/theirs.json"))["lacking"]
    assert [(each["kind"], each["name"]) for each in lacking] == [("broken", "2"), ("extra", "notes.txt")]


def test_a_suite_without_a_case_or_a_rater_is_told(work: Path, server: Server) -> None:
    file = suite_files.basic(Path("b"), 1)
    entry = {"form": "imgedit_basic", "path": str(file)}
    write_params({"s": entry, "t": entry | {"raters": ["no"]}, "u": entry | {"raters": ["v"]}},
                 {"v": rater(server, rubrics="viescore_10")})  # fmt: skip
    for name, told in (("s", "no rater of section"), ("t", "known: v"), ("u", "rubrics viescore_10")):
        with pytest.raises(ParamsError, match=told):
            rate.run(name)
    Path("b/photos/0.jpg").unlink()
    with pytest.raises(TableError, match=r"data/refused/suites/s\.csv says why"):
        suite.run("s")
    assert "image missing" in Path("data/refused/suites/s.csv").read_text()
