"""Replies to rubrics and to VIEScore's prompts are read as a person would read them, or refused."""

import json
import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from cases import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.benchmarks.suites.imgedit import TYPES
from editjudge.core import prompts
from editjudge.core.errors import FileError
from editjudge.judges import readings
from editjudge.judges.protocol import Edit, Score, Unscored, winner_of
from editjudge.judges.rubrics import DIMENSIONS, REASON, Rubric, load, pointwise, questions
from editjudge.models.chat.forms import RawReply

REAL = Path(os.environ.get("EDITJUDGE_SHARED", "shared")) / "data/judge_replies"
NO_REPLIES = "EDITJUDGE_SHARED names no folder with data/judge_replies of VIEScore"
needs_replies = pytest.mark.skipif(not REAL.is_dir(), reason=NO_REPLIES)
ADD, UGE = load("imgedit", "add"), load("imgedit", "uge")
SCORES = {"adherence": 4, "quality": 3, "preservation": 2}
LINES = "Instruction Adherence: 4\nEditing Quality: 3\nDetail Preservation: 2"


def test_there_is_a_rubric_for_each_type_with_the_same_dimensions():
    assert set(prompts.names("judges/prompts/rubrics/imgedit")) == {*TYPES, "uge"}
    for type_ in TYPES:
        rubric = load("imgedit", type_)
        assert tuple(rubric.dimensions) == DIMENSIONS
        for dimension in rubric.dimensions.values():
            assert f"{dimension.name}: N" in rubric.user
        assert "the second and the third number are never above the first" in rubric.user, "the cap"
    assert "Where anything changed that the instruction does not name, the number is 3 at most" in UGE.user, "its cap"
    assert load("brief", "add") == load("brief", "whatever")
    with pytest.raises(FileError, match="no rubric of type 'ad'; did you mean add"):
        load("imgedit", "ad")
    with pytest.raises(FileError, match="no rubrics 'imgedi'; did you mean imgedit"):
        load("imgedi", "add")


# The examples of the public benchmark's own pages (Basic and UGE, commit 3760afd), with what a person reads in them.
@each_row("type_, lines, expected")
def test_published_replies_are_read_by_name(type_, lines, expected):
    reply = f"Brief reasoning: No texture change applied; shell remains textured.\n{lines}"
    assert load("imgedit", type_).read(reply) == (dict(zip(DIMENSIONS, expected, strict=True)), None)


# The public script reads none of these.
@each_row("end, score")
def test_the_public_sample_replies_of_uge_are_read(end, score):
    assert UGE.read(f"{score}/5") == ({"score": score}, None), "a number alone"
    reply = f"Brief reasoning: Ferrari logos replaced; edits slightly unnatural. {end}"
    assert UGE.read(reply) == ({"score": score}, None)


@each_row("reply")
def test_what_a_person_reads_is_read(reply):
    assert ADD.read(reply) == (SCORES, None)


@each_row("reply, reason")
def test_what_is_unclear_is_unscored_with_a_reason(reply, reason):
    scores, why = ADD.read(reply)
    assert scores is None
    assert reason in str(why)
    rating = ADD.answer(Edit("i", b"", b"", key="k"), RawReply(reply))
    assert (rating.scores, rating.reason, rating.reply) == (None, why, reply)


def test_uge_reads_whether_unedited_areas_changed():
    assert UGE.read("Unedited Areas Changed: yes\nScore: 5") == ({"score": 5, "flag": 1}, None)
    assert UGE.read('{"Unedited Areas Changed": "no", "Score": 5}') == ({"score": 5, "flag": 0}, None)
    assert UGE.read("Unedited Areas Changed: yes\nUnedited Areas Changed: no\nScore: 5") == ({"score": 5}, None)
    assert UGE.read("Unedited Areas Changed: a little\nScore: 5") == ({"score": 5}, None)


@settings(max_examples=200)
@given(st.text(max_size=300))
def test_whatever_comes_is_scored_or_has_a_reason(text):
    for rubric in (ADD, UGE):
        scores, reason = rubric.read(text)
        assert (scores is None) != (reason is None)


@given(st.fixed_dictionaries({name: st.integers(1, 5) for name in DIMENSIONS}), st.sampled_from(TYPES))
def test_what_is_written_is_read(scores, type_):
    rubric = load("imgedit", type_)
    assert rubric.read(rubric.write(scores, "It was done.")) == (scores, None)
    named = {REASON: "It was done."} | {rubric.dimensions[name].name: scores[name] for name in DIMENSIONS}
    assert rubric.read(json.dumps(named)) == (scores, None)
    assert set(rubric.schema["required"]) == set(named)


