"""Stage train_scorer: as one and as two processes, what it reports and what it refuses."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lessons
import numpy as np
import pytest
import torch
import training_pairs
import yaml
from pictures import png

from editjudge.core import records
from editjudge.core.errors import UserError
from editjudge.judges.protocol import Edit
from editjudge.judges.scorers.checkpoint import CheckpointScorer
from editjudge.labels.rows import ImageSink, LabelledEdit
from editjudge.labels.rows import row as row_of
from editjudge.models.serve.launch import free_port
from editjudge.stages import train_scorer
from editjudge.training import runs
from editjudge.training.samples import Trained, stored_images
from editjudge.training.settings import TrainRaterSetting

SMALL = {
    "lora_rank": 4, "lora_alpha": 8, "head_sizes": [16], "learning_rate": 1e-3, "max_steps": 6, "batch_size": 4,
    "global_batch": 4, "log_every": 1, "eval_every": 3, "save_every": 2, "held_out_share": 0.2, "data": "made",
}  # fmt: skip
Project = Callable[..., Path]


def rows(count: int) -> tuple[list[records.Row], list[records.Row]]:
    """Pairs of which the edit that is the source is the better one, the last quarter to test; and their images."""
    made, pictures = [], list[records.Row]()
    images = ImageSink(Path("data/scorer_images/made.parquet"), pictures.append)
    for n in range(count):
        names = [images.add(png(seed, 32, 32)) for seed in (n, 1000 + n)]
        good, bad = (
            LabelledEdit(*name, None, dict.fromkeys(("instruction_following", "visual_quality"), score), score)
            for name, score in zip(names, (4.0, 1.0), strict=True)
        )
        more = {"part": "test" if n >= count * 3 // 4 else "train", "origin": f"photo{n % 3}", "rule": "made"}
        more["winner"] = "Image A" if n % 2 else "Image B"
        sides = (good, bad) if n % 2 else (bad, good)
        made.append(row_of(f"k{n}", f"p{n}", "any", "Remove the cup", names[0], *sides, **more))
    return made, pictures


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """project(name, **settings): a folder with params, data and the tiny base, and the working directory."""

    def make(name: str, **settings: object) -> Path:
        given = lessons.SCORER | SMALL | settings
        folder = training_pairs.project(tmp_path / name, {"train_scorer": {"tiny": given}}, monkeypatch)
        pairs, pictures = rows(20)
        records.write(folder / "data/scorer_data/made.parquet", pairs, "scorer_data")
        records.write(folder / "data/scorer_images/made.parquet", pictures, "scorer_images")
        return folder

    with training_pairs.one_thread(monkeypatch):
        yield make


def losses(folder: Path) -> np.ndarray:
    return np.loadtxt(folder / "plots/train_scorer/tiny_loss.csv", delimiter=",", skiprows=1, ndmin=2)[:, 1]


READ = ("configs/deepspeed", "constraints.txt", "params.yaml", "stages")
ROOMS = ("core", "engine", "judges/scorers", "models", "stages/train_scorer.py", "training")


@pytest.mark.nightly(*READ, *(f"src/editjudge/{name}" for name in ROOMS))
def test_two_processes_train_as_one(project: Project):
    whole = project("whole", head_dropout=0.0)
    runs.carry_out(train_scorer.job("tiny"))
    assert not any((whole / "work/train_scorer").iterdir()), "nothing is left of a training that has ended"
    [found] = json.loads((whole / "metrics/train_scorer/tiny.json").read_text())
    assert found["details"][0]["rows"] == {"held_out": 5, "tested": 5, "trained_on": 10}
    assert [row["test"]["n"] for row in found["agreement"]] == [5, 5, 5]
    for row in found["agreement"]:  # the better edit is the source; all are asked for the same
        *pixels, other = row["baselines"]
        assert [each["accuracy"] for each in pixels] == [1, 1], "less change is better in all"
        assert (other["accuracy"], other["lead"]["difference"]) == (row["test"]["accuracy"], 0)
        assert row["above_baselines"] is False

    for stage in ("zero2", "zero3"):
        launch = {"processes": 2, "port": free_port("127.0.0.1", 0)}
        two = project(stage, head_dropout=0.0, deepspeed=stage, launch=launch)
        runs.carry_out(train_scorer.job("tiny"))
        np.testing.assert_allclose(losses(two), losses(whole), rtol=0, atol=1e-4)
        told = json.loads((two / "metrics/train_scorer/tiny.json").read_text())[0]
        assert told["agreement"] == found["agreement"]


def rated(count: int) -> list[records.Row]:
    """The same edits, one a row, with ratings; the last quarter to test, people having rated the half of it."""
    known = [(n, {"adherence": 5.0 - 4 * (n % 2), "quality": 3.4, "preservation": 1.6}) for n in range(count)]
    own = [row | {"edit_b": None, "sha256_b": None, "scores_b": [], "winner": None} for row in rows(count)[0]]
    return [
        row | {"scores_a": [{"dimension": name, "score": score} for name, score in scores.items()]}
        | {"rule": "people" if n % 4 == 3 else "probe", "task": "subject_remove"}
        for row, (n, scores) in zip(own, known, strict=True)
    ]  # fmt: skip


def rater_project(project: Project, name: str) -> Path:
    folder = project(name)
    small = {key: value for key, value in SMALL.items() if key != "head_sizes"}
    (folder / "params.yaml").write_text(yaml.safe_dump({"train_scorer": {"tiny": lessons.RATER | small}}))
    records.write(folder / "data/scorer_data/made.parquet", rated(20), "scorer_data")
    return folder


def test_a_rater_is_trained_and_asked_beside_its_base(project: Project, monkeypatch: pytest.MonkeyPatch):
    folder = rater_project(project, "one")
    train = runs.train

    def killed_before_its_tests(*arguments: Any) -> None:
        train(*arguments)
        raise RuntimeError("killed")

    monkeypatch.setattr(runs, "train", killed_before_its_tests)
    with pytest.raises(RuntimeError, match="killed"):
        runs.carry_out(train_scorer.job("tiny"))
    monkeypatch.setattr(runs, "train", train)
    runs.carry_out(train_scorer.job("tiny"))
    [found] = json.loads((folder / "metrics/train_scorer/tiny.json").read_text())
    assert found["details"][0]["rows"] == {"held_out": 5, "tested": 5, "trained_on": 10}
    assert {(row["truth"], row["dimension"]) for row in found["agreement"]} == {
        (truth, name) for truth in ("people", "probe") for name in ("adherence", "quality", "preservation", "overall")
    }
    assert [row["test"]["n"] for row in found["agreement"]] == [2] * 4 + [3] * 4
    assert found["details"][0]["unscored_untrained"] == 5, "the base has never seen the question"
    assert (folder / "models/scorers/tiny/model.safetensors").is_file()
    assert not any((folder / "work/train_scorer").iterdir())


def test_rows_that_no_rater_can_learn_from_are_named(project: Project):
    rater_project(project, "rows")
    setting = train_scorer.job("tiny").setting
    assert isinstance(setting, TrainRaterSetting)
    every = rated(4)
    made = train_scorer.ratings_of([*every, rows(4)[0][0]], setting)
    expected = [(f"k{n}", "remove", (1 if n % 2 else 5, 3, 2)) for n in range(4)]
    assert [(sample.key, sample.type, sample.scores) for sample in made] == expected
    every[0]["scores_a"][0]["score"] = 5.5
    with pytest.raises(UserError, match=r"k0: scores .* are not in 1\.\.5"):
        train_scorer.ratings_of(every, setting)
    with pytest.raises(UserError, match="no single edit with a score of each of"):
        train_scorer.ratings_of(rows(4)[0], setting)


def test_images_and_dimensions_that_are_not_there_are_named(project: Project):
    folder = project("broken")
    job = train_scorer.job("tiny")
    pairs = job.read_rows()
    pairs[5]["edit_b"] = f"data/scorer_images/made.parquet/{'1' * 64}"
    words = r"1 training samples? cannot be used \(train_scorer.tiny.skip_failed\): k5: ed"
    with pytest.raises(UserError, match=words):
        runs.list_skipped(job, pairs, folder / "run")
    with pytest.raises(UserError, match="no score of quality; did you mean visual_quality"):
        train_scorer.samples_of(pairs, lessons.scorer_setting(dimensions=["quality"]))
    with pytest.raises(UserError, match=r"no key .train_scorer\.tinny.; train_scorer: did you mean tiny"):
        train_scorer.job("tinny")


def test_the_report_counts_what_is_known_alone_beside_what_reads_no_words(project: Project, base_dir: Path):
    """Four pairs: known in both respects, tied in one, known as a whole alone, and unknown. B, A, B, A changes less."""
    lessons.write_scorer(base_dir, project("report") / "model")
    setting = lessons.scorer_setting(aggregation="sum")
    known = [((2, 1), (1, 2), "Image A"), ((1, 1), (1, 3), "Tie"), ((), (), "Image B"), ((), (), None)]
    pairs = rows(4)[0]
    for n, (pair, (a, b, winner)) in enumerate(zip(pairs, known, strict=True)):
        pair |= {"winner": winner, "overall_a": None, "overall_b": None, "origin": f"photo{n}"}
        for side, scores in (("scores_a", a), ("scores_b", b)):
            each = zip(setting.dimensions, map(float, scores), strict=False)
            pair[side] = [{"dimension": name, "score": score} for name, score in each]
    untrained = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # of A and B
    trained = untrained + torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    answers = [[[means.tolist()]] * 4 for means in (untrained, trained)]
    told = Trained([], [pair["key"] for pair in pairs], answers, (1, 0, 4), 1, 1, None, 1.0, 1, 1)
    found, _ = train_scorer.report_of_scorer(setting, Path("model"), pairs, told, Path("base"))
    following, quality, overall = found["agreement"]
    assert (following["test"]["n"], following["test"]["accuracy"], following["gain"]["difference"]) == (1, 1, 0)
    assert (quality["test"]["n"], quality["test"]["correct"]) == (2, 2)
    assert (overall["test"]["n"], overall["test"]["correct"]) == (2, 1)
    assert overall["test_untrained"]["correct"] == 0, "equal scores name no side"
    for row, right in ((following, 1), (quality, 1), (overall, 1)):
        assert [each["correct"] for each in row["baselines"][:2]] == [right, right], "more change, or less, as suits it"
        assert [each["baseline"] for each in row["baselines"]] == list(train_scorer.BASELINES)
    assert (quality["baselines"][0]["lead"]["difference"], quality["above_baselines"]) == (0.5, False)
    samples = train_scorer.samples_of(pairs, setting)
    assert train_scorer.by_pixels(setting, samples)["pixel_difference"]["k0"] == [1] * 3, "B is the source"
    samples = [replace(sample, instruction=f"{sample.instruction} {sample.key}") for sample in samples]
    asked = train_scorer.by_other_words(setting, Path("model"), samples)["k0"]
    one, images = samples[0], stored_images((samples[0].source, samples[0].a, samples[0].b))
    edits = [Edit("Remove the cup k1", images[one.source], images[edit]) for edit in (one.a, one.b)]
    scores = CheckpointScorer.load(Path("model")).score(edits)
    a, b = (np.array([*score.dimensions.values(), score.overall]) for score in scores)
    assert asked == np.sign(a - b).tolist(), "in the next prompt's words"


def test_single_edits_of_one_question_are_tested_in_pairs(project: Project, base_dir: Path):
    """Of two photographs two edits each, the better one first; of the first a third one, as good as the second."""
    lessons.write_scorer(base_dir, project("singles") / "model")
    single = {"edit_b": None, "sha256_b": None, "scores_b": [], "overall_b": None, "winner": None}
    first, second = rows(2)[0]
    edits = [(first, "b"), (first, "a"), (second, "a"), (second, "b"), (first, "a")]
    singles = [
        row | {f"{field}_a": row[f"{field}_{side}"] for field in ("edit", "sha256", "scores", "overall")}
        | single | {"key": f"e{n}"}
        for n, (row, side) in enumerate(edits)
    ]  # fmt: skip
    setting = lessons.scorer_setting()
    samples = train_scorer.samples_of([first | {"key": "pair"}, *singles], setting)
    pairs, places = train_scorer.in_pairs(samples)
    assert [pair.key for pair in pairs] == ["pair", "e0 e1", "e0 e4", "e1 e4", "e2 e3"]
    assert places.tolist() == [[0, 0], [1, 2], [1, 5], [2, 5], [3, 4]]
    assert pairs[1].scores == (4.0, 4.0, 4.0, 1.0, 1.0, 1.0)
    said = [[[[score] * 2] * 2] for score in (2.0, 1.0, 0.0, 1.0, 3.0)]  # so it is right of e0 e1 alone
    told = Trained([], [row["key"] for row in singles], [said[::-1], said], (1, 0, 5), 1, 1, None, 1.0, 1, 1)
    found, _ = train_scorer.report_of_scorer(setting, Path("model"), singles, told, Path("base"))
    for row in found["agreement"]:
        assert (row["test"]["n"], row["test"]["correct"]) == (3, 1)
        assert [each["n"] for each in row["baselines"]] == [3, 3, 3]
