"""Training pairs: each rule by hand, what must not matter, thresholds as shipped and as the paper sets them."""

import contextlib
import csv
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cases import each_row, yaml_beside
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from scipy import stats

from editjudge.core import images, params, records
from editjudge.core.settings import read, section
from editjudge.grounding.settings import GroundingSetting
from editjudge.judges import settings as judge_settings
from editjudge.labels import tiers
from editjudge.labels.tiers import AreaRule, MeasuredEdit, TrainingPair, build_pairs, z_scores
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.chat.settings import ServedSetting
from editjudge.models.serve import launch
from editjudge.stages import train_judge
from tools import thresholds
from tools.settings import apply


def candidates_of(areas: Mapping[str, list]) -> tuple[list[MeasuredEdit], list[AreaRule]]:
    """Candidates a, b, c, ... and the rules of their areas: of each [the primary values, direction, elite, failure]."""
    count = len(next(iter(areas.values()))[0])
    models = [
        (name, {(area, "ssim"): own[0][n] for area, own in areas.items()}) for n, name in enumerate("abcd"[:count])
    ]
    return [MeasuredEdit(*each) for each in models], [AreaRule(area, "ssim", *own[1:]) for area, own in areas.items()]


def tiers_of(pairs: list[TrainingPair]) -> dict[str, str]:
    return {pair.winner + pair.loser: pair.tiers for pair in pairs}


@each_row("what, areas, how, pairs, left_out")
def test_the_rules_by_hand(what: str, areas: dict, how: dict, pairs: dict[str, str], left_out: dict[str, int]) -> None:
    found, counts = build_pairs(*candidates_of(areas), **{"mode": "three_tiers"} | how)
    assert (tiers_of(found), {name: number for name, number in counts.items() if number}) == (pairs, left_out), what


def test_the_margin_is_of_the_mean_over_areas_that_vary() -> None:
    """z of 0, 1, 2 is -1.2247, 0, 1.2247. At z = 0 an area that does not vary would halve the distance."""
    one, two, flat = [[0.0, 1.0, 2.0], 1, 0.6, -0.6], [[5.0, 3.0, 1.0], -1, 0.6, -0.2], [[0.3] * 3, 1, 0.6, -0.6]
    for areas in ({"edit": one}, {"edit": one, "unedit": two}, {"edit": one, "unedit": flat}):
        found, _ = build_pairs(*candidates_of(areas), mode="three_tiers")
        assert [pair.margin for pair in found] == pytest.approx([1.224745, 2.449490, 1.224745], abs=1e-6)


@each_row("emd, dino, reason")
def test_votes_of_the_secondary_measures(emd: list, dino: list, reason: str | None) -> None:
    voted = AreaRule("edit", "ssim", 1, 0.6, -0.6, secondary=(("emd", -1), ("dino", 1)))
    named = [{("edit", "ssim"): n, ("edit", "emd"): emd[n], ("edit", "dino"): dino[n]} for n in range(2)]
    pairs, left_out = build_pairs(
        [MeasuredEdit(*each) for each in zip("ab", named, strict=True)], [voted], mode="head_tail"
    )
    fallen = {f"dropped_{reason}": 1, "no_pair_no_pair_stands": 1} if reason else {}
    assert (len(pairs), +left_out) == (reason is None, fallen)


def test_a_measure_that_is_absent_is_unscored_and_one_that_is_no_number_an_error() -> None:
    rules = [AreaRule("edit", "ssim", 1, 0.6, -0.6)]
    known = [MeasuredEdit(name, {("edit", "ssim"): value}) for name, value in (("a", 0.0), ("b", 2.0))]
    assert build_pairs([*known, MeasuredEdit("z", {})], rules, mode="head_tail")[1]["candidates_unscored"] == 1
    with pytest.raises(ValueError, match="z: ssim of edit is nan"):
        build_pairs([*known, MeasuredEdit("z", {("edit", "ssim"): float("nan")})], rules, mode="head_tail")


