"""Training pairs: each rule on an example worked by hand, and what must not matter."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from editjudge.labels.tiers import AreaRule, MeasuredEdit, TrainingPair, build_pairs, tier, votes, z_scores

UP = AreaRule("edit", "ssim", 1, elite=0.6, failure=-0.6)
DOWN = AreaRule("unedit", "lpips", -1, elite=0.6, failure=-0.2)
VOTED = AreaRule("edit", "ssim", 1, 0.6, -0.6, secondary=(("emd", -1), ("dino", 1)))


def one_area(values, rule=UP, **secondary):
    """Candidates a, b, c, ... from their primary values; secondary: measure=[a value a candidate]."""
    columns = {(rule.area, rule.primary): values} | {(rule.area, name): column for name, column in secondary.items()}
    return [
        MeasuredEdit("abcdefgh"[k], {key: column[k] for key, column in columns.items()}) for k in range(len(values))
    ]


def tiers_of(outcome):
    return {(pair.winner, pair.loser): pair.tiers for pair in outcome.pairs}


def test_three_tiers_by_hand():
    """0, 1, 2: mean 1, population deviation sqrt(2/3), so z = -1.2247, 0, 1.2247."""
    outcome = build_pairs(one_area([0.0, 1.0, 2.0]), [UP], mode="three_tiers")
    assert tiers_of(outcome) == {
        ("b", "a"): "normal_over_failure",
        ("c", "a"): "elite_over_failure",
        ("c", "b"): "elite_over_normal",
    }
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


def test_head_tail_keeps_elite_over_failure_alone():
    outcome = build_pairs(one_area([0.0, 1.0, 2.0]), [UP], mode="head_tail")
    assert outcome.pairs == (TrainingPair("c", "a", "elite_over_failure", outcome.pairs[0].margin),)
    assert outcome.dropped == {"mode": 2}


def test_lower_is_better_where_the_direction_says_so():
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


def test_one_failed_area_fails_and_elite_needs_all():
    assert tier([2.0, -0.3], [UP, DOWN]) == "failure"
    assert tier([2.0, 0.0], [UP, DOWN]) == "normal"
    assert tier([2.0, 0.7], [UP, DOWN]) == "elite"


def test_an_area_that_does_not_vary_decides_nothing():
    """At z = 0 it would keep everyone from elite; with a failure threshold of 0 it would fail everyone."""
    flat = AreaRule("unedit", "lpips", -1, elite=0.6, failure=0.0)
    varied = enumerate(one_area([0.0, 1.0, 2.0]))
    candidates = [MeasuredEdit(c.model, {**c.values, ("unedit", "lpips"): 0.3 + 1e-7 * k}) for k, c in varied]
    outcome = build_pairs(candidates, [UP, flat], mode="three_tiers")
    assert outcome.pairs == build_pairs(one_area([0.0, 1.0, 2.0]), [UP], mode="three_tiers").pairs


def test_global_z_is_the_mean_over_areas():
    values = [("a", 1.0, 5.0), ("b", 2.0, 3.0), ("c", 3.0, 1.0)]
    candidates = [MeasuredEdit(name, {("edit", "ssim"): up, ("unedit", "lpips"): down}) for name, up, down in values]
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
    values = {"a": (0.0, 1.0), "b": (10.0, 0.9), "c": (10.0, 5.0), "d": (0.0, 5.0)}
    candidates = [MeasuredEdit(m, {("edit", "ssim"): e, ("unedit", "ssim"): u}) for m, (e, u) in values.items()]
    rules = [UP, AreaRule("unedit", "ssim", 1, elite=0.6, failure=-2.0)]
    outcome = build_pairs(candidates, rules, mode="three_tiers")
    assert ("b", "a") not in tiers_of(outcome)
    assert ("b", "d") not in tiers_of(outcome)
    assert outcome.dropped["pareto"] == 2
    assert ("c", "a") in tiers_of(outcome)


def test_pareto_tolerates_a_millionth():
    for worse, stands in [(0.9e-6, True), (1.2e-6, False)]:
        values = {"a": (0.0, 1.0), "b": (10.0, 1.0 - worse), "c": (0.0, 0.0), "d": (0.0, 0.0)}
        candidates = [MeasuredEdit(m, {("edit", "ssim"): e, ("unedit", "ssim"): u}) for m, (e, u) in values.items()]
        rules = [AreaRule("edit", "ssim", 1, 0.6, -0.5), AreaRule("unedit", "ssim", 1, 0.6, -2.0)]
        outcome = build_pairs(candidates, rules, mode="three_tiers")
        assert (("b", "a") in tiers_of(outcome)) is stands


@pytest.mark.parametrize(
    ("emd", "dino", "reason"),
    [
        ([5.0, 1.0], [0.1, 0.9], None),
        ([5.0, 1.0], [0.9, 0.1], "votes"),
        ([5.0, 5.0], [0.5, 0.5], "votes"),
        ([5.0, 5.0], [0.1, 0.5], None),
        ([1.0, 5.0], [None, 0.5], "votes"),
        ([5.0, 1.0], [None, 0.5], None),
        ([None, 1.0], [0.1, None], "no_secondary_comparable"),
    ],
)
def test_votes_of_the_secondary_measures(emd, dino, reason):
    outcome = build_pairs(one_area([0.0, 1.0], emd=emd, dino=dino), [VOTED], mode="head_tail")
    assert outcome.dropped == ({} if reason is None else {reason: 1})
    assert outcome.reason == (None if reason is None else "no_pair_stands")


def test_votes_count_each_measure_that_both_have():
    a, b = one_area([0.0, 1.0], emd=[5.0, 1.0], dino=[0.9, 0.1])
    assert votes(b, a, [VOTED]) == [1, -1]
    assert votes(a, b, [VOTED]) == [-1, 1]


def test_candidates_without_a_primary_measure_are_left_out():
    outcome = build_pairs(one_area([0.0, None, 2.0]), [UP], mode="head_tail")
    assert tiers_of(outcome) == {("c", "a"): "elite_over_failure"}
    assert outcome.unscored == ("b",)
    absent = [*one_area([0.0, 2.0]), MeasuredEdit("z", {})]
    assert build_pairs(absent, [UP], mode="head_tail").unscored == ("z",)


def test_reasons_for_no_pair():
    assert build_pairs([], [UP], mode="head_tail").reason == "fewer_than_two_candidates"
    assert build_pairs(one_area([1.0, None]), [UP], mode="head_tail").reason == "fewer_than_two_candidates"
    assert build_pairs(one_area([1.0, 1.0, 1.0]), [UP], mode="head_tail").reason == "no_area_varies"


def test_a_value_that_is_no_number_is_refused():
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
    return [
        MeasuredEdit(m, {key: draw(st.one_of(NUMBERS, NUMBERS, NUMBERS, st.none())) for key in KEYS}) for m in models
    ]


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
        assert all(
            rule.direction * (better[rule.area, "p"] - worse[rule.area, "p"]) >= -1e-6 for rule in counted(candidates)
        )
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
    moved = [
        MeasuredEdit(c.model, c.values | {key: None if c.values[key] is None else slope * c.values[key] + offset})
        for c in candidates
    ]
    before, after = (build_pairs(each, RULES, mode=mode, margin=0.30001) for each in (candidates, moved))
    near = 1e-9
    assume(_far_from_thresholds(candidates, near))
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
