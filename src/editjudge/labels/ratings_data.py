"""Ratings of single edits, as ImgEdit-Judge is trained on them (arXiv 2505.20275), from a table in JSON lines, CSV or
Parquet.

A record: source and edited (image paths, or images), instruction, type (one of ImgEdit's or a task of ours), and a
score 1..5 of each dimension: `adherence`, `quality` and `preservation`, or `scores` with these three, or a list of them
in this order. key, where it is there, names it; model says who made the edit. People's tables have several rows of one
key, one a person: the mean of their scores, rounded, counts.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from editjudge.core import reading
from editjudge.core.keys import plain
from editjudge.core.records import Row
from editjudge.core.tables import RowError
from editjudge.engine.resume import fingerprint
from editjudge.judges.rubrics import DIMENSIONS, type_of
from editjudge.labels.data_settings import RatingsSource
from editjudge.labels.rows import ImageSink, LabelledEdit, part_of, pictures_of, row

LEAST, MOST = 1, 5
RATED, PEOPLE = "ratings", "people"


def scores_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The scores of one record by dimension. RowError: one is missing, no number, or outside of 1..5."""
    given = values.get("scores", values)
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise RowError("scores that cannot be read", f"{given!r:.80}") from None
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == len(DIMENSIONS):
        given = dict(zip(DIMENSIONS, given, strict=True))
    if not isinstance(given, Mapping):
        raise RowError("scores that cannot be read", f"{given!r:.80}")
    found = {}
    for name in DIMENSIONS:
        try:
            found[name] = float(given[name])
        except (KeyError, TypeError, ValueError):
            raise RowError("a dimension without a score", f"{name}: {given.get(name)!r:.40}") from None
        if not LEAST <= found[name] <= MOST:  # nan, too
            raise RowError(f"a score outside of {LEAST}..{MOST}", f"{name}: {found[name]:g}")
    return found


def rows(setting: RatingsSource, to: ImageSink) -> Iterator[Row]:
    """The rows of both tables; `dropped` in the report counts the records that cannot be used, by reason."""
    dropped = Counter[str]()
    yield from _table(setting.path, setting.images, RATED, setting.test_share, to, dropped)
    if setting.people:
        yield from _table(setting.people, setting.people_images, PEOPLE, 1.0, to, dropped)
    to.report |= {"dropped": [{"reason": reason, "rows": count} for reason, count in sorted(dropped.items())]}


def _table(
    path: str, images: str | None, rule: str, test: float, to: ImageSink, dropped: Counter[str]
) -> Iterator[Row]:
    groups: dict[str, tuple[reading.Record, list[dict[str, float]]]] = {}
    for record in reading.read(reading.Table(path=path, images=images)):
        try:
            scores = scores_of(record.values)
            key = str(record.get("key") or record.key)
            groups.setdefault(key, (replace(record, row=_light(record)), []))[1].append(scores)
        except RowError as error:
            dropped[error.reason] += 1
    for key, (record, given) in groups.items():
        mean = {name: math.floor(sum(each[name] for each in given) / len(given) + 0.5) for name in DIMENSIONS}
        try:
            yield _row(plain(f"{rule}-{key}"), record, mean, rule, test, to)
        except RowError as error:
            dropped[error.reason] += 1


def _light(record: reading.Record) -> dict[str, Any]:
    return {name: record.values.get(name) for name in ("source", "edited", "instruction", "type", "model")}


def _row(key: str, record: reading.Record, scores: Mapping[str, float], rule: str, test: float, to: ImageSink) -> Row:
    instruction, type_ = record.text("instruction"), record.text("type")
    source, edited = (to.add(picture) for picture in pictures_of(record, record["source"], record["edited"]))
    photo = source[1][:16]
    prompt = plain(f"{photo}.{fingerprint(instruction)[:16]}")
    a = LabelledEdit(*edited, model=record.get("model"), scores={name: float(score) for name, score in scores.items()})
    part = part_of(photo, test)
    return row(key, prompt, type_of(type_), instruction, source, a, origin=photo, part=part, rule=rule)
