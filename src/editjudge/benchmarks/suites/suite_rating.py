"""A suite's edits rated: what each rater said of each model's edit of each case, once a run, as rows.

A row is one of stages/ratings.schema.json. An edit that is missing or broken is unscored with its reason, and so is a
reply that cannot be read: neither is ever zero."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.benchmarks.suites.forms import SUITES, SuiteSetting
from editjudge.benchmarks.suites.suite import Suite
from editjudge.core import params, records
from editjudge.core.records import Row
from editjudge.core.settings import known
from editjudge.judges import rubrics
from editjudge.judges.asking import Rater
from editjudge.judges.protocol import Edit, Rating
from editjudge.judges.settings import read_rater
from editjudge.judges.viescore import SCALES
from editjudge.models.endpoint.spending import Account

KEPT = ("key", "suite", "type", "origin", "language", "intersection", "dialogue", "turn")
Edits = Mapping[str, Row]  # of one model, by the case's key: rows of the contract candidates


def fits(suite: Suite, rubrics_: str) -> bool:
    """Whether rubrics are of the kind by which a suite is rated: VIEScore's aspects, or rubrics of types."""
    return suite.rubrics is not None and (rubrics_ in SCALES) == (suite.rubrics in SCALES)


def chosen(name: str, setting: SuiteSetting, given: Mapping[str, Any]) -> dict[str, Any]:
    """The raters that the suite names, or all whose rubrics fit it. ParamsError for one that is unknown or unfit."""
    suite = SUITES[setting.form]
    own = {rater: read_rater(f"raters.{rater}", fields).rubrics for rater, fields in given.items()}
    for rater in setting.raters or ():
        if rater not in given:
            raise params.ParamsError(f"suites.{name}.raters has {rater!r}; {known(rater, list(given))}")
        if suite.rubrics is not None and not fits(suite, own[rater]):
            raise params.ParamsError(f"suites.{name}.raters: {rater} has rubrics {own[rater]}, not of this form")
    wanted = setting.raters if setting.raters is not None else [rater for rater in given if fits(suite, own[rater])]
    if not wanted and setting.people is None:
        raise params.ParamsError(f"suites.{name}: no rater of section `raters` fits the form {setting.form}")
    return {rater: given[rater] for rater in wanted}


def stored_cases(path: Path) -> list[Row]:
    """A suite's cases, their images left in the file."""
    return [*records.iterate(path, "suites", "source_image.bytes")]


def stored_edits(path: Path) -> dict[str, Row]:
    """A model's edits, their images left in the file."""
    return {row["key"]: row for row in records.iterate(path, "candidates", "image")}


def rate(
    cases: Sequence[Row], edits: Mapping[str, Edits], given: Mapping[str, Any]
) -> tuple[list[Row], dict[str, Account]]:
    """Every rater's ratings of every model's edits, and what each rater cost. Raises ParamsError, FileError and what an
    endpoint or a server that cannot be asked raises."""
    rows, accounts = list[Row](), dict[str, Account]()
    for name, fields in given.items():
        with Rater(f"raters.{name}", fields) as rater:
            judge = rater.identity
            asked = {model: _asked(cases, own) for model, own in edits.items()}
            flat = [case for own in asked.values() for case in own.values() if isinstance(case, Edit)]
            answers = iter(rater.rate(flat))
            for model, own in asked.items():
                for case in cases:
                    one = own[case["key"]]
                    nothing = [Rating(case["key"], None, "", str(one))] * rater.own.runs
                    said = next(answers) if isinstance(one, Edit) else nothing
                    about = {
                        "model": model,
                        "rater": name,
                        "judge": judge,
                        "rubric": _rubric(rater.own.rubrics, case["type"]),
                    }
                    rows += [_row(case, about, run, rating) for run, rating in enumerate(said)]
            accounts[name] = rater.account
    return rows, accounts


def _asked(cases: Sequence[Row], edits: Edits) -> dict[str, Edit | str]:
    """What of a model is asked by the case's key, or why it is not; a later turn is an edit of the turn before."""
    turns = {(case["dialogue"], case["turn"]): case["key"] for case in cases if case["dialogue"] is not None}
    found: dict[str, Edit | str] = {}
    for case in cases:
        key, edit, source = case["key"], edits.get(case["key"]), case["source_image"]["bytes"]
        if (case["turn"] or 1) > 1:
            before = edits.get(turns.get((case["dialogue"], case["turn"] - 1), ""))
            source = before and before["image"]
        if edit is None or edit["image"] is None:
            found[key] = f"no edit: {edit['reason'] if edit else 'the model has none of this case'}"
        elif source is None:
            found[key] = "no edit of the turn before"
        else:
            found[key] = Edit(case["instruction"], source, edit["image"], task=case["type"], key=key)
    return found


@functools.cache
def _rubric(name: str, type_: str) -> str:
    """The rubric's set, type and version."""
    return name if name in SCALES else f"{name}/{type_}@{rubrics.load(name, type_).version}"


def _row(case: Row, about: Row, run: int, rating: Rating) -> Row:
    scores = None if rating.scores is None else [{"dimension": d, "score": float(s)} for d, s in rating.scores.items()]
    said = {"scores": scores, "reply": rating.reply, "reason": rating.reason, "asked": rating.asked}
    return {field: case[field] for field in KEPT} | about | {"run": run} | said


def reasons(rows: Iterable[Row]) -> dict[str, int]:
    """How often each reason stands there, without what it quotes, the most frequent first, equals by name."""
    counts: dict[str, int] = {}
    for row in rows:
        if row["reason"] is not None:
            short = row["reason"].partition(": '")[0].partition(': "')[0]
            counts[short] = counts.get(short, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
