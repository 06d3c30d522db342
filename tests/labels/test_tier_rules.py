"""Thresholds of params.yaml, as they are shipped and as the paper's profile sets them."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from editjudge.cli.settings import apply
from editjudge.core import params
from editjudge.core.settings import section
from editjudge.grounding.settings import GroundingSetting
from editjudge.judges import settings
from editjudge.labels.tiers import AreaRule, read_rules
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.chat.settings import ServedSetting
from editjudge.models.serve import launch
from editjudge.stages import train_judge

ROOT = Path(__file__).parents[2]
RECIPES = {file.stem: load_recipe(file) for file in sorted((ROOT / "pipelines").glob("*_centric/*.yaml"))}
RECIPE = Recipe("t", (("edit_area", ("ssim", "lpips")), ("unedit_area", ("emd", "delta_e"))))
AREA = {"primary": "ssim", "elite": 0.6, "failure": -0.2}
OF_PEOPLE = [("hair_high_frequency_diff", -1), ("body_appearance_dino_cosine_sim", 1)]
# Source: table "Training pairs" of GEditBench v2's configuration (arXiv 2603.28547).
PAPER = {
    "color_alter": [
        ("edit_area", "L_channel_ssim", 1, 0.67, -0.60, [("dinov3_structure_similarity", 1)]),
        ("unedit_area", "lpips", -1, 0.64, -0.17, [("emd_both_sides", -1)]),
    ],
    "material_alter": [
        ("edit_area", "depth_ssim", 1, 0.63, -0.28, [("dinov3_structure_similarity", 1)]),
        ("unedit_area", "lpips", -1, 0.63, -0.19, [("emd_both_sides", -1)]),
    ],
    "ps_human": [
        ("edit_area", "face_ID_sim", 1, 0.64, -0.26, OF_PEOPLE),
        ("unedit_area", "lpips", -1, 0.68, -0.24, [("bg_faceID_sim", 1)]),
    ],
    "motion_change": [
        ("edit_area", "face_ID_sim", 1, 0.63, -0.42, OF_PEOPLE),
        ("unedit_area", "lpips", -1, 0.64, -0.44, [("bg_faceID_sim", 1)]),
    ],
    "oref": [("edit_area", "sam_dino_cls_sim", 1, 0.62, -0.56, [("sam_clip_cls_sim", 1)])],
    "object_extraction": [("edit_area", "sam_dino_cls_sim", 1, 0.69, -0.59, [("sam_clip_cls_sim", 1)])],
    "size_adjustment": [
        ("edit_area", "sam_dino_cls_sim", 1, 0.65, -0.57, [("sam_clip_cls_sim", 1)]),
        ("unedit_area", "lpips", -1, 0.66, -0.24, [("emd_both_sides", -1)]),
    ],
    "cref": [("edit_area", "max_match_face_ID_sim", 1, 0.53, -0.68, [])],
}
# The measures are the reference's, the thresholds ours.
UNTHRESHOLDED = ("subject_add", "subject_remove", "subject_replace", "text_editing")
OURS = [("unedit_area", "lpips", -1, 0.64, -0.20, [("emd_both_sides", -1), ("ssim", 1)])]


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    """params.yaml with the paper's profile."""
    values = YAML().load((ROOT / "params.yaml").read_text())
    with contextlib.chdir(ROOT):
        for _ in range(2):  # a second time it must change nothing
            apply(values, "paper")
    return json.loads(json.dumps(values))


def rule(area: str, primary: str, direction: int, elite: float, failure: float, secondary: list) -> AreaRule:
    return AreaRule(area, primary, direction, elite, failure, tuple(secondary))


def test_the_papers_profile_configures_all_that_its_thresholds_need(paper: dict[str, Any]) -> None:
    assert slot_settings.unconfigured(section(paper, "measures", SlotSetting)) == {}
    grounding = section(paper, "grounding", GroundingSetting)
    assert grounding.parser is not None
    assert grounding.parser.model == "Qwen/Qwen3-4B-Instruct-2507"
    assert grounding.grounder is not None
    assert grounding.grounder.model == "Qwen/Qwen3-VL-8B-Instruct"


def test_the_papers_profile_leaves_sections_that_their_stages_read(paper: dict[str, Any]) -> None:
    assert train_judge.read_setting(paper).learning_rate == 2e-6
    assert section(paper, "serve", launch.Serving).engine == "vllm"
    for where, judges in (("judges", paper["judges"]), ("pairwise.judges", paper["pairwise"]["judges"])):
        for name, given in judges.items():
            kinds = {"measures": settings.MeasuresSetting, "editreward": settings.ScorerSetting}
            setting = settings.read_setting(f"{where}.{name}", given)
            assert type(getattr(setting, "model", setting)) is kinds.get(name, ServedSetting)


