"""Runs at once: two in one folder, two stages in another, both folders on one cache of DVC and one work/."""

import hashlib
import sqlite3
from pathlib import Path

import pytest
import small_repro
import yaml

EDITORS = {"leaky": {"kind": "leaky", "amount": 2.0, "seed": 1}, "box": {"kind": "box", "amount": 2.0, "seed": 1}}
COUNT = 6
# DVC's own words, by which it sends the second one away.
BUSY = ("is busy", "Unable to acquire lock", "rwlock", "without a confirmation")

USED = ("core", "editors", "engine", "sources/builtin", "stages/candidates.py", "vision/packaged.py")


@pytest.mark.nightly("constraints.txt", "stages", *(f"src/editjudge/{name}" for name in USED))
def test_runs_at_once_in_two_folders_on_one_cache_lose_nothing_and_agree(tmp_path: Path) -> None:
    cache, shared = tmp_path / "cache", {"EDITJUDGE_WORK": str(tmp_path / "work")}
    one, two = (small_repro.write(tmp_path / name, EDITORS, COUNT, cache) for name in ("one", "two"))
    runs = [small_repro.repro(one, **shared), small_repro.repro(one, **shared)]
    runs += [small_repro.repro(two, "-s", name, **shared) for name in EDITORS]
    said = [run.communicate(timeout=120)[0] for run in runs]
    for run, words in zip(runs, said, strict=True):
        assert run.returncode == 0 or any(each in words for each in BUSY), words
        assert "Traceback" not in words
    assert 0 in [run.returncode for run in runs[:2]]
    last = [small_repro.repro(folder, **shared) for folder in (one, two)]
    assert "Running stage" not in last[0].communicate(timeout=120)[0], "one of the two in this folder has done it all"
    last[1].communicate(timeout=120)
    assert [run.returncode for run in last] == [0, 0]
    for name in EDITORS:
        with sqlite3.connect(tmp_path / f"work/candidates/{name}.sqlite") as db:
            assert db.execute("SELECT count(*), count(data) FROM records").fetchone() == (COUNT, COUNT)
        db.close()
    locks = [yaml.safe_load((folder / "dvc.lock").read_text())["stages"] for folder in (one, two)]
    assert [set(lock) for lock in locks] == [set(EDITORS), set(EDITORS)]
    for name in EDITORS:
        assert locks[0][name] == locks[1][name]
        for out in locks[0][name]["outs"]:
            found = {hashlib.md5((folder / out["path"]).read_bytes()).hexdigest() for folder in (one, two)}
            assert found == {out["md5"]}
    for file in (each for each in (cache / "files/md5").rglob("*") if each.is_file()):
        assert hashlib.md5(file.read_bytes()).hexdigest() == file.parent.name + file.name
