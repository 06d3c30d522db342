"""The training pairs as one file with images, read back by the benchmark's reader and by datasets."""

import hashlib
import json
from pathlib import Path

import datasets
import numpy as np
import program
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import training_pairs
from pictures import png
from training_pairs import TASK

from editjudge.benchmarks.preferences import forms
from editjudge.cli.main import main
from editjudge.core import images, records
from editjudge.core.errors import FileError, UserError
from editjudge.core.tables import TableError
from editjudge.judges.protocol import Score
from editjudge.labels import tiers
from editjudge.rewards import curation as curate
from tools import exchange, grouped

COMMAND = ("export", "pairs", "--out", "out/pairs.parquet")


@pytest.fixture
def project(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shown = {(model, f"p{i}"): png(100 * n + i) for i in range(70) for n, model in enumerate(("source", "good", "bad"))}
    pairs = [training_pairs.pair(i) for i in range(70)]
    pairs[0] |= {"damage_a": 0.0, "damage_b": 2.5}
    pairs[69] |= {"shown": [{"name": "source_2", "sha256": "0" * 64}]}  # the published form has one source
    training_pairs.write(workdir, pairs, shown)
    return workdir


def test_exported_pairs_are_a_benchmark_and_a_data_set(project: Path):
    program.run(COMMAND)
    assert [path.name for path in (project / "out").iterdir()] == ["pairs.parquet"]
    items = forms.load("ours", {"form": "vcreward", "path": str(project / "out/pairs.parquet")})
    assert len(items) == 69
    assert (items[1].key, items[1].models, items[1].verdict) == ("k1", ("bad", "good"), "Image B")
    assert (items[1].source, items[1].a, items[1].b) == (png(1), png(201), png(101))
    assert items[1].cluster == "a photo"
    assert (items[0].damages, items[1].damages) == ((0.0, 2.5), None)
    loaded = datasets.load_dataset("parquet", data_files="out/pairs.parquet", split="train", cache_dir="cache")
    assert isinstance(loaded.features["source_image"], datasets.Image)
    assert np.array_equal(np.asarray(loaded[1]["edited_images"][0]), images.decode(png(201)))


def test_a_pair_without_its_image_is_named_in_one_line(project: Path):
    missing = training_pairs.with_sums(training_pairs.pair(0) | {"prompt": "p99"}, {})
    training_pairs.records.write(project / "data/train_pairs.parquet", [missing], "train_pairs")
    words = r"^export: data/pools/subject_remove\.parquet: no image of p99, for the pair k0$"
    with pytest.raises(SystemExit, match=words):
        main(COMMAND)
    assert not list((project / "out").iterdir())


@pytest.fixture
def selection(workdir: Path) -> None:
    """A selection of `editjudge curate`, four edits with scores of 1 to 4."""
    kept = []
    for n, score in enumerate((4.0, 3.0, 2.0, 1.0)):
        shown = {name: (lambda seed=seed: png(seed)) for name, seed in (("source", n), ("edited", n + 10))}
        kept.append(curate.CandidateEdit(f"k{n}", "m", "t", f"Do {n}", **shown, score=Score(score, {"quality": score})))
    curate.write(workdir / "best", kept, [])


def test_a_selection_becomes_what_an_editor_is_trained_from(selection: None):
    program.run("export edits --from best/selection.parquet --out edits --range 1 4")
    found = datasets.load_dataset("edits", split="train", cache_dir="cache")
    rows = sorted(found, key=lambda row: row["key"])
    assert [row["quality"] for row in rows] == [5, 4, 2, 1]
    assert rows[0]["instruction"] == "Do 0. The image quality is 5 out of five."
    for n, row in enumerate(rows):
        np.testing.assert_array_equal(np.asarray(row["source_image"].convert("RGB")), images.decode(png(n)))
        np.testing.assert_array_equal(np.asarray(row["edited_image"].convert("RGB")), images.decode(png(n + 10)))


def test_a_selection_without_calibrated_scores_needs_a_range(selection: None):
    with pytest.raises(FileError, match="k0 has no calibrated score: say --range LOW HIGH"):
        exchange.export_edits(file=Path("best/selection.parquet"), out=Path("out"))
    with pytest.raises(FileError, match="the first must be below the second"):
        exchange.export_edits(file=Path("best/selection.parquet"), out=Path("out"), bounds=(4.0, 1.0))
    pq.write_table(pa.table({"key": ["a"]}), "other.parquet")
    with pytest.raises(TableError, match="no column instruction"):
        exchange.export_edits(file=Path("other.parquet"), out=Path("out"))


@pytest.fixture
def annotated(workdir: Path) -> list[records.Row]:
    shown = {(model, f"p{i}"): png(10 * n + i) for i in range(2) for n, model in enumerate(("source", "good", "bad"))}
    training_pairs.write(workdir, [training_pairs.pair(0)], shown)
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in shown.items()}
    common = {"task": TASK, "status": "done", "reason": None, "change": 3.5, "damage": 1.25, "edited_area_ratio": 0.2}
    ssim = {"area": "unedit_area", "measure": "ssim", "reason": None}
    face = {"area": "edit_area", "measure": "face_ID_sim", "value": 0.5, "reason": None}
    rows = [
        common
        | {"key": f"p{i}", "model": model, "measures": [ssim | {"value": value}, face]}
        | {"source_sha256": sums["source", f"p{i}"], "edit_sha256": sums[model, f"p{i}"]}
        for i in range(2)
        for model, value in (("bad", 0.25), ("good", 0.75))
    ]
    rows[3] |= {"status": "failed", "reason": "no box", "change": None, "edited_area_ratio": None, "measures": []}
    records.write(Path(f"data/annotations/{TASK}.parquet"), rows, "annotations")
    records.write(Path(f"data/pair_verdicts/{TASK}.parquet"), [], "pair_verdicts")
    Path("params.yaml").write_text(f"tasks: {{{TASK}: object_centric}}\n")
    return rows