@pytest.mark.parametrize("task", sorted([*PAPER, *UNTHRESHOLDED]))
def test_the_papers_profile_gives_its_table(paper: dict[str, Any], task: str) -> None:
    found = read_rules(RECIPES[task], paper["train_pairs"]["thresholds"], {})
    assert set(found) == {rule(*row) for row in PAPER.get(task, OURS)}


@pytest.mark.parametrize("task", sorted(RECIPES))
def test_the_shipped_thresholds_fit_the_recipes_on_a_laptop(task: str) -> None:
    thresholds = params.load(ROOT / "params.yaml")["train_pairs"]["thresholds"]
    laptop = slot_settings.unconfigured(section(params.load(ROOT / "params.yaml"), "measures", SlotSetting))
    assert "lpips" in laptop
    rules = read_rules(RECIPES[task], thresholds, laptop)
    assert rules
    assert not {name for each in rules for name, _ in each.secondary} & set(laptop)


def test_params_name_the_recipe_of_each_of_the_papers_18_tasks() -> None:
    head = (ROOT / "params.yaml").read_text().partition("\ntasks:\n")[0]
    named = re.findall(r"(\w+): (object_centric|human_centric|vlm_as_a_judge)", head)
    folders = params.load(ROOT / "params.yaml")["tasks"] | dict(named)
    assert len(folders) == 18
    judged = [task for task, folder in folders.items() if folder == "vlm_as_a_judge"]
    assert sorted(set(folders) - set(judged)) == sorted([*PAPER, *UNTHRESHOLDED])
    for task, folder in folders.items():
        recipe = load_recipe(ROOT / f"pipelines/{folder}/{task}.yaml")
        assert (recipe.judge is not None) == (task in judged)


def test_what_is_not_configured_has_no_vote_and_may_not_lead() -> None:
    thresholds = {"t": {"edit_area": AREA | {"secondary": ["lpips"]}}}
    assert read_rules(RECIPE, thresholds, {})[0].secondary == (("lpips", -1),)
    why = {"lpips": "measures.lpips is none"}
    assert read_rules(RECIPE, thresholds, why)[0].secondary == ()
    leads = {"t": {"edit_area": AREA | {"primary": "lpips"}}}
    with pytest.raises(params.ParamsError) as error:
        read_rules(RECIPE, leads, why)
    for word in ("train_pairs.thresholds.t.edit_area.primary", "pipelines/object_centric/t.yaml", "measures.lpips"):
        assert word in str(error.value)


def test_an_area_without_a_primary_measure_does_not_count() -> None:
    second = {"primary": "none", "elite": 0.6, "failure": -0.2, "secondary": None}
    [found] = read_rules(RECIPE, {"t": {"edit_area": AREA, "unedit_area": second}}, {})
    assert found == rule("edit_area", "ssim", 1, 0.6, -0.2, [])
    with pytest.raises(params.ParamsError, match=r"thresholds\.t: no area counts"):
        read_rules(RECIPE, {"t": {"unedit_area": second}}, {})


@pytest.mark.parametrize(
    ("thresholds", "words"),
    [
        (None, r"thresholds\.t is missing"),
        ({}, r"thresholds\.t is missing"),
        ({"t": None}, r"thresholds\.t is missing"),
        ({"t": []}, r"thresholds\.t is missing"),
        ({"t": {"sky": AREA}}, "unknown area 'sky'"),
        ({"t": {"edit_area": 3}}, r"thresholds\.t\.edit_area must have"),
        ({"t": {"edit_area": {"primary": "ssim", "elite": 0.6}}}, r"edit_area\.failure is missing"),
        ({"t": {"edit_area": AREA | {"elite": "high"}}}, r"edit_area\.elite must be a number"),
        ({"t": {"edit_area": AREA | {"failure": 0.7}}}, r"edit_area\.failure is 0\.7, above elite, 0\.6"),
        (
            {"t": {"edit_area": AREA | {"primary": "lpipz"}}},
            r"edit_area\.primary: unknown measure 'lpipz'; did you mean lpips\?",
        ),
        ({"t": {"edit_area": AREA | {"primary": "emd"}}}, r"does not take in edit_area: ssim, lpips"),
        ({"t": {"edit_area": AREA | {"secondary": ["emd"]}}}, r"edit_area\.secondary is emd, which pipelines/"),
        ({"t": {"edit_area": AREA | {"secondary": "emd"}}}, r"edit_area\.secondary must be a list"),
    ],
)
def test_thresholds_that_cannot_be_right_are_named(thresholds: Any, words: str) -> None:
    with pytest.raises(params.ParamsError, match=words):
        read_rules(RECIPE, thresholds, {})
