"""Errors: those that the user can fix, and how one is told in a line."""

import re

SHOWN_CHARS = 300  # of an error
# Escape codes and what else moves a terminal's cursor or turns its writing round; not line breaks.
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class UserError(Exception):
    """Base class of errors the user can fix. The message, one line without a traceback, says what is wrong, where, and
    what to do."""


class FileError(UserError, ValueError):
    """A file that is missing or cannot be used; the message begins with its name."""


def describe(error: BaseException) -> str:
    """The error's class and the first line of its message, cut where it is long."""
    line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {line}"[:SHOWN_CHARS]


def printable(text: str) -> str:
    """The text with a space for each character that a terminal obeys instead of showing it."""
    return OBEYED.sub(" ", text)
