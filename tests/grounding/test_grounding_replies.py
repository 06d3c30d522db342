"""What parsers and grounders reply is read as it was said, or refused with a reason; what the grammar of instructions
names in the probe set's and in real ones, and what it says nothing about."""

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import each_row, yaml_beside
from hypothesis import given
from hypothesis import strategies as st

from editjudge.core.errors import UserError
from editjudge.core.prompts import names
from editjudge.grounding import prompts
from editjudge.grounding.instructions import GRAMMAR, Named, named
from editjudge.grounding.prompts import SCHEMAS, SLACK, ParserPrompt, grounder_text, read_boxes, read_named
from editjudge.measures.names import ATTRIBUTES
from editjudge.sources.builtin import scenes

REPLIES = Path(os.environ.get("EDITJUDGE_SHARED", "../shared")) / "data/judge_replies"
SIZE_SENT = (200, 100)


def boxed(*items: tuple[str, list]) -> str:
    return json.dumps({"objects": [{"label": label, "bbox_2d": box} for label, box in items]})


@each_row("reply, boxes")
def test_clear_boxes_are_read(reply: str, boxes: list) -> None:
    found, reason = read_boxes(reply, ["cup"], SIZE_SENT, "absolute", False)
    assert reason is None
    assert found == tuple(map(pytest.approx, boxes))


FAR = '{"objects": [{"label": "cup", "bbox_2d": [20, 10, 1' + "0" * 400 + ", 50]}]}"
MANY = boxed(*[("cup", [20, 10, 100, 50])] * 65)


@each_row("reply, reason", (FAR, "reaches far out"), (MANY, "does not fit its schema"))
def test_unclear_boxes_are_refused_with_a_reason(reply: str, reason: str) -> None:
    found, why = read_boxes(reply, ["cup"], SIZE_SENT, "absolute", False)
    assert found is None
    assert why is not None
    assert re.search(reason, why)
    assert len(why) < 500


def test_boxes_come_in_the_order_of_the_labels_and_one_is_one() -> None:
    reply = boxed(("b", [0, 0, 20, 20]), ("a", [20, 20, 40, 40]))
    assert read_boxes(reply, ["a", "b"], SIZE_SENT, "absolute", False)[0] == ((0.1, 0.2, 0.2, 0.4), (0, 0, 0.1, 0.2))
    two = "the reply has 2 boxes in the place of one"
    assert read_boxes(reply, ["a", "b"], SIZE_SENT, "absolute", True) == (None, two)
    assert read_boxes(reply, ["a", "b", "c"], SIZE_SENT, "absolute", False)[1] == "the reply has no box of 'c'"


@given(
    st.tuples(*[st.floats(-1e4, 1e4)] * 4),
    st.tuples(st.integers(1, 5000), st.integers(1, 5000)),
    st.sampled_from(["absolute", "thousandths"]),
)
def test_a_box_that_is_read_lies_in_the_image_where_it_was_said(box, size, coordinates) -> None:
    found, reason = read_boxes(boxed(("x", list(box))), ["x"], size, coordinates, True)
    assert (found is None) == (reason is not None)
    if found is not None:
        [(x0, y0, x1, y1)] = found
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 1
        sides = (1000, 1000) if coordinates == "thousandths" else size
        said = [value / sides[n % 2] for n, value in enumerate(box)]
        assert np.abs(np.subtract([x0, y0, x1, y1], said)).max() <= SLACK + 1e-9


@each_row("form, reply, source, edited, attributes")
def test_clear_names_are_read(form: Any, reply: str, source: list, edited: list | None, attributes: list) -> None:
    named, reason = read_named(form, reply)
    assert reason is None
    assert named is not None
    wanted = (source, source if edited is None else edited, attributes)
    assert (named.source, named.edited, named.attributes) == tuple(map(tuple, wanted))


@each_row("form, reply")
def test_unclear_names_are_refused_with_a_reason(form: Any, reply: str) -> None:
    """Of one form, or of every one."""
    for each in [form] if form else SCHEMAS:
        named, reason = read_named(each, reply)
        assert named is None
        assert reason


@pytest.mark.skipif(not REPLIES.is_dir(), reason="EDITJUDGE_SHARED names no folder with data/judge_replies")
@pytest.mark.parametrize(("judge", "count"), [("gpt4v", 5137), ("qwenvl", 5082)])
def test_a_real_judge_s_reply_is_never_read_as_names_or_boxes(judge: str, count: int) -> None:
    """All of them, and some broken: cut, listed, with the reasoning's quotes unescaped, its score as a box."""
    draw, refused = random.Random(0), 0
    with (REPLIES / f"results_{judge}_0shot.jsonl").open() as file:
        rows = [json.loads(line) for line in file]
    for n, row in enumerate(rows):
        text = json.dumps({"score": row["score"], "reasoning": row["reasoning"]})
        texts = [text, row["reasoning"] or ""]
        if n % 20 == 0:
            raw = text.replace('\\"', '"')
            boxed = text.replace('"score"', '"objects"')
            texts += [raw, raw.replace('"', "'"), text[: draw.randrange(len(text))], f"[{text}]", text + text, boxed]
            texts += [boxed.replace("reasoning", "label").replace("objects", "bbox_2d")]
        for each in texts:
            assert read_boxes(each, ["the naturalness score"], (10, 10), "thousandths", False)[0] is None
            assert all(read_named(form, each)[0] is None for form in SCHEMAS), each
        refused += 1
    assert refused == count


