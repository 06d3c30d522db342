# ruff: noqa: F405
"""Judge image edits: which of two edits kept better what had to stay?

    >>> import editjudge
    >>> editjudge.compare("s.png", "a.png", "b.png", "Make the car red", judge="pvc_judge").winner  # doctest: +SKIP
    'Image A'

The functions and classes are those of `editjudge.api`. They are loaded when they are used, and importing the package
changes nothing in the process."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from editjudge import api as api
    from editjudge.api import *  # noqa: F403

__all__ = [
    "Answer", "Comparison", "EditMeasures", "LoadedJudge", "Ranking", "ScoredEdit", "UserError",
    "compare", "load_judge", "measure", "rank", "score",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "api" and name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("editjudge.api")
    return module if name == "api" else getattr(module, name)
