"""Files of answers that a judge has given to a benchmark already, and their figures.

A file (JSON lines, CSV or Parquet) is a judge, named after it. Its rows answer the benchmark's items by `key`, with
`winner` (Image A, Image B, Tie, Both good or Both bad) or with `score_a` and `score_b`, higher being better; or they
score single edits by `prompt`, `model` and `score`. An answer that is null, missing or "Failed" is unscored."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.benchmarks import report
from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import VERDICTS, Item
from editjudge.benchmarks.report import Rows
from editjudge.core import reading, records
from editjudge.core.tables import RowError, TableError
from editjudge.statistics import agreement

SUFFIXES = (".jsonl", ".csv", ".parquet")
NOTHING = (None, "", "Failed")
FIELDS = ("answer", "score_a", "score_b")
Given = dict[str, Any]  # FIELDS, each None if it is not given


def figures(name: str, setting: Mapping[str, Any], files: Sequence[Path]) -> dict[str, Any]:
    """The figures of the files' judges on the benchmark `name`; see `report.summarised`.

    setting: an entry of section `benchmarks`. Raises ParamsError, and TableError that names file, row and field."""
    items = forms.load(name, setting)
    stems = [file.stem for file in files]
    judges = stems if len(set(stems)) == len(stems) else [str(file) for file in files]
    verdicts = {judge: to_verdicts(judge, items, read(file, items)) for judge, file in zip(judges, files, strict=True)}
    for file, rows in zip(files, verdicts.values(), strict=True):
        if all(row["winner"] is None for row in rows):
            raise TableError(f"{file}: no answer: each is null, missing or Failed")
    return report.summarised(setting["form"], items, verdicts, setting.get("epsilon", 0.0))


def read(file: Path, items: Sequence[Item]) -> dict[str, Given]:
    """A file's answers by the items' keys. Raises TableError that names file, row and field."""
    if file.suffix not in SUFFIXES:
        raise TableError(f"{file}: {file.suffix or 'no ending'} is none of {', '.join(SUFFIXES)}")
    if not file.is_file():
        raise TableError(f"{file}: no such file")
    keys = {item.key for item in items}
    edits = {(item.group, model) for item in items if item.models for model in item.models}
    found: dict[str, Given] = {}
    scores: dict[tuple[str, str], float | None] = {}
    for number, row in enumerate(reading.READERS[file.suffix](file)):
        try:
            if isinstance(row, RowError):
                raise row
            if "key" in row:
                _add(found, str(row["key"]), _answer(row), keys, "key")
            else:
                edit = str(row.get("prompt")), str(row.get("model"))
                _add(scores, edit, _number(row, "score"), edits, "fields prompt and model")
        except RowError as error:
            raise TableError(f"{file}: row {number}: {error}") from error
    if scores:
        for item in items:
            if item.models and item.group is not None:
                a, b = (scores.get((item.group, model)) for model in item.models)
                found[item.key] = {"answer": None, "score_a": a, "score_b": b}
    if not found:
        raise TableError(f"{file}: no answers")
    return found


def _add(known: dict[Any, Any], name: Any, value: Any, possible: set[Any], what: str) -> None:
    if name not in possible:
        raise RowError(f"{what}: the benchmark has no {name!r:.120}")
    if name in known:
        raise RowError(f"{what}: {name!r:.120} stands already in an earlier row")
    known[name] = value


def _answer(row: Mapping[str, Any]) -> Given:
    if "winner" not in row and not {"score_a", "score_b"} <= row.keys():
        raise RowError("neither winner nor score_a and score_b")
    winner = None if _missing(row.get("winner")) else row["winner"]
    if winner is not None and winner not in VERDICTS:
        raise RowError(f"field winner: {winner!r:.40} is none of {', '.join(VERDICTS)}, Failed and null")
    return {"answer": winner, "score_a": _number(row, "score_a"), "score_b": _number(row, "score_b")}


def _missing(value: Any) -> bool:
    return value in NOTHING or value != value  # NaN: what pandas makes of an empty cell


def _number(row: Mapping[str, Any], field: str) -> float | None:
    value = row.get(field)
    if _missing(value):
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RowError(f"field {field}: a number expected, not {value!r:.40}")
    return number


def to_verdicts(judge: str, items: Sequence[Item], answers: Mapping[str, Given]) -> Rows:
    """Rows of `stages/verdicts.schema.json`, one for each item that people judged; only one order was asked."""
    rows = []
    for item in items:
        if item.verdict is None:
            continue
        given = answers.get(item.key, dict.fromkeys(FIELDS))
        a, b, answer = given["score_a"], given["score_b"], given["answer"]
        if answer is None and a is not None and b is not None:
            answer = "Tie" if a == b else "Image A" if a > b else "Image B"
        winner = None if answer is None else agreement.folded(answer)
        row: records.Row = {name: getattr(item, name) for name in ("key", "task", "cluster")}
        row |= {"judge": judge, "label": item.verdict, "truth": agreement.folded(item.verdict)}
        row |= {"forward": winner, "backward": None, "winner": winner, "p_a": None}
        row |= given | {"reason": "no answer" if winner is None else None}
        rows.append(row | {"answer": given["answer"] or report.in_peoples_words(row)})
    return rows