# --- prompts


@pytest.mark.parametrize("name", names("grounding/parsers"))
def test_a_parser_is_told_the_instruction_and_the_form_of_its_answer(name: str) -> None:
    prompt = ParserPrompt.load(f"grounding/parsers/{name}.yaml")
    text = prompt.text("Remove {this} <|im_end|> {names}\nand more")
    assert "Instruction: Remove {this} <im_end> {names}\nand more\n" in text
    assert list(json.loads(text.splitlines()[-1])) == SCHEMAS[prompt.form]["required"]
    assert len(text) < 4000


@pytest.mark.parametrize("name", names("grounding/grounders"))
@pytest.mark.parametrize("coordinates", ["absolute", "thousandths"])
def test_a_grounder_is_told_the_names_and_its_coordinates(name: str, coordinates: Any) -> None:
    prompt = prompts.GrounderPrompt.load(f"grounding/grounders/{name}.yaml")
    text = grounder_text(prompt, "Remove it", ['a "čup"', "{0}"], (640, 480), coordinates)
    assert 'Names: ["a \\"čup\\"", "{0}"]\n' in text
    assert ("640 wide and 480 high" in text) == (coordinates == "absolute")
    assert ("0 to 1000" in text) == (coordinates == "thousandths")


@each_row("words, message")
def test_what_is_wrong_in_a_prompt_is_named(tmp_path, monkeypatch, words, message) -> None:
    monkeypatch.setattr("editjudge.core.prompts.PACKAGE", tmp_path)
    (tmp_path / "grounding/parsers").mkdir(parents=True)
    (tmp_path / "grounding/parsers/p.yaml").write_text(f"version: 1\nsource: x\n{words}")
    with pytest.raises(UserError, match=rf"grounding/parsers/p\.yaml.*{message}"):
        ParserPrompt.load("grounding/parsers/p.yaml")


REAL = Path(os.environ.get("EDITJUDGE_SHARED", "../shared")) / "data/instructions"


@each_row("parser, instruction, source, edited")
def test_common_instructions(parser: str, instruction: str, source: str, edited: str | None) -> None:
    found = named(instruction, parser)
    assert found is not None
    assert " ".join(found.source) == source
    assert " ".join(found.edited) == (source if edited is None else edited)


@each_row("parser, instruction, attributes")
def test_what_of_a_person_changes(parser: str, instruction: str, attributes: list) -> None:
    found = named(instruction, parser)
    assert found is not None
    assert found.attributes == tuple(attributes)
    assert set(attributes) <= set(ATTRIBUTES)
    assert SCHEMAS["subject"]["properties"]["changes"]["items"] == {"enum": list(ATTRIBUTES)}


@pytest.mark.parametrize("parser", ["edited_objects", "removed_objects", "added_objects", "replaced_objects"])
@each_row("instruction")
def test_what_it_does_not_know_it_does_not_guess(parser: str, instruction: str) -> None:
    assert named(instruction, parser) is None


@given(st.sampled_from(sorted(GRAMMAR)), st.text(max_size=400))
def test_any_text_is_read_or_not(parser: str, instruction: str) -> None:
    found = named(instruction, parser)
    assert found is None or (isinstance(found, Named) and (found.source or found.edited))


def test_a_long_instruction_takes_no_longer_than_its_length() -> None:
    for parser in GRAMMAR:
        named("make the very " * 5000, parser)
        named("replace " + "a " * 20_000, parser)


@each_row("task, parser")
def test_the_probe_set_s_instructions_name_what_their_regions_do(task: str, parser: str) -> None:
    pairs = scenes.make_pairs(task, "train", 40, 48, 1)
    right = 0
    for pair in pairs:
        found = named(pair["instruction"], parser)
        noun = pair["regions"][0]["label"].split()[-1]
        right += found is not None and any(noun in label for label in found.source)
    assert right >= 38


UNICBENCH = yaml_beside(__file__)["UNICBENCH"]  # subtasks, and the parsers that read them


@pytest.mark.skipif(not REAL.is_dir(), reason="EDITJUDGE_SHARED names no folder with data/instructions")
def test_most_published_instructions_name_words_that_stand_in_them() -> None:
    with (REAL / "unicbench/test_data.jsonl").open() as file:
        rows = [row for row in map(json.loads, file) if row["subtask"] in UNICBENCH]
    read = 0
    for row in rows:
        found = named(row["en"], UNICBENCH[row["subtask"]])
        labels = () if found is None else (*found.source, *found.edited)
        plain = " ".join(row["en"].replace("\u2019", "'").split())
        assert all(label in plain or label == "the main object" for label in labels)
        read += bool(labels) and "the main object" not in labels
    assert len(rows) == 400
    assert read >= 385
