"""Runs the graph, and compares what its stages wrote with what is committed; or reads what lies on the disk.

python -m tools.verify [--small [--write]] [--cache]
"""

import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from cyclopts import App, Parameter

from editjudge.core import params, portable
from editjudge.core.errors import UserError
from editjudge.core.files import md5
from editjudge.core.main import guarded
from tools.publish import LOCK, git, settings

SMALL_RESULTS = Path("tests/small_graph.json")  # of profiles/small.yaml; `make test` compares them, too
CONSTRAINTS = Path("constraints.txt")
Lock = Mapping[str, Mapping[str, Any]]


def hashes(stage: Mapping[str, Any], kind: str) -> dict[str, str]:
    """The files of a stage's `deps` or `outs` in dvc.lock, each with its MD5."""
    return {entry["path"]: entry["md5"] for entry in stage.get(kind, ())}


def working_copy(root: Path, folder: Path) -> None:
    """Makes `folder` a git repository with the tracked files of `root` as they are now, without dvc.lock."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / "dvc.lock").unlink(missing_ok=True)


def small_copy(root: Path, folder: Path) -> None:
    """A `working_copy` with the profile small: few tasks and small numbers."""
    working_copy(root, folder)
    command = [sys.executable, "-m", "editjudge", "profile", "small"]
    subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": "src"}, stdout=subprocess.DEVNULL, check=True)


def results(lock: Lock) -> dict[str, str]:
    """Every file that the stages wrote with its MD5; the code's versions are none."""
    return {path: md5 for name, stage in lock.items() if name != "code" for path, md5 in hashes(stage, "outs").items()}


def differences(committed: Mapping[str, str], now: Lock, before: Lock = MappingProxyType({})) -> tuple[str, bool]:
    """What to print of a graph that has run, and whether all of its results are as committed; `before`: the dvc.lock
    of the commit, if it has one of this graph.

    Differences begin at stages that read no file that differs; the others only follow. Of each the causes are told."""
    found = results(now)
    files = {path: None for path in {**found, **committed} if found.get(path) != committed.get(path)}
    if not files:
        return f"verify: {len(found)} files are as committed, to the byte", True
    begin = [
        name
        for name, stage in now.items()
        if hashes(stage, "outs").keys() & files.keys() and not hashes(stage, "deps").keys() & files.keys()
    ]
    where = ", ".join(begin) or "no stage that ran"
    text = f"verify: differences begin at {where}; {len(files)} files in all: {', '.join(files)}"
    return "\n".join([text, *(f"{name}: {causes(before.get(name, {}), now[name])}" for name in begin)]), False


