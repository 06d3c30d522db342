"""`editjudge verify`.

Differences begin at stages whose results differ though everything they read is as committed; other stages only follow.
The results of the small setting are committed as tests/small_graph.json, which `make test` compares, too."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML

Lock = Mapping[str, Mapping[str, Any]]

SMALL_RESULTS = Path("tests/small_graph.json")
SMALL_TASKS = ("color_alter", "subject_add", "background_change")
SMALL_NUMBERS = {
    "raw_pairs.per_task": 12,
    "filter.sample_num": 5,
    "train_judge.max_steps": 4,
    "train_judge.eval_every": 2,
    "scorer_data.editreward.per_task": 3,
    "scorer_data.editreward.test_per_task": 1,
    "train_scorer.editreward.max_steps": 4,
    "train_scorer.editreward.eval_every": 2,
    "scorer_data.imgedit_judge.per_task": 3,
    "scorer_data.imgedit_judge.test_per_task": 1,
    "train_scorer.imgedit_judge.max_steps": 4,
    "train_scorer.imgedit_judge.eval_every": 2,
    "probe_bench.per_task": 3,
    "gedit_bench.per_task": 2,
    "measure_response.per_task": 1,
    "leaderboard.replicates": 50,
}


def hashes(stage: Mapping[str, Any], kind: str) -> dict[str, str]:
    """The files of a stage's `deps` or `outs` in dvc.lock, each with its MD5."""
    return {entry["path"]: entry["md5"] for entry in stage.get(kind, ())}


def report(committed: Lock, now: Lock, changed: list[str]) -> tuple[str, bool]:
    """What to tell, and whether all is as committed. changed: files of metrics/ and plots/ that git sees as changed.

    Differences begin at stages that wrote files otherwise from the same deps, or that one lock alone has. A stage that
    ran from other deps only follows."""
    both = [name for name in committed if name in now]
    follow = [name for name in both if hashes(committed[name], "deps") != hashes(now[name], "deps")]
    lines = []
    for name in (name for name in {**committed, **now} if name not in follow):
        was, is_ = (hashes(lock.get(name, {}), "outs") for lock in (committed, now))
        if files := [path for path in {**was, **is_} if was.get(path) != is_.get(path)]:
            lines.append(f"verify: {name} differs: {', '.join(files)}")
    lines += [f"verify: {len(follow)} stages follow: {', '.join(follow)}"] if follow else []
    lines += [f"verify: {len(changed)} metrics and plots differ: {', '.join(changed)}"] if changed else []
    return "\n".join(lines) or f"verify: {len(now)} stages gave what is committed, to the byte", not lines


def copy(root: Path, folder: Path) -> None:
    """A repository of its own with git's files of `root` as they are now, of which nothing has run."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / "dvc.lock").unlink(missing_ok=True)


def small_copy(root: Path, folder: Path) -> None:
    """Such a copy with few tasks and small numbers."""
    copy(root, folder)
    text = YAML()
    values = text.load((folder / "params.yaml").read_text())
    for task in [task for task in values["tasks"] if task not in SMALL_TASKS]:
        del values["tasks"][task], values["train_pairs"]["thresholds"][task]
    for key, value in SMALL_NUMBERS.items():
        *sections, leaf = key.split(".")
        reduce(getitem, sections, values)[leaf] = value
    with (folder / "params.yaml").open("w") as out:
        text.dump(values, out)
    command = [sys.executable, "-m", "editjudge", "graph", "--write"]
    subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": "src"}, stdout=subprocess.DEVNULL, check=True)


def results(lock: Lock) -> dict[str, str]:
    """Every file that the stages wrote with its MD5; the code's versions are none."""
    return {path: md5 for name, stage in lock.items() if name != "code" for path, md5 in hashes(stage, "outs").items()}


def small_report(committed: Mapping[str, str], now: Lock) -> tuple[str, bool]:
    """What to tell of the small graph, and whether all is as committed. now: in the order in which the stages ran."""
    found = results(now)
    files = [path for path in {**found, **committed} if found.get(path) != committed.get(path)]
    if not files:
        return f"verify: {len(found)} files of the small graph are as committed, to the byte", True
    first = next(
        (name for name, stage in now.items() if hashes(stage, "outs").keys() & set(files)), "no stage that ran"
    )
    return f"verify: {first} is the first stage that differs; {len(files)} files in all: {', '.join(files)}", False


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def verify(*, compare_only: bool = False, small: bool = False, write: bool = False) -> None:
    """Run the graph and compare dvc.lock, metrics and plots with those committed.

    Ends with status 1 if something differs, and names the stage where the difference begins.

    Args:
        compare_only: Compare what is there; run nothing.
        small: A small setting of the graph instead, in a copy: three minutes.
        write: With --small, make its results those to commit."""
    try:
        if small:
            with tempfile.TemporaryDirectory() as name:
                small_copy(Path(), Path(name))
                subprocess.run(["dvc", "repro"], cwd=name, check=True)
                lock = yaml.safe_load(Path(name, "dvc.lock").read_text())["stages"]
            if write:
                SMALL_RESULTS.write_text(json.dumps(results(lock), indent=2) + "\n")
            text, same = small_report(json.loads(SMALL_RESULTS.read_text()), lock)
        else:
            if not compare_only:
                subprocess.run(["dvc", "repro"], check=True)
            committed = yaml.safe_load(_git("show", "HEAD:dvc.lock"))["stages"]
            status = _git("status", "--porcelain", "--", "metrics", "plots").splitlines()
            now = yaml.safe_load(Path("dvc.lock").read_text())["stages"]
            text, same = report(committed, now, [line[3:] for line in status])
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    print(text)
    sys.exit(0 if same else 1)
