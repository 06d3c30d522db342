"""Does this machine give what is committed? Runs the graph and compares dvc.lock, metrics and plots with git's.

    make verify

Stages whose results differ though all that they read is as committed are where a difference begins; the others only
follow. Exit 0: everything came out as committed. 1: something differs, and the first such stage is named.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Lock = Mapping[str, Mapping[str, Any]]


def hashes(stage: Mapping[str, Any], kind: str) -> dict[str, str]:
    """The files of a stage's `deps` or `outs` in dvc.lock, each with its MD5."""
    return {entry["path"]: entry["md5"] for entry in stage.get(kind, ())}


def origins(committed: Lock, now: Lock) -> dict[str, list[str]]:
    """Where differences begin: stages with the files that they wrote otherwise from the same deps, in the lock's order.

    A stage that ran from other deps only follows; one that is in one lock alone is a difference by itself.
    """
    found = {}
    for name in {**committed, **now}:
        before, after = committed.get(name, {}), now.get(name, {})
        if before and after and hashes(before, "deps") != hashes(after, "deps"):
            continue
        was, is_ = hashes(before, "outs"), hashes(after, "outs")
        if files := [path for path in {**was, **is_} if was.get(path) != is_.get(path)]:
            found[name] = files
    return found


def following(committed: Lock, now: Lock) -> list[str]:
    """The stages that ran from other deps than committed."""
    both = [name for name in committed if name in now]
    return [name for name in both if hashes(committed[name], "deps") != hashes(now[name], "deps")]


def report(committed: Lock, now: Lock, changed: list[str]) -> tuple[str, bool]:
    """What to tell, and whether all is as committed. changed: files of metrics/ and plots/ that git sees as changed."""
    begin, follow = origins(committed, now), following(committed, now)
    if not begin and not follow and not changed:
        return f"verify: {len(now)} stages gave what is committed, to the byte", True
    lines = [f"verify: {name} differs: {', '.join(files)}" for name, files in begin.items()]
    lines += [f"verify: {len(follow)} stages follow: {', '.join(follow)}"] if follow else []
    lines += [f"verify: {len(changed)} metrics and plots differ: {', '.join(changed)}"] if changed else []
    return "\n".join(lines), False


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare-only", action="store_true", help="compare what is there; run nothing")
    if not parser.parse_args().compare_only and (code := subprocess.run(["dvc", "repro"], check=False).returncode):
        sys.exit(code)
    committed = yaml.safe_load(_git("show", "HEAD:dvc.lock"))["stages"]
    now = yaml.safe_load(Path("dvc.lock").read_text())["stages"]
    status = _git("status", "--porcelain", "--", "metrics", "plots").splitlines()
    text, same = report(committed, now, [line[3:] for line in status])
    print(text)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
