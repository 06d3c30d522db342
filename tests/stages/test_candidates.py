"""The stage candidates: what it writes, keeps and makes again, and what it survives."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import forks
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from small_repro import arena_row

from editjudge.core import records
from editjudge.core.params import ParamsError
from editjudge.editors import making, protocol, settings
from editjudge.editors.protocol import Edited, EditFailed, Request
from editjudge.engine import resume
from editjudge.sources.builtin import scenes
from editjudge.stages import annotate, candidates, compare_models

ENV = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
LEAKY = {"kind": "leaky", "amount": 2.0, "seed": 1}
SETTING = settings.read({"editors": {"m": LEAKY}}, "m")
ROUNDS, ROOT = 3, Path(__file__).parents[2]
ROOMS = ("core", "editors", "engine", "sources/builtin", "stages/candidates.py")
KILLED = pytest.mark.nightly("constraints.txt", "stages", *(f"src/editjudge/{name}" for name in ROOMS))


@pytest.fixture(scope="module")
def pairs() -> list[dict]:
    return scenes.make_pairs("color_alter", "train", 6, 48, 0)


def test_a_prompt_that_stands_twice_is_made_once(pairs: list[dict], tmp_path: Path) -> None:
    wanted = [candidates.EditPrompt(use, pairs[0]) for use in ("data", "data", "benchmark")]
    with resume.RecordCache(tmp_path / "c.sqlite") as cache:
        made, _ = candidates.edit_all(wanted, "m", SETTING, cache)
        first, second, arena = candidates.rows(made, "m", cache.data)
        assert cache.counts()["computed"] == 2
    assert first == second == arena
    assert first["image"]


@KILLED
def test_killed_again_and_again_nothing_finished_is_lost_or_made_twice(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"import killing; killing.main({ROUNDS})"]
    done = subprocess.run(command, cwd=tmp_path, env=ENV, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    rounds, kept = seen["rounds"], set()
    assert [each["exit"] for each in rounds] == [-signal.SIGKILL] * ROUNDS + [0]
    for each in rounds:
        assert set(each["before"]) == kept, "lost between two rounds"
        assert kept <= set(each["after"]), "lost in a round"
        assert not kept & set(each["tries"]), "finished before and made again"
        assert set(each["after"]) - kept <= set(each["tries"]), "kept without having been made"
        assert len(set(each["tries"])) == len(each["tries"]), "made twice in a round"
        kept = set(each["after"])
    assert len(kept) == 200
    assert seen["counts"] == {"computed": len(rounds[-1]["tries"]), "reused": len(rounds[-1]["before"])}
    import killing

    editor, code = making.load(killing.MODEL, killing.SETTING, "cpu"), making.code(killing.SETTING)
    with resume.RecordCache(tmp_path / killing.CACHE) as cache:
        for prompt in killing.prompts()[::5]:
            name, row = candidates.name_of(prompt, killing.MODEL, killing.SETTING, code), prompt.row
            seed = candidates.seed_of(1, killing.MODEL, row["key"])
            asked = Request(row["key"], row["instruction"], row["image"], row["edit"], prompt.use, seed)
            assert cache.data(name) == protocol.attempt(editor.edit, asked).image, "as of an undisturbed editor"


@pytest.fixture
def repository(tmp_path: Path, pairs: list[dict]) -> Path:
    """A folder with two pools, an arena and a table of one good and one broken editing model."""
    table = {"leaky": LEAKY, "broken": {"kind": "perfect"}}
    tasks = {"color_alter": pairs[:4], "tone_transfer": scenes.make_pairs("tone_transfer", "train", 2, 48, 0)}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"tasks": dict.fromkeys(tasks, "x"), "editors": table}))
    for task, rows in tasks.items():
        records.write(tmp_path / f"data/pools/{task}.parquet", rows, "pools")
    records.write(tmp_path / "data/gedit_bench.parquet", [arena_row(pairs[0] | {"key": "arena"})], "gedit_bench")
    return tmp_path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


DATA = [
    f"data/{name}.parquet"
    for name in ("candidates/leaky/color_alter", "candidates/leaky/tone_transfer", "gallery/leaky")
]
WRITTEN = {*DATA, "metrics/candidates/leaky.json", "metrics/resume/candidates_leaky.json"}
WRITTEN |= {"work/candidates/leaky.sqlite", "work/candidates/lock", "metrics/suite_candidates/leaky.json"}


def test_another_run_makes_what_changed_and_gives_the_other_files_the_same_bytes(repository: Path) -> None:
    before = files(repository)
    with contextlib.chdir(repository):
        first = forks.run("stages.candidates", "--model", "leaky")
    assert first.returncode == 0, first.stderr
    assert first.stderr == "", "no bar where there is no terminal, and no warning"
    written = files(repository) - before
    assert written - WRITTEN <= {"work/candidates/leaky.sqlite-shm", "work/candidates/leaky.sqlite-wal"}
    assert written >= WRITTEN
    assert [pq.read_metadata(repository / name).num_rows for name in DATA] == [4, 2, 1]
    color, _, gallery = ((repository / name).read_bytes() for name in DATA)
    changed = scenes.make_pairs("tone_transfer", "train", 3, 48, 0)[1:]
    records.write(repository / "data/pools/tone_transfer.parquet", changed, "pools")
    with contextlib.chdir(repository):
        candidates.run("leaky")
    after = [(repository / name).read_bytes() for name in DATA]
    assert (after[0], after[2]) == (color, gallery)
    assert [row["key"] for row in records.read(repository / DATA[1], "candidates")] == [row["key"] for row in changed]
    counts = json.loads((repository / "metrics/resume/candidates_leaky.json").read_text())
    assert counts | {"seconds": 0} == {"computed": 1, "reused": 6, "seconds": 0, "workers": 1, "workers_replaced": 0}


def test_a_broken_entry_ends_its_own_model_before_anything_is_made(repository: Path, monkeypatch) -> None:
    monkeypatch.chdir(repository)
    with pytest.raises(ParamsError, match=r"^editors\.broken\.kind is 'perfect'; known: precise, box"):
        candidates.run("broken")
    assert not (repository / "data/candidates").exists()


def test_an_editor_for_one_use_makes_no_edits_for_the_other(repository: Path, monkeypatch) -> None:
    """Its files have no row there, and the stages behind it do not look at them."""
    values = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"suites": {}, "imported": {}}
    table = {"leaky": LEAKY | {"use": ["benchmark"]}, "box": LEAKY | {"use": ["pools"]}, "precise": LEAKY}
    judges = {"measures": values["judges"]["measures"]}
    values |= {"tasks": {"color_alter": "object_centric"}, "editors": table, "judges": judges, "arena": {}}
    (repository / "params.yaml").write_text(yaml.safe_dump(values))
    (repository / "pipelines").symlink_to(ROOT / "pipelines")
    rows = {}
    monkeypatch.chdir(repository)
    for model in table:
        candidates.run(model)
        names = [f"data/{name}.parquet" for name in (f"candidates/{model}/color_alter", f"gallery/{model}")]
        rows[model] = [pq.read_metadata(repository / name).num_rows for name in names]
    assert rows == {"leaky": [0, 1], "box": [4, 0], "precise": [4, 1]}
    (repository / "data/candidates/leaky/color_alter.parquet").unlink()
    (repository / "data/gallery/box.parquet").unlink()
    annotate.run("color_alter")
    compare_models.run()
    annotated = records.read(repository / "data/annotations/color_alter.parquet", "annotations")
    assert Counter(row["model"] for row in annotated) == {"box": 4, "precise": 4}
    matches = records.read(repository / "data/matches.parquet", "matches")
    assert {row[side] for row in matches for side in ("model_a", "model_b")} == {"leaky", "precise"}


HARD = {
    "lines": """a "quoted" 'word' \\" and `one` more\nsecond\r\nthird\ttab\x00nul\x1b[31m""",
    "long": "x" * 10_000,
    "unicode": "把杯子换成绿色 🎨👩‍🚀 and \u202eright to left é e\u0301 ﬁ",
    "path": "../../../../tmp/escaped/$(touch pwned)/%s{key}.png; rm -rf *",
    "space": "   ",
}


