"""Answers that exist already, against a reward benchmark or as an arena, without the graph; or the score of one edit.

    python -m editjudge.commands.score --scorer editreward --source a.png --edit b.png --instruction "Make the cup red"
    python -m editjudge.commands.score mine.jsonl theirs.csv --benchmark genai
    python -m editjudge.commands.score scores.parquet --form imagenhub --path data/benchmarks/imagenhub --json out.json
    python -m editjudge.commands.score if.jsonl vc.jsonl --arena

A file (JSON lines, CSV or Parquet) is a judge, named after it. Its rows answer the benchmark's items by `key`, with
`winner` (Image A, Image B, Tie, Both good or Both bad) or with `score_a` and `score_b`, higher being better; or they
score single edits by `prompt`, `model` and `score`. An answer that is null, missing or "Failed" is unscored, and
counted. --benchmark is an entry of params.yaml. --arena rates models from match files, as
`python -m editjudge.stages.leaderboard --matches` does, whose options follow. --scorer is
an entry of `scorers` in params.yaml: its score of one edit, with standard deviations where it knows them.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from editjudge.benchmarks import report
from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import VERDICTS, Item
from editjudge.benchmarks.report import Rows
from editjudge.core import params, reading, records
from editjudge.core.errors import FileError
from editjudge.core.main import guarded
from editjudge.core.settings import known
from editjudge.core.tables import RowError, TableError
from editjudge.statistics import agreement

SUFFIXES = (".jsonl", ".csv", ".parquet")
NOTHING = (None, "", "Failed")
Answer = dict[str, Any]  # answer, score_a and score_b, each None where it is not given


def answers_of(file: Path, items: Sequence[Item]) -> dict[str, Answer]:
    """A file's answers by the items' keys. Raises TableError that names file, row and field."""
    if file.suffix not in SUFFIXES:
        raise TableError(f"{file}: {file.suffix or 'no ending'} is none of {', '.join(SUFFIXES)}")
    if not file.is_file():
        raise TableError(f"{file}: no such file")
    keys = {item.key for item in items}
    edits = {(item.group, model) for item in items if item.models for model in item.models}
    found: dict[str, Answer] = {}
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


def _answer(row: Mapping[str, Any]) -> Answer:
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


def to_verdicts(judge: str, items: Sequence[Item], answers: Mapping[str, Answer]) -> Rows:
    """Rows of `stages/verdicts.schema.json`, one an item that people judged; the second order was not asked."""
    rows = []
    for item in items:
        if item.verdict is not None:
            given = answers.get(item.key, dict.fromkeys(("answer", "score_a", "score_b")))
            a, b, answer = given["score_a"], given["score_b"], given["answer"]
            if answer is None and a is not None and b is not None:
                answer = "Tie" if a == b else "Image A" if a > b else "Image B"
            winner = None if answer is None else agreement.folded(answer)
            row: records.Row = {
                "key": item.key,
                "task": item.task,
                "judge": judge,
                "cluster": item.cluster,
                "label": item.verdict,
            }
            row |= {"truth": agreement.folded(item.verdict), "forward": winner, "backward": None, "winner": winner}
            row |= given | {"p_a": None, "reason": "no answer" if winner is None else None}
            rows.append(row | {"answer": given["answer"] or report.in_peoples_words(row)})
    return rows


def scored(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `report.summarised` says of the files, one a judge. Raises TableError, ParamsError."""
    name = arguments.benchmark or arguments.form
    given = {"form": arguments.form, "path": str(arguments.path)}
    setting = params.leaf(params.load(), f"benchmarks.{name}") if arguments.benchmark else given
    items = forms.load(name, setting)
    judges = [file.stem for file in arguments.answers]
    names = judges if len(set(judges)) == len(judges) else [str(file) for file in arguments.answers]
    verdicts = {
        judge: to_verdicts(judge, items, answers_of(file, items))
        for judge, file in zip(names, arguments.answers, strict=True)
    }
    for file, rows in zip(arguments.answers, verdicts.values(), strict=True):
        if all(row["winner"] is None for row in rows):
            raise TableError(f"{file}: no answer: each is null, missing or Failed")
    return report.summarised(setting["form"], items, verdicts, setting.get("epsilon", 0.0))


