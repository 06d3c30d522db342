"""Annotations in the published grouped form, and back."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import program
import pytest
import training_pairs
from training_pairs import TASK

from editjudge.core import records
from editjudge.core.errors import UserError
from editjudge.labels import tiers


def annotation(key: str, model: str, value: float | None, sums: tuple[str, str | None]) -> records.Row:
    reason = None if value is not None else "no face"
    measures = [
        {"area": "unedit_area", "measure": "ssim", "value": value, "reason": reason},
        {"area": "edit_area", "measure": "face_ID_sim", "value": 0.5, "reason": None},
    ]
    row = {"key": key, "task": TASK, "model": model, "status": "done", "reason": None, "change": 3.5, "damage": 1.25}
    return row | {"edited_area_ratio": 0.2, "measures": measures, "source_sha256": sums[0], "edit_sha256": sums[1]}


@pytest.fixture
def project(tmp_path: Path, png: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch) -> list[records.Row]:
    shown = {(model, f"p{i}"): png(10 * n + i) for i in range(2) for n, model in enumerate(("source", "good", "bad"))}
    training_pairs.write(tmp_path, [training_pairs.pair(0)], shown)
    monkeypatch.chdir(tmp_path)
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in shown.items()}
    rows = [
        annotation(f"p{i}", model, value, (sums["source", f"p{i}"], sums[model, f"p{i}"]))
        for i in range(2)
        for model, value in (("bad", 0.25), ("good", None if i else 0.75))
    ]
    rows[3] |= {"status": "failed", "reason": "no box", "change": None, "edited_area_ratio": None, "measures": []}
    records.write(Path(f"data/annotations/{TASK}.parquet"), rows, "annotations")
    records.write(Path(f"data/pair_verdicts/{TASK}.parquet"), [], "pair_verdicts")
    Path("params.yaml").write_text(f"tasks: {{{TASK}: object_centric}}\n")
    return rows


def run(words: str) -> None:
    program.run(f"export {words}")


def test_annotations_in_the_published_form_and_back(
    project: list[records.Row], png: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("annotations --out out")
    file = Path(f"out/{TASK}_grouped.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["key"] for line in lines] == ["p0", "p1"]
    first = lines[0]["results"][1]
    assert (first["unedit_area"], first["edit_area"]) == ({"ssim": 0.75}, {"face_ID_sim": 0.5})
    assert first["instruction"] == "Remove the cup"
    assert (Path("out") / first["source_image_path"]).read_bytes() == png(0)
    assert first["edited_image_path"] == "images/edited/good/p0.png"
    assert (Path("out") / first["edited_image_path"]).read_bytes() == png(10)
    run(f"grouped --from {file} --out back.parquet")
    assert records.read(Path("back.parquet"), "annotations") == project


def test_a_file_of_the_published_system_is_read(project: list[records.Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no more than the published fields; a missing value is null, "None" or NaN."""
    run("annotations --out out")
    file = Path(f"out/{TASK}_grouped.jsonl")
    line = json.loads(file.read_text().splitlines()[0])
    for result, value in zip(line["results"], (0.25, "None"), strict=True):
        del result["editjudge"]
        result["unedit_area"] = {"ssim": value, "lpips": float("nan")}
    file.write_text(json.dumps(line))
    run(f"grouped --from {file} --out back.parquet")
    bad, good = records.read(Path("back.parquet"), "annotations")
    assert (bad["model"], good["model"]) == ("bad", "good")
    values = {each["measure"]: (each["value"], each["reason"]) for each in good["measures"]}
    none = (None, "no value was given")
    assert values == {"ssim": none, "lpips": none, "face_ID_sim": (0.5, None)}
    assert [bad[name] for name in ("source_sha256", "edit_sha256")] == [
        project[0][n] for n in ("source_sha256", "edit_sha256")
    ]
    assert bad["change"] is None
    rule = tiers.AreaRule("edit_area", "face_ID_sim", 1, 0.6, -0.2)
    assert len(tiers.edited([bad, good], 1.0, tiers.Counter())) == 2, "an unknown change is no reason to leave it out"
    assert tiers.build_pairs(tiers.edited([bad, good], 1.0, tiers.Counter()), [rule], mode="three_tiers").reason
    for text, told in (
        (json.dumps({"key": "a", "results": {"winner": "Image A"}}), "line 1: a pair that a VLM judged"),
        (json.dumps({"key": "a", "results": [{}]}), "line 1: a result with edited_image_path expected"),
        (json.dumps(line | {"results": line["results"][:1] * 2}), "line 1: a model stands twice"),
        (json.dumps(line).replace("images/source", "nowhere"), "line 1: no source image nowhere/p0.png"),
        ("{", "line 1: not JSON"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=told):
            run(f"grouped --from {file} --out back.parquet")
