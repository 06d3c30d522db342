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


@dataclass
class GalleryReport:
    """What a gallery has and lacks. missing: keys; broken: keys with the reason; extra: files of no case."""

    done: int = 0
    missing: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For people; every name stands in what is written."""
        found = [f"{self.done} images of {self.done + len(self.missing) + len(self.broken)} cases"]
        broken = [f"{key} ({reason})" for key, reason in self.broken.items()]
        for word, names in (("missing", self.missing), ("broken", broken), ("of no case", self.extra)):
            if names:
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                found.append(f"{len(names)} {word}: {', '.join(names[:SHOWN])}{more}")
        return found

    def rows(self) -> list[Row]:
        """All names: kind, name and reason."""
        found = [("missing", key, pictures.NO_IMAGE) for key in self.missing]
        found += [("broken", key, reason) for key, reason in self.broken.items()]
        found += [("extra", name, "of no case") for name in self.extra]
        return [dict(zip(("kind", "name", "reason"), each, strict=True)) for each in found]


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
        elif row["reason"] == pictures.NO_IMAGE:
            report.missing.append(case["key"])
        else:
            report.broken[case["key"]] = row["reason"]
        yield row
    if folder is None:
        report.extra += sorted(set(given.listed()) - known)
        return
    files |= known
    others = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    own = {name + ending for name in files for ending in pictures.ENDINGS}
    report.extra += sorted({file.as_posix() for file in others} - own)


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
