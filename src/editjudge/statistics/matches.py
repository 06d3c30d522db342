"""Match files: which of two models won on a prompt, as JSONL in the reference's form, as Parquet or as CSV.

A JSONL line is `{"key": "<prompt>_pair_<model A>_vs_<model B>", "winner": "Image A"}`; the winner may also stand in an
object `result` or `results`, and a line may be `{"<key>": {"winner": ...}}`. Parquet and CSV have the columns `key` and
`winner`, or `prompt`, `model_a`, `model_b` and `winner`; any file may have `dimension`, `judge`, `task` and `origin` as
well: the photo behind the prompt, whose prompts stand or fall together. A file without `dimension` is one dimension,
named after the file.

The rules: a winner that is null, missing or "Failed" is no verdict, counted and left out, never a tie. The same prompt,
judge, dimension and two models in the same order may occur once; both orders are two matches. A key that can be read in
more than one way is resolved against the list of models, or refused. Every error names the file and the line or row."""

import codecs
import functools
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from editjudge.core.errors import UserError
from editjudge.core.tables import BROKEN
from editjudge.core.winner import SIGNS, WINNERS
from editjudge.statistics.ratings import Matches

NAMED = ["prompt", "model_a", "model_b"]
COLUMNS = ("key", *NAMED, "winner", "dimension", "judge", "task", "origin")
FAILED = "Failed"  # what the reference writes where there is no verdict
_RESULTS = ("result", "results")
_PAIR, _VS = re.compile("(?=(_pair_))"), re.compile("(?=(_vs_))")
_LONGEST_LINE = 4 << 20  # bytes
_SUFFIXES = (".jsonl", ".parquet", ".csv")


class MatchError(UserError, ValueError):
    """A match file that cannot be read as it should; the message names the file and the line or row."""


def load(paths: Sequence[Path], models: Collection[str] | None = None, judge: str | None = None) -> pd.DataFrame:
    """All matches of the files: columns prompt, model_a, model_b, winner, dimension, judge, task, origin; text or None.

    models: the names that keys are resolved against; by default those of the keys that can be read in one way only.
    judge: take only this judge's matches; needed where the files have several.
    Rows stand in the order of the files. Raises MatchError for a file that is missing, empty, of an unknown kind or
    malformed, a key that cannot be resolved, a winner that is none of Image A, Image B, Tie and null, a model that
    meets itself or is not in `models`, a match that occurs twice, and for several judges where none is chosen."""
    if not paths:
        raise MatchError("no match files")
    raw = [_read(path) for path in paths]
    known = frozenset(name for one in raw for name in _clear_names(one)) if models is None else frozenset(models)
    if len({path.resolve() for path in paths}) < len(paths):
        raise MatchError(f"a match file is given twice among {', '.join(map(str, paths))}")
    names = [path.stem for path in paths]  # of dimensions; with folder, and then with suffix, where two are the same
    for other in ([str(path.with_suffix("")) for path in paths], [str(path) for path in paths]):
        names = other if len(set(names)) < len(names) else names
    tables = [_named(path, one, known, name) for path, one, name in zip(paths, raw, names, strict=True)]
    for path, named in zip(paths, tables, strict=True):
        for side in NAMED[1:] if models is not None else ():
            _refuse(path, ~named[side].isin(known), "{!r} is not in the list of models", named[side])
    table = pd.concat(tables, keys=map(str, paths))
    same = table[["judge", "dimension", *NAMED]]
    repeated = same[same.duplicated(keep=False)].fillna("")
    if not repeated.empty:
        once, again = repeated.index[(repeated == repeated.iloc[0]).all(axis=1)][:2]
        match = ", ".join(map(repr, repeated.iloc[0][NAMED]))
        raise MatchError(f"{_place(*again)}: the match {match} occurs for the second time, after {_place(*once)}")
    table, judges = table.reset_index(drop=True), sorted(table["judge"].dropna().unique())
    if judge is None and len(judges) + bool(judges and table["judge"].isna().any()) > 1:
        unnamed = "" if len(judges) > 1 else ", and of none that is named"
        raise MatchError(f"matches of several judges: choose one of {', '.join(judges)}{unnamed}")
    if judge is not None and judge not in judges:
        raise MatchError(f"no matches of the judge {judge!r}; there are: {', '.join(judges) or 'no names of judges'}")
    return table if judge is None else table[table["judge"] == judge]


