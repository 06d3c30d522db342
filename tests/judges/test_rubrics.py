"""Replies to rubrics are read as a person would read them: the published ones, bad ones, and real ones."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.benchmarks.suites.imgedit import TYPES
from editjudge.core import prompts
from editjudge.core.errors import FileError
from editjudge.judges.protocol import Edit
from editjudge.judges.rubrics import DIMENSIONS, REASON, load
from editjudge.judges.viescore import pointwise
from editjudge.models.chat.forms import RawReply

REAL = Path(os.environ.get("EDITJUDGE_SHARED", "shared")) / "data/judge_replies"
needs_replies = pytest.mark.skipif(
    not REAL.is_dir(), reason="EDITJUDGE_SHARED names no folder with data/judge_replies of VIEScore"
)
ADD, UGE = load("imgedit", "add"), load("imgedit", "uge")
SCORES = {"adherence": 4, "quality": 3, "preservation": 2}
LINES = "Instruction Adherence: 4\nEditing Quality: 3\nDetail Preservation: 2"


def test_there_is_a_rubric_for_each_type_with_the_same_dimensions():
    assert set(prompts.names("judges/prompts/rubrics/imgedit")) == {*TYPES, "uge"}
    for type_ in TYPES:
        rubric = load("imgedit", type_)
        assert tuple(rubric.dimensions) == DIMENSIONS
        assert rubric.caps == "adherence"
        for dimension in rubric.dimensions.values():
            assert f"{dimension.name}: N" in rubric.user
    assert load("brief", "add") == load("brief", "whatever")
    with pytest.raises(FileError, match="no rubric of type 'ad'; did you mean add"):
        load("imgedit", "ad")
    with pytest.raises(FileError, match="no rubrics 'imgedi'; did you mean imgedit"):
        load("imgedi", "add")


# The examples of the public benchmark's own pages (Basic and UGE, commit 3760afd), with what a person reads in them.
PUBLISHED = [
    ("adjust", "Prompt Compliance: 1\nVisual Seamlessness: 1\nPhysical & Detail Fidelity: 1", (1, 1, 1)),
    ("adjust", "Prompt Compliance: 1\nVisual Seamlessness: 4\nPhysical & Detail Fidelity: 4", (1, 4, 4)),
    ("style", "Style Fidelity: 1\nContent Preservation: 5\nRendering Quality: 5", (1, 5, 5)),
    ("style", "Style Fidelity: 5\nContent Preservation: 4\nRendering Quality: 3", (5, 3, 4)),
    ("action", "Action Fidelity: 5\nIdentity Preservation: 4\nVisual & Anatomical Coherence: 3", (5, 3, 4)),
]


@pytest.mark.parametrize(("type_", "lines", "expected"), PUBLISHED)
def test_published_replies_are_read_by_name(type_, lines, expected):
    reply = f"Brief reasoning: No texture change applied; shell remains textured.\n{lines}"
    assert load("imgedit", type_).read(reply) == (dict(zip(DIMENSIONS, expected, strict=True)), None)


# The public script reads none of these.
@pytest.mark.parametrize(
    ("end", "score"),
    [("Score: 2.", 2), ("Score: 3 (Acceptable)", 3), ("deviating from instructions. Score: 2 (Fair).", 2)],
)
def test_the_public_sample_replies_of_uge_are_read(end, score):
    reply = f"Brief reasoning: Ferrari logos replaced; edits slightly unnatural. {end}"
    assert UGE.read(reply) == ({"score": score}, None)


@pytest.mark.parametrize(
    "reply",
    [
        LINES,
        f"Brief reasoning: Good.\n{LINES}\nAverage: 5",
        "**Instruction Adherence**: 4\n**Editing Quality:** 3\n- *Detail Preservation*: **2**",
        "1. Instruction Adherence: 4/5\n2. Editing Quality: 3 out of 5\n3. Detail Preservation: 2 (poor)",
        "| Instruction Adherence | 4 |\n| Editing Quality | 3 |\n| Detail Preservation | 2 |",
        "Instruction Adherence: 4, Editing Quality: 3, Detail Preservation: 2.",
        "I would say instruction adherence: 4; editing quality = 3; detail preservation - 2",
        "Instruction Adherence (1-5): 4\nEditing Quality score: 3\nDetail Preservation: 2 - the hat is gone",
        "Prompt Compliance: 4.0\nVisual Naturalness: 3\nPhysical & Detail Coherence: 2",
        "<think>Instruction Adherence: 1</think>\n" + LINES,
        '```json\n{"Reason": "ok", "Instruction Adherence": 4, "Editing Quality": 3, "Detail Preservation": 2}```',
        "说明\uff1a很好\n" + LINES.replace(":", "\uff1a").replace("4", "\uff14"),
        "Instruction Adherence: 2 people are missing.\n" + LINES,
        LINES + "\n" + LINES,
    ],
)
def test_what_a_person_reads_is_read(reply):
    assert ADD.read(reply) == (SCORES, None)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no clear number"),
        ("I'm sorry, but I can't assist with that request.", "no clear number"),
        ("The edit is good, I would give it four out of five.", "no clear number"),
        (LINES.replace("4", "N"), "Instruction Adherence: no clear number"),
        (LINES.replace("4", "A number from 1 to 5"), "Instruction Adherence: no clear number"),
        (LINES.replace("Detail Preservation", "Details"), "Detail Preservation: no clear number"),
        (LINES.replace("4", "0"), "0 is no whole number in 1..5"),
        (LINES.replace("4", "6"), "6 is no whole number in 1..5"),
        (LINES.replace("4", "-3"), "-3 is no whole number in 1..5"),
        (LINES.replace("4", "40"), "40 is no whole number in 1..5"),
        (LINES.replace("4", "3.5"), "3.5 is no whole number in 1..5"),
        (LINES.replace("4", "3-4"), "Instruction Adherence: no clear number"),
        (LINES.replace("4", "3 to 4"), "Instruction Adherence: no clear number"),
        (LINES.replace("4", "3, 4"), "Instruction Adherence: no clear number"),
        (LINES.replace("4", "8/10"), "Instruction Adherence: no clear number"),
        (LINES.replace("4", "yes"), "Instruction Adherence: yes"),
        (LINES + "\nInstruction Adherence: 5", "Instruction Adherence: 4 and 5"),
        ("<think>" + LINES, "before its thinking does"),
        ("指令遵循: 4\n编辑质量: 3\n细节保留: 2", "no clear number"),
        (json.dumps({"score": [8, 9], "reasoning": "fine"}), "no clear number"),
        (json.dumps({"Instruction Adherence": [4, 3], "Editing Quality": 3, "Detail Preservation": 2}), "no clear"),
    ],
)
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


@settings(max_examples=200, deadline=None)
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
    viescore, read, rows = pointwise(10, "instruction_following"), 0, []
    for judge in ("gpt4v", "qwenvl"):
        lines = (REAL / f"results_{judge}_0shot.jsonl").read_text().splitlines()
        rows += [json.loads(line) for line in lines[:: len(lines) // 25][:25]]
    assert len(rows) == 50
    for row in rows:
        reply = json.dumps({name: row[name] for name in ("score", "reasoning")})
        parts, _, reason = viescore.read(reply)
        clear = isinstance(row["score"], list) and len(row["score"]) == 2
        assert (parts == tuple(row["score"]) and reason is None) if clear else (parts is None and reason)
        read += clear
        scores, reason = ADD.read(reply)
        assert scores is None
        assert "no clear number" in str(reason)
        assert ADD.read(str(row["reasoning"]))[0] is None
        assert ADD.read(f"{REASON}: {row['reasoning']}\n{LINES}") == (SCORES, None)
    assert read >= 45
