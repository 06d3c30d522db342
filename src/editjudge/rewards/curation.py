"""Curation: the best edits of a data set by a scorer or a rater, with their scores, and why the others were left out.

An edit without a score is never kept, and never a 0."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.spatial import cKDTree

from editjudge.core import images, records
from editjudge.core.files import replacing
from editjudge.core.records import Image, Row
from editjudge.engine.workers import on_cores
from editjudge.judges.protocol import Edit, Score, Scorer, Unscored

AT_ONCE, GROUP = 512, 16  # edits that are scored, and hashed, together
DETAIL = re.compile(r": ['\"]| of ")  # what stands behind it in a reason is of one edit: a reply, a name
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FORM = pa.schema(
    [
        *((name, pa.string()) for name in ("key", "model", "task", "instruction")),
        *((name, PICTURE) for name in ("source_image", "edited_image")),
        *((name, pa.float64()) for name in ("score", "std", "calibrated", "damage")),
        ("scores", pa.list_(pa.struct([("dimension", pa.string()), ("score", pa.float64())]))),
    ]
)
Picture = Callable[[], Image | str]


@dataclass(frozen=True)
class CandidateEdit:
    """An edit that may be kept. source, edited: its images when they are asked for, or why there is none."""

    key: str
    model: str | None
    task: str
    instruction: str
    source: Picture
    edited: Picture
    damage: float | None = None
    score: Score | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        return f"{self.model}/{self.key}" if self.model else self.key

    @property
    def overall(self) -> float:
        """Of an edit that has a score."""
        assert self.score is not None
        return self.score.overall


@dataclass(frozen=True)
class Quotas:
    """top, share: how many edits are kept at most, or which share of those with a score that are no near-duplicates.

    per_task, per_prompt: of each task, and of each key, at most. near: levels of 255 by which the pixels of two edits
    with one instruction may differ, on average and in each of 16 parts, to be one; -1: equal bytes alone."""

    top: int | None = None
    share: float | None = None
    per_task: int | None = None
    per_prompt: int | None = None
    near: float = 4.0

    def most(self, scored: int) -> int:
        shared = scored if self.share is None else math.floor(self.share * scored)
        return shared if self.top is None else min(self.top, shared)


def scored(candidates: Iterable[CandidateEdit], scorer: Scorer, by: str | None = None) -> Iterator[CandidateEdit]:
    """The candidates with their scores, or with the reason why there is none. by: the dimension that counts."""
    for group in records.in_groups(candidates, AT_ONCE):
        found = [_edit(candidate) for candidate in group]
        answers = iter(scorer.score([edit for edit in found if isinstance(edit, Edit)]))
        for candidate, edit in zip(group, found, strict=True):
            answer = edit if isinstance(edit, Unscored) else next(answers)
            if isinstance(answer, Score) and by is not None:
                of_it = {"overall": answer.dimensions[by], "overall_std": answer.std.get(by), "calibrated": None}
                answer = replace(answer, **of_it)  # type: ignore[arg-type]
            if isinstance(answer, Score) and math.isfinite(answer.overall):
                yield replace(candidate, score=answer)
            else:
                why = answer.reason if isinstance(answer, Unscored) else "the score is not finite"
                yield replace(candidate, reason=f"unscored: {why}")


def _edit(candidate: CandidateEdit) -> Edit | Unscored:
    source, edited = candidate.source(), candidate.edited()
    if isinstance(source, str):
        return Unscored(f"source: {source}")
    if isinstance(edited, str):
        return Unscored(f"edit: {edited}")
    return Edit(candidate.instruction, source, edited, task=candidate.task)


def select(candidates: Sequence[CandidateEdit], limits: Quotas) -> tuple[list[CandidateEdit], list[CandidateEdit]]:
    """Those that are kept, the best first, and the others, each with its reason.

    Near-duplicates go first, all but the best of them. What a quota leaves free goes to the next best."""
    dropped = [candidate for candidate in candidates if not candidate.score]
    known = sorted((c for c in candidates if c.score), key=lambda c: (-c.overall, c.name))
    distinct, again = apart(known, limits.near)
    dropped += again
    most, kept = limits.most(len(distinct)), list[CandidateEdit]()
    counts = Counter[tuple[str, str]]()
    for candidate in distinct:
        task, prompt = ("task", candidate.task), ("prompt", candidate.key)
        if len(kept) >= most:
            dropped.append(replace(candidate, reason="below the cut"))
        elif limits.per_task is not None and counts[task] >= limits.per_task:
            dropped.append(replace(candidate, reason=f"quota of {candidate.task}"))
        elif limits.per_prompt is not None and counts[prompt] >= limits.per_prompt:
            dropped.append(replace(candidate, reason="better edits of its prompt are kept"))
        else:
            kept.append(candidate)
            counts.update((task, prompt))
    return kept, dropped


def looks(shown: Sequence[tuple[Any, Any]]) -> list[tuple[bytes, bytes, bool]]:
    """In a worker: of each source and edit, the hash of the edit's file, the mean colours of its 16 parts, and whether
    it is its source."""
    found = []
    for source, edited in shown:
        image, before = images.decode(bytes(edited)), images.decode(bytes(source))
        parts = cv2.resize(image, (4, 4), interpolation=cv2.INTER_AREA).tobytes()
        found.append((sha256(bytes(edited)).digest(), parts, np.array_equal(image, before)))
    return found


def alike(one: CandidateEdit, other: CandidateEdit, near: float) -> bool:
    """Whether their pixels agree: of one size, and the mean difference of levels is at most near."""
    a, b = (images.decode(bytes(each.edited())).astype(np.int16) for each in (one, other))  # type: ignore[arg-type]
    return a.shape == b.shape and float(abs(a - b).mean()) <= near


def apart(candidates: Sequence[CandidateEdit], near: float) -> tuple[list[CandidateEdit], list[CandidateEdit]]:
    """The candidates without those that are the same as an earlier one with the same instruction, or nearly, and these
    with their reason. An edit that is its source stands for no other."""
    distinct, again, told = list[CandidateEdit](), list[CandidateEdit](), dict[str, list[int]]()
    shown = ([(each.source(), each.edited()) for each in group] for group in records.in_groups(candidates, GROUP))
    seen = [*chain.from_iterable(on_cores(looks, shown, len(candidates) // GROUP))]
    for number, candidate in enumerate(candidates):
        told.setdefault(" ".join(candidate.instruction.split()).casefold(), []).append(number)
    dropped = dict[int, str]()
    for group in told.values():
        first, parts = dict[bytes, int](), np.array([list(seen[n][1]) for n in group])
        close = cKDTree(parts).query_pairs(near, p=np.inf, output_type="ndarray") if near >= 0 else ()
        before = dict[int, list[int]]()
        for earlier, later in sorted(map(tuple, close)):
            before.setdefault(group[later], []).append(group[earlier])
        for number in group:
            if (same := first.setdefault(seen[number][0], number)) != number:
                dropped[number] = f"duplicate pair of {candidates[same].name}"
                continue
            stands = (n for n in before.get(number, ()) if n not in dropped and not seen[n][2])
            like = next((n for n in stands if alike(candidates[number], candidates[n], near)), None)
            if like is not None:
                dropped[number] = f"near duplicate of {candidates[like].name}"
    names = dict[str, int]()
    for number, candidate in enumerate(candidates):
        if number in dropped:
            again.append(replace(candidate, reason=dropped[number]))
        elif names.setdefault(candidate.name, number) != number:
            again.append(replace(candidate, reason=f"duplicate key of {candidate.name}"))
        else:
            distinct.append(candidate)
    return distinct, again


def report(kept: Sequence[CandidateEdit], dropped: Sequence[CandidateEdit]) -> dict[str, Any]:
    """What was kept and why the rest was not; with the known damage of both where it is known."""
    every = [*kept, *dropped]
    reasons = Counter(DETAIL.split(each.reason or "")[0] for each in dropped)
    tasks, ours = Counter(each.task for each in every), Counter(each.task for each in kept)
    return {
        "edits": len(every),
        "scored": sum(each.score is not None for each in every),
        "kept": len(kept),
        "dropped": [{"reason": reason, "edits": count} for reason, count in sorted(reasons.items())],
        "score": {"kept": _mean(c.overall for c in kept), "all": _mean(c.overall for c in every if c.score)},
        "damage": {"kept": _mean(c.damage for c in kept), "all": _mean(c.damage for c in every if c.score)},
        "per_task": [{"task": task, "edits": n, "kept": ours[task]} for task, n in sorted(tasks.items())],
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def write(out: Path, kept: Sequence[CandidateEdit], dropped: Sequence[CandidateEdit]) -> None:
    """The selection with its images, a row group in memory at a time; what was left out; and the report."""
    with replacing(out / "selection.parquet") as partial, pq.ParquetWriter(partial, FORM, compression="zstd") as file:
        for group in records.in_groups(map(_row, kept)):
            file.write_table(pa.Table.from_pylist(group, schema=FORM))
    with records.csv_writer(out / "dropped.csv", ("key", "model", "task", "score", "reason", "said")) as drop:
        for each in sorted(dropped, key=lambda c: c.name):
            score, said = (each.score.overall, each.score.said) if each.score else (None, None)
            own = {name: getattr(each, name) for name in ("key", "model", "task", "reason")}
            drop(own | {"score": score, "said": said})
    records.write_json(out / "report.json", report(kept, dropped))


def _row(candidate: CandidateEdit) -> Row:
    score = candidate.score
    assert score is not None
    row: Row = {name: getattr(candidate, name) for name in ("key", "model", "task", "instruction", "damage")}
    row |= {"score": score.overall, "std": score.overall_std, "calibrated": score.calibrated}
    row["scores"] = [{"dimension": name, "score": value} for name, value in score.dimensions.items()]
    shown: dict[str, Any] = {"source_image": candidate.source(), "edited_image": candidate.edited()}
    return row | {name: {"bytes": bytes(image), "path": None} for name, image in shown.items()}
