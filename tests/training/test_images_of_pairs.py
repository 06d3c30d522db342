"""Images by name out of Parquet files, in any order and with bounded memory."""

from pathlib import Path

import pyarrow as pa
import pytest
import training_pairs
from pictures import png

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


def test_each_image_comes_from_its_place_and_few_groups_are_kept():
    pairs = [training_pairs.pair(i) for i in (190, 0, 130, 1, 70, 131)]
    names = [samples.names_of(pair) for pair in pairs]
    shown = samples.PictureFiles((name for three in names for name in three), most=3 * ROWS * 100)
    for _ in range(2):
        for pair, three in zip(pairs, names, strict=True):
            found = [shown(name).decode().split() for name in three]
            assert found == [[model, pair["prompt"]] for model in ("source", pair["model_a"], pair["model_b"])]
            assert len(shown.kept) <= 3
            assert (len(shown.kept) - 1) * ROWS * 100 < shown.held <= 3 * ROWS * 100
    assert len(shown.places) == 3 * len(pairs)


def test_a_group_is_read_once_while_it_is_kept(monkeypatch: pytest.MonkeyPatch):
    read, real = [], samples.read_group

    def counted(group: samples.Group) -> pa.ChunkedArray:
        read.append(group)
        return real(group)

    monkeypatch.setattr(samples, "read_group", counted)
    names = [f"data/pools/{training_pairs.TASK}.parquet/p{i}" for i in range(GROUPS * ROWS)]
    shown = samples.PictureFiles(names, most=1)
    for name in names:
        assert shown(name)
    assert [number for _, number in read] == [0, 1, 2]


def test_an_image_that_is_not_there_is_empty_and_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    for name in ("good/subject_remove.parquet/p7", "bad/subject_remove.parquet/none"):
        assert samples.PictureFiles([f"data/candidates/{name}"])(f"data/candidates/{name}") == b""
    (tmp_path / "x.parquet").write_bytes(png(1))
    for name, told in (("missing", r"missing\.parquet not found"), ("x", r"x\.parquet: not readable as Parquet")):
        with pytest.raises(ContractError, match=told):
            samples.PictureFiles([f"{tmp_path}/{name}.parquet/p1"])
