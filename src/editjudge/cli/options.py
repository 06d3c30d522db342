"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

Params: TypeAlias = Annotated[
    Path | None,
    Parameter(help="Settings to use instead of params.yaml in this folder, or else the package's own."),
]
Box: TypeAlias = tuple[int, int, int, int]
