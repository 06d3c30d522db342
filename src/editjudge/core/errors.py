"""Errors: those that the user can fix, and how one is told in a line."""

SHOWN_CHARS = 300  # of an error


class UserError(Exception):
    """Base class of errors the user can fix. The message, one line without a traceback, says what is wrong, where, and
    what to do."""


class FileError(UserError, ValueError):
    """A file that is missing or cannot be used; the message begins with its name."""


def describe(error: BaseException) -> str:
    """The error's class and the first line of its message, cut where it is long."""
    line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {line}"[:SHOWN_CHARS]
