"""A small disk of its own for a command, which fills up: a tmpfs that only the command's processes see."""

import os
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(code: str, folder: Path, kilobytes: int) -> subprocess.CompletedProcess[str]:
    """Python code in the folder, which is a disk of that size; what is left there is listed on stdout's last line."""
    mount = f"mount -t tmpfs -o size={kilobytes}k none {shlex.quote(str(folder))} && cd {shlex.quote(str(folder))}"
    script = f'{mount} && {{ "$0" -c "$1"; said=$?; find . -type f | sort | tr "\\n" " "; exit $said; }}'
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, sys.executable, code],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{Path(__file__).parent}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@cache
def is_possible() -> bool:
    """Whether this system lets one mount a disk in a namespace."""
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
