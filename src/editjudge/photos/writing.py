"""The instructions of photographs, and which edits have none."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from editjudge.core import records
from editjudge.core.tables import RowError
from editjudge.photos import edits
from editjudge.photos.reading import Given
from editjudge.photos.settings import Instructions

GROUP = 16  # photographs whose edits are asked for together


@dataclass
class Written:
    """Writes instructions. A dialogue lacks none of its turns, or is left out as a whole."""

    setting: Instructions
    write: edits.Writer
    out: Callable[[records.Row], None]
    types: Counter[str] = field(default_factory=Counter)
    test: int = 0
    dialogues: set[str] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)

    def take(self, photos: Iterable[Given]) -> Iterator[records.Row]:
        """Rows of the contract photo_edits, photograph by photograph."""
        for group in records.in_groups(({"photo": photo, "data": data} for photo, data in photos), GROUP):
            wanted = [edit for each in group for edit in self._asked(each["photo"], each["data"])]
            found = zip(wanted, self.write(wanted), strict=True)
            for name, turns in groupby(found, key=lambda pair: pair[0].dialogue or pair[0].key):
                yield from self._rows(name, list(turns))

    def _asked(self, photo: Any, data: bytes) -> list[edits.Asked]:
        try:
            return list(edits.asked(photo, edits.shown(photo, data, self.setting.side), self.setting, self._count))
        except RowError as error:
            self.refuse(photo.path, error)
            return []

    def _rows(self, name: str, turns: list[tuple[edits.Asked, edits.Written | str]]) -> Iterator[records.Row]:
        for edit, said in turns:
            if isinstance(said, str):
                self.refuse(edit.photo.path, RowError("not written", said), name)
                return
        for edit, said in turns:
            assert isinstance(said, edits.Written)
            self.types[edit.choice.type] += 1
            self.test += edit.split == edits.TEST
            self.dialogues |= {name} if edit.dialogue else set()
            yield edits.row(edit, said)

    def refuse(self, photo: str, error: RowError, edit: str = "") -> None:
        self._count(dict(zip(edits.REFUSED, (photo, edit, error.reason, error.detail[:200]), strict=True)))

    def _count(self, row: records.Row) -> None:
        self.reasons[row["reason"]] += 1
        self.out(row)

    def report(self) -> dict[str, Any]:
        """metrics/instructions.json."""
        return {
            "records": self.types.total(),
            "test": self.test,
            "dialogues": len(self.dialogues),
            "types": [{"type": kind, "edits": n} for kind, n in sorted(self.types.items())],
            "refused": self.reasons.total(),
            "reasons": [{"reason": reason, "edits": n} for reason, n in sorted(self.reasons.items())],
        }
