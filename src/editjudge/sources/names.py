"""What upstream calls an edit task, and what it is called here: one table for all data sets, `names.yaml`.

A name is compared without what is in brackets, and by its letters and digits alone, of any script.
"""

import functools
import re
from pathlib import Path

from editjudge.core import params

_TABLE = params.load(Path(__file__).with_name("names.yaml"))
NAMES: dict[str, list[str]] = _TABLE["tasks"]
UNMAPPED: list[str] = _TABLE["unmapped"]


@functools.lru_cache(maxsize=4096)  # few names, each on very many rows
def plain_name(name: str) -> str:
    """The name as it is compared: "Subject-Add (new)" is `subject_add`; "" is no name, and equal to none."""
    return re.sub(r"[\W_]+", "_", re.sub(r"\([^)]*\)", " ", name).casefold()).strip("_")


TASK_OF: dict[str, str | None] = {
    **{plain_name(name): task for task, names in NAMES.items() for name in (task, *names)},
    **{plain_name(name): None for name in UNMAPPED},
}


def task_of(name: str) -> str | None:
    """Our task behind an upstream name; None where the name has none or is not known (see `TASK_OF`)."""
    return TASK_OF.get(plain_name(name))
