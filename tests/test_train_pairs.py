import io

import pytest
from PIL import Image

from editjudge import schemas, tiers, train_pairs

SETTING = {
    "mode": "three_tiers",
    "margin": 0.3,
    "prompts_per_task": 10,
    "least_change": 1.0,
    "seed": 42,
    "thresholds": {
        "subject_add": {"unedit_area": {"primary": "ssim", "elite": 0.6, "failure": -0.2, "secondary": ["emd"]}}
    },
}


def annotation(key: str, model: str, ssim: float | None, damage: float, **changes: object) -> dict:
    measures = [
        {"area": "unedit_area", "measure": "ssim", "value": ssim, "reason": None},
        {"area": "unedit_area", "measure": "emd", "value": damage, "reason": None},
    ]
    row = {"key": key, "model": model, "status": "done", "damage": damage, "change": 9.0, "measures": measures}
    return row | changes


def prompt(key: str) -> list[dict]:
    return [
        annotation(key, "good", 0.99, 0.0),
        annotation(key, "middling", 0.9, 2.0),
        annotation(key, "bad", 0.5, 6.0),
        annotation(key, "copy", 1.0, 0.0, change=0.0),
        annotation(key, "broken", None, 0.0, status="failed", change=None, measures=[]),
    ]


def test_pairs_name_the_better_edit_and_everything_left_out_is_counted() -> None:
    chosen, counts = train_pairs.choose(prompt("p1"), SETTING, "subject_add")
    assert {(item.pair.winner, item.pair.loser) for item in chosen} >= {("good", "bad")}
    assert all("copy" not in (item.pair.winner, item.pair.loser) for item in chosen)
    assert counts["candidates_unedited"] == counts["candidates_failed"] == counts["prompts_with_pair"] == 1


def test_a_prompt_without_a_pair_says_why() -> None:
    rows = [annotation("p", "a", 0.9, 1.0), annotation("p", "b", None, 1.0)]
    chosen, counts = train_pairs.choose(rows, SETTING, "subject_add")
    assert chosen == []
    assert counts["no_pair_fewer_than_two_candidates"] == 1
    assert counts["candidates_unscored"] == 1


def test_the_cap_counts_prompts_that_gave_a_pair() -> None:
    rows = [annotation("first", "a", 0.9, 1.0), *prompt("p1"), *prompt("p2"), *prompt("p3")]
    chosen, counts = train_pairs.choose(rows, SETTING | {"prompts_per_task": 2}, "subject_add")
    assert {item.prompt for item in chosen} == {"p1", "p2"}
    assert counts["prompts_beyond_cap"] == 1


def test_truth_counts_equal_damage_as_not_right() -> None:
    pairs = [tiers.Pair("a", "b", "elite_over_failure", 1.0)] * 3
    damages = [{"a": 0.0, "b": 1.0}, {"a": 0.0, "b": 0.0}, {"a": None, "b": 1.0}]
    chosen = [train_pairs.Chosen("p", "t", pair, damage) for pair, damage in zip(pairs, damages, strict=True)]
    assert train_pairs.truth(chosen) == {"right": 1, "wrong": 0, "equal": 1, "unknown": 1, "share_right": 0.5}


def rows_for(keys: list[str], seed: int = 42) -> list[dict]:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    annotations = [row for key in keys for row in prompt(key)]
    chosen, _ = train_pairs.choose(annotations, SETTING | {"prompts_per_task": 99}, "subject_add")
    prompts = {key: {"instruction": "Add a cup.", "image": buffer.getvalue()} for key in keys}
    edits = {(row["model"], row["key"]): buffer.getvalue() for row in annotations}
    return train_pairs.to_rows(chosen, prompts, edits, seed)


def test_rows_fit_their_contract_and_sides_are_drawn_for_each_pair_by_itself() -> None:
    few, many = rows_for(["p1", "p2"]), rows_for([f"p{n}" for n in range(1, 60)])
    schemas.check("train_pairs", many, "pairs")
    assert few == many[: len(few)]
    share = sum(row["winner"] == "Image A" for row in many) / len(many)
    assert 0.35 < share < 0.65
    for row in many:
        winner = row["model_a"] if row["winner"] == "Image A" else row["model_b"]
        assert row["key"].split(".")[1] == winner
    assert [row["winner"] for row in rows_for(["p1", "p2"], seed=1)] != [row["winner"] for row in few] or len(few) < 3


def test_an_unknown_measure_in_the_thresholds_is_named() -> None:
    with pytest.raises(KeyError, match="lpips"):
        train_pairs.rules_of({"unedit_area": {"primary": "lpips", "elite": 0.5, "failure": -0.5}})