def test_z_scores_match_scipy():
    values = np.random.default_rng(0).normal(size=(9, 4))
    z, varies = z_scores(values)
    assert np.allclose(z, stats.zscore(values, ddof=0))
    assert varies.all()


RULES = (
    AreaRule("edit", "p", 1, 0.63, -0.41, (("s", 1), ("t", -1))),
    AreaRule("unedit", "p", -1, 0.53, -0.17, (("s", -1),)),
)
KEYS = [(area, measure) for area in ("edit", "unedit") for measure in ("p", "s", "t")]
NUMBERS = st.integers(-5, 5).map(float)
MODES = st.sampled_from(["head_tail", "three_tiers"])


@st.composite
def prompts(draw):
    models = draw(st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=8, unique=True))
    value = st.one_of(NUMBERS, NUMBERS, NUMBERS, st.none())
    return [MeasuredEdit(model, {key: draw(value) for key in KEYS}) for model in models]


def counted(candidates):
    """The rules of the areas that a candidate has."""
    return [rule for rule in RULES if any(c.values[rule.area, "p"] is not None for c in candidates)]


@given(prompts(), MODES, st.randoms())
def test_the_order_of_candidates_does_not_matter(candidates, mode, random):
    found = build_pairs(candidates, RULES, mode=mode)
    random.shuffle(candidates)
    assert build_pairs(candidates, RULES, mode=mode) == found


@given(prompts(), MODES)
def test_every_pair_is_counted_and_none_violates_the_rules(candidates, mode):
    pairs, left_out = build_pairs(candidates, RULES, mode=mode)
    values = {c.model: c.values for c in candidates}
    won = [(pair.winner, pair.loser) for pair in pairs]
    assert not {(b, a) for a, b in won} & set(won)
    assert len(set(won)) == len(won)
    for pair in pairs:
        better, worse = values[pair.winner], values[pair.loser]
        for rule in counted(candidates):
            assert rule.direction * (better[rule.area, "p"] - worse[rule.area, "p"]) >= -1e-6
        assert pair.margin > 0
    scored = len(candidates) - left_out["candidates_unscored"]
    why = [name for name in left_out if name.startswith("no_pair_")]
    if why in ([], ["no_pair_no_pair_stands"]):
        fallen = sum(number for name, number in left_out.items() if name.startswith("dropped_"))
        assert len(won) + fallen == scored * (scored - 1) // 2
    assert bool(why) == (not won)


@given(prompts())
def test_head_tail_is_part_of_three_tiers(candidates):
    few, many = (build_pairs(candidates, RULES, mode=mode)[0] for mode in ("head_tail", "three_tiers"))
    assert few == [pair for pair in many if pair.tiers == "elite_over_failure"]


@settings(max_examples=100)
@given(prompts(), MODES, st.sampled_from(KEYS), st.floats(0.5, 8), st.floats(-50, 50))
def test_a_measure_s_scale_and_offset_do_not_matter(candidates, mode, key, slope, offset):
    """Values are integers and the slope keeps their distances far above the tolerances."""
    move = lambda value: None if value is None else slope * value + offset  # noqa: E731
    moved = [MeasuredEdit(c.model, c.values | {key: move(c.values[key])}) for c in candidates]
    (before, left), (after, later) = (
        build_pairs(each, RULES, mode=mode, margin=0.30001) for each in (candidates, moved)
    )
    assume(_far_from_thresholds(candidates, 1e-9))
    assert (tiers_of(after), later) == (tiers_of(before), left)
    assert [p.margin for p in after] == pytest.approx([p.margin for p in before], abs=1e-9)


def _far_from_thresholds(candidates, distance):
    rules = counted(candidates)
    rows = [[c.values[rule.area, "p"] for rule in rules] for c in candidates]
    scored = [row for row in rows if None not in row]
    if len(scored) < 2 or not rules:
        return True
    z, _ = z_scores(np.array(scored) * [rule.direction for rule in rules])
    limits = np.array([[rule.elite, rule.failure] for rule in rules])
    return bool((np.abs(z[:, :, None] - limits) > distance).all())


