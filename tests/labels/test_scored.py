"""Scorer data of annotations: winners as in train_pairs, and what is known of each dimension."""

from collections import Counter
from typing import Any

from editjudge.core import records
from editjudge.labels import scored
from editjudge.labels.tiers import AreaRule

RULES = [AreaRule("unedit_area", "ssim", 1, 0.6, -0.2)]
SETTING = {"least_change": 6.0, "mode": "three_tiers", "margin": 0.3}
PROMPTS = {"p": {"instruction": "Make it red.", "origin": "coffee"}, "q": {"instruction": "Add a cup.", "origin": None}}


def annotation(key: str, model: str, ssim: float | None, change: float = 20.0, status: str = "done") -> dict[str, Any]:
    measures = [{"area": "unedit_area", "measure": "ssim", "value": ssim, "reason": None}]
    failed = status == "failed"
    row = {"key": key, "model": model, "status": status, "change": change, "measures": [] if failed else measures}
    return row | {"source_sha256": "0" * 64, "edit_sha256": None if failed else f"{hash(model) % 16**64:064x}"}


def test_winners_and_dimensions_of_each_pair() -> None:
    annotations = [
        annotation("p", "clean", 0.99),
        annotation("p", "idle", 1.0, change=0.0),
        annotation("p", "bad", 0.2),
        annotation("p", "worse", 0.19),
        annotation("p", "gone", None, status="failed"),
        annotation("p", "unmeasured", None),
        annotation("q", "idle", 1.0, change=0.0),
        annotation("q", "lazy", 1.0, change=1.0),
    ]
    dropped = Counter[str]()
    found = list(scored.rows("color_alter", annotations, PROMPTS, RULES, SETTING, 0.0, dropped))
    records.check("scorer_data", found, "x")
    told = {(row["model_a"], row["model_b"]): (row["winner"], row["rule"]) for row in found}
    wins = "measures of the pipeline: elite over failure"
    idle = f"measures of the pipeline: {scored.UNEDITED}"
    assert told == {
        ("bad", "clean"): ("Image B", wins),
        ("clean", "worse"): ("Image A", wins),
        ("bad", "worse"): (None, "measures of the pipeline: no pair in train_pairs"),
        ("bad", "idle"): (None, idle),
        ("clean", "idle"): (None, idle),
        ("idle", "worse"): (None, idle),
    }
    [pair] = [row for row in found if (row["model_a"], row["model_b"]) == ("clean", "idle")]
    assert {each["dimension"]: each["score"] for each in pair["scores_b"]} == {"instruction_following": 0.0}
    clean = {each["dimension"]: each["score"] for each in pair["scores_a"]}
    assert clean["instruction_following"] == 1.0
    assert clean["visual_consistency"] > 1
    assert pair["edit_a"] == "data/candidates/clean/color_alter.parquet/p"
    assert pair["origin"] == "coffee"
    assert dropped == {"candidates_failed": 1, "candidates_unscored": 1, "both_unedited": 1}