def causes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What may be why a stage wrote other bytes than the committed ones: the inputs, code and settings that are others
    in its dvc.lock, or what of this machine is not as `make setup` has it."""
    was, given = ({**hashes(stage, "deps"), **settings(stage)} for stage in (before, now))
    if changed := [name for name in {**was, **given} if was.get(name) != given.get(name)] if before else []:
        return f"other inputs or settings than at the commit: {', '.join(changed)}"
    known = "its inputs, code and settings are as committed" if before else f"no {LOCK} of the commit has its inputs"
    return f"{known}; this machine: {'; '.join(machine())}"


def machine() -> list[str]:
    """What of this machine may move bytes: its CPU, variables, and packages of versions not in constraints.txt."""
    model = re.search(r"^model name\s*: (.*)$", portable.CPU.read_text() if portable.CPU.exists() else "", re.MULTILINE)
    lines = [f"CPU {model[1] if model else platform.machine()}"]
    lines += [f"{portable.SWITCH}=0"] if os.environ.get(portable.SWITCH) == "0" else []
    wanted = dict(line.split("==") for line in CONSTRAINTS.read_text().split() if "==" in line)
    for name, version in wanted.items():
        with suppress(PackageNotFoundError):
            if (found := importlib.metadata.version(name).partition("+")[0]) != version:
                lines.append(f"{name} {found}, tested with {version}")
    return lines


def bad_objects(cache: Path, digest: str) -> list[Path]:
    """The objects of an output, and of the files that it lists, that are there with other bytes than they are named
    by."""
    file = cache / digest[:2] / digest[2:]
    if not file.is_file():
        return []
    if md5(file) != digest.removesuffix(".dir"):
        return [file]
    listed = json.loads(file.read_bytes()) if digest.endswith(".dir") else ()
    return [bad for entry in listed for bad in bad_objects(cache, entry["md5"])]


def damages(lock: Lock, cache: Path) -> list[str]:
    """Reads every output of a dvc.lock, here and in DVC's cache (its folder of MD5s): a line for each that has other
    bytes, with the commands that mend it. What is not there is no damage."""
    lines = []
    for name, stage in lock.items():
        for path, digest in hashes(stage, "outs").items():
            there = Path(path).exists()
            right, bad = there and md5(Path(path)) == digest, bad_objects(cache, digest)
            gone = shlex.join(["rm", "-rf", *map(str, bad), *([] if right else [path])])
            if bad and right:
                lines.append(f"{bad[0]}: damaged, of {path}: {gone}; {shlex.join(['dvc', 'commit', '-f', name])}")
            elif bad or (there and not right):
                again = ["dvc", "repro", "-f", "-s", name] if bad else ["dvc", "checkout", path]
                lines.append(f"{[*bad, path][0]}: other bytes than {LOCK} has of {path}: {gone}; {shlex.join(again)}")
    return lines


def other_damages(cache: Path, runs: Path, named: str) -> list[str]:
    """As `damages`, of what DVC keeps of other settings and commits: objects and entries of its run-cache that do not
    say what they are named by. named: the lines there are already."""
    from dvc.utils import dict_sha256

    objects = (file for file in sorted(cache.glob("[0-9a-f][0-9a-f]/*")) if str(file) not in named)
    bad = [file for file in objects if md5(file) != file.parent.name + file.name.removesuffix(".dir")]
    for file in sorted(runs.glob("??/*/*")):
        said = ""
        with suppress(UserError, TypeError):
            said = dict_sha256(params.load(file), exclude=["size", "nfiles"])
        bad += [file] * (said != file.name)
    return [f"{file}: damaged, of other settings or commits: {shlex.join(['rm', '-f', str(file)])}" for file in bad]


def check_outputs() -> bool:
    """Prints what `damages` and `other_damages` find; whether that is nothing."""
    from dvc.repo import Repo

    with Repo() as repo:
        cache, runs = Path(repo.cache.local.path), Path(repo.stage_cache.cache_dir)
    lines = damages(params.load(LOCK)["stages"], cache)
    lines += other_damages(cache, runs, "\n".join(lines))
    print("\n".join([*lines, f"verify: {len(lines)} outputs here or in DVC's cache are damaged"]))
    return not lines


def verify(*, small: bool = False, write: bool = False, cache: bool = False) -> None:
    """Run the graph and compare what its stages wrote with what is committed; read whether it lies whole on the disk.

    Ends with status 1 if something differs, and names the stages where differences begin, with what they had of other
    inputs, code and settings, or what of this machine is not as tested. What is damaged on the disk,
    here or in DVC's cache, is named with the commands that mend it: DVC itself looks at sizes and times alone.

    Args:
        small: A small setting of the graph instead, in a copy: three minutes.
        write: With --small, make its results those to commit.
        cache: Run nothing: read every output, here and in DVC's cache, and compare it with dvc.lock."""
    if cache:
        sys.exit(0 if check_outputs() else 1)
    before: Lock = {}
    try:
        if small:
            with tempfile.TemporaryDirectory() as name:
                small_copy(Path(), Path(name))
                subprocess.run(["dvc", "repro"], cwd=name, check=True)
                lock = yaml.safe_load(Path(name, "dvc.lock").read_text())["stages"]
            if write:
                SMALL_RESULTS.write_text(json.dumps(results(lock), indent=2) + "\n")
            committed = json.loads(SMALL_RESULTS.read_text())
        else:
            subprocess.run(["dvc", "repro"], check=True)
            lock = yaml.safe_load(LOCK.read_text())["stages"]
            before = yaml.safe_load(git("show", f"HEAD:{LOCK}"))["stages"]
            committed = results(before)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    text, same = differences(committed, lock, before)
    print(text)
    whole = small or check_outputs()
    sys.exit(0 if same and whole else 1)


if __name__ == "__main__":
    app = App(default_parameter=Parameter(negative=()), help_format="plaintext")
    app.default(verify)
    guarded("verify", app)
