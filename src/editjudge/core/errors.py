"""Base class of errors the user can fix: a stage ends with the message, one line, without a traceback."""


class UserError(Exception):
    """What is wrong with settings, files, models or endpoints; the message says where, and what to do."""


class FileError(UserError, ValueError):
    """A file that is missing or cannot be used; the message begins with its name."""
