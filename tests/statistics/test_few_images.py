"""A model that has images of few prompts of the arena: listed, and kept or left out."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from editjudge.core import records
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.stages import compare_models, leaderboard
from editjudge.stages.compare_models import ArenaPlan

PROMPTS = [{"key": f"p{n}"} for n in range(4)]
PLAN = ArenaPlan(budget=0, rounds=3, seed=0, least_share=0.5, few_images="keep")


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


def test_it_is_left_out_where_params_say_so() -> None:
    plan = replace(PLAN, few_images="leave_out", least_share=0.75)
    models, taking_part = compare_models.presence(PROMPTS, GALLERY, plan)
    assert {row["model"] for row in models if row["left_out"]} == {"half", "one"}
    assert list(taking_part) == ["whole", "most"]
    assert compare_models.pairs_of(PROMPTS, taking_part)[1] == 1


def test_an_arena_of_one_model_is_refused() -> None:
    with pytest.raises(ParamsError, match="fewer than two models"):
        compare_models.presence(PROMPTS, GALLERY, replace(PLAN, few_images="leave_out", least_share=1.0))


def test_an_arena_without_a_match_has_no_leaderboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    records.write(Path("data/matches.parquet"), [], "matches")
    section = {"prior": "weak", "weighting": "balanced", "ties": "davidson", "replicates": 9, "seed": 0}
    Path("params.yaml").write_text(yaml.safe_dump({"leaderboard": section}))
    with pytest.raises(FileError, match="no two models have images of the same prompt"):
        leaderboard.run()
