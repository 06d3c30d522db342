import multiprocessing
import os
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from editjudge.core import files
from editjudge.core.errors import UserError

Part = namedtuple("Part", "mountpoint fstype")


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with one under it on NFS, as the system lists them."""
    found = [Part("/", "ext4"), Part(str(tmp_path / "team"), "nfs4"), Part(str(tmp_path / "team/own"), "xfs")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: found)
    monkeypatch.delenv(files.JOURNAL, raising=False)
    files.file_system.cache_clear()
    yield tmp_path
    files.file_system.cache_clear()


def test_a_network_file_system_has_the_rollback_journal(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"team/work": "delete", "team": "delete", "teams": "wal", "team/own/work": "wal"}
    assert {name: files.journal(mounted / name) for name in wanted} == wanted
    monkeypatch.setenv(files.JOURNAL, "wal")
    assert files.journal(mounted / "team") == "wal"
    monkeypatch.setenv(files.JOURNAL, "fast")
    with pytest.raises(UserError, match="EDITJUDGE_JOURNAL is 'fast': only wal and delete are known"):
        files.journal(mounted)


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


def hold_and_die(path: Path) -> None:
    files.locked(path)
    assert not files.is_free(path)
    os._exit(0)


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    with files.locked(tmp_path / "lock"):
        assert not files.is_free(tmp_path / "lock")
    process = multiprocessing.get_context("fork").Process(target=hold_and_die, args=(tmp_path / "lock",))
    process.start()
    process.join(30)
    assert files.is_free(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()