class Recorder:
    """Edits nothing and says what it was asked, in the reason of a failure."""

    def __init__(self, model: str, setting: settings.Setting, device: str) -> None: ...

    def edit(self, request: Request) -> Edited:
        raise EditFailed("refused", json.dumps([request.instruction, request.key, request.use]))


def test_an_instruction_reaches_the_editor_unchanged_and_names_no_file(pairs, workdir, monkeypatch) -> None:
    monkeypatch.setattr(making, "load", Recorder)
    rows = [pairs[0] | {"key": key, "instruction": words} for key, words in HARD.items()]
    records.write(workdir / "pool.parquet", rows, "pools")
    read = records.read(workdir / "pool.parquet", "pools")
    with resume.RecordCache(workdir / "work/c.sqlite") as cache:
        made, _ = candidates.edit_all([candidates.EditPrompt("data", row) for row in read], "m", SETTING, cache)
    for candidate in made:
        assert json.loads(candidate.meta["reason"]) == [HARD[candidate.key], candidate.key, "data"]
    assert {name.partition("-")[0] for name in files(workdir)} == {"pool.parquet", "work/c.sqlite", "work/lock"}


def test_seeds_differ_by_record_and_model_and_stay_the_same() -> None:
    seeds = {candidates.seed_of(seed, model, key) for seed in (1, 2) for model in "ab" for key in ("k", "l")}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert candidates.seed_of(1, "a", "k") == 3336995923800739613