def numbered(table: pd.DataFrame) -> Matches:
    """The scored matches of a table with the columns of `load`, with names turned into numbers.

    A cluster is an `origin`, or a prompt where it has none. Names are sorted, so that the order of the rows decides
    nothing. Raises MatchError where no match is scored."""
    scored = table[table["winner"].notna()]
    if scored.empty:
        raise MatchError(f"no scored matches among {len(table)}")
    origin = scored["origin"].fillna(scored["prompt"]) if "origin" in scored else scored["prompt"]
    cluster, _ = pd.factorize(origin, sort=True)
    dimension, dimensions = pd.factorize(scored["dimension"], sort=True)
    sides, models = pd.factorize(pd.concat([scored["model_a"], scored["model_b"]]), sort=True)
    first, second = np.split(sides, 2)
    outcome = scored["winner"].map(SIGNS).to_numpy(np.int8)
    return Matches(cluster, dimension, first, second, outcome, tuple(models), tuple(dimensions))


def readings(key: str) -> list[tuple[str, str, str]]:
    """All (prompt, model A, model B) that a key may stand for, none of them empty. The marks in it may overlap."""
    return [(prompt, *sides) for prompt, tail in _splits(key, _PAIR) for sides in _splits(tail, _VS)]


@functools.lru_cache(maxsize=100_000)  # few pairs of models, but many prompts
def _splits(text: str, mark: re.Pattern[str]) -> list[tuple[str, str]]:
    """What stands before and behind the mark, wherever it is."""
    ends = [(found.start(), found.end(1)) for found in mark.finditer(text)]
    return [(text[:start], text[end:]) for start, end in ends if start and end < len(text)]


def _clear_names(raw: pd.DataFrame) -> set[str]:
    """The models of the columns model_a and model_b, or of all keys that can be read in one way only."""
    if set(NAMED) <= set(raw):
        return {*raw["model_a"].dropna(), *raw["model_b"].dropna()}
    ways = map(readings, raw["key"].dropna() if "key" in raw else ())
    return {name for way in ways if len(way) == 1 for name in way[0][1:]}


def _read(path: Path) -> pd.DataFrame:
    """The columns of COLUMNS, as text or None, that a file has; the index has the number of the line or row, from 1."""
    if path.suffix not in _SUFFIXES:
        how = path.suffix or "without a suffix"
        raise MatchError(f"{path}: a match file is one of {', '.join(_SUFFIXES)}, not {how}")
    if not path.is_file():
        raise MatchError(f"{path}: no such file")
    if not path.stat().st_size:
        raise MatchError(f"{path}: the file is empty")
    table = _read_jsonl(path) if path.suffix == ".jsonl" else _read_table(path)
    if table.empty:
        raise MatchError(f"{path}: no matches")
    # A file without a verdict that has a place for one has no match scored; else it is no match file.
    held = ["winner"] if b"winner" in path.read_bytes() else []
    table = table[[name for name in COLUMNS if name in table and (name in held or table[name].notna().any())]]
    for name in (each for each in table if pd.api.types.infer_dtype(table[each]) != "string"):
        no_text = ~table[name].map(lambda value: value is None or isinstance(value, str))
        _refuse(path, no_text, f"{name} must be text, not {{!r}}", table[name])
    return table


def _read_jsonl(path: Path) -> pd.DataFrame:
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if text := line.removeprefix(codecs.BOM_UTF8).strip():
                try:
                    rows += [(number, *map(match.get, COLUMNS)) for match in _of_line(orjson.loads(text))]
                except ValueError as error:
                    why = f"not JSON ({error})" if isinstance(error, orjson.JSONDecodeError) else error
                    shown = repr(text[:80].decode(errors="replace"))
                    raise MatchError(f"{path}: line {number}: {why}: {shown}") from error
    return pd.DataFrame(rows, columns=["line", *COLUMNS], dtype=object).set_index("line")


