"""Scores of single edits: real replies and broken ones are read right or refused, and scores give winners."""

import json
import math
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.core.params import ParamsError
from editjudge.core.prompts import names
from editjudge.judges.protocol import Score, Unscored, winner_of
from editjudge.judges.settings import read_setting
from editjudge.judges.viescore import pointwise

REAL = Path(os.environ.get("EDITJUDGE_SHARED", "shared")) / "data/judge_replies"
SCALES = [10, 25]
TEN = pointwise(10, "visual_consistency")
EVERY = [(scale, aspect) for scale in SCALES for aspect in names("judges/prompts/dimensions") if aspect != "overall"]
needs_replies = pytest.mark.skipif(
    not REAL.is_dir(), reason="EDITJUDGE_SHARED names no folder with data/judge_replies of VIEScore"
)


def published(judge: str) -> list[dict]:
    """What a judge answered: the JSON object of each reply as its authors published it."""
    rows = map(json.loads, (REAL / f"results_{judge}_0shot.jsonl").read_text().splitlines())
    return [{key: row[key] for key in row if key in ("score", "reasoning")} for row in rows]


def texts(chat: list[dict]) -> str:
    return "".join(part.get("text", "[image]") for turn in chat for part in turn["content"])


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
        parts, value, reason = TEN.read(f"||V^=^V||\n{json.dumps(reply, indent=1)}\n||V^=^V||")
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
                parts = TEN.read(form)[0]
                assert parts in (truth, None), form
                counts[parts is not None] += 1
    assert (counts[True], counts[False]) == (parsed, refused)


@pytest.mark.parametrize(("scale", "aspect"), EVERY)
def test_every_chat_shows_its_images_and_names_its_scale(scale, aspect):
    style = pointwise(scale, aspect)
    chat = style.messages("Remove the cup")
    text = texts(chat)
    assert text.count("[image]") == len(style.images)
    assert f"0 to {scale}" in text
    assert ("Remove the cup" in text) == (aspect != "visual_quality")
    assert style.images == (("edited",) if aspect == "visual_quality" else ("source", "edited"))
    if len(style.images) == 2:
        assert "Source:[image]Edit:[image]" in text


@pytest.mark.parametrize(
    ("scale", "text", "parts"),
    [
        (10, '{"score": [8, 7], "reasoning": "x"}', (8, 7)),
        (10, '{"reasoning": "as [1, 2] or {3}", "score": [8.5, 7]}', (8.5, 7)),
        (10, '{"score": [0, 10]}', (0, 10)),
        (10, '```json\n{"score": ["8", "7/10"], "reasoning": null}\n```', (8, 7)),
        (10, '{"score": [8/10, 7/10], "reasoning": "x"}', (8, 7)),
        (10, "{'score': [8, 7], 'reasoning': 'the child's hat'}", (8, 7)),
        (10, '{"score": [8, 7], "reasoning": "cut', (8, 7)),
        (10, '<think>first [1, 1], {"score": [2, 2]}</think>{"score": [8, 7]}', (8, 7)),
        (25, '{"score": [20, "10/25"]}', (20, 10)),
        (25, '{"score": [25, 0.5]}', (25, 0.5)),
    ],
)
def test_unambiguous_scores_are_read(scale, text, parts):
    assert pointwise(scale, "visual_consistency").read(text) == (parts, min(parts) * 10 / scale, None)


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
        parts, value, reason = pointwise(scale, "instruction_following").read(text)
        assert (parts, value) == (None, None)
        assert reason
        assert len(reason) < 1000


@pytest.mark.parametrize(
    "text",
    [
        *["", "8", "[8, 7]", "Score: [8, 7]", "I cannot rate this image.", '"score": [8, 7]', '{"scores": [8, 7]}'],
        *['{"score": [8, 7], "score": [1, 2]}', '{"score": [8, 7]} {"score": [1, 2]}', '{"score": [8, 7]} 5'],
        *["{'score': [8, 7]} {'score': [1, 2]}", '{"score": [8, 7]} Or rather 5.0.', '{"score": [8, 7], "score2": 3}'],
        '{"reasoning": "I said "score": [8, 7], but no',
        '{"reasoning": "I said "score": [8, 7], but no", "score": [1, 2]}',
        *['<think>{"score": [8, 7]}', '{"result": {"score": [8, 7]}}'],
    ],
)
def test_unclear_replies_are_refused_with_a_reason(text):
    parts, value, reason = TEN.read(text)
    assert (parts, value) == (None, None)
    assert reason


@settings(deadline=None)
@given(st.sampled_from(SCALES), st.tuples(st.floats(0, 25), st.floats(0, 25)), st.text())
def test_the_smaller_number_counts_on_the_common_scale(scale, numbers, reasoning):
    parts, value, _ = pointwise(scale, "visual_quality").read(json.dumps({"reasoning": reasoning, "score": numbers}))
    if "</think>" in reasoning or max(numbers) > scale:
        assert parts is None
    else:
        assert parts == numbers
        assert value == pytest.approx(min(numbers) / (scale / 10))
        assert 0 <= value <= 10


def scored(value: float | None, reason: str = "") -> Score | Unscored:
    return Unscored(reason) if value is None else Score(value, {})


@pytest.mark.parametrize(
    ("a", "b", "margin", "winner"),
    [
        *[(8, 7, 0, "Image A"), (7, 8, 0, "Image B"), (8, 8, 0, "Tie"), (0, 0, 0, "Tie"), (8, 7, 1, "Tie")],
        *[(8, 7, 0.9, "Image A"), (3.2, 2.8, 0.4, "Tie"), (2.8, 3.2, 0.4, "Tie")],
    ],
)
def test_the_higher_score_wins(a, b, margin, winner):
    assert winner_of(scored(a), scored(b), margin) == (winner, None)


@pytest.mark.parametrize(
    ("field", "margin"), [*(("score_margin", m) for m in (-0.1, 10.1, math.nan)), ("tie_margin", 0.6)]
)
def test_a_margin_outside_the_scale(field, margin):
    given = {"backend": "endpoint", "model": "m", "base_url": "http://h/v1", "rule": "agreement", field: margin}
    with pytest.raises(ParamsError, match=f"judges.j.{field} must be"):
        read_setting("judges.j", given)


def test_a_missing_score_gives_no_winner():
    assert winner_of(scored(None, "cut"), scored(10), 0) == (None, "Image A: cut")
    assert winner_of(scored(0), scored(None, "cut"), 10) == (None, "Image B: cut")
    assert winner_of(scored(None, "x"), scored(None, "y"), 0) == (None, "Image A: x; Image B: y")
