from collections import Counter
from pathlib import Path

import pytest
import yaml

from editjudge.core import params, records
from editjudge.core.settings import read, section
from editjudge.labels import explained, tiers
from editjudge.measures.annotation.recipe import Recipe
from editjudge.stages import train_pairs

ROOT = Path(__file__).parents[2]
SETTING = {"mode": "three_tiers", "margin": 0.3, "prompts_per_task": 10, "least_change": 1.0, "seed": 42}
HASHED = {"task": "subject_add", "source_sha256": "5" * 64, "edit_sha256": "e" * 64}
MEASURED = ("elite_over_failure", "elite_over_normal", "normal_over_failure")  # the pairs of `prompt`
RULES = (tiers.AreaRule("unedit_area", "ssim", 1, 0.6, -0.2, (("emd", -1),)),)


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
    chosen, counts = train_pairs.choose(prompt("p1"), SETTING, RULES)
    assert {(item.pair.winner, item.pair.loser) for item in chosen} >= {("good", "bad")}
    assert all("copy" not in (item.pair.winner, item.pair.loser) for item in chosen)
    assert counts["candidates_unedited"] == counts["candidates_failed"] == counts["prompts_with_pair"] == 1


def test_before_any_pair_is_made_those_that_may_be_one_stand() -> None:
    setting = section(params.load(ROOT / "params.yaml"), "train_pairs", tiers.PairsSetting)
    rows = [row | {"reason": None} for row in prompt("p1")]
    for trained, why, made in ((None, "stands", True), ([], "beyond_cap", False)):
        [(_, pairs)] = explained.explained(rows, [], trained, RULES, setting).values()
        [pair] = [each for each in pairs if {each["a"], each["b"]} == {"good", "bad"}]
        assert (pair["why"], pair["made"], pair["winner"]) == (why, made, "Image B")


def test_the_cap_counts_prompts_that_gave_a_pair_and_one_without_says_why() -> None:
    rows = [annotation("first", "a", 0.9, 1.0), annotation("first", "b", None, 1.0)]
    rows += [*prompt("p1"), *prompt("p2"), *prompt("p3")]
    chosen, counts = train_pairs.choose(rows, SETTING | {"prompts_per_task": 2}, RULES)
    assert {item.prompt for item in chosen} == {"p1", "p2"}
    assert counts["prompts_beyond_cap"] == counts["no_pair_fewer_than_two_candidates"] == 1
    assert counts["candidates_unscored"] == 1
    rows = [verdict("tied", "a", "b", "Tie"), *(verdict(f"p{n}", "a", "b", "Image A") for n in range(4))]
    chosen, counts = train_pairs.choose_judged(rows, [], SETTING | {"prompts_per_task": 2})
    assert [item.prompt for item in chosen] == ["p0", "p1"]
    assert counts["prompts_beyond_cap"] == 2


def test_truth_counts_equal_damage_as_not_right() -> None:
    pairs = [tiers.TrainingPair("a", "b", "elite_over_failure", 1.0)] * 3
    damages = [{"a": 0.0, "b": 1.0}, {"a": 0.0, "b": 0.0}, {"a": None, "b": 1.0}]
    chosen = [train_pairs.Chosen("p", pair, damage) for pair, damage in zip(pairs, damages, strict=True)]
    assert (known := train_pairs.truth(chosen)) == {"right": 1, "equal": 1, "unknown": 1}
    assert train_pairs.share_right(known) == 0.5


def rows_for(keys: list[str], seed: int = 42) -> list[dict]:
    annotations = [row for key in keys for row in prompt(key)]
    chosen, _ = train_pairs.choose(annotations, SETTING | {"prompts_per_task": 99}, RULES)
    return train_pairs.to_rows(chosen, dict.fromkeys(keys, "Add a cup."), [row | HASHED for row in annotations], seed)


def test_rows_fit_their_contract_and_sides_are_drawn_for_each_pair_by_itself() -> None:
    few, many = rows_for(["p1", "p2"]), rows_for([f"p{n}" for n in range(1, 60)])
    records.check("train_pairs", many, "pairs")
    assert few == many[: len(few)]
    share = sum(row["winner"] == "Image A" for row in many) / len(many)
    assert 0.35 < share < 0.65
    for row in many:
        winner = row["model_a"] if row["winner"] == "Image A" else row["model_b"]
        assert row["key"].split(".")[1] == winner
    assert [row["winner"] for row in rows_for(["p1", "p2"], seed=1)] != [row["winner"] for row in few] or len(few) < 3


def test_pairs_whose_names_are_longer_than_a_key_stay_apart() -> None:
    models = [f"{'m' * 45}{n}" for n in range(3)]
    pairs = [tiers.TrainingPair(models[0], loser, "elite_over_failure", 1.0) for loser in models[1:]]
    chosen = [train_pairs.Chosen("p" * 120, pair, dict.fromkeys(models)) for pair in pairs]
    edits = [{"key": "p" * 120, "model": model} | HASHED for model in models]
    rows = train_pairs.to_rows(chosen, {"p" * 120: "Add a cup."}, edits, seed=42)
    records.check("train_pairs", rows, "pairs")
    assert len({row["key"] for row in rows}) == len(pairs)
    assert all(row["key"].startswith("p" * 120 + "." + models[0]) for row in rows)


def verdict(key: str, a: str, b: str, winner: str | None, status: str = "done") -> dict:
    """A row of pair_verdicts, as far as it is read; of b's damage nothing is known."""
    row = {"key": key, "model_a": a, "model_b": b, "winner": winner, "status": status}
    return row | {"damage_a": None if a == "b" else 1.0, "damage_b": None if b == "b" else 1.0}