ROOT = Path(__file__).parents[2]
RECIPES = {file.stem: load_recipe(file) for file in sorted((ROOT / "pipelines").glob("*_centric/*.yaml"))}
RECIPE = Recipe("t", (("edit_area", ("ssim", "lpips")), ("unedit_area", ("emd", "delta_e"))))
AREA = {"primary": "ssim", "elite": 0.6, "failure": -0.2}
# Source: table "Training pairs" of GEditBench v2's configuration (arXiv 2603.28547).
PAPER = yaml_beside(__file__)["PAPER"]
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


def rules_of(thresholds: Any, missing: Mapping[str, str] | None = None) -> tuple[AreaRule, ...]:
    given = {"mode": "three_tiers", "margin": 0.3, "prompts_per_task": 9, "least_change": 1.0, "seed": 1}
    setting = read("train_pairs", tiers.PairsSetting, given | {"thresholds": thresholds})
    return tiers.rules_of(RECIPE, setting, missing or {})


def rule(area: str, primary: str, direction: int, elite: float, failure: float, secondary: list) -> AreaRule:
    return AreaRule(area, primary, direction, elite, failure, tuple(map(tuple, secondary)))


def test_the_papers_profile_configures_all_that_its_thresholds_need(paper: dict[str, Any]) -> None:
    assert slot_settings.unconfigured(section(paper, "measures", SlotSetting)) == {}
    grounding = section(paper, "grounding", GroundingSetting)
    assert grounding.parser is not None
    assert grounding.parser.model == "Qwen/Qwen3-4B-Instruct-2507"
    assert grounding.grounder is not None
    assert grounding.grounder.model == "Qwen/Qwen3-VL-8B-Instruct"
    assert train_judge.read_setting(paper).learning_rate == 2e-6
    assert section(paper, "serve", launch.Serving).engine == "vllm"
    kinds = dict.fromkeys(("editreward", "adiee"), judge_settings.ScorerSetting)
    kinds |= {"measures": judge_settings.MeasuresSetting}
    for where, judges in (("judges", paper["judges"]), ("pairwise.judges", paper["pairwise"]["judges"])):
        for name, setting_of in judges.items():
            setting = read(f"{where}.{name}", judge_settings.JudgeSetting, setting_of)
            assert type(getattr(setting, "model", setting)) is kinds.get(name, ServedSetting)


@pytest.mark.parametrize("task", sorted([*PAPER, *UNTHRESHOLDED]))
def test_the_papers_profile_gives_its_table(paper: dict[str, Any], task: str) -> None:
    found = tiers.rules_of(RECIPES[task], section(paper, "train_pairs", tiers.PairsSetting), {})
    assert set(found) == {rule(*row) for row in PAPER.get(task, OURS)}


@pytest.mark.parametrize("task", sorted(RECIPES))
def test_the_shipped_thresholds_fit_the_recipes_on_a_laptop(task: str) -> None:
    values = params.load(ROOT / "params.yaml")
    laptop = slot_settings.unconfigured(section(values, "measures", SlotSetting))
    assert "lpips" in laptop
    rules = tiers.rules_of(RECIPES[task], section(values, "train_pairs", tiers.PairsSetting), laptop)
    assert rules
    assert not {name for each in rules for name, _ in each.secondary} & set(laptop)
    thresholds = values["train_pairs"]["thresholds"].get(task, {}).values()
    assert not [each for each in thresholds if each.get("primary") in (each.get("secondary") or ())], "votes twice"


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
    assert rules_of(thresholds)[0].secondary == (("lpips", -1),)
    why = {"lpips": "measures.lpips is none"}
    assert rules_of(thresholds, why)[0].secondary == ()
    leads = {"t": {"edit_area": AREA | {"primary": "lpips"}}}
    with pytest.raises(params.ParamsError) as error:
        rules_of(leads, why)
    for word in ("train_pairs.thresholds.t.edit_area.primary", "pipelines/object_centric/t.yaml", "measures.lpips"):
        assert word in str(error.value)


