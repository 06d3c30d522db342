from pathlib import Path

from editjudge.core import files


def test_a_file_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "f", b"old")
    writing = files.replacing(tmp_path / "f")
    writing.__enter__().write_bytes(b"new")
    assert not writing.__exit__(RuntimeError, RuntimeError(), None)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("f", b"old")]


def test_two_that_write_one_file_at_once_write_it_whole(tmp_path: Path) -> None:
    with files.replacing(tmp_path / "f") as one, files.replacing(tmp_path / "f") as two:
        assert one != two
        one.write_bytes(b"1" * 9)
        two.write_bytes(b"2" * 9)
    assert (tmp_path / "f").read_bytes() == b"1" * 9  # the one that ended last
    assert len(list(tmp_path.iterdir())) == 1
