"""The program `editjudge` in this process."""

import contextlib
import io
import shlex
from collections.abc import Sequence

from editjudge.cli import main


def run(words: str | Sequence[str]) -> str:
    """What a command prints, without the last line's end; a mistake of the user is raised as it is."""
    words = shlex.split(words) if isinstance(words, str) else words
    command, given, _ = main.program().parse_args(words, exit_on_error=False, print_error=False)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        command(*given.args, **given.kwargs)
    return out.getvalue().removesuffix("\n")
