"""The grammar of instructions: what it names in the probe set's and in real ones, and what it says nothing about."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.grounding.instructions import GRAMMAR, Named, named
from editjudge.measures.names import ATTRIBUTES
from editjudge.sources.builtin import scenes

REAL = Path(os.environ.get("EDITJUDGE_SHARED", "../shared")) / "data/instructions"


@pytest.mark.parametrize(
    ("parser", "instruction", "source", "edited"),
    [
        ("edited_objects", "Change the color of the woman\u2019s dress to pink.", "woman's dress", None),
        ("edited_objects", "Change the hat\u2019s material to foam plastic.", "hat", None),
        ("edited_objects", "Make the small cup much larger.", "small cup", None),
        ("edited_objects", "Slightly enlarge the insect's eyes by one time.", "insect's eyes", None),
        ("edited_objects", "Craft the ram with fine ceramic.", "ram", None),
        ("removed_objects", "remove the dog and the cat on the sofa", "dog cat", None),
        ("added_objects", "Add a red kite in the sky.", "red kite", None),
        ("added_objects", "add a flying baseball coming towards the player", "flying baseball", None),
        ("replaced_objects", "Replace the TV with a bookshelf.", "TV", "bookshelf"),
        ("edited_text", "Replace the text 'me' with 'he'", "me", "he"),
        ("edited_text", "Replace the text 'THE' with 'BUT'", "THE", "BUT"),
        ("edited_text", "Delete the text \u201cGIFT\u201d", "GIFT", ""),
        ("edited_text", "Add the text 'WORK' after 'ILLUSTRATION'", "", "WORK"),
        ("kept_objects", "Extract the climber and place him in a new background.", "climber", None),
        ("kept_objects", "Make it so.", "the main object", None),
        ("moved_person", "change the action of the man to running", "man", None),
        ("changed_person", "Make me look sad.", "the main person", None),
    ],
)
def test_common_instructions(parser: str, instruction: str, source: str, edited: str | None) -> None:
    found = named(instruction, parser)
    assert found is not None
    assert " ".join(found.source) == source
    assert " ".join(found.edited) == (source if edited is None else edited)


@pytest.mark.parametrize(
    ("parser", "instruction", "attributes"),
    [
        ("changed_person", "Change her curly hair to straight hair", ("hair",)),
        ("changed_person", "Remove his beard and make him smile", ("face_geometry", "face_texture")),
        ("changed_person", "Give the man a red jacket.", ("body_appearance",)),
        ("changed_person", "Make her ten years younger.", ("face_id",)),
        ("changed_person", "Improve the light.", ()),
        ("moved_person", "Have the cat lie down.", ("body_pose_shape",)),
        ("edited_objects", "Change the colour of her hair to red.", ()),
    ],
)
def test_what_of_a_person_changes(parser: str, instruction: str, attributes: tuple) -> None:
    found = named(instruction, parser)
    assert found is not None
    assert found.attributes == attributes
    assert set(attributes) <= set(ATTRIBUTES)


@pytest.mark.parametrize("parser", ["edited_objects", "removed_objects", "added_objects", "replaced_objects"])
@pytest.mark.parametrize(
    "instruction",
    [
        *["", "Surprise me!", "Remove", "Remove the.", "the the the", "Make it nicer somehow, please"],
        "Swap the earring for one that looks less conspicuous.",
    ],
)
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


@pytest.mark.parametrize(
    ("task", "parser"),
    [
        ("color_alter", "edited_objects"),
        ("material_alter", "edited_objects"),
        ("size_adjustment", "edited_objects"),
        ("subject_add", "added_objects"),
        ("subject_remove", "removed_objects"),
        ("object_extraction", "kept_objects"),
        ("background_change", "kept_objects"),
    ],
)
def test_the_probe_set_s_instructions_name_what_their_regions_do(task: str, parser: str) -> None:
    pairs = scenes.make_pairs(task, "train", 40, 48, 1)
    right = 0
    for pair in pairs:
        found = named(pair["instruction"], parser)
        noun = pair["regions"][0]["label"].split()[-1]
        right += found is not None and any(noun in label for label in found.source)
    assert right >= 38


UNICBENCH = {
    "Color Alteration": "edited_objects",
    "Material Modification": "edited_objects",
    "Shape-Size Alteration": "edited_objects",
    "Subject Addition": "added_objects",
    "Subject Removal": "removed_objects",
    "Subject Replacement": "replaced_objects",
    "Object Extraction": "kept_objects",
    "Text Modification": "edited_text",
}


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