def test_annotations_in_the_published_form_and_back(annotated: list[records.Row]) -> None:
    grouped.write(out=Path("out"))
    file = Path(f"out/{TASK}_grouped.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["key"] for line in lines] == ["p0", "p1"]
    first = lines[0]["results"][1]
    assert (first["unedit_area"], first["edit_area"]) == ({"ssim": 0.75}, {"face_ID_sim": 0.5})
    assert first["instruction"] == "Remove the cup"
    assert (Path("out") / first["source_image_path"]).read_bytes() == png(0)
    assert first["edited_image_path"] == "images/edited/good/p0.png"
    assert (Path("out") / first["edited_image_path"]).read_bytes() == png(10)
    grouped.read(file=file, out=Path("back.parquet"))
    assert records.read(Path("back.parquet"), "annotations") == annotated


def test_a_file_of_the_published_system_is_read(annotated: list[records.Row]) -> None:
    """It has no more than the published fields; a missing value is null, "None" or NaN."""
    grouped.write(out=Path("out"))
    file = Path(f"out/{TASK}_grouped.jsonl")
    line = json.loads(file.read_text().splitlines()[0])
    for result, value in zip(line["results"], (0.25, "None"), strict=True):
        del result["editjudge"]
        result["unedit_area"] = {"ssim": value, "lpips": float("nan")}
    file.write_text(json.dumps(line))
    grouped.read(file=file, out=Path("back.parquet"))
    bad, good = records.read(Path("back.parquet"), "annotations")
    assert (bad["model"], good["model"]) == ("bad", "good")
    values = {each["measure"]: (each["value"], each["reason"]) for each in good["measures"]}
    none = (None, "no value was given")
    assert values == {"ssim": none, "lpips": none, "face_ID_sim": (0.5, None)}
    assert bad["source_sha256"] == annotated[0]["source_sha256"]
    assert bad["edit_sha256"] == annotated[0]["edit_sha256"]
    assert bad["change"] is None
    rule = tiers.AreaRule("edit_area", "face_ID_sim", 1, 0.6, -0.2)
    assert len(tiers.edited([bad, good], 1.0, tiers.Counter())) == 2, "an unknown change is no reason to leave it out"
    assert tiers.build_pairs(tiers.edited([bad, good], 1.0, tiers.Counter()), [rule], mode="three_tiers")[0] == []
    for text, told in (
        (json.dumps({"key": "a", "results": {"winner": "Image A"}}), "line 1: a pair that a VLM judged"),
        (json.dumps({"key": "a", "results": [{}]}), "line 1: a result with edited_image_path expected"),
        (json.dumps(line | {"results": line["results"][:1] * 2}), "line 1: a model stands twice"),
        (json.dumps(line).replace("images/source", "nowhere"), "line 1: no source image nowhere/p0.png"),
        ("{", "line 1: not JSON"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=told):
            grouped.read(file=file, out=Path("back.parquet"))
