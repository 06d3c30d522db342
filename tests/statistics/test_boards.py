"""Boards: which matches to ask next, how few photos they may have, and how a board is written."""

import csv
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from cases import each_row
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from editjudge.core import records
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.stages import compare_models, leaderboard
from editjudge.stages.compare_models import ArenaPlan
from editjudge.statistics import boards, choosing, ratings

SHARED = Path(os.environ.get("EDITJUDGE_SHARED", "../shared"))
NOTHING = dict.fromkeys(boards.COLUMNS)


def board() -> dict:
    models = [
        NOTHING | {"rank": 1, "model": "a|b", "rating": 1100.4, "low": 1050.0, "high": 1151.0, "p_best": 0.975},
        NOTHING | {"rank": 2, "model": "c, d", "rating": 899.6, "matches": 12},
    ]
    return {"models": models, "dimensions": [{"dimension": "visual_quality", "models": [models[0]]}]}


def test_a_board_is_written_as_markdown_csv_and_json(tmp_path: Path) -> None:
    for suffix in boards.WRITERS:
        boards.write(tmp_path / f"board{suffix}", board())
    lines = (tmp_path / "board.md").read_text().splitlines()
    assert lines[0].startswith("| rank | model | rating |")
    assert lines[2] == "| 1 | a\\|b | 1100 | 1050 | 1151 | - | - | 0.975 | - | 1100 |"
    with (tmp_path / "board.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["rating"], row["low"], row["matches"], row["visual_quality"]) for row in rows] == [
        ("a|b", "1100.4", "1050.0", "", "1100.4"),
        ("c, d", "899.6", "", "12", ""),
    ]
    assert json.loads((tmp_path / "board.json").read_text())[1]["matches"] == 12
    with pytest.raises(FileError, match=r"board\.txt: .*known: \.md, \.csv, \.tex, \.json"):
        boards.write(tmp_path / "board.txt", board())
    assert boards.as_markdown([]).count("\n") == 2, "a board of nobody is an empty table"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published board lies in EDITJUDGE_SHARED")
def test_the_published_boards_agree_as_the_paper_says() -> None:
    file = SHARED / "data/published/geditbench_v2_leaderboard.csv"
    overall, people = (boards.read(file, column) for column in ("overall", "arena_elo"))
    found = boards.agreement(overall, people)
    assert (found["n"], round(found["spearman"], 3)) == (16, 0.929)
    assert found["low"] < 0.85 < found["spearman"] < found["high"] < 1


def test_agreement_is_over_the_models_of_both() -> None:
    here, there = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 0.0, "x": 9.0}, {"a": 9.0, "b": 7.0, "c": 8.0, "d": 1.0, "y": 5.0}
    found = boards.agreement(here, there)
    assert found["spearman"] == pytest.approx(stats.spearmanr([3, 2, 1, 0], [9, 7, 8, 1]).statistic)
    assert (found["only_here"], found["only_there"]) == (["x"], ["y"])
    few = boards.agreement(here, {"a": 1.0, "b": 2.0})
    assert (few["n"], few["spearman"], few["low"]) == (2, None, None)
    flat = boards.agreement(here, dict.fromkeys(here, 5.0))
    assert (flat["n"], flat["spearman"], flat["kendall"], flat["low"]) == (5, None, None, None)
    opposite = boards.agreement({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, {"a": 4.0, "b": 3.0, "c": 1.0, "d": 2.0})
    assert (opposite["spearman"], opposite["kendall"]) == pytest.approx((-0.8, -2 / 3))
    equal = boards.agreement({"a": 1.0, "b": 2.0, "c": 2.0, "d": 3.0}, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0})
    assert equal["kendall"] == pytest.approx(5 / math.sqrt((6 - 1) * 6)), "tau-b: of six pairs one is equal here"
    half = 1.96 * math.sqrt((1 + 0.64 / 2) / (4 - 3))
    assert opposite["high"] == pytest.approx(math.tanh(math.atanh(-0.8) + half))


@each_row("text, column, why")
def test_a_board_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, column: str, why: str) -> None:
    if text:
        (tmp_path / "b.csv").write_text(text)
    with pytest.raises(FileError, match=why):
        boards.read(tmp_path / "b.csv", column)


PROMPTS = [{"key": f"p{n}"} for n in range(4)]
PLAN = ArenaPlan(budget=0, seed=0, least_share=0.5, few_images="keep")


def model(done: int) -> dict[str, dict]:
    return {p["key"]: {"status": "done" if n < done else "failed"} for n, p in enumerate(PROMPTS)}


GALLERY = {"whole": model(4), "most": model(3), "half": model(2), "one": model(1)}


def test_it_is_listed_and_kept(capfd: pytest.CaptureFixture) -> None:
    models, taking_part = compare_models.presence(PROMPTS, GALLERY, PLAN)
    assert [(row["model"], row["images"], row["few_images"], row["left_out"]) for row in models] == [
        ("half", 2, False, False),
        ("most", 3, False, False),
        ("one", 1, True, False),
        ("whole", 4, False, False),
    ]
    assert taking_part == GALLERY
    assert compare_models.report([], 0, 0, models, {})["models"] == models
    assert "one has images of 1 of 4 prompts; it is kept all the same" in capfd.readouterr().err