@needs_replies
def test_fifty_real_replies_are_scored_or_unscored_with_a_reason():
    """As they came, to the question that they answer: the numbers in them. To ours, whose names they lack: unscored.
    Their reasoning, with words like "a high naturalness score of 8", before our lines: our lines count."""
    viescore, read = pointwise(10, "instruction_following"), 0
    rows = [row for every in map(published, ("gpt4v", "qwenvl")) for row in every[:: len(every) // 25][:25]]
    assert len(rows) == 50
    for row in rows:
        reply = json.dumps(row)
        parts, _, reason = numbers_in(viescore, reply)
        clear = isinstance(row["score"], list) and len(row["score"]) == 2
        assert (parts == tuple(row["score"]) and reason is None) if clear else (parts is None and reason)
        read += clear
        scores, reason = ADD.read(reply)
        assert scores is None
        assert "no clear number" in str(reason)
        assert ADD.read(str(row["reasoning"]))[0] is None
        assert ADD.read(f"{REASON}: {row['reasoning']}\n{LINES}") == (SCORES, None)
    assert read >= 45


@each_row("body, others, most, numbers")
def test_numbers_are_looked_for_on_lines_then_below_headings_then_in_sentences(body, others, most, numbers):
    assert readings.said(body, "quality", ("Quality",), tuple(others), most) == set(numbers)


def numbers_in(form: Rubric, text: str) -> tuple[tuple[float, ...] | None, float | None, str | None]:
    """The two numbers, the smaller one in 0..10, and the reason why there are none."""
    scores, reason = form.read(text)
    parts = None if scores is None else tuple(scores.values())
    return parts, parts and min(parts) * 10 / form.most, reason


SCALES = [10, 25]
TEN = pointwise(10, "visual_consistency")
ASPECTS = [aspect for aspect in prompts.names("judges/prompts/dimensions") if aspect != "overall"]


def published(judge: str) -> list[dict]:
    """What a judge answered: the JSON object of each reply as its authors published it."""
    rows = map(json.loads, (REAL / f"results_{judge}_0shot.jsonl").read_text().splitlines())
    return [{key: row[key] for key in row if key in ("score", "reasoning")} for row in rows]


def expected(score: object, scale: int) -> tuple[float, ...] | None:
    """An own reading of a decoded score: two whole numbers or none."""
    if type(score) is not list or [type(part) for part in score] != [int, int]:
        return None
    return tuple(map(float, score)) if all(part in range(scale + 1) for part in score) else None


@needs_replies
@pytest.mark.parametrize(("judge", "parsed", "refused"), [("gpt4v", 5137, 0), ("qwenvl", 4926, 156)])
def test_real_replies_are_read_as_json_reads_them(judge, parsed, refused):
    """In the published form, with its delimiters; the refused ones give one number where two were asked for."""
    counts: Counter[str] = Counter()
    for reply in published(judge):
        parts, value, reason = numbers_in(TEN, f"||V^=^V||\n{json.dumps(reply, indent=1)}\n||V^=^V||")
        truth = expected(reply["score"], 10)
        assert parts == truth
        assert value == (None if truth is None else min(truth))
        assert (reason is None) == (truth is not None)
        counts["parsed" if parts else f"refused {type(reply['score']).__name__}"] += 1
    assert counts == Counter({"parsed": parsed} | ({"refused int": refused} if refused else {}))


@needs_replies
@pytest.mark.parametrize(("judge", "parsed", "refused"), [("gpt4v", 4124, 4876), ("qwenvl", 4011, 4989)])
def test_real_replies_broken_are_read_right_or_refused(judge, parsed, refused):
    """300, either key first: cut, in single quotes, quotes unescaped, without commas, twice, with words behind."""
    draw, counts = random.Random(0), Counter()
    for reply in draw.sample(published(judge), 300):
        truth = expected(reply["score"], 10)
        for ordered in (reply, dict(reversed(reply.items()))):
            text = json.dumps(ordered)
            raw = text.replace('\\"', '"')
            forms = [raw, text.replace('"', "'"), text.replace(",", ""), text + text, f"[1, 2] {text}", text + " So 3."]
            forms += [text[: draw.randrange(len(text))] for _ in range(4)]
            forms += [text[:-cut] for cut in range(1, 5)] + [text.replace("[", "[[").replace("]", "]]")]
            for form in forms:
                parts = numbers_in(TEN, form)[0]
                assert parts in (truth, None), form
                counts[parts is not None] += 1
    assert (counts[True], counts[False]) == (parsed, refused)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("aspect", ASPECTS)
def test_every_chat_shows_its_images_and_names_its_scale(scale, aspect):
    style = pointwise(scale, aspect)
    chat = style.messages("Remove the cup")
    text = "".join(part.get("text", "[image]") for turn in chat for part in turn["content"])
    assert text.count("[image]") == len(style.images)
    assert f"0 to {scale}" in text
    assert ("Remove the cup" in text) == (aspect != "visual_quality")
    assert style.images == (("edited",) if aspect == "visual_quality" else ("source", "edited"))
    if len(style.images) == 2:
        assert "Source:[image]Edit:[image]" in text


@each_row("scale, text, parts")
def test_unambiguous_scores_are_read(scale, text, parts):
    assert numbers_in(pointwise(scale, "visual_consistency"), text) == (tuple(parts), min(parts) * 10 / scale, None)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "score",
    [
        *["8", '"8"', "null", "true", "[]", "[8]", "[8, 7, 6]", "[8, null]", "[true, 8]", "[8, false]", "[[8, 7]]"],
        *["[-1, 8]", "[8, 26]", "[8, 1e9]", "[8, 1e999]", "[NaN, 8]", "[8, Infinity]", '["NaN", 8]', '["inf", 8]'],
        *['["8/5", 7]', '["8/100", 7]', '["8 of 10", 7]', '["-1", 8]', '["26", 8]', '["8e0", 7]', '["", 8]'],
        *['["٨", 8]', '["8,5", 7]', '["eight", 7]', '["8\\n9", 7]', "[8 7]", "[8,, 7]", "[, 7]", "[8, ]", "8, 7"],
        *["[8-9, 7]", "[8, 7", "[8, ", "(8, 7)", '{"a": 8, "b": 7}', "[first, second]", "[08, 7, 1]", "[8 / 10, 7]"],
        *["[8, 1" + "0" * 5000, "[" * 50_000],
    ],
)
def test_anything_else_is_refused_with_a_reason(scale, score):
    for text in ('{"score": %s, "reasoning": "x"}' % score, '{"reasoning": "x", "score": %s}' % score):  # noqa: UP031
        parts, value, reason = numbers_in(pointwise(scale, "instruction_following"), text)
        assert (parts, value) == (None, None)
        assert reason
        assert len(reason) < 1000


@each_row("text", '{"a":' * 900 + '{"score": [8, 7]}' + "}" * 900)
def test_unclear_replies_are_refused_with_a_reason(text):
    parts, value, reason = numbers_in(TEN, text)
    assert (parts, value) == (None, None)
    assert reason


def test_a_score_counts_down_to_eight_objects_in_each_other():
    for deep, parts in ((8, (8.0, 7.0)), (9, None)):
        assert numbers_in(TEN, '{"a":' * (deep - 1) + '{"score": [8, 7]}' + "}" * (deep - 1))[0] == parts


@given(st.sampled_from(SCALES), st.tuples(st.floats(0, 25), st.floats(0, 25)), st.text())
def test_the_smaller_number_counts_on_the_common_scale(scale, numbers, reasoning):
    reply = json.dumps({"reasoning": reasoning, "score": numbers})
    parts, value, _ = numbers_in(pointwise(scale, "visual_quality"), reply)
    if "</think>" in reasoning or max(numbers) > scale:
        assert parts is None
    else:
        assert parts == numbers
        assert value == pytest.approx(min(numbers) / (scale / 10))
        assert 0 <= value <= 10


@each_row("a, b, margin, winner, reason")
def test_the_higher_score_wins_and_a_missing_one_gives_no_winner(a, b, margin, winner, reason):
    first, second = (Unscored(side) if isinstance(side, str) else Score(side, {}) for side in (a, b))
    assert winner_of(first, second, margin) == (winner, reason)


def test_each_edit_of_a_turn_with_pictures_has_its_own_instruction() -> None:
    """Those of a service have no keys."""
    [rubric] = questions("brief", "add").calls.values()
    rubric = replace(rubric, user=("{source}", "{source_2}", "{edited}", "{instruction}"))
    edits = [Edit(text, b"s", b"e", more={"source_2": b"t"}) for text in ("make it red", "remove the cat")]
    words, asked = rubric.about(edits)
    for edit, one in zip(edits, asked, strict=True):
        assert edit.instruction in str(words.messages(one.instruction))
