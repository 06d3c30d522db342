"""Curation by a rater: pairs rated by a VLM with a rubric a task, the lowest share dropped, reasons kept."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import program
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from chat_client import chat_server

from editjudge.judges.rubrics import load


def test_the_lowest_share_of_rated_pairs_is_dropped_with_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, png: Callable[..., bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    rubric, tasks = load("imgedit", "add"), ["subject_add"] * 6 + ["camera_motion", "subject_add", "subject_add"]
    rows = [
        {"key": f"k{n}", "source_image": png(n), "edited_image": png(50 + n), "instruction": f"q{n}", "task": task}
        for n, task in enumerate(tasks)
    ]
    rows[8]["instruction"] = None
    pq.write_table(pa.Table.from_pylist(rows), "pairs.parquet")
    numbers = [(5, 5, 5), (1, 5, 5), (4, 4, 4), (3, 3, 3), (5, 5, 4)]
    replies = {
        f"q{n}": [rubric.write(dict(zip(rubric.dimensions, each, strict=True)), "Because.")]
        for n, each in enumerate(numbers)
    }
    with chat_server(replies=replies | {"q5": ["I cannot rate this."], "q7": ["Nor this."]}) as server:
        rater = {"backend": "endpoint", "base_url": server.url, "model": "m", "rubrics": "imgedit"}
        Path("params.yaml").write_text(yaml.safe_dump({"raters": {"vlm": rater}}))
        program.run("curate --rater vlm --pairs pairs.parquet --share 0.8 --near-bits -1 --out best")
    kept = pq.read_table("best/selection.parquet").to_pylist()
    assert [(row["key"], row["score"]) for row in kept] == [
        ("k0", 5.0), ("k4", pytest.approx(14 / 3)), ("k2", 4.0), ("k3", 3.0),
    ]  # fmt: skip
    with open("best/dropped.csv") as file:
        dropped = {row["key"]: row for row in csv.DictReader(file)}
    assert dropped["k1"]["reason"] == "below the cut"
    assert float(dropped["k1"]["score"]) == 1.0, "quality and preservation count for no more than adherence"
    assert "Brief reasoning: Because." in dropped["k1"]["said"]
    assert "unscored: Instruction Adherence: no clear number" in dropped["k5"]["reason"]
    assert dropped["k6"]["reason"] == "unscored: no rubric of camera_motion"
    assert dropped["k8"]["reason"] == "unscored: no instruction"
    report = json.loads(Path("best/report.json").read_text())
    assert report["kept"] == 4
    reasons = {each["reason"]: each["edits"] for each in report["dropped"]}
    assert reasons["unscored: Instruction Adherence: no clear number"] == 2, "without what was said"