def _of_line(row: Any) -> list[dict[str, Any]]:
    """The matches of a line, each with its winner in its place. Raises ValueError."""
    if not isinstance(row, dict):
        raise ValueError("an object is expected")
    if "key" not in row and "prompt" not in row:
        if not row or not all(isinstance(result, dict) for result in row.values()):
            raise ValueError("no key, and no object with a winner under one")
        return [{"key": key, "winner": result.get("winner")} for key, result in row.items()]
    if row.get("winner") is None:
        results = [row.get(name) or {} for name in _RESULTS]
        if not all(isinstance(result, dict) for result in results):
            raise ValueError(f"{' and '.join(_RESULTS)} must be objects")
        row["winner"] = results[0].get("winner", results[1].get("winner"))
    return [row]


def _read_table(path: Path) -> pd.DataFrame:
    """A Parquet or CSV file's values as they are, None where there is none."""
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=[name for name in COLUMNS if name in pq.read_schema(path).names])
        else:
            kinds = dict.fromkeys(COLUMNS, pa.string())
            table = pyarrow.csv.read_csv(
                path,
                pyarrow.csv.ReadOptions(block_size=_LONGEST_LINE),
                pyarrow.csv.ParseOptions(newlines_in_values=True),
                pyarrow.csv.ConvertOptions(column_types=kinds, null_values=[""], strings_can_be_null=True),
            )
        columns = {name: table[name].to_pylist() for name in COLUMNS if name in table.column_names}
    except BROKEN as error:
        kind = "Parquet" if path.suffix == ".parquet" else "CSV"
        raise MatchError(f"{path}: not readable as {kind}: {error}") from error
    return pd.DataFrame(columns, index=range(1, len(table) + 1), dtype=object)


def _named(path: Path, raw: pd.DataFrame, known: frozenset[str], dimension: str) -> pd.DataFrame:
    """A file's matches in the form of `load`, checked row by row."""
    by_name = set(NAMED) <= set(raw)
    if not by_name and "key" not in raw:
        raise MatchError(f"{path}: neither a key nor {', '.join(NAMED)} in its matches")
    for name in NAMED if by_name else ("key",):
        _refuse(path, raw[name].isna(), f"no {name}")
    if "winner" not in raw:
        raise MatchError(f"{path}: no match has a winner")
    raw["winner"] = raw["winner"].where(raw["winner"] != FAILED, None)
    unknown = raw["winner"].notna() & ~raw["winner"].isin(WINNERS)
    _refuse(path, unknown, f"winner {{!r}} is none of {', '.join(WINNERS)} and null", raw["winner"])
    table = raw.reindex(columns=COLUMNS).astype(object).where(lambda values: values.notna(), None)
    table["dimension"] = table["dimension"].fillna(dimension)
    if not by_name:
        table[NAMED] = [_resolved(path, place, key, known) for place, key in raw["key"].items()]
    _refuse(path, table["model_a"] == table["model_b"], "{!r} meets itself", table["model_a"])
    return table.drop(columns="key")


def _resolved(path: Path, place: Any, key: str, known: frozenset[str]) -> tuple[str, str, str]:
    """The prompt and the two models of a key."""
    ways = readings(key)
    if len(ways) > 1:
        ways = [way for way in ways if {*way[1:]} <= known]
    if len(ways) != 1:
        form = f"{len(ways) or 'no'} <prompt>_pair_<model A>_vs_<model B> of these models"
        how = f"give the list of all models, or a file with the columns {', '.join(NAMED)}"
        raise MatchError(f"{_place(path, place)}: key {key!r} is {form}; {how}")
    return ways[0]


def _refuse(path: Path, bad: pd.Series, why: str, column: pd.Series | None = None) -> None:
    """MatchError for the first bad row; `why` may have a place for its value in the column."""
    if bad.any():
        row = int(bad.argmax())
        raise MatchError(f"{_place(path, bad.index[row])}: {why if column is None else why.format(column.iloc[row])}")


def _place(path: Path | str, number: Any) -> str:
    """Where a match stands, for errors: the line of a JSONL file, else the number of the match, from 1."""
    return f"{path}: {'line' if str(path).endswith('.jsonl') else 'match'} {number}"