def change(key: str, model: str, value: float | None) -> dict:
    return {"key": key, "model": model, "change": value, "status": "done"}


def test_verdicts_give_pairs_and_ties_failures_and_unedited_sides_do_not() -> None:
    rows = [verdict("p1", "a", "b", "Image A"), verdict("p1", "a", "c", "Image B"), verdict("p1", "b", "c", "Tie")]
    rows += [verdict("p1", "a", "copy", "Image B")]
    rows += [verdict("p2", "a", "b", None, "failed"), verdict("p2", "a", "c", None, "unasked")]
    changes = [change("p1", "a", 5.0), change("p1", "copy", 0.0), change("p1", "b", None), change("p2", "copy", 0.0)]
    chosen, counts = train_pairs.choose_judged(rows, changes, SETTING)
    assert [(item.pair.winner, item.pair.loser) for item in chosen] == [("a", "b"), ("c", "a")]
    assert {(item.pair.tiers, item.pair.margin) for item in chosen} == {("judged", None)}
    assert chosen[0].damage == {"a": 1.0, "b": None}
    assert (counts["prompts"], counts["prompts_with_pair"]) == (2, 1)
    assert [counts[f"dropped_{name}"] for name in ("tie", "failed", "unasked", "unedited")] == [1, 1, 1, 1]


def test_prompts_without_verdicts_are_counted() -> None:
    failed = [change("p2", model, None) | {"status": "failed"} for model in "ab"]
    rows, annotations = [verdict("p1", "a", "b", "Image A")], [change("p1", "a", 5.0), change("p1", "b", 5.0), *failed]
    _, counts = train_pairs.choose_judged(rows, annotations, SETTING)
    assert (counts["prompts"], counts["prompts_with_pair"]) == (2, 1)
    assert (counts["no_pair_fewer_than_two_candidates"], counts["candidates_failed"]) == (1, 2)
    _, counts = train_pairs.choose_judged([], failed, SETTING)
    assert train_pairs.report({"sref": (counts, Counter(), Counter())})["prompts_without_pair"] == 1


def test_one_task_after_the_other_is_read_and_written_measured_or_judged(workdir: Path, monkeypatch, capsys) -> None:
    """No more is in memory than the pairs of one task; it says which task has none."""
    for name in ("pipelines", "stages"):
        Path(name).symlink_to(ROOT / name)
    values, judged = params.load(ROOT / "params.yaml"), ("enhancement", "sref")
    values["tasks"] = dict.fromkeys(judged, "vlm_as_a_judge") | {"subject_add": "object_centric"}
    area = {"primary": "ssim", "elite": 0.6, "failure": -0.2}
    values["train_pairs"] |= {"least_change": 1.0, "thresholds": {"subject_add": {"unedit_area": area}}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    for task in values["tasks"]:
        pool = {"key": "p", "task": task, "edit": None, "image": b"i", "instruction": "x", "origin": None}
        known = HASHED | {"task": task, "reason": None, "edited_area_ratio": 0.1}
        records.write(Path(f"data/pools/{task}.parquet"), [pool | {"regions": []}], "pools")
        edits = [annotation("p", model, 0.5, 1.0) for model in "ab"] if task in judged else prompt("p")
        records.write(Path(f"data/annotations/{task}.parquet"), [row | known for row in edits], "annotations")
    said = dict.fromkeys(("forward", "backward", "winner"), "Image B") | {"judge": "j", "p_a": 0.1, "reason": None}
    full = verdict("p", "a", "b", "Image B") | {"task": "sref", "dimension": "visual_consistency", "p_a": 0.1}
    for task, rows in (("enhancement", []), ("sref", [full | {"reason": None, "verdicts": [said]}])):
        records.write(Path(f"data/pair_verdicts/{task}.parquet"), rows, "pair_verdicts")
    steps, plain, add = [], records.iterate, records.RowWriter.add
    monkeypatch.setattr(records, "iterate", lambda file, *rest: steps.append(f"read {file.stem}") or plain(file, *rest))
    monkeypatch.setattr(records.RowWriter, "add", lambda self, row: steps.append(row["task"]) or add(self, row))
    train_pairs.run()
    assert ", ".join(dict.fromkeys(steps)) == "read enhancement, read sref, sref, read subject_add, subject_add"
    assert capsys.readouterr().err == "train_pairs: no pair of enhancement; metrics/train_pairs.json says why\n"
    tiers_of = Counter((row["task"], row["tiers"]) for row in plain(Path("data/train_pairs.parquet"), "train_pairs"))
    assert tiers_of == {("sref", "judged"): 1} | {("subject_add", two): 1 for two in MEASURED}
    found = records.read_details(Path("metrics/train_pairs.json"))
    assert {row["tiers"]: row["pairs"] for row in found["per_tier"]} == {"judged": 1} | dict.fromkeys(MEASURED, 1)
    assert found["known_truth"][0]["unknown"] == 1


def test_a_measure_that_is_not_configured_is_named() -> None:
    area = {"primary": "ssim", "elite": 0.6, "failure": -0.2, "secondary": ["emd"]}
    thresholds = {"thresholds": {"subject_add": {"unedit_area": area}}}
    pairs = read("train_pairs", tiers.PairsSetting, SETTING | thresholds)
    recipe = Recipe("subject_add", (("unedit_area", ("ssim", "emd")),))
    assert tiers.rules_of(recipe, pairs, {}) == RULES
    with pytest.raises(params.ParamsError, match=r"primary is ssim, .* not configured: measures\.x is none"):
        tiers.rules_of(recipe, pairs, {"ssim": "measures.x is none"})
