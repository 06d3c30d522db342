"""Recipes: what is shipped is the published table, and whatever is wrong in a file is named with its line."""

import os
from pathlib import Path

import pytest
import yaml
from cases import each_row
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from editjudge.core import prompts
from editjudge.core.params import FileError, read_lined
from editjudge.grounding import instructions
from editjudge.grounding.prompts import GrounderPrompt, ParserPrompt
from editjudge.measures.annotation.recipe import load_recipe
from editjudge.measures.names import ATTRIBUTES, KINDS
from editjudge.sources.formats import NAMES

ROOT = Path(__file__).parents[2]
PIPELINES = ROOT / "pipelines"
TASKS = list(NAMES)[:18]
SHIPPED = sorted(PIPELINES.glob("*_*/*.yaml"))
EMBEDDED = ("ssim", "emd_both_sides", "delta_e", "L_channel_ssim", "L_channel_ssim_in_region")
EMBEDDED += ("structure_similarity", "object_similarity", "tone_residual")

# Task: the published measures outside the boxes and inside them, each area's primary one first.
PUBLISHED = {
    "color_alter": (["lpips", "emd"], ["L_channel_ssim", "dinov3_structure_similarity"]),
    "material_alter": (["lpips", "emd"], ["depth_ssim", "dinov3_structure_similarity"]),
    "size_adjustment": (["lpips", "emd"], ["sam_dino_cls_sim", "sam_clip_cls_sim"]),
    "cref": ([], ["max_match_face_ID_sim"]),
}
_PERSON = ["face_ID_sim", "hair_high_frequency_diff", "body_appearance_dino_cosine_sim"]
PUBLISHED |= dict.fromkeys(("ps_human", "motion_change"), (["lpips", "bg_faceID_sim"], _PERSON))
PUBLISHED |= dict.fromkeys(("oref", "object_extraction"), ([], ["sam_dino_cls_sim", "sam_clip_cls_sim"]))
_PLACED = ("subject_add", "subject_remove", "subject_replace", "text_editing")
PUBLISHED |= dict.fromkeys(_PLACED, (["lpips", "emd", "ssim"], []))
# Where boxes are sought.
SOURCE = ["subject_remove", "color_alter", "material_alter", "cref"]  # the others': in both images
SOUGHT = {"subject_add": "edited"} | dict.fromkeys(SOURCE, "source")


def folder_of(task: str) -> str:
    """The pipeline of the reference."""
    if task not in PUBLISHED:
        return "vlm_as_a_judge"
    return "human_centric" if task in ("cref", "ps_human", "motion_change") else "object_centric"


@pytest.mark.parametrize("task", TASKS)
def test_every_training_task_has_the_published_recipe(task: str) -> None:
    recipe = load_recipe(PIPELINES / folder_of(task) / f"{task}.yaml")
    assert recipe.pipeline == folder_of(task)
    if task not in PUBLISHED:
        assert recipe.areas == ()
        assert recipe.judge is not None
        assert (recipe.judge.dimension, recipe.judge.in_group_pairs) == ("visual_consistency", 6)
        return
    assert recipe.image_side == (2048 if recipe.pipeline == "object_centric" else 1024)
    areas = dict(recipe.areas)
    for area, published in zip(("unedit_area", "edit_area"), PUBLISHED[task], strict=True):
        names = areas.get(area, ())
        assert names[:1] == tuple(published[:1]), f"{area}: the primary measure"
        assert set(published) <= set(names)
        assert set(names) - set(published) <= set(EMBEDDED), f"{area}: what is beside the published is embedded"
    assert recipe.regions is not None
    assert recipe.regions.images == SOUGHT.get(task, "both")
    assert recipe.skip_unedited_from == (0.9 if task in ("ps_human", "motion_change") else None)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_shipped_recipes_are_of_known_tasks_and_name_prompts_that_load(file: Path) -> None:
    recipe = load_recipe(file)
    assert recipe.task in TASKS
    assert set(dict(recipe.areas).get("edit_area", ())) <= set(KINDS)
    assert recipe.judge is None or recipe.judge.prompt == "decision", "no question of the trained judge's"
    if recipe.regions is not None:
        parser = ParserPrompt.load(f"grounding/parsers/{recipe.regions.parser}.yaml")
        grounder = GrounderPrompt.load(f"grounding/grounders/{recipe.regions.grounder}.yaml")
        assert recipe.regions.parser in instructions.GRAMMAR
        assert (parser.form == "subject") == grounder.one == (recipe.skip_unedited_from is not None)
        assert (parser.form in ("replacement", "either")) == (recipe.regions.parser in instructions.REPLACING)
        if parser.form == "subject":
            assert all(f'"{name}"' in parser.user for name in ATTRIBUTES)