def candidate(number: int, kind: str | None, reason: str | None, damage: float | None = None) -> candidates.Candidate:
    meta = {"status": "failed" if kind else "done", "kind": kind, "reason": reason, "damage": damage}
    return candidates.Candidate(f"k{number}", "t", "data", f"name{number}", meta)


def test_failures_are_counted_by_kind_and_reason() -> None:
    made = [candidate(n, "exception", f"KeyError: {n % 25}") for n in range(50)]
    made += [candidate(99, None, None, 2.5), *(candidate(n, "all_black", "black") for n in range(100, 103))]
    counted = candidates.counts(made)
    assert (counted["records"], counted["failed"], counted["mean_known_damage"]) == (54, 53, [2.5])
    assert counted["kinds"] == [{"kind": "exception", "records": 50}, {"kind": "all_black", "records": 3}]
    assert counted["reasons"][:2] == [{"reason": "black", "records": 3}, {"reason": "KeyError: 0", "records": 2}]
    assert (len(counted["reasons"]), counted["reasons_left_out"]) == (20, 6)
    assert candidates.counts(made[::-1]) == counted


def test_what_another_try_may_mend_is_tried_by_the_next_run(pairs, workdir, monkeypatch) -> None:
    moods = ["well", "refuse", "exit", "cuda memory", "raise"]
    rows = [pairs[0] | {"key": mood.replace(" ", "-"), "instruction": mood} for mood in moods]
    wanted = [candidates.EditPrompt("data", row) for row in rows]
    monkeypatch.setattr(making, "load", functools.partial(moody, workdir / "log"))
    counts = []
    for _ in range(2):
        with resume.RecordCache(workdir / "c.sqlite") as cache:
            made, _ = candidates.edit_all(wanted, "m", SETTING, cache)
            counts.append(cache.counts())
    kinds = [None, "safety_checker", "worker_died", "out_of_memory", "exception"]
    assert [c.meta["kind"] for c in made] == kinds
    assert counts == [{"computed": 2, "reused": 0}, {"computed": 0, "reused": 2}]
    gap = candidates.gap(made, "m")
    assert gap.told() == "3 of 5 edits of m are missing (exception: 1, out_of_memory: 1, worker_died: 1)"
    tries = Counter(line.split()[1] for line in (workdir / "log").read_text().splitlines())
    assert tries == {"well": 1, "refuse": 1, "exit": 4, "cuda-memory": 4, "raise": 2}


def moody(log: Path, model: str, setting: settings.Setting, device: str) -> protocol.Editor:
    import bad_editors

    bad_editors.GREY = np.full((48, 48, 3), 128, np.uint8)
    return bad_editors.Moody(log, device)


@KILLED
def test_of_two_runs_at_once_one_is_killed_and_no_edit_is_lost(workdir: Path) -> None:
    """tests/test_concurrency.py: neither is killed."""
    import killing

    wanted = killing.prompts()[:60]
    code = making.code(killing.SETTING)
    names = {candidates.name_of(prompt, killing.MODEL, killing.SETTING, code): prompt.row["key"] for prompt in wanted}
    command = [sys.executable, "-c", "import killing; killing.make(killing.prompts()[:60])"]
    two = [subprocess.Popen(command, env=ENV, stderr=subprocess.DEVNULL) for _ in range(2)]
    killing.wait_for(10, names)
    two[0].kill()
    assert [run.wait(120) for run in two] == [-9, 0]
    assert killing.kept(names) == sorted(names.values())
