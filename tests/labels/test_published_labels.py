"""EditReward-Data in its published form, and tables of ratings: what becomes rows, and what is dropped and why."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from pictures import KeptImages

from editjudge.core import records
from editjudge.core.settings import read
from editjudge.core.tables import RowError
from editjudge.labels import published as data
from editjudge.labels.rows import EditRewardSource, RatingsSource

NAMES = ("source", "edited", "instruction", "type")
PICTURES = {f"p/{name}.png": seed for seed, name in enumerate(("source", "a", "b", "c"))}


def record(**more: Any) -> dict[str, Any]:
    """A record as published: people preferred path1."""
    scores = {"model1_dim1_score": 4, "model1_dim2_score": 3, "model2_dim1_score": 2, "model2_dim2_score": 3}
    overall = {"model1_overall_score": 7, "model2_overall_score": 5}
    base = {"prompt": "Make the cup red.", "choice_dist": None, "confidence": None, "path_src": "p/source.png"}
    return base | {"path1": "p/a.png", "path2": "p/b.png", "model1": "m", "model2": "n"} | scores | overall | more


def tie(a: tuple[float | None, float | None], b: tuple[float | None, float | None]) -> dict[str, Any]:
    names = ("model1_dim1_score", "model1_dim2_score", "model2_dim1_score", "model2_dim2_score")
    return record(tie_case=True) | dict(zip(names, (*a, *b), strict=True))


def test_a_preference_is_one_sample_and_a_tie_that_disagrees_two_opposite_ones() -> None:
    [won] = data.read(record(tie_case=False), "k")
    assert (won.winner, won.preferred, won.rule) == ("Image A", "p/a.png", data.PREFERRED)
    assert won.a.scores == {"instruction_following": 4, "visual_quality": 3}
    assert won.b.scores == {"instruction_following": 2, "visual_quality": 3}
    first, second = data.read(tie((4, 2), (3, 3)), "k")
    assert (first.winner, second.winner) == ("Image A", "Image B")
    assert "better in instruction following" in first.rule
    assert "better in visual quality" in second.rule
    assert (first.key, second.key) == ("k.1", "k.2")
    first, second = data.read(tie((2, 4), (3, 3)), "k")
    assert (first.winner, second.winner) == ("Image B", "Image A")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (tie((4, 2), (4, 2)), "tie with equal dimension scores"),
        (tie((4, 2), (3, 2)), "tie with equal dimension scores"),
        (tie((4, 3), (3, 2)), "tie whose dimensions agree"),
        (tie((4, None), (3, 2)), "tie without the scores of both dimensions"),
        (record(prompt=" "), "no prompt"),
        (record(path2=None), "no path2"),
        (record(path2="p/a.png"), "an edit against itself"),
        (record(model1_dim1_score="high"), "a score that is no number"),
    ],
)
def test_what_cannot_be_used_has_a_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowError) as error:
        data.read(given, "k")
    assert error.value.reason == reason


@pytest.mark.parametrize(
    ("case", "is_tie"), [(True, True), (False, False), (None, False), ("no", False), ("both", True)]
)
def test_tie_case(case: Any, is_tie: bool) -> None:
    assert data.is_tie({"tie_case": case}) is is_tie


def test_duplicates_go_and_contradictions_take_both_with_them() -> None:
    opposite = record(path1="p/b.png", path2="p/a.png")
    other = record(path2="p/c.png")
    read = [data.read(each, f"k{n}") for n, each in enumerate((record(), record(), opposite, other))]
    kept, dropped = data.once(read)
    assert [sample.key for sample in kept] == ["k3"]
    assert dropped == [("duplicate", "k1", "k0"), ("duplicate with another label", "k2", "k0")]
    turned = tie((3, 3), (4, 2)) | {"path1": "p/b.png", "path2": "p/a.png"}
    kept, dropped = data.once([data.read(tie((4, 2), (3, 3)), "t0"), data.read(turned, "t1")])
    assert [sample.key for sample in kept] == ["t0.1", "t0.2"]
    assert [reason for reason, *_ in dropped] == ["duplicate"]


def test_a_published_file_becomes_rows_of_the_contract(tmp_path: Path, png: Any) -> None:
    (tmp_path / "p").mkdir()
    for name, seed in PICTURES.items():
        (tmp_path / name).write_bytes(png(seed))
    (tmp_path / "p/broken.png").write_bytes(b"none")
    lines = [record(), tie((4, 2), (3, 3)) | {"path2": "p/c.png"}, tie((4, 2), (4, 2))]
    lines += [
        record(path2="p/gone.png"),
        record(path2="p/broken.png"),
        record(path2="p/c.png", prompt="Another one."),
    ]
    lines += [record(prompt="Another one.", path1="p/c.png", path2="p/a.png")]
    (tmp_path / "train.json").write_text(json.dumps(lines))
    setting = read("scorer_data.x", EditRewardSource, {"source": "editreward", "path": str(tmp_path / "train.json")})
    images = KeptImages()
    rows = list(data.preferences(setting, images))
    records.check("scorer_data", rows, "x")
    assert len(rows) == 3
    won, *tied = rows
    first = won["winner"] == "Image A"
    assert won["model_a" if first else "model_b"] == "m"
    assert won["overall_a" if first else "overall_b"] == 7
    assert won["scores_a" if first else "scores_b"][0] == {"dimension": "instruction_following", "score": 4}
    preferred = [row["edit_a" if row["winner"] == "Image A" else "edit_b"] for row in tied]
    assert len(set(preferred)) == 2
    reasons = {each["reason"]: each["samples"] for each in images.report["dropped"]}
    assert reasons == {
        "tie with equal dimension scores": 1,
        "an image is missing": 1,
        "a broken image": 1,
        "duplicate with another label": 1,
    }
    [again] = images.report["duplicates"]
    assert again["reason"] == "duplicate with another label"
    assert again["key"].endswith("-00006")
    assert again["earlier"].endswith("-00005")
    assert images.report["samples_of_ties"] == 2


@pytest.fixture
def folder(tmp_path: Path, png: Any) -> Path:
    for n in range(4):
        (tmp_path / f"{n}.png").write_bytes(png(n))
    (tmp_path / "broken.png").write_bytes(b"no image")
    return tmp_path


def table(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def scores(row: dict[str, Any]) -> dict[str, float]:
    return {each["dimension"]: each["score"] for each in row["scores_a"]}


def test_a_table_and_peoples(folder: Path):
    first = dict(zip(NAMES, ("0.png", "1.png", "Add a cup", "add"), strict=True))
    rows = [
        first | {"key": "a", "scores": [5, 4, 3], "model": "flux"},
        first | {"key": "b", "edited": "2.png", "scores": {"adherence": 1, "quality": 2, "preservation": "3"}},
        first | {"key": "c", "type": "color_alter", "adherence": 4, "quality": 4, "preservation": 4},
        first | {"key": "d", "edited": "broken.png", "scores": [1, 1, 1]},
        first | {"key": "e", "edited": "none.png", "scores": [1, 1, 1]},
        first | {"key": "f", "scores": [1, 1]},
        first | {"key": "g", "scores": [1, 1, 6]},
        first | {"key": "h", "instruction": " ", "scores": [1, 1, 1]},
    ]
    with (folder / "people.csv").open("w") as file:
        out = csv.writer(file)
        out.writerow(["key", *NAMES, "adherence", "quality", "preservation"])
        for given in ((5, 4, 2), (4, 4, 1), (4, 3, 1)):
            out.writerow(["p", "3.png", "1.png", "Remove it", "remove", *given])
    to = KeptImages()
    setting = RatingsSource(
        source="ratings", path=table(folder / "r.jsonl", rows), people=str(folder / "people.csv"), test_share=0.0
    )
    found = {row["key"]: row for row in data.ratings(setting, to)}
    assert list(found) == ["ratings-a", "ratings-b", "ratings-c", "people-p"]
    assert scores(found["ratings-a"]) == {"adherence": 5.0, "quality": 4.0, "preservation": 3.0}
    assert scores(found["ratings-b"]) == {"adherence": 1.0, "quality": 2.0, "preservation": 3.0}
    assert scores(found["people-p"]) == {"adherence": 4.0, "quality": 4.0, "preservation": 1.0}, "means, rounded"
    assert [(row["part"], row["rule"], row["task"]) for row in found.values()] == [
        ("train", "ratings", "add"), ("train", "ratings", "add"), ("train", "ratings", "adjust"),
        ("test", "people", "remove"),
    ]  # fmt: skip
    assert found["ratings-a"]["model_a"] == "flux"
    assert found["ratings-a"]["edit_b"] is None
    assert found["ratings-a"]["prompt"] == found["ratings-b"]["prompt"] != found["people-p"]["prompt"]
    assert sum(each["rows"] for each in to.report["dropped"]) == 5
    assert {"a broken image", "scores that cannot be read", "a score outside of 1..5"} <= {
        each["reason"] for each in to.report["dropped"]
    }


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scores": "[1, 2"}, "cannot be read"),
        ({"scores": 3}, "cannot be read"),
        ({"adherence": 1, "quality": 2}, "without a score"),
        ({"scores": [1, None, 2]}, "without a score"),
        ({"scores": [1, float("nan"), 2]}, "outside of 1..5"),
        ({"scores": [0, 1, 2]}, "outside of 1..5"),
    ],
)
def test_scores_that_are_none(values: dict[str, Any], words: str):
    with pytest.raises(RowError, match=words):
        data.scores_of(values)
