"""A copy of this repository as a fresh clone is, and commands that run in it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import forks

from tools import verify

ROOT = Path(__file__).parents[2]


class Clone:
    """A copy in a folder: `of` another, `small` as verify.small_copy makes it, or git's files and dvc.lock.

    warm: DVC and the stages are forked from a process that has the libraries, see `forks`."""

    def __init__(self, folder: Path, small: bool = False, of: Path | None = None, warm: bool = False) -> None:
        if of:
            shutil.copytree(of, folder, symlinks=True)
        else:
            folder.mkdir()
            (verify.small_copy if small else verify.working_copy)(ROOT, folder)
            if not small:
                shutil.copy(ROOT / "dvc.lock", folder)
        self.folder = folder
        self.env = os.environ | {"DVC_NO_ANALYTICS": "true", "PYTHONPATH": str(folder / "src")}
        self.python = forks.python() if warm else Path(sys.executable)
        self.env |= {"PATH": f"{self.python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.env |= {f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def run(self, *command: str, check: bool = True) -> str:
        """What a command writes to stdout. AssertionError with the end of all that it said where it fails."""
        quick = (str(self.python), str(ROOT / "tools/quick_dvc.py"), *command[1:])
        command = quick if command[0] == "dvc" else command
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def json(self, name: str) -> Any:
        """A file of metrics, in whichever form it is written."""
        found = json.loads((self.folder / name).read_text())
        return found[0] if isinstance(found, list) else found