def test_every_prompt_is_used_by_a_recipe() -> None:
    recipes = [yaml.safe_load(file.read_text()).get("regions", {}) for file in SHIPPED]
    for role in ("parser", "grounder"):
        used = {regions.get(role) for regions in recipes} - {None}
        assert used == set(prompts.names("grounding", f"{role}s"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a recipe of color_alter can be written."""
    (tmp_path / "object_centric").mkdir()
    return tmp_path / "object_centric/color_alter.yaml"


SOUND = (PIPELINES / "object_centric/color_alter.yaml").read_text()


@each_row(
    "wrong",
    ("image_side: 2048", f"image_side: {'9' * 5000}", "the limit .4300 digits. for integer"),
    ("image_side: 2048", f"image_side: {'[' * 2000}{']' * 2000}", "lists or mappings stand in each other too deeply"),
)
def test_what_is_wrong_is_named_with_its_line(place: Path, wrong: tuple[str, ...]) -> None:
    old, new, message, line = (*wrong, wrong[0])[:4]
    assert f"\n{SOUND}".count(f"\n{old}") == 1
    place.write_text(f"\n{SOUND}".replace(f"\n{old}", f"\n{new}")[1:])
    number = next(n for n, text in enumerate(SOUND.splitlines(), 1) if text.startswith(line))
    with pytest.raises(FileError, match=message) as error:
        load_recipe(place)
    assert f"{place}:{number}: " in str(error.value)


def test_boxes_that_nobody_seeks_are_an_error(place: Path) -> None:
    head, _, tail = SOUND.partition("regions:")
    place.write_text(head + tail.partition("  grounder: objects\n")[2])
    with pytest.raises(FileError, match=r":6: unedit_area needs boxes: say in `regions`"):
        load_recipe(place)


@each_row("old, new, message")
def test_what_is_wrong_in_a_judged_recipe(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "vlm_as_a_judge").mkdir()
    file = tmp_path / "vlm_as_a_judge/sref.yaml"
    text = (PIPELINES / "vlm_as_a_judge/sref.yaml").read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(FileError, match=message):
        load_recipe(file)


@pytest.mark.parametrize("data", [b"", b"- a\n", b"3", b"\xff\xfe\x00", b"a: \x00", b"--- 1\n--- 2\n", b"? [a]\n: b\n"])
def test_what_is_no_mapping_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.yaml"
    with pytest.raises(FileError, match="no such file"):
        read_lined(file)
    file.write_bytes(data)
    with pytest.raises(FileError, match=r"x\.yaml:\d+: "):
        read_lined(file)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_recipe_is_read_or_refused_with_file_and_line(place: Path, data: st.DataObject) -> None:
    lines = SOUND.splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = data.draw(st.text(max_size=12)) + lines[at][data.draw(st.integers(0, len(lines[at]))) :]
    place.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    try:
        recipe = load_recipe(place)
    except FileError as error:
        words = str(error)
    else:
        words = f"{place}: {recipe.task}"
    assert words.startswith(f"{place}:")


REFERENCE = Path(os.environ.get("EDITJUDGE_SHARED", "../shared")) / "reference.md"


@pytest.mark.skipif(not REFERENCE.is_file(), reason="EDITJUDGE_SHARED names no folder with reference.md")
def test_the_published_table_is_the_reference_s() -> None:
    """The literal above, against the table in the reference's description."""
    text = REFERENCE.read_text()
    table = text.partition("| task | unedit_area | edit_area |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.count("|") > 3]
    found = {}
    for tasks, outside, inside in (row for row in rows if not row[0].startswith("---")):
        for task in tasks.split(", "):
            found[task] = tuple([] if cell in ("-", "") else cell.split(", ") for cell in (outside, inside))
    assert {task: found[task] for task in PUBLISHED} == PUBLISHED
