"""Images by name out of Parquet files, in any order."""

import hashlib
from pathlib import Path

import pytest
import training_pairs
from pictures import png

from editjudge.core import records
from editjudge.core.records import ContractError
from editjudge.training import samples

GROUPS, ROWS = 3, 64


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three row groups of each file; the images tell their file and row, 100 bytes each."""
    made = tmp_path_factory.mktemp("pairs")
    names = [(model, f"p{i}") for model in ("source", "good", "bad") for i in range(GROUPS * ROWS)]
    images: dict[tuple[str, str], bytes | None] = {name: f"{name[0]} {name[1]}".ljust(100).encode() for name in names}
    training_pairs.write(made, [], images | {("good", "p7"): None})
    return made


@pytest.fixture(autouse=True)
def _here(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written)


def test_each_image_comes_from_its_place_and_a_group_is_read_once_while_it_is_kept():
    pairs = [training_pairs.pair(i) for i in (190, 0, 130, 1, 70, 131)]
    names = [samples.names_of(pair) for pair in pairs]
    stored = samples.stored_images(name for three in names for name in three)
    assert len(stored) == 3 * len(pairs)
    records._column.cache_clear()
    for _ in range(2):
        for pair, three in zip(pairs, names, strict=True):
            found = [bytes(stored[name]).decode().split() for name in three]
            assert found == [[model, pair["prompt"]] for model in ("source", pair["model_a"], pair["model_b"])]
    assert records._column.cache_info().misses == 3 * GROUPS


def test_an_image_that_is_not_there_is_empty_and_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    failed, absent = (f"data/candidates/{model}/subject_remove.parquet/{key}" for model, key in
                      (("good", "p7"), ("bad", "none")))  # fmt: skip
    stored = samples.stored_images([failed, absent])
    assert bytes(stored[failed]) == b""
    assert absent not in stored
    told = samples.faulty({"k": {"source": (absent, ""), "a": (failed, "")}}, "pairs")
    assert told["k"].partition(":")[0] == "source", "of several the first is named"
    (tmp_path / "x.parquet").write_bytes(png(1))
    for name, told in (("missing", r"missing\.parquet not found"), ("x", r"x\.parquet: not readable as Parquet")):
        with pytest.raises(ContractError, match=told):
            samples.stored_images([f"{tmp_path}/{name}.parquet/p1"])


def test_an_image_may_be_as_slender_as_the_processor_takes():
    shown = [png(1, side, 1) for side in (200, 201)]
    told = [samples.fault(data, hashlib.sha256(data).hexdigest()) for data in shown]
    assert told == [None, "1 x 201 pixels, more slender than 1 to 200"]