def test_an_area_without_a_primary_measure_does_not_count() -> None:
    second = {"primary": "none", "elite": 0.6, "failure": -0.2, "secondary": None}
    [found] = rules_of({"t": {"edit_area": AREA, "unedit_area": second}})
    assert found == rule("edit_area", "ssim", 1, 0.6, -0.2, [])
    with pytest.raises(params.ParamsError, match=r"thresholds\.t: no area counts"):
        rules_of({"t": {"unedit_area": second}})


@each_row("thresholds, words")
def test_thresholds_that_cannot_be_right_are_named(thresholds: Any, words: str) -> None:
    with pytest.raises(params.ParamsError, match=words):
        rules_of(thresholds)


SSIM_RULES = [tiers.AreaRule("unedit_area", "ssim", 1, 0.64, -0.2)]
PAIRS = tiers.PairsSetting(mode="three_tiers", margin=0.3, prompts_per_task=9, least_change=1.0, seed=1, thresholds={})


def row(key: str, model: str, value: float, damage: float | None) -> records.Row:
    values = {"ssim": value, "delta_e": 3.0 - value}
    measures = [{"area": "unedit_area", "measure": name, "value": v, "reason": None} for name, v in values.items()]
    found = {"key": key, "task": "subject_add", "model": model, "status": "done", "reason": None, "change": 9.0}
    found |= {"damage": damage, "edited_area_ratio": 0.2, "measures": measures}
    return found | {"source_sha256": "0" * 64, "edit_sha256": "0" * 64}


# z of (0, 1, 2) is -1.2247, 0, 1.2247: failure, normal, elite. In the second prompt the truth is the other way round.
ROWS = [row("a", f"m{n}", n, 2.0 - n) for n in range(3)] + [row("b", f"m{n}", n, float(n)) for n in range(3)]


def test_pairs_and_true_pairs_by_threshold() -> None:
    found = list(thresholds.table_of("subject_add", ROWS, SSIM_RULES, PAIRS))
    now = [each for each in found if each["quantile"] == thresholds.NOW]
    assert [(each["threshold"], each["pairs"], each["share_pairs"], each["share_right"]) for each in now] == [
        ("failure", 6, 1.0, 0.5),
        ("elite", 6, 1.0, 0.5),
    ]
    high = next(each for each in found if each["threshold"] == "elite" and each["quantile"] == 0.95)
    assert high["z"] == pytest.approx(1.224745)
    assert (high["pairs"], high["known"]) == (4, 4), "no candidate is above the highest z: two normal over failure each"
    assert all(each["z"] <= 0.64 for each in found if each["threshold"] == "failure"), "never above elite"
    alike = list(thresholds.table_of("subject_add", [each | {"damage": 1.0} for each in ROWS], SSIM_RULES, PAIRS))[-1]
    assert (alike["known"], alike["share_right"]) == (6, 0.0), "of two with equal damage neither is truly better"
    unknown = [each | {"damage": None} for each in ROWS]
    last = list(thresholds.table_of("subject_add", unknown, SSIM_RULES, PAIRS))[-1]
    assert (last["pairs"], last["known"], last["share_pairs"], last["share_right"]) == (6, 0, 1.0, None)


def test_the_command_writes_a_table_and_a_plot(workdir: Path, capsys) -> None:
    values = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"tasks": {"subject_add": "object_centric"}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    shutil.copytree(ROOT / "pipelines", "pipelines")
    records.write(Path("data/annotations/subject_add.parquet"), ROWS, "annotations")
    thresholds.thresholds(out=Path("t.csv"), plot=Path("t.png"))
    said = capsys.readouterr().out.splitlines()
    with Path("t.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {(each["area"], each["measure"]) for each in table} == {("unedit_area", "ssim")}
    assert images.decode(Path("t.png").read_bytes()).std() > 5
    assert said[-1].split() == ["subject_add", "unedit_area", "ssim", "elite", "0.640", "6", "1.000", "6", "0.500"]
