"""Tables of ratings: published forms, people's table, and what is wrong with a record."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editjudge.core.tables import RowError
from editjudge.labels import ratings_data
from editjudge.labels.data_settings import RatingsSource

NAMES = ("source", "edited", "instruction", "type")


class To:
    """Where images go."""

    def __init__(self) -> None:
        self.report: dict[str, Any] = {}
        self.images: list[bytes] = []

    def add(self, image: bytes) -> tuple[str, str]:
        self.images.append(image)
        return f"data/x.parquet/{len(self.images)}", f"{len(self.images):064x}"


@pytest.fixture
def folder(tmp_path: Path, png: Callable[..., bytes]) -> Path:
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
    to = To()
    setting = RatingsSource(
        source="ratings", path=table(folder / "r.jsonl", rows), people=str(folder / "people.csv"), test_share=0.0
    )
    found = {row["key"]: row for row in ratings_data.rows(setting, to)}
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
        ratings_data.scores_of(values)
