"""Tables that others made as scorer data: people's preferences (EditReward-Data), and ratings of single edits.

EditReward-Data (Wu et al. 2025, arXiv 2509.26346). A record: prompt, path_src, path1 (preferred), path2, model1,
model2, model{1,2}_dim{1,2}_score, model{1,2}_overall_score, tie_case, choice_dist, confidence. Dimension 1 is
instruction following, 2 visual quality, each 1 to 4, higher is better. A tie (`tie_case`) becomes two samples with
opposite labels by the paper's Eq. 6, if its dimensions contradict each other; the published training code never reads
`tie_case`, so that the first path wins there. `ties` of the settings says by which of the two.

Ratings, as ImgEdit-Judge is trained on them (arXiv 2505.20275), in JSON lines, CSV or Parquet. A record: source and
edited (image paths, or images), instruction, type (one of ImgEdit's or a task of ours), and a score 1..5 of each
dimension: `adherence`, `quality` and `preservation`, or `scores` with these three, or a list of them in this order.
key, where it is there, names it; model says who made the edit. People's tables have several rows of one key, one a
person: the mean of their scores, rounded, counts."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeAlias

from editjudge.core import reading
from editjudge.core.keys import plain
from editjudge.core.records import Row
from editjudge.core.tables import RowError
from editjudge.core.winner import OTHER_SIDE, Winner
from editjudge.judges.rubrics import DIMENSIONS as RATED_DIMENSIONS
from editjudge.judges.rubrics import type_of
from editjudge.labels.rows import EditRewardSource, ImageSink, LabelledEdit, RatingsSource, added, of_photo, row

DIMENSIONS = ("instruction_following", "visual_quality")
PREFERRED = "people preferred it, EditReward-Data"
TIED = "people saw a tie, better in {}, EditReward-Data (Eq. 6)"
TIED_CODE = "people saw a tie, of which the published code of EditReward-Data takes the first edit"
DUPLICATE, OPPOSITE = "duplicate", "duplicate with another label"
NO_TIE = ("", "0", "none", "null", "nan", "false", "no", "no_tie", "not_tie")
LEAST, MOST = 1, 5  # of ratings
RATED, PEOPLE = "ratings", "people"
PairKey: TypeAlias = tuple[str, str, frozenset[str]]
"""Instruction, source and the two edits, whichever stands first."""


@dataclass(frozen=True)
class Preference:
    """Two edits of which people preferred `winner`. source, and the names of a and b: paths as published."""

    key: str
    instruction: str
    source: str
    a: LabelledEdit
    b: LabelledEdit
    winner: Winner = "Image A"
    rule: str = PREFERRED

    @property
    def preferred(self) -> str:
        return self.a.name if self.winner == "Image A" else self.b.name


def read(values: Mapping[str, Any], key: str, ties: str = "paper") -> list[Preference]:
    """The samples of one record. RowError: it cannot be used, and why.

    Of a tie by the paper (Eq. 6) two with opposite labels, where each edit is better in one dimension; a tie whose
    dimensions do not contradict each other qualifies for nothing."""
    names = ("prompt", "path_src", "path1", "path2")
    instruction, source, *paths = [reading.text(values.get(name), name) for name in names]
    if paths[0] == paths[1]:
        raise RowError("an edit against itself", paths[0])
    edits = []
    for side, path in enumerate(paths, 1):
        given = {name: _number(values, f"model{side}_dim{n}_score") for n, name in enumerate(DIMENSIONS, 1)}
        scores = {name: score for name, score in given.items() if score is not None}
        model, overall = values.get(f"model{side}"), _number(values, f"model{side}_overall_score")
        edits.append(LabelledEdit(path, "", str(model) if model else None, scores, overall))
    own = Preference(key, instruction, source, edits[0], edits[1])
    if ties == "code" or not is_tie(values):
        return [replace(own, rule=TIED_CODE) if is_tie(values) else own]
    first, second = (edit.scores for edit in edits)
    if min(len(first), len(second)) < len(DIMENSIONS):
        raise RowError("tie without the scores of both dimensions")
    better: dict[str, Winner] = {
        name: "Image A" if first[name] > second[name] else "Image B"
        for name in DIMENSIONS
        if first[name] != second[name]
    }
    if len(better) < len(DIMENSIONS):
        raise RowError("tie with equal dimension scores")
    if len(set(better.values())) == 1:
        raise RowError("tie whose dimensions agree", f"both for {better[DIMENSIONS[0]]}")
    return [
        replace(own, key=f"{key}.{n}", winner=winner, rule=TIED.format(name.replace("_", " ")))
        for n, (name, winner) in enumerate(better.items(), 1)
    ]


def is_tie(values: Mapping[str, Any]) -> bool:
    """Whether people saw a tie: `tie_case` is true, 1, or a word other than none, false and no."""
    case = values.get("tie_case")
    if isinstance(case, str):
        return case.strip().casefold() not in NO_TIE
    return bool(case) and case == case  # NaN: an empty cell


def once(records: Iterable[list[Preference]]) -> tuple[list[Preference], list[tuple[str, str, str]]]:
    """The samples whose pair stands in one record alone, and the others: (reason, key, the earlier record's key).

    Of records that say the same of a pair the first is kept. Where two contradict each other neither is to be believed,
    and both go. The two samples of one tie contradict each other on purpose."""
    seen: dict[PairKey, list[Preference]] = {}
    dropped: list[tuple[str, str, str]] = []
    for samples in records:
        one = samples[0]
        earlier = seen.setdefault((one.instruction, one.source, frozenset((one.a.name, one.b.name))), samples)
        if earlier is not samples:
            said, said_before = ("tie" if len(each) > 1 else each[0].preferred for each in (samples, earlier))
            reason = DUPLICATE if said == said_before else OPPOSITE
            dropped.append((reason, one.key, earlier[0].key))
    contradicted = {key for reason, _, key in dropped if reason == OPPOSITE}
    kept = [samples for samples in seen.values() if samples[0].key not in contradicted]
    return [sample for samples in kept for sample in samples], dropped


def preferences(setting: EditRewardSource, to: ImageSink) -> Iterator[Row]:
    """Rows of pairs; `to` counts what was dropped, and names duplicates. Raises TableError."""
    found, places, ties = list[list[Preference]](), dict[str, reading.Record](), 0
    for record in reading.read(reading.Table(path=setting.path, images=setting.images)):
        with to.counting():
            found.append(read(record.values, record.key, setting.ties))
            places |= {sample.key: replace(record, row={}) for sample in found[-1]}
    kept, again = once(found)
    to.dropped.update(reason for reason, *_ in again)
    for sample in kept:
        with to.counting():
            yield _preference(sample, places[sample.key], setting.test_share, to)
            ties += sample.rule != PREFERRED
    duplicates = [{"reason": reason, "key": key, "earlier": earlier} for reason, key, earlier in again]
    to.report |= {"samples_of_ties": ties, "duplicates": duplicates}


def _preference(sample: Preference, record: reading.Record, test: float, to: ImageSink) -> Row:
    """The row of a sample, its images written. The preferred edit stands second in half of the rows, by its key.
    RowError: an image is missing or broken."""
    source, *names = added(to, record, sample.source, sample.a.name, sample.b.name)
    both = zip((sample.a, sample.b), names, strict=True)
    a, b = (replace(edit, name=name, sha256=digest) for edit, (name, digest) in both)
    winner = sample.winner
    if sha256(sample.key.encode()).digest()[8] % 2:
        a, b, winner = b, a, OTHER_SIDE[winner]
    more = of_photo(source, sample.instruction, test) | {"winner": winner, "rule": sample.rule, "source": source}
    return row(plain(sample.key), task="unknown", instruction=sample.instruction, a=a, b=b, **more)


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if value is None or value == "" or value != value:
        return None
    try:
        return reading.number(float(value), name)
    except (TypeError, ValueError) as error:
        raise RowError("a score that is no number", f"{name}: {value!r:.40}") from error


def ratings(setting: RatingsSource, to: ImageSink) -> Iterator[Row]:
    """The rows of both tables; `to` counts the records that cannot be used."""
    tables = [(setting.path, setting.images, RATED, setting.test_share)]
    tables += [(setting.people, setting.people_images, PEOPLE, 1.0)] if setting.people else []
    for path, images, rule, test in tables:
        groups: dict[str, tuple[reading.Record, list[dict[str, float]]]] = {}
        for record in reading.read(reading.Table(path=path, images=images)):
            with to.counting():
                scores = scores_of(record.values)
                light = {name: record.get(name) for name in ("source", "edited", "instruction", "type", "model")}
                key = str(record.get("key") or record.key)
                groups.setdefault(key, (replace(record, row=light), []))[1].append(scores)
        for key, (record, given) in groups.items():
            with to.counting():
                yield _rating(plain(f"{rule}-{key}"), record, given, rule, test, to)


def scores_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The scores of one record by dimension. RowError: one is missing, no number, or outside of 1..5."""
    given = values.get("scores", values)
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise RowError("scores that cannot be read", f"{given!r:.80}") from None
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == len(RATED_DIMENSIONS):
        given = dict(zip(RATED_DIMENSIONS, given, strict=True))
    if not isinstance(given, Mapping):
        raise RowError("scores that cannot be read", f"{given!r:.80}")
    found = {}
    for name in RATED_DIMENSIONS:
        try:
            found[name] = float(given[name])
        except (KeyError, TypeError, ValueError):
            raise RowError("a dimension without a score", f"{name}: {given.get(name)!r:.40}") from None
        if not LEAST <= found[name] <= MOST:  # nan, too
            raise RowError(f"a score outside of {LEAST}..{MOST}", f"{name}: {found[name]:g}")
    return found


def _rating(
    key: str, record: reading.Record, given: Sequence[Mapping[str, float]], rule: str, test: float, to: ImageSink
) -> Row:
    means = {name: math.floor(sum(each[name] for each in given) / len(given) + 0.5) for name in RATED_DIMENSIONS}
    instruction, type_ = record.text("instruction"), record.text("type")
    source, edited = added(to, record, record["source"], record["edited"])
    scores = {name: float(mean) for name, mean in means.items()}
    more = of_photo(source, instruction, test) | {"rule": rule, "source": source}
    edit = LabelledEdit(*edited, model=record.get("model"), scores=scores)
    return row(key, task=type_of(type_), instruction=instruction, a=edit, **more)