def test_it_is_left_out_where_params_say_so_and_an_arena_of_one_model_is_refused() -> None:
    plan = replace(PLAN, few_images="leave_out", least_share=0.75)
    models, taking_part = compare_models.presence(PROMPTS, GALLERY, plan)
    assert {row["model"] for row in models if row["left_out"]} == {"half", "one"}
    assert list(taking_part) == ["whole", "most"]
    assert compare_models.pairs_of(PROMPTS, taking_part)[1] == 1
    with pytest.raises(ParamsError, match="fewer than two models"):
        compare_models.presence(PROMPTS, GALLERY, replace(plan, least_share=1.0))


def test_an_arena_without_a_match_has_no_leaderboard(workdir: Path) -> None:
    records.write(Path("data/matches.parquet"), [], "matches")
    section = {"prior": "weak", "weighting": "balanced", "ties": "davidson", "replicates": 9, "seed": 0}
    Path("params.yaml").write_text(yaml.safe_dump({"leaderboard": section}))
    with pytest.raises(FileError, match="no two models have images of the same prompt"):
        leaderboard.run()


def pairs_of(models):
    return np.stack(np.triu_indices(models, 1), axis=1)


def arena(seed, models=17, prompts=120, spread=8.0, image=1.0, sharpness=3.0, nu=1.0):
    """Outcomes (P, Q) of all pairs: each image is about as good as its model, and the judge sees nearly how good."""
    rng = np.random.default_rng(seed)
    abilities = rng.normal(size=models)
    abilities = (abilities - abilities.mean()) / np.ptp(abilities) * spread
    first, second = pairs_of(models).T
    quality = abilities + image * rng.normal(size=(prompts, models))
    x = sharpness * (quality[:, first] - quality[:, second]) / 2
    odds = np.stack([np.exp(-x), np.full_like(x, nu), np.exp(x)], axis=-1).cumsum(axis=-1)
    return (rng.random(x.shape)[..., None] * odds[..., -1:] > odds).sum(axis=-1) - 1


def matches_of(outcomes, prompt, pair):
    models = round((1 + np.sqrt(1 + 8 * outcomes.shape[1])) / 2)
    outcome, zeros = outcomes[prompt, pair].astype(np.int8), np.zeros(len(pair), int)
    names = tuple(f"m{k:02d}" for k in range(models))
    return ratings.Matches(prompt, zeros, *pairs_of(models)[pair].T, outcome, names, ("all",))


def all_pairs(outcomes, prompts=None):
    """The matches of all pairs on the first so many prompts."""
    return matches_of(outcomes, *(x.ravel() for x in np.indices(outcomes[:prompts].shape)))


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 80), st.floats(0.3, 1))
def test_no_question_twice_none_impossible_and_the_budget_is_spent(seed, budget, share):
    possible = np.random.default_rng(seed).random((9, 6)) < share
    prompt, pair = choosing.spread(possible, pairs_of(4), budget, np.random.default_rng(0))
    assert len(set(zip(prompt.tolist(), pair.tolist(), strict=True))) == len(pair) == min(budget, possible.sum())
    assert possible[prompt, pair].all()


def test_models_and_prompts_are_asked_about_alike():
    prompt, pair = choosing.spread(np.ones((30, 15), bool), pairs_of(6), 155, np.random.default_rng(0))
    assert np.ptp(np.bincount(pair, minlength=15)) == 1
    assert np.ptp(np.bincount(prompt, minlength=30)) <= 2


def test_the_width_is_that_of_the_boards_intervals():
    matches = all_pairs(arena(1, models=4, prompts=8, spread=1.0))
    rows = ratings.leaderboard(matches, replicates=1).models
    widths = [row["high"] - row["low"] for row in rows]
    assert ratings.interval_width(matches) == pytest.approx(np.mean(widths), abs=1e-5)


def test_a_quarter_of_the_questions_is_better_spread_than_asked_of_a_quarter_of_the_prompts():
    """Medians of 10 arenas of 25 models and 120 prompts, where answers about an image depend on each other: intervals
    1.28 times as wide as with all questions, 2.08 times with all questions on 30 prompts; 1.32 times at random."""
    found = []
    for seed in range(10):
        outcomes = arena(seed, models=25)
        possible, budget = np.ones(outcomes.shape, bool), outcomes.size // 4
        few = matches_of(outcomes, *choosing.spread(possible, pairs_of(25), budget, np.random.default_rng(seed)))
        widths = [ratings.interval_width(each) for each in (few, all_pairs(outcomes, 30), all_pairs(outcomes))]
        found.append((widths[0] / widths[2], widths[1] / widths[2]))
    spread, whole_prompts = np.median(found, axis=0)
    assert 1.2 < spread < 1.35
    assert whole_prompts > 1.9