def lines(found: Mapping[str, Any]) -> list[str]:
    """The papers' figures of each judge, and how many items it did not answer."""
    told = []
    for judge in found["judges"]:
        seen = judge["accuracy"]
        told.append(f"{judge['judge']}: {seen['scored']} of {seen['n']} scored, {seen['unparsed']} unscored")
        for row in judge["published"]:
            ends = "" if row["low"] is None else f"  ({row['low']:.4f} to {row['high']:.4f})"
            told.append(f"  {row['name']:<52} {'-' if row['value'] is None else format(row['value'], '.4f')}{ends}")
    return told


def score_edit(name: str, instruction: str, source: Path, edit: Path) -> dict[str, Any]:
    """What a scorer of params.yaml says of one edit, as a JSON object. ParamsError, FileError."""
    from editjudge.judges.protocol import Edit, Unscored
    from editjudge.judges.scorers.opening import open_scorer

    for file in (source, edit):
        if not file.is_file():
            raise FileError(f"{file}: no such file")
    scorers = params.load().get("scorers") or {}
    if name not in scorers:
        raise params.ParamsError(f"params.yaml: scorers has no {name!r}; {known(name, scorers)}")
    scorer = open_scorer(f"scorers.{name}", scorers[name])
    [score] = scorer.score([Edit(instruction, source.read_bytes(), edit.read_bytes())])
    if isinstance(score, Unscored):
        raise FileError(f"{edit} is unscored: {score.reason}")
    return asdict(score)


def score_lines(score: Mapping[str, Any]) -> list[str]:
    """Each dimension with its standard deviation, the aggregate, and where it stands among the training's edits."""

    def line(name: str, value: float, std: float | None) -> str:
        return f"{name:<24} {value:+.4f}" + ("" if std is None else f"  (standard deviation {std:.4f})")

    told = [line(name, value, score["std"].get(name)) for name, value in score["dimensions"].items()]
    told.append(line("overall", score["overall"], score["overall_std"]))
    if score["calibrated"] is not None:
        told.append(f"{'calibrated':<24} {score['calibrated']:.4f}  (share of its training edits that score lower)")
    return told


def one_edit(arguments: argparse.Namespace) -> None:
    found = guarded("score", score_edit, arguments.scorer, arguments.instruction, arguments.source, arguments.edit)
    print("\n".join(score_lines(found)))
    if arguments.json is not None:
        guarded("score", records.write_json, arguments.json, found)


def main() -> None:
    about = str(__doc__)
    parser = argparse.ArgumentParser(
        prog="editjudge.commands.score", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("answers", type=Path, nargs="*", help=", ".join(SUFFIXES))
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--benchmark", metavar="NAME", help="an entry of `benchmarks` in params.yaml")
    where.add_argument("--form", choices=forms.FORMS, help="the benchmark's published form, with --path")
    where.add_argument("--arena", action="store_true", help="match files: rate the models")
    where.add_argument("--scorer", metavar="NAME", help="an entry of `scorers`, with the next three")
    parser.add_argument("--source", type=Path, metavar="IMAGE", help="PNG, JPEG or WebP")
    parser.add_argument("--edit", type=Path, metavar="IMAGE")
    parser.add_argument("--instruction", metavar="WORDS")
    parser.add_argument("--path", type=Path, help="the benchmark's file or folder")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where all figures are written")
    arguments, rest = parser.parse_known_args()
    of_edit = (arguments.source, arguments.edit, arguments.instruction)
    if bool(arguments.scorer) == bool(arguments.answers):
        parser.error("--scorer takes no files of answers" if arguments.scorer else "no file of answers is given")
    if any(bool(each) != bool(arguments.scorer) for each in of_edit):
        parser.error("--scorer, --source, --edit and --instruction go together")
    if arguments.scorer and not rest and arguments.path is None:
        one_edit(arguments)
        return
    if arguments.arena:
        out = [] if arguments.json is None else ["--json", str(arguments.json)]
        command = [sys.executable, "-m", "editjudge.stages.leaderboard", *out, *rest, "--matches"]
        sys.exit(subprocess.run([*command, *map(str, arguments.answers)], check=False).returncode)
    if rest or (arguments.form is None) != (arguments.path is None):
        parser.error(f"unknown: {' '.join(rest)}" if rest else "--form and --path go together")
    found = guarded("score", scored, arguments)
    print("\n".join(lines(found)))
    if arguments.json is not None:
        guarded("score", records.write_json, arguments.json, json.loads(json.dumps(found)))


if __name__ == "__main__":
    main()
