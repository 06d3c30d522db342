"""A model's edits of a suite's cases: as a folder in the suite's published form, `<key>.png` each, and as rows.

GEdit-Bench v1 has them in folders: fullset/TASK/LANGUAGE/KEY.png.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from editjudge.core.files import write_bytes
from editjudge.core.keys import FILE_NAME
from editjudge.core.records import Row
from editjudge.editors.galleries import pictures

SHOWN = 20  # names of each kind in a line
WORDS = {"missing": "missing", "broken": "broken", "extra": "of no case"}


@dataclass
class GalleryReport:
    """What a gallery has and lacks. done: images; rows: kind (of WORDS), name (a key, or a file of no case), reason."""

    done: int = 0
    rows: list[Row] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people; every name stands in `rows`."""
        found = [f"{self.done} images of {self.done + sum(row['kind'] != 'extra' for row in self.rows)} cases"]
        for kind, word in WORDS.items():
            own = [row for row in self.rows if row["kind"] == kind]
            names = [row["name"] + (f" ({row['reason']})" if kind == "broken" else "") for row in own]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            found += [f"{len(names)} {word}: {', '.join(names[:SHOWN])}{more}"] if names else []
        return found


def read(path: Path, cases: Iterable[Row], model: str, report: GalleryReport) -> Iterator[Row]:
    """A row of the contract candidates for each case; what is missing or broken has failed with its reason.

    path: a folder in the published form, a gallery with its metadata.jsonl, or a table, see `pictures`. GalleryError.
    """
    given = pictures.Given(path, model)
    folder = path if path.is_dir() and not (path / pictures.METADATA).is_file() else None
    known, files = set[str](), set[str]()
    for case in cases:
        known.add(case["key"])
        files.add(case["file"])
        found = given(case["key"]) if folder is None else pictures.by_name(folder, case["file"], case["key"])
        row = pictures.candidate(case["key"], case["task"], model, found)
        if row["status"] == "done":
            report.done += 1
        else:
            kind = "missing" if row["reason"] == pictures.NO_IMAGE else "broken"
            report.rows.append({"kind": kind, "name": case["key"], "reason": row["reason"]})
        yield row
    extra = set(given.listed()) - known
    if folder is not None:
        own = {name + ending for name in files | known for ending in pictures.ENDINGS}
        extra = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()} - own
    report.rows.sort(key=lambda row: row["kind"] != "missing")
    report.rows += [{"kind": "extra", "name": name, "reason": WORDS["extra"]} for name in sorted(extra)]


def write(rows: Iterable[Row], files: dict[str, str], folder: Path) -> int:
    """Writes `<folder>/<file>.png` for each edit that is done, by the cases' `file`; how many there were."""
    count = 0
    for row in rows:
        if row["status"] == "done" and (file := files.get(row["key"])):
            for part in Path(file).parts:
                if not FILE_NAME.fullmatch(part):
                    raise pictures.GalleryError(f"the case {row['key']}: {part!r:.80} cannot be a file's name")
            write_bytes(folder / f"{file}.png", pictures.as_png(row["image"]))
            count += 1
    return count
