"""EditReward-Data (Wu et al. 2025, arXiv 2509.26346): human preferences by dimension, and its ties.

A record: prompt, path_src, path1 (preferred), path2, model1, model2, model{1,2}_dim{1,2}_score,
model{1,2}_overall_score, tie_case, choice_dist, confidence. Dimension 1 is instruction following, 2 visual quality,
each 1 to 4, higher is better.
The published training code never reads `tie_case`: what a tie says has to be in the data.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from editjudge.core import reading
from editjudge.core.keys import plain
from editjudge.core.records import Row
from editjudge.core.tables import RowError
from editjudge.engine.resume import fingerprint
from editjudge.labels.data_settings import EditRewardSource
from editjudge.labels.rows import ImageSink, LabelledEdit, flipped, part_of, pictures_of, row

DIMENSIONS = ("instruction_following", "visual_quality")
PEOPLE = "people preferred it, EditReward-Data"
TIED = "people saw a tie, better in {}, EditReward-Data (Eq. 6)"
DUPLICATE, OPPOSITE = "duplicate", "duplicate with another label"
Winner: TypeAlias = Literal["Image A", "Image B"]
PairKey: TypeAlias = tuple[str, str, frozenset[str]]
"""Instruction, source and the two edits, whichever stands first."""


@dataclass(frozen=True)
class Preference:
    """Two edits of which people preferred `winner`. source, a, b: paths as published. scores: by dimension."""

    key: str
    instruction: str
    source: str
    a: str
    b: str
    models: tuple[str | None, str | None]
    scores: tuple[Mapping[str, float], Mapping[str, float]]
    overall: tuple[float | None, float | None]
    winner: Winner
    rule: str

    @property
    def pair(self) -> PairKey:
        return self.instruction, self.source, frozenset((self.a, self.b))

    @property
    def preferred(self) -> str:
        return self.a if self.winner == "Image A" else self.b


def read(values: Mapping[str, Any], key: str) -> list[Preference]:
    """The samples of one record: one, or two of a tie whose dimensions disagree. RowError: it cannot be used, and why.

    A tie whose dimensions do not contradict each other qualifies for nothing (Eq. 6).
    """
    texts = [_text(values, name) for name in ("prompt", "path_src", "path1", "path2")]
    instruction, source, a, b = texts
    if a == b:
        raise RowError("an edit against itself", a)
    known = tuple(
        {
            dimension: score
            for n, dimension in enumerate(DIMENSIONS, 1)
            if (score := _number(values, f"model{side}_dim{n}_score")) is not None
        }
        for side in (1, 2)
    )
    overall = tuple(_number(values, f"model{side}_overall_score") for side in (1, 2))
    models = tuple(str(values[name]) if values.get(name) else None for name in ("model1", "model2"))
    own = Preference(key, instruction, source, a, b, models, known, overall, "Image A", PEOPLE)  # type: ignore[arg-type]
    return disentangled(own) if is_tie(values) else [own]


def is_tie(values: Mapping[str, Any]) -> bool:
    """Whether people saw a tie: `tie_case` is true, 1, or a word other than none, false and no."""
    case = values.get("tie_case")
    if isinstance(case, str):
        return case.strip().casefold() not in ("", "0", "none", "null", "nan", "false", "no", "no_tie", "not_tie")
    return bool(case) and case == case  # NaN: an empty cell


def disentangled(tie: Preference) -> list[Preference]:
    """Eq. 6: two samples with opposite labels where each edit is better in one dimension. RowError where not."""
    first, second = tie.scores
    both = [dimension for dimension in DIMENSIONS if dimension in first and dimension in second]
    if len(both) < len(DIMENSIONS):
        raise RowError("tie without the scores of both dimensions")
    better: list[Winner] = ["Image A" if first[d] > second[d] else "Image B" for d in both if first[d] != second[d]]
    if len(better) < len(both):
        raise RowError("tie with equal dimension scores")
    if len(set(better)) == 1:
        raise RowError("tie whose dimensions agree", f"both for {better[0]}")
    return [
        replace(tie, key=f"{tie.key}.{n}", winner=winner, rule=TIED.format(dimension.replace("_", " ")))
        for n, (dimension, winner) in enumerate(zip(both, better, strict=True), 1)
    ]


def once(records: Iterable[list[Preference]]) -> tuple[list[Preference], list[tuple[str, str, str]]]:
    """The samples whose pair stands in one record alone, and the others: (reason, key, the earlier record's key).

    Of records that say the same of a pair the first is kept. Where two contradict each other neither is to be believed,
    and both go. The two samples of one tie contradict each other on purpose.
    """
    seen: dict[PairKey, list[Preference]] = {}
    dropped: list[tuple[str, str, str]] = []
    for samples in records:
        earlier = seen.setdefault(samples[0].pair, samples)
        if earlier is not samples:
            same = _said(earlier) == _said(samples)
            dropped.append((DUPLICATE if same else OPPOSITE, samples[0].key, earlier[0].key))
    contradicted = {key for reason, _, key in dropped if reason == OPPOSITE}
    kept = [samples for samples in seen.values() if samples[0].key not in contradicted]
    return [sample for samples in kept for sample in samples], dropped


def _said(samples: list[Preference]) -> str:
    return samples[0].preferred if len(samples) == 1 else "tie"


def rows(setting: EditRewardSource, to: ImageSink) -> Iterator[Row]:
    """Rows of pairs; `to.report` counts what was dropped, and names duplicates. Raises TableError."""
    dropped, read_, places = Counter[str](), list[list[Preference]](), dict[str, reading.Record]()
    for record in reading.read(reading.Table(path=setting.path, images=setting.images)):
        try:
            read_.append(read(record.values, record.key))
            places[record.key] = replace(record, row={})
        except RowError as error:
            dropped[error.reason] += 1
    kept, again = once(read_)
    dropped.update(reason for reason, *_ in again)
    ties = 0
    for sample in kept:
        record_key = sample.key.removesuffix(".1").removesuffix(".2")
        try:
            row_ = _row(sample, places[record_key], setting.test_share, to)
        except RowError as error:
            dropped[error.reason] += 1
            continue
        ties += sample.rule != PEOPLE
        yield row_
    to.report |= {
        "dropped": [{"reason": reason, "samples": count} for reason, count in sorted(dropped.items())],
        "samples_of_ties": ties,
        "duplicates": [{"reason": reason, "key": key, "earlier": earlier} for reason, key, earlier in again],
    }


def _row(sample: Preference, record: reading.Record, test: float, to: ImageSink) -> Row:
    """The row of a sample, its images written. The preferred edit stands second in half of the rows, by its key.

    RowError: an image is missing or broken.
    """
    pictures = pictures_of(record, sample.source, sample.a, sample.b)
    source, *names = [to.add(picture) for picture in pictures]
    shown = [LabelledEdit(*names[n], sample.models[n], sample.scores[n], sample.overall[n]) for n in (0, 1)]
    winner = sample.winner
    if flipped(sample.key):
        shown, winner = shown[::-1], "Image A" if winner == "Image B" else "Image B"
    photo = source[1][:16]
    prompt = plain(f"{photo}.{fingerprint(sample.instruction)[:16]}")
    more: dict[str, Any] = {"origin": photo, "part": part_of(photo, test), "winner": winner, "rule": sample.rule}
    return row(plain(sample.key), prompt, "unknown", sample.instruction, source, *shown, **more)


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RowError(f"no {name}", f"text expected, not {value!r:.80}")
    return value


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if value is None or value == "" or value != value:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise RowError("a score that is no number", f"{name}: {value!r:.40}")
    return number
