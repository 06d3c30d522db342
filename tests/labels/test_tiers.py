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
from editjudge.labels.tiers import AreaRule, MeasuredEdit, TrainingPair, build_pairs, tier, z_scores
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.chat.settings import ServedSetting
from editjudge.models.serve import launch
from editjudge.stages import train_judge
from tools import thresholds
from tools.settings import apply

UP = AreaRule("edit", "ssim", 1, elite=0.6, failure=-0.6)
DOWN = AreaRule("unedit", "lpips", -1, elite=0.6, failure=-0.2)


def one_area(values, rule=UP, **secondary):
    """Candidates a, b, c, ... from their primary values; secondary: measure=[a value a candidate]."""
    columns = {(rule.area, rule.primary): values} | {(rule.area, name): column for name, column in secondary.items()}
    names = "abcdefgh"[: len(values)]
    return [MeasuredEdit(name, {key: column[k] for key, column in columns.items()}) for k, name in enumerate(names)]


def two_areas(edit, unedit, **values):
    """Candidates by name from their values of two measures, (area, measure) each."""
    return [MeasuredEdit(name, {edit: one, unedit: other}) for name, (one, other) in values.items()]


EDIT, UNEDIT = ("edit", "ssim"), ("unedit", "ssim")


def tiers_of(outcome):
    return {(pair.winner, pair.loser): pair.tiers for pair in outcome.pairs}


def test_three_tiers_by_hand():
    """0, 1, 2: mean 1, population deviation sqrt(2/3), so z = -1.2247, 0, 1.2247."""
    outcome = build_pairs(one_area([0.0, 1.0, 2.0]), [UP], mode="three_tiers")
    found = {"ba": "normal_over_failure", "ca": "elite_over_failure", "cb": "elite_over_normal"}
    assert tiers_of(outcome) == {tuple(names): tier for names, tier in found.items()}
    assert [pair.margin for pair in outcome.pairs] == pytest.approx([1.224745, 2.449490, 1.224745], abs=1e-6)
    assert (outcome.reason, outcome.unscored, outcome.dropped) == (None, (), {})


def test_an_area_that_no_candidate_has_is_not_counted_and_one_that_some_lack_is():
    """A close-up's measures of the surroundings are missing for all of its edits, and say nothing of any."""
    alone = build_pairs(one_area([0.0, 1.0, 2.0]), [UP], mode="three_tiers")
    assert build_pairs(one_area([0.0, 1.0, 2.0]), [UP, DOWN], mode="three_tiers") == alone
    some = [MeasuredEdit(c.model, {**c.values, ("unedit", "lpips"): 0.5 if c.model == "a" else None}) for c in
            one_area([0.0, 1.0, 2.0])]  # fmt: skip
    outcome = build_pairs(some, [UP, DOWN], mode="three_tiers")
    assert (outcome.unscored, outcome.reason) == (("b", "c"), "fewer_than_two_candidates")


def test_head_tail_keeps_elite_over_failure_alone_and_lower_is_better_where_the_direction_says_so():
    outcome = build_pairs(one_area([0.0, 1.0, 2.0]), [UP], mode="head_tail")
    assert outcome.pairs == (TrainingPair("c", "a", "elite_over_failure", outcome.pairs[0].margin),)
    assert outcome.dropped == {"mode": 2}
    outcome = build_pairs(one_area([0.0, 1.0, 2.0], DOWN), [DOWN], mode="head_tail")
    assert tiers_of(outcome) == {("a", "c"): "elite_over_failure"}


def test_thresholds_exclude_elite_and_include_failure():
    """Two candidates always have z = -1 and 1."""
    for elite, failure, expected in [(0.9, -1.0, 1), (1.0, -1.0, 1), (0.9, -1.1, 1), (1.0, -1.1, 0)]:
        outcome = build_pairs(one_area([3.0, 7.0]), [AreaRule("edit", "ssim", 1, elite, failure)], mode="three_tiers")
        assert len(outcome.pairs) == expected
    assert outcome.dropped == {"same_tier": 1}
    assert tier([1.0], [AreaRule("edit", "ssim", 1, 1.0, -1.0)]) == "normal"
    assert tier([-1.0], [AreaRule("edit", "ssim", 1, 1.0, -1.0)]) == "failure"
    for second, expected in [(-0.3, "failure"), (0.0, "normal"), (0.7, "elite")]:
        assert tier([2.0, second], [UP, DOWN]) == expected, "one failed area fails, and elite needs all"


def test_an_area_that_does_not_vary_decides_nothing():
    """At z = 0 it would keep everyone from elite; with a failure threshold of 0 it would fail everyone."""
    flat = AreaRule("unedit", "lpips", -1, elite=0.6, failure=0.0)
    varied = enumerate(one_area([0.0, 1.0, 2.0]))
    candidates = [MeasuredEdit(c.model, {**c.values, ("unedit", "lpips"): 0.3 + 1e-7 * k}) for k, c in varied]
    outcome = build_pairs(candidates, [UP, flat], mode="three_tiers")
    assert outcome.pairs == build_pairs(one_area([0.0, 1.0, 2.0]), [UP], mode="three_tiers").pairs


def test_global_z_is_the_mean_over_areas():
    candidates = two_areas(EDIT, ("unedit", "lpips"), a=(1.0, 5.0), b=(2.0, 3.0), c=(3.0, 1.0))
    outcome = build_pairs(candidates, [UP, DOWN], mode="head_tail")
    assert outcome.pairs[0].margin == pytest.approx((2.449490 + 2.449490) / 2, abs=1e-6)


