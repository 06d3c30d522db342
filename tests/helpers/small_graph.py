"""The whole graph on its small setting, run once in a test session for all of its processes."""

import fcntl
import re
from pathlib import Path

from clone import Clone

SAID, FAILED = "repro.txt", "failed.txt"  # beside the copy: what `dvc repro` said, or why there is none


def commit(copy: Clone) -> None:
    copy.run("git", "add", "-A")
    copy.run("git", "commit", "-qm", "state", "--allow-empty")


def built(folder: Path) -> Path:
    """A copy of the repository below the folder in which the graph has run and is committed; to be copied, not changed.

    Who comes first runs it, and others wait. AssertionError: it could not be run; it is tried once."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / SAID).exists() and not (folder / FAILED).exists():
            try:
                run(folder)
            except BaseException as error:  # of a test's time limit, too
                (folder / FAILED).write_text(str(error))
                raise
        assert not (folder / FAILED).exists(), (folder / FAILED).read_text()
    return folder / "copy"


def run(folder: Path) -> None:
    copy = Clone(folder / "copy", small=True, warm=True)
    copy.env.pop("PYTHONPATH")  # the commands of dvc.yaml say where the code is
    commit(copy)
    said = copy.run("dvc", "repro")
    commit(copy)
    (folder / SAID).write_text(said)


def stages_run(output: str) -> set[str]:
    """The stages that really ran, from DVC's own words."""
    return set(re.findall(r"Running stage '([^']+)'", output))
