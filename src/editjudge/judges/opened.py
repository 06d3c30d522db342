"""What all opened judges share: a store of their own in work/, and an account of what their answers cost."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from editjudge.core.files import work
from editjudge.engine.resume import RecordCache
from editjudge.models.endpoint.spending import Account


class Opened:
    """A judge of params.yaml. where: its place there, such as judges.pvc_judge, which also names its store.

    The store is opened when the block begins. What is started in the block (a server, processes) ends with it.
    """

    def __init__(self, where: str, account: Account, store: Path | None = None) -> None:
        self.where, self.account = where, account
        self._file = store or work("judge", f"{where.removeprefix('judges.')}.sqlite")
        self._started = ExitStack()

    def __enter__(self) -> Self:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self.store = self._started.enter_context(RecordCache(self._file))
        return self

    def __exit__(self, *error: Any) -> None:
        self._started.__exit__(*error)
