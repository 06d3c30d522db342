"""Stage scorer_data: the probe's edits have the truth that their rows say."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from editjudge.core import images, records
from editjudge.sources.builtin import scenes
from editjudge.stages import scorer_data

pytestmark = pytest.mark.usefixtures("workdir")
SETTING = {
    "source": "probe", "tasks": ["color_alter", "subject_remove"], "per_task": 2, "test_per_task": 1, "side": 64,
    "seed": 7,
}  # fmt: skip


def test_an_edit_has_the_scores_of_what_was_done_to_it():
    for prompt in scenes.make_pairs("color_alter", "train", 3, 96, 1):
        source = images.decode(prompt["image"])
        made = [(images.decode(image), scores) for image, scores in scorer_data.make_edits(prompt, 7)]
        (done, best), (_, damaged), (_, harmed), (left, undone) = made
        assert np.array_equal(left, source)
        assert not np.array_equal(done, source)
        assert best == {"instruction_following": 4.0, "visual_quality": 4.0}
        assert undone == {"instruction_following": 1.0, "visual_quality": 4.0}
        assert (damaged["instruction_following"], harmed["instruction_following"]) == (4.0, 1.0)
        for scores in (damaged, harmed):
            assert 1.0 <= scores["visual_quality"] < 4.0
        again = scorer_data.make_edits(prompt, 7)
        assert [scores for _, scores in again] == [scores for _, scores in made]


def run(**changes: object) -> list[records.Row]:
    """The rows that the stage writes."""
    Path("params.yaml").write_text(yaml.safe_dump({"scorer_data": {"made": SETTING | changes}}))
    scorer_data.run("made")
    return records.read(Path("data/scorer_data/made.parquet"), "scorer_data")


def test_all_pairs_of_each_prompt_with_their_images_once():
    rows = run()
    assert len(rows) == (2 * 2 + 2 * 1) * 6
    tested, trained = ({row["origin"] for row in rows if row["part"] == part} for part in ("test", "train"))
    assert tested.isdisjoint(trained)
    keys = pq.read_table("data/scorer_images/made.parquet")["key"].to_pylist()
    assert len(keys) == len(set(keys)) == 6 * 4, "an edit that was not made is its source"
    for row in rows:
        a, b = ({each["dimension"]: each["score"] for each in row[f"scores_{side}"]} for side in "ab")
        lead = sum(a.values()) - sum(b.values())
        assert row["winner"] == ("Tie" if lead == 0 else "Image A" if lead > 0 else "Image B")
        assert row["edit_a"] == f"data/scorer_images/made.parquet/{row['sha256_a']}"
    assert {row["winner"] for row in rows} >= {"Image A", "Image B"}
    first = Path("data/scorer_data/made.parquet").read_bytes()
    run()
    assert Path("data/scorer_data/made.parquet").read_bytes() == first
    told = records.read_details(Path("metrics/scorer_data/made.json"))
    assert (told["rows"], "dropped" in told) == (36, False)
    Path("r.jsonl").write_text('{"scores": [1, 1]}')
    Path("params.yaml").write_text(yaml.safe_dump({"scorer_data": {"made": {"source": "ratings", "path": "r.jsonl"}}}))
    scorer_data.run("made")
    told = records.read_details(Path("metrics/scorer_data/made.json"))
    assert told["dropped"] == [{"reason": "scores that cannot be read", "rows": 1}]


def test_ratings_of_the_probe_are_those_of_what_was_done():
    rows = run(source="probe_ratings")
    assert len(rows) == (2 * 2 + 2 * 1) * 4
    assert {row["part"] for row in rows} == {"train", "test"}
    for prompt in {row["prompt"] for row in rows}:
        own = [row["scores_a"] for row in rows if row["prompt"] == prompt]
        done, damaged, harmed, left = ({each["dimension"]: each["score"] for each in scores} for scores in own)
        assert done == {"adherence": 5.0, "quality": 5.0, "preservation": 5.0}
        assert left == {"adherence": 1.0, "quality": 5.0, "preservation": 5.0}
        for scores, adherence in ((damaged, 5.0), (harmed, 1.0)):
            assert scores["adherence"] == adherence
            assert {scores["quality"], scores["preservation"]} <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert all(row["edit_b"] is None and row["winner"] is None for row in rows)
