"""Raters behind a real HTTP server: what is asked, what is kept, runs, budgets, bad answers, and as scorers."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_families
from chat_client import chat_server, picture

from editjudge import api
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.judges.asking import ChatJudge, open_rater
from editjudge.judges.opening import open_judge
from editjudge.judges.protocol import Edit, Question, Score, Unscored
from editjudge.judges.rubrics import Rating, load, questions, record

GOOD = {"adherence": 2, "quality": 5, "preservation": 3}
SOURCE, EDITED = picture(1), picture(2)


def how(url: str, **changes: Any) -> dict[str, Any]:
    return {"backend": "endpoint", "base_url": url, "model": "m", "rubrics": "imgedit", "timeout": 5.0} | changes


def cases(*types: str) -> list[Edit]:
    return [Edit(f"q{n}", SOURCE, EDITED, task=type_, key=f"k{n}") for n, type_ in enumerate(types)]


def ask(given: dict[str, Any], asked: list[Edit], file: Path) -> tuple[list[list[Rating]], ChatJudge]:
    with open_rater("raters.tested", given, file) as rater:
        return rater.rate(asked), rater


def test_each_type_is_asked_by_its_rubric_and_replies_are_kept(tmp_path: Path) -> None:
    reply = load("imgedit", "add").write(GOOD, "Added, but the light is off.")
    with chat_server(replies={f"q{n}": [reply] for n in range(3)}, bodies=True) as server:
        asked = cases("add", "remove", "add")
        said, rater = ask(how(server.url), asked, tmp_path / "c.sqlite")
        again, second = ask(how(server.url), asked, tmp_path / "c.sqlite")
        bodies = server.log()["bodies"]
    told = [[(run.key, run.scores, run.reason) for run in runs] for runs in said]
    assert told == [[(case.key, GOOD, None)] for case in asked]
    assert [runs[0].reply for runs in (*said, *again)] == [reply] * 6
    assert (rater.account.asked, second.account.asked, second.account.reused) == (3, 0, 3)
    chats = [json.loads(body) for body in bodies]
    assert len(chats) == 3
    assert sum("removes something" in str(chat["messages"]) for chat in chats) == 1
    for chat in chats:
        schema = chat["response_format"]["json_schema"]["schema"]
        assert schema["required"][1:] == ["Instruction Adherence", "Editing Quality", "Detail Preservation"]


def test_an_endpoint_that_refuses_schemas_and_answers_badly_leaves_reasons(tmp_path: Path) -> None:
    good = load("imgedit", "add").write(GOOD)
    replies = {
        "q0": ["I'm sorry, I can't help with that."],
        "q1": ["Realism: 4\nBeauty: 5\nCharm: 3", good],
        "q2": [good.replace("5", "11")],
        "q3": ["The edit is well done and I like it.", "Still well done.", "Very well."],
        "q4": [f"```\n{good}\n```"],
    }
    with chat_server(replies=replies, refuse=["response_format"], refuse_words="unknown field") as server:
        said, rater = ask(how(server.url), cases(*["add"] * 5), tmp_path / "c.sqlite")
    scores = [runs[0].scores for runs in said]
    assert scores == [None, GOOD, None, None, GOOD]
    assert all((run.scores is None) == (run.reason is not None) for runs in said for run in runs)
    assert "11 is no whole number in 1..5" in str(said[2][0].reason)
    assert said[3][0].reply == "Very well."
    assert rater.account.left_out == {"response_format"}


def test_broken_images_and_a_budget_leave_reasons(tmp_path: Path) -> None:
    broken = Edit("q0", SOURCE, b"no image", task="add", key="b")
    with chat_server(replies={"q0": [load("imgedit", "add").write(GOOD)]}) as server:
        said, _ = ask(how(server.url), [broken, *cases("add")], tmp_path / "c.sqlite")
        short, rater = ask(how(server.url, budget={"questions": 1}), cases("add", "add", "add"), tmp_path / "d.sqlite")
    assert [runs[0].scores for runs in said] == [None, GOOD]
    assert "image" in str(said[0][0].reason)
    assert sum(runs[0].scores is not None for runs in short) == 1
    assert rater.account.unasked == 2
    assert all(runs[0].reason for runs in short if runs[0].scores is None)


def test_runs_are_other_samples_and_a_rater_is_a_scorer(tmp_path: Path) -> None:
    rubric = load("imgedit", "adjust")
    replies = {"q0": [rubric.write(dict.fromkeys(GOOD, n)) for n in (5, 3)], "q1": ["No."], "q3": [rubric.write(GOOD)]}
    with chat_server(replies=replies, bodies=True) as server:
        given = how(server.url, runs=2, temperature=1.0, seed=7, max_in_flight=1, reply_tries=1)
        with open_rater("raters.tested", given, tmp_path / "c.sqlite") as rater:
            edits = [Edit(f"q{n}", SOURCE, EDITED, task="color_alter") for n in range(2)]
            others = [Edit("q2", SOURCE, EDITED, task="camera_motion"), Edit("q3", SOURCE, EDITED, task="color_alter")]
            scores = rater.score([*edits, *others])
            assert [run.scores["quality"] for run in rater.rate(cases("adjust"))[0]] == [5, 3]  # type: ignore[index]
        seeds = {json.loads(body)["seed"] for body in server.log()["bodies"]}
    assert seeds == {7, 8}
    first, second, third, capped = scores
    assert isinstance(first, Score)
    assert (first.overall, first.dimensions["quality"], round(first.overall_std or 0, 6)) == (4.0, 4.0, 1.414214)
    assert isinstance(second, Unscored)
    assert third == Unscored("no rubric of camera_motion")
    assert isinstance(capped, Score)
    assert (capped.overall, capped.dimensions) == (2.0, GOOD), "no dimension counts for more than adherence"
    assert "Editing Quality: 5" in str(capped.said)


def test_a_rater_compares_by_its_scores(tmp_path: Path) -> None:
    """By the overall ones: by VIEScore the better one wins."""
    question = Question("k", "q0", SOURCE, EDITED, picture(3))
    with chat_server(replies={"q0": ['{"score": [8, 6]}', '{"score": [9, 9]}'], "": ['{"score": [9, 6]}']}) as server:
        given = how(server.url, rubrics="viescore_10", max_in_flight=1)
        with open_judge("raters.r", given, tmp_path / "c.sqlite") as rater:
            [answer], scores = rater.compare([question], "overall"), rater.score(question.edits)
    assert sorted(score.overall for score in scores) == pytest.approx([6.0, 54**0.5])  # type: ignore[union-attr]
    assert answer.combined.winner == ("Image A" if scores[0].overall > scores[1].overall else "Image B")  # type: ignore[union-attr]


def test_a_rater_with_a_rubric_for_each_type_compares_edits_of_a_type(tmp_path: Path) -> None:
    rubric = load("imgedit", "adjust")
    replies = [rubric.write(dict.fromkeys(GOOD, n)) for n in (5, 3)]
    with chat_server(replies={"q0": replies}) as server:
        given = how(server.url, max_in_flight=1)
        with open_judge("raters.r", given, tmp_path / "c.sqlite") as rater:
            pairs = [Question("k", "q0", SOURCE, EDITED, picture(3), task=task) for task in ("color_alter", "")]
            first, second = (each.combined for each in rater.compare(pairs, "overall"))
    both = "Image A: no rubric of no task; Image B: no rubric of no task"
    assert (first.winner, second.winner, second.reason) == ("Image A", None, both)


def test_a_rater_has_the_rubrics_that_lie_beside_its_weights(tmp_path: Path) -> None:
    """An adapter's before its base's; and a folder needs no entry, whether it compares or scores."""
    base, adapter = str(tiny_families.save("qwen3_vl", tmp_path / "base")), tmp_path / "adapter"
    given = {"backend": "transformers", "model": base}
    words = r"raters\.r\.rubrics is missing, and no rater_rubrics lie beside the weights"
    with pytest.raises(ParamsError, match=words):
        open_rater("raters.r", given)
    record("imgedit", Path(base))
    assert open_rater("raters.r", given).form == f"{base}/rater_rubrics"
    assert load(f"{base}/rater_rubrics", "add") == load("imgedit", "add")
    assert questions(f"{base}/rater_rubrics").names == questions("imgedit").names
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    record("brief", adapter)
    assert open_rater("raters.r", given | {"adapter": str(adapter)}).form == f"{adapter}/rater_rubrics"
    missing = pytest.raises(FileError, match=adapter.name)
    with open_rater("raters.r", given | {"adapter": str(adapter)}) as dead, missing:
        dead.score(cases("add"))  # no rubric is missing: the weights are
    for scores in (True, False):
        assert api.entry_of(base, scores=scores) == ("raters", given)
        asked = given | {"rule": "probability", "prompt": "decision"}
        assert api.entry_of(base, "decision", scores) == ("judges", asked)
    file = Path(base, "rater_rubrics/add.yaml")
    file.write_text(f"{file.read_text()}words: {{them: {{file: .netrc, url: http://h}}}}\n")
    with pytest.raises(FileError, match=r"add\.yaml lies beside weights: it may not have words"):
        load(f"{base}/rater_rubrics", "add")
