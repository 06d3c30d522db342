"""Runs stages and commands: an error that the user can fix ends them with one line instead of a traceback."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from editjudge.core import code
from editjudge.core.errors import UserError, printable
from editjudge.core.files import is_full
from editjudge.core.params import load

EXTRAS: dict[str, list[str]] = load(Path(__file__).with_name("extras.yaml"))
OUT_OF_MEMORY = {"MemoryError", "OutOfMemoryError"}  # by name, so that torch need not be imported


def stage(description: str | None, work: Callable[..., None], *options: str) -> None:
    """Runs a stage's function on its options, such as `task`, each of which the command line must give.

    The first word of the stage's description after `Stage ` is its name."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in options:
        parser.add_argument(f"--{option}", required=True)
    given = vars(parser.parse_args())
    name = (description or "").removeprefix("Stage ").partition(":")[0]
    as_stage(name, work, *given.values())


def as_stage(name: str, work: Callable[..., None], *arguments: Any) -> None:
    """Runs the work of a stage. It fails, and DVC records no output, if DVC does not know its code, the code changes
    meanwhile or an input is damaged."""

    def checked() -> None:
        code.check_inputs()  # first: data/code itself may be damaged
        code.check_stage(name)
        work(*arguments)
        code.check_unchanged()
        code.check_stage(name)

    guarded(name, checked)


def guarded(name: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` returns. Errors that the user can fix end with one line on stderr and status 1, Ctrl-C with 130."""
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers' bars, too
    try:
        return work(*arguments)
    except Exception as error:
        if (line := _line(error)) is None:
            raise
        sys.exit(printable(f"{name}: {line}"))
    except KeyboardInterrupt:
        print(f"{name}: stopped; what is finished is kept", file=sys.stderr)
        sys.exit(130)


def _line(error: Exception) -> str | None:
    """The line for an error that the user can fix; None for an error of the program."""
    if is_full(error):
        return f"{' '.join(str(error).split())}. What is finished is kept: make room, then run it again"
    if isinstance(error, (UserError, OSError)):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        extra = next((extra for extra, packages in EXTRAS.items() if error.name in packages), None)
        return extra and f'{error.name} is not installed: pip install -e ".[{extra}]"'
    if {kind.__name__ for kind in type(error).__mro__} & OUT_OF_MEMORY:
        said = next(iter(str(error).splitlines()), "")
        return f"out of memory: {said}; what is finished is kept: give smaller batches or fewer processes"
    if isinstance(error, EOFError):  # of multiprocessing, whose server of processes is gone
        return "a process that starts its workers was killed; what is finished is kept: run it again"
    return None