def test_elite_over_normal_needs_the_margin():
    """0, 5, 6: mean 11/3, deviation sqrt(62/9) = 2.6247, z = -1.397, 0.508, 0.889: 0.381 between the best two."""
    for margin, expected in [(0.38, True), (0.39, False)]:
        outcome = build_pairs(one_area([0.0, 5.0, 6.0]), [UP], mode="three_tiers", margin=margin)
        assert (("c", "b") in tiers_of(outcome)) is expected
    assert outcome.dropped == {"margin": 1}
    assert set(tiers_of(outcome)) == {("b", "a"), ("c", "a")}  # over a failure no margin is asked for


def test_the_winner_is_worse_on_no_area():
    """b is elite over all by its tier, yet a failure may be better in one area: then there is no pair."""
    candidates = two_areas(EDIT, UNEDIT, a=(0.0, 1.0), b=(10.0, 0.9), c=(10.0, 5.0), d=(0.0, 5.0))
    rules = [UP, AreaRule("unedit", "ssim", 1, elite=0.6, failure=-2.0)]
    outcome = build_pairs(candidates, rules, mode="three_tiers")
    assert ("b", "a") not in tiers_of(outcome)
    assert ("b", "d") not in tiers_of(outcome)
    assert outcome.dropped["pareto"] == 2
    assert ("c", "a") in tiers_of(outcome)


def test_pareto_tolerates_a_millionth():
    for worse, stands in [(0.9e-6, True), (1.2e-6, False)]:
        candidates = two_areas(EDIT, UNEDIT, a=(0.0, 1.0), b=(10.0, 1.0 - worse), c=(0.0, 0.0), d=(0.0, 0.0))
        rules = [AreaRule("edit", "ssim", 1, 0.6, -0.5), AreaRule("unedit", "ssim", 1, 0.6, -2.0)]
        outcome = build_pairs(candidates, rules, mode="three_tiers")
        assert (("b", "a") in tiers_of(outcome)) is stands


@each_row("emd, dino, reason")
def test_votes_of_the_secondary_measures(emd, dino, reason):
    voted = AreaRule("edit", "ssim", 1, 0.6, -0.6, secondary=(("emd", -1), ("dino", 1)))
    outcome = build_pairs(one_area([0.0, 1.0], emd=emd, dino=dino), [voted], mode="head_tail")
    assert outcome.dropped == ({} if reason is None else {reason: 1})
    assert outcome.reason == (None if reason is None else "no_pair_stands")


def test_candidates_without_a_primary_measure_are_left_out_and_why_there_is_no_pair():
    outcome = build_pairs(one_area([0.0, None, 2.0]), [UP], mode="head_tail")
    assert tiers_of(outcome) == {("c", "a"): "elite_over_failure"}
    assert outcome.unscored == ("b",)
    absent = [*one_area([0.0, 2.0]), MeasuredEdit("z", {})]
    assert build_pairs(absent, [UP], mode="head_tail").unscored == ("z",)
    for values in ([], [1.0, None]):
        assert build_pairs(one_area(values), [UP], mode="head_tail").reason == "fewer_than_two_candidates"
    assert build_pairs(one_area([1.0, 1.0, 1.0]), [UP], mode="head_tail").reason == "no_area_varies"
    with pytest.raises(ValueError, match="b: ssim of edit is nan"):
        build_pairs(one_area([1.0, float("nan")]), [UP], mode="head_tail")


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
    outcome = build_pairs(candidates, RULES, mode=mode)
    random.shuffle(candidates)
    assert build_pairs(candidates, RULES, mode=mode) == outcome


@given(prompts(), MODES)
def test_every_pair_is_counted_and_none_violates_the_rules(candidates, mode):
    outcome = build_pairs(candidates, RULES, mode=mode)
    values = {c.model: c.values for c in candidates}
    won = [(pair.winner, pair.loser) for pair in outcome.pairs]
    assert not {(b, a) for a, b in won} & set(won)
    assert len(set(won)) == len(won)
    for pair in outcome.pairs:
        better, worse = values[pair.winner], values[pair.loser]
        for rule in counted(candidates):
            assert rule.direction * (better[rule.area, "p"] - worse[rule.area, "p"]) >= -1e-6
        assert pair.margin > 0
    scored = len(candidates) - len(outcome.unscored)
    if outcome.reason in (None, "no_pair_stands"):
        assert len(won) + sum(outcome.dropped.values()) == scored * (scored - 1) // 2
    assert (outcome.reason is None) == bool(won)


@given(prompts())
def test_head_tail_is_part_of_three_tiers(candidates):
    few, many = (build_pairs(candidates, RULES, mode=mode).pairs for mode in ("head_tail", "three_tiers"))
    assert few == tuple(pair for pair in many if pair.tiers == "elite_over_failure")


@settings(max_examples=100)
@given(prompts(), MODES, st.sampled_from(KEYS), st.floats(0.5, 8), st.floats(-50, 50))
def test_a_measure_s_scale_and_offset_do_not_matter(candidates, mode, key, slope, offset):
    """Values are integers and the slope keeps their distances far above the tolerances."""
    move = lambda value: None if value is None else slope * value + offset  # noqa: E731
    moved = [MeasuredEdit(c.model, c.values | {key: move(c.values[key])}) for c in candidates]
    before, after = (build_pairs(each, RULES, mode=mode, margin=0.30001) for each in (candidates, moved))
    assume(_far_from_thresholds(candidates, 1e-9))
    assert tiers_of(after) == tiers_of(before)
    assert [p.margin for p in after.pairs] == pytest.approx([p.margin for p in before.pairs], abs=1e-9)
    assert (after.dropped, after.reason, after.unscored) == (before.dropped, before.reason, before.unscored)


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
OF_PEOPLE = [("hair_high_frequency_diff", -1), ("body_appearance_dino_cosine_sim", 1)]
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
