"""People's yes and no about dialogues."""

from pathlib import Path

import pytest
from cases import each_row

from editjudge.benchmarks import people
from editjudge.core.tables import TableError
from editjudge.statistics.agreement import krippendorff_alpha


def read(folder: Path, text: str) -> people.Answers:
    (folder / "p.csv").write_text("id,model,rater,content_memory,content_understanding,version_backtracking\n" + text)
    return people.read(folder / "p.csv", ["d0", "d1"])


def test_shares_and_agreement(tmp_path: Path) -> None:
    answers = read(tmp_path, "d0,m,a,Yes,no,\nd0,m,b,no,no,1\nd1,m,a,y,0,no\nd1,n,a,yes,yes,yes\nd1,n,b,yes,no,yes\n")
    told = people.report(answers)
    assert told["raters"] == ["a", "b"]
    memory, understanding, backtracking = told["models"][0]["aspects"]
    assert (memory["yes"], memory["dialogues"], memory["answers"], memory["unanswered"]) == (0.75, 2, 3, 0)
    assert understanding["yes"] == 0.0
    assert (backtracking["yes"], backtracking["answers"], backtracking["unanswered"]) == (0.5, 2, 1)
    asked = [["yes", "yes", "yes"], ["no", None, "yes"]]  # (d0, m), (d1, m), (d1, n)
    alpha = krippendorff_alpha(asked, people.VALUES, ["d0", "d1", "d1"])["alpha"]
    assert told["agreement"][0]["aspect"] == "content_memory"
    assert told["agreement"][0]["alpha"] == alpha
    alone = people.report(read(tmp_path, "d0,m,a,yes,yes,yes\n"))
    assert {each["alpha"] for each in alone["agreement"]} == {None}, "one rater agrees with nobody"


@each_row("text, said")
def test_a_wrong_row_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TableError, match=said):
        read(tmp_path, text)


def test_a_table_without_a_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,model,rater\nd0,m,a\n")
    with pytest.raises(TableError, match="no column content_memory, content_understanding"):
        people.read(tmp_path / "p.csv", ["d0"])
    with pytest.raises(TableError, match="not found"):
        people.read(tmp_path / "q.csv", ["d0"])
