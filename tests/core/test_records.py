"""Tables of our own contracts, and tables of strangers: small files that unfold, names that stand twice."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each_row

from editjudge.core import params, records, tables
from editjudge.core.tables import TableError
from tools.trials import fuzz


def pair(key: str = "color_alter-train-00001", **changes: object) -> dict:
    row = {"key": key, "task": "color_alter", "instruction": "Make the cup green.", "edit": None, "source": "probe"}
    row |= {"image": b"\x89PNG", "origin": "coffee", "regions": [{"label": "cup", "box": [1, 2, 3, 4], "mask": None}]}
    return row | changes


def test_rows_come_back_as_they_went_and_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    rows = [pair(), pair("b", regions=[], instruction='Größer, 猫 🐈\n"quoted"')]
    records.write(tmp_path / "a.parquet", rows, "raw_pairs")
    assert records.read(tmp_path / "a.parquet", "raw_pairs") == rows
    rows = [pair(str(number)) for number in range(200)]
    shuffled = [dict(reversed(row.items())) for row in rows]
    for name, content in (("a", rows), ("b", shuffled)):
        records.write(tmp_path / name, content, "raw_pairs")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert pq.ParquetFile(tmp_path / "a").num_row_groups == 4


@each_row("change, field")
def test_a_broken_row_is_named_by_file_row_and_field(tmp_path: Path, change: dict, field: str) -> None:
    file = tmp_path / "pairs.parquet"
    file.write_bytes(b"old")
    with pytest.raises(records.ContractError, match=rf"pairs\.parquet: row 1 .*field \(?{field}"):
        records.write(file, [pair(), pair() | change], "raw_pairs")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("pairs.parquet", b"old")]


def test_a_broken_row_of_a_file_has_its_number_there(tmp_path: Path) -> None:
    rows = [pair(str(n), instruction="" if n == 150 else "Go.") for n in range(200)]
    at_once(rows, file := tmp_path / "pairs.parquet", but=["shown"])
    for first in (0, 100, 140):
        with pytest.raises(records.ContractError, match=r"pairs\.parquet: row 150 \(key '150'\), field instruction"):
            list(records.iterate(file, "raw_pairs", first=first))


@pytest.mark.parametrize("count", [0, 1, 64, 200])
def test_rows_written_as_they_come_are_the_table_written_at_once(tmp_path: Path, count: int) -> None:
    rows = [pair(str(number)) for number in range(count)]
    records.write(tmp_path / "a.parquet", iter(rows), "raw_pairs")
    assert (tmp_path / "a.parquet").read_bytes() == at_once(rows, tmp_path / "b.parquet", but=["shown"])


def at_once(rows: list[dict], file: Path, but: Sequence[str] = ()) -> bytes:
    table = pa.Table.from_pylist(rows, schema=records.arrow_schema("raw_pairs", but))
    pq.write_table(table, file, row_group_size=64, compression="zstd", store_schema=False)
    return file.read_bytes()


def test_an_optional_column_is_written_where_a_row_has_it_however_late_it_comes(tmp_path: Path) -> None:
    file, shown = tmp_path / "a.parquet", [{"name": f"source_{n}", "image": b"%d" % n} for n in (2, 3)]
    rows = [pair(str(n), **({"shown": shown} if n == 150 else {})) for n in range(200)]
    records.write(file, rows, "raw_pairs")
    assert file.read_bytes() == at_once(rows, tmp_path / "b.parquet")
    assert records.read(file, "raw_pairs") == [row | {"shown": row.get("shown")} for row in rows]
    left = records.references(list(records.iterate(file, "raw_pairs", "image"))[150])
    assert {name: bytes(image) for name, image in left.items()} == {"source_2": b"2", "source_3": b"3"}
    records.write(file, rows[:150], "raw_pairs")
    assert "shown" not in pq.read_schema(file).names
    assert {each.name for each in tmp_path.iterdir()} == {"a.parquet", "b.parquet"}


def test_large_files_have_fewer_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "GROUPS", 4)
    monkeypatch.setattr(records, "GROUP_ROWS", 100)
    records.write(file := tmp_path / "a.parquet", (pair(f"k{n}") for n in range(1_500)), "raw_pairs")
    found = pq.read_metadata(file)
    sizes = [found.row_group(n).num_rows for n in range(found.num_row_groups)]
    assert (sizes[:5], max(sizes), sum(sizes)) == ([64] * 4 + [85], 100, 1_500)
    for first in (0, 63, 64, 65, 260, 341, 420, 1_499, 1_500):
        keys = [row["key"] for row in records.iterate(file, "raw_pairs", first=first)]
        assert keys == [f"k{n}" for n in range(first, 1_500)]


def test_images_stay_where_they_are_stored_until_they_are_wanted(tmp_path, monkeypatch) -> None:
    """Row groups end with so many bytes of images; another file of the same name has its own images."""
    monkeypatch.setattr(records, "GROUP_BYTES", 4_000)
    file = tmp_path / "a.parquet"
    for letter in (b"a", b"b"):
        rows = [pair(f"k{n}", image=letter * (500 + n)) for n in range(100)]
        records.write(file, rows, "raw_pairs")
        assert pq.ParquetFile(file).num_row_groups == 13
        found = list(records.iterate(file, "raw_pairs", "image"))
        assert all(isinstance(row["image"], records.StoredImage) for row in found)
        assert [bytes(row["image"]) for row in reversed(found)] == [row["image"] for row in reversed(rows)]
        assert [row | {"image": b""} for row in found] == [row | {"image": b""} for row in rows]


def test_a_stored_image_may_be_missing_or_a_field(tmp_path: Path) -> None:
    failed = {"key": "k", "task": "t", "model": "m", "image": None, "damage": None, "status": "failed", "reason": "x"}
    done = failed | {"key": "l", "image": b"image", "status": "done", "reason": None}
    records.write(tmp_path / "c.parquet", [failed, done], "candidates")
    first, second = records.iterate(tmp_path / "c.parquet", "candidates", "image")
    assert (first["image"], bytes(second["image"])) == (None, b"image")
    shown = {"key": "k", "task": "t", "instruction": "x", "source_image": {"bytes": b"source", "path": None}}
    records.write(tmp_path / "g.parquet", [shown], "gedit_bench")
    [row] = records.iterate(tmp_path / "g.parquet", "gedit_bench", "source_image.bytes")
    assert bytes(row["source_image"]["bytes"]) == b"source"


def test_on_reading_broken_rows_missing_files_columns_and_other_formats_are_named(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([pair(), pair("bad key with spaces")], schema=records.arrow_schema("raw_pairs"))
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(records.ContractError, match=r"a\.parquet: row 1 .*field key"):
        records.read(tmp_path / "a.parquet", "raw_pairs")
    why = f"'{'x' * 300}' does not match '^[A-Za-z0-9._-]{{1,200}}$'"
    with pytest.raises(records.ContractError) as error:
        records.check("raw_pairs", [pair(), pair("x" * 300)], "f", 7)
    assert str(error.value) == f"f: row 8 (key '{'x' * 300}'), field key: {why[:80]} ... {why[-80:]}"
    with pytest.raises(records.ContractError, match="not found: run `dvc repro`"):
        records.read(tmp_path / "none.parquet", "raw_pairs")
    pq.write_table(pa.table({"key": ["a"]}), tmp_path / "short.parquet")
    with pytest.raises(TableError, match="no column edit, image"):
        records.read(tmp_path / "short.parquet", "raw_pairs")
    (tmp_path / "html.parquet").write_text("<html>")
    with pytest.raises(TableError, match="not readable as Parquet"):
        records.read(tmp_path / "html.parquet", "raw_pairs")


@pytest.mark.parametrize("file", sorted(params.CONTRACTS.glob("*.schema.json")), ids=lambda file: file.name)
def test_every_contract_is_a_valid_schema_with_sorted_columns(file: Path) -> None:
    name = file.name.removesuffix(".schema.json")
    records._Validator.check_schema(records.schema_of(name))
    if name == "photo_records":  # lines of JSON, and no table
        return
    names = records.arrow_schema(name).names
    assert names == sorted(names)
    assert set(records.schema_of(name)["required"]) <= set(names)


def test_rows_stand_beside_those_of_their_key() -> None:
    a, b = ({"key": name} for name in "ab")
    assert list(records.beside([a, b], [[a, a], [b]])) == [(a, [a, a]), (b, [b])]
    with pytest.raises(records.ContractError, match="the row of key 'a' is unknown, or not in the order of the others"):
        list(records.beside([a, b], [[b, a]]))


def test_json_has_no_nan_and_six_decimals(tmp_path: Path) -> None:
    records.write_json(tmp_path / "m.json", {"b": 1 / 3, "a": [2.0, None]})
    assert (tmp_path / "m.json").read_text() == '{\n  "a": [\n    2.0,\n    null\n  ],\n  "b": 0.333333\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.write_json(tmp_path / "m.json", {"a": float("nan")})
    records.write_csv(tmp_path / "m.csv", [{"a": 1 / 3, "b": "\ud800"}])
    assert (tmp_path / "m.csv").read_text() == "a,b\n0.333333,\\ud800\n"


PEAK = """
import resource, sys
from pathlib import Path
from editjudge.core import tables
tables.MOST = 1 << 26
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(len(row["image"]) for row in tables.parquet(Path(sys.argv[1])))
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_small_parquet_file_takes_little_memory(tmp_path: Path) -> None:
    """64 rows of 6 MB of one byte, which is stored once: 0.8 GB in one batch, as Arrow has it and as Python."""
    size = 6 << 20
    image = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), pa.array([bytes(size)], pa.binary()))
    pq.write_table(pa.table({"image": image}), tmp_path / "bomb.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "bomb.parquet").stat().st_size < 10_000
    done = subprocess.run([sys.executable, "-c", PEAK, tmp_path / "bomb.parquet"], capture_output=True, check=True)
    read, megabytes = map(int, done.stdout.split())
    assert read == 64 * size
    assert megabytes < 500


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("key,image,key\na,b,c\n")
    both = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["key", "key"])
    pq.write_table(both, tmp_path / "t.parquet")
    for read, name in ((tables.delimited, "t.csv"), (tables.parquet, "t.parquet")):
        with pytest.raises(TableError, match=rf"{name}: two columns are called 'key'"):
            list(read(tmp_path / name))


def test_rows_of_any_size_are_read_in_order(tmp_path, rng, monkeypatch) -> None:
    monkeypatch.setattr(tables, "MOST", 10_000)
    rows = [{"key": str(n), "image": {"bytes": rng.bytes(n)}} for n in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet", row_group_size=70)
    assert list(tables.parquet(tmp_path / "t.parquet")) == rows


def test_mutated_files_are_errors_and_end_no_process(tmp_path: Path) -> None:
    """Of a stream Arrow believes what it points at; by broken statistics of a column pyarrow ended the process."""
    assert set(fuzz.tried("Arrow", 1500)) == {"value", "named"}
    assert fuzz.tried("Parquet", 0, [fuzz.mutated(fuzz.parquet(), random.Random("Parquet 1610"))]) == {"named": 1}
    (tmp_path / "t.arrow").write_bytes(fuzz.arrow())
    assert list(tables.arrow(tmp_path / "t.arrow")) == fuzz.TABLE.to_pylist()
