"""Match files: which of two models won on a prompt, as JSONL in the reference's form, as Parquet or as CSV.

A JSONL line is `{"key": "<prompt>_pair_<model A>_vs_<model B>", "winner": "Image A"}`; the winner may also stand in an
object `result` or `results`, and a line may be `{"<key>": {"winner": ...}}`. Parquet and CSV have the columns `key` and
`winner`, or `prompt`, `model_a`, `model_b` and `winner`; any file may have `dimension`, `judge` and `task` as well. A
file without `dimension` is one dimension, named after the file.

The rules: a winner that is null (or missing) is no verdict, counted and left out, never a tie. The same prompt, judge,
dimension and two models in the same order may occur once; both orders are two matches. A key that can be read in more
than one way is resolved against the list of models, or refused. Every error names the file and the line or row.
"""

import codecs
import functools
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from editjudge.core.errors import UserError
from editjudge.core.winner import SIGNS, WINNERS, Winner
from editjudge.statistics.ratings import Matches

NAMED = ("prompt", "model_a", "model_b")
COLUMNS = ("key", *NAMED, "winner", "dimension", "judge", "task")
_RESULTS = ("result", "results")
_TEXT = pa.dictionary(pa.int32(), pa.string())
_PAIR, _VS = "_pair_", "_vs_"
_LONGEST_LINE = 4 << 20  # bytes
_NO_OBJECT = re.compile(rb"^[ \t\r]*[^\s{]", re.MULTILINE)  # a line that begins with anything but a brace


class MatchError(UserError, ValueError):
    """A match file that cannot be read as it should; the message names the file and the line or row."""


def load(paths: Sequence[Path], models: Collection[str] | None = None, judge: str | None = None) -> pa.Table:
    """All matches of the files: dictionary columns prompt, model_a, model_b, winner, dimension, judge and task.

    models: the names that keys are resolved against; by default those of the keys that can be read in one way only.
    judge: take only this judge's matches; needed where the files have several.
    Rows stand in the order of the files. Raises MatchError for a file that is missing, empty, of an unknown kind or
    malformed, a key that cannot be resolved, a winner that is none of Image A, Image B, Tie and null, a model that
    meets itself or is not in `models`, a match that occurs twice, and for several judges where none is chosen.
    """
    if not paths:
        raise MatchError("no match files")
    raw = [_read(path) for path in paths]
    known = frozenset(_plain_names(raw) if models is None else models)
    names = _dimension_names(paths)
    tables = [_named(path, one, known, name) for path, one, name in zip(paths, raw, names, strict=True)]
    if models is not None:
        listed = pa.array(sorted(known), pa.string())
        for path, named in zip(paths, tables, strict=True):
            for column in (named[side].cast(pa.string()) for side in NAMED[1:]):
                _refuse(path, pc.invert(pc.is_in(column, listed)), "{!r} is not in the list of models", column)
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    _refuse_repeated(table, paths, [len(one) for one in tables])
    return _of_judge(table, judge)


def numbered(table: pa.Table) -> Matches:
    """The scored matches of a table with the columns of `load` (text or dictionary), with names turned into numbers.

    Names are sorted, so that the order of the rows decides nothing. Raises MatchError where no match is scored.
    """
    scored = table.filter(pc.is_valid(table["winner"]))
    if not len(scored):
        raise MatchError(f"no scored matches among {len(table)}")
    prompt, prompts = _codes([scored["prompt"]])
    dimension, dimensions = _codes([scored["dimension"]])
    sides, models = _codes([scored["model_a"], scored["model_b"]])
    winner, winners = _codes([scored["winner"]])
    first, second = np.split(sides, 2)
    outcome = np.array([SIGNS[cast(Winner, name)] for name in winners], np.int8)[winner]
    return Matches(prompt, dimension, first, second, outcome, tuple(models), tuple(dimensions), len(prompts))


def readings(key: str, models: frozenset[str]) -> list[tuple[str, str, str]]:
    """All (prompt, model A, model B) that a key may stand for, the models being among `models`."""
    cuts = (cut for cut in _places(key, _PAIR) if cut > 0)
    return [(key[:cut], a, b) for cut in cuts for a, b in _sides(key[cut + len(_PAIR) :], models)]


@functools.lru_cache(maxsize=100_000)
def _sides(tail: str, models: frozenset[str]) -> tuple[tuple[str, str], ...]:
    cuts = ((tail[:cut], tail[cut + len(_VS) :]) for cut in _places(tail, _VS))
    return tuple((a, b) for a, b in cuts if a in models and b in models)


def _places(text: str, part: str) -> list[int]:
    """Where the part occurs, overlaps included."""
    return [found.start() for found in re.finditer(f"(?={part})", text)]


def _read(path: Path) -> pa.Table:
    """The columns of COLUMNS, as text, that a file has; all rows in one chunk."""
    if path.suffix not in _READERS:
        how = path.suffix or "without a suffix"
        raise MatchError(f"{path}: a match file is one of {', '.join(_READERS)}, not {how}")
    if not path.is_file():
        raise MatchError(f"{path}: no such file")
    if not path.stat().st_size:
        raise MatchError(f"{path}: the file is empty")
    table = _READERS[path.suffix](path)
    if not len(table):
        raise MatchError(f"{path}: no matches")
    present = [name for name in COLUMNS if name in table.column_names]
    kept = [name for name in present if table[name].null_count < len(table) or (name == "winner" and _names_it(path))]
    return table.select(kept).combine_chunks()


def _names_it(path: Path) -> bool:
    """Whether a file without a verdict has a place for one: then no match was scored, else it is no match file."""
    return path.suffix == ".parquet" or b"winner" in path.read_bytes()


def _read_jsonl(path: Path) -> pa.Table:
    fields = [pa.field(name, pa.string()) for name in COLUMNS]
    fields += [pa.field(name, pa.struct([pa.field("winner", pa.string())])) for name in _RESULTS]
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    if _NO_OBJECT.search(data):  # the fast reader crashes on a block of nulls
        raise MatchError(_diagnosis(path, "a line is no object"))
    try:
        blocks = pyarrow.json.ReadOptions(block_size=_LONGEST_LINE)
        table = pyarrow.json.read_json(pa.BufferReader(data), blocks, options)
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise MatchError(_diagnosis(path, str(error))) from error
    if len(table) and table["key"].null_count == table["prompt"].null_count == len(table):
        return _read_mappings(path)
    winner = pc.coalesce(table["winner"], *(pc.struct_field(table[name], "winner") for name in _RESULTS))
    return table.select(COLUMNS).set_column(COLUMNS.index("winner"), "winner", winner)


def _read_mappings(path: Path) -> pa.Table:
    """Lines `{"<key>": {"winner": ...}}`."""
    keys, winners = [], []
    for number, line in _lines(path):
        try:
            row = json.loads(line, object_pairs_hook=list)
        except json.JSONDecodeError as error:
            raise MatchError(f"{path}: line {number}: not JSON ({error}): {_shown(line)}") from error
        if not isinstance(row, list) or not row or not isinstance(row[0], tuple):
            raise MatchError(f"{path}: line {number}: no key: {_shown(line)}")
        for key, pairs in row:
            result = dict(pairs) if isinstance(pairs, list) and all(isinstance(p, tuple) for p in pairs) else None
            if not isinstance(result, dict) or not isinstance(result.get("winner"), str | None):
                raise MatchError(f"{path}: line {number}: no key, and no object with a winner under {key!r}")
            keys.append(key)
            winners.append(result.get("winner"))
    return pa.table({"key": pa.array(keys, pa.string()), "winner": pa.array(winners, pa.string())})


def _diagnosis(path: Path, error: str) -> str:
    """The first line that is no object of the right types; what the fast reader said, if there is none."""
    kinds = dict.fromkeys(COLUMNS, (str, "text")) | dict.fromkeys(_RESULTS, (dict, "an object"))
    for number, line in _lines(path):
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError) as found:
            return f"{path}: line {number}: not JSON ({found}): {_shown(line)}"
        if not isinstance(row, dict):
            return f"{path}: line {number}: an object is expected: {_shown(line)}"
        for name, (kind, words) in kinds.items():
            if not isinstance(row.get(name), kind | None):
                return f"{path}: line {number}: {name} must be {words}, not {row[name]!r}"
    return f"{path}: not readable as JSONL: {error}"


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line.strip()


def _shown(line: bytes) -> str:
    return repr(line[:80].decode(errors="replace")) + (" ..." if len(line) > 80 else "")


def _read_parquet(path: Path) -> pa.Table:
    try:
        present = [name for name in COLUMNS if name in pq.read_schema(path).names]
        if not present:
            raise MatchError(f"{path}: neither a key nor {', '.join(NAMED)} in its matches")
        table = pq.read_table(path, columns=present)
    except (pa.ArrowInvalid, OSError) as error:
        raise MatchError(f"{path}: not readable as Parquet: {error}") from error
    for name in present:
        kind = table.schema.field(name).type
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_null(inner)):
            raise MatchError(f"{path}: column {name} must be text, not {kind}")
    return pa.table({name: table[name].cast(pa.string()) for name in present})


def _read_csv(path: Path) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(COLUMNS, pa.string()),
        include_columns=list(COLUMNS),
        include_missing_columns=True,
        null_values=[""],
        strings_can_be_null=True,
    )
    try:
        return pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(block_size=_LONGEST_LINE),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=options,
        )
    except pa.ArrowInvalid as error:
        raise MatchError(f"{path}: not readable as CSV: {error}") from error


_READERS = {".jsonl": _read_jsonl, ".parquet": _read_parquet, ".csv": _read_csv}


def _split(keys: pa.ChunkedArray) -> tuple[pa.DictionaryArray, pa.DictionaryArray, np.ndarray]:
    """Prompts, and what follows the first `_pair_`, by number; and which distinct tails can be read in one way only."""
    halves = pc.split_pattern(keys, _PAIR, max_splits=1).combine_chunks()
    prompts, tails = (pc.dictionary_encode(pc.list_element(halves, part)) for part in (0, 1))
    plain = [
        _PAIR not in f"_{tail}" and len(_places(tail, _VS)) == 1 and not tail.startswith(_VS) and not tail.endswith(_VS)
        for tail in tails.dictionary.to_pylist()
    ]
    return prompts, tails, np.array(plain, bool)


def _whole(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which keys have both marks, so that they can be split at all."""
    return pc.and_(pc.match_substring(keys, _PAIR), pc.match_substring(keys, _VS))


def _plain_names(raw: Sequence[pa.Table]) -> set[str]:
    """The models of all keys that can be read in one way only, and of the columns model_a and model_b."""
    names: set[str] = set()
    for table in raw:
        if set(NAMED) <= set(table.column_names):
            names |= set(_codes([table[side].drop_null() for side in NAMED[1:]])[1])
        elif "key" in table.column_names and len(keys := table["key"].filter(_whole(table["key"]))):
            _, tails, plain = _split(keys)
            names |= {name for tail in np.array(tails.dictionary)[plain] for name in tail.split(_VS)}
    return names


def _named(path: Path, raw: pa.Table, known: frozenset[str], dimension: str) -> pa.Table:
    """A file's matches in the form of `load`, checked row by row."""
    columns = _names_of(path, raw, known)
    _refuse_verdicts(path, raw, columns)
    none = pa.nulls(len(raw), pa.string())
    rest = {name: raw[name] if name in raw.column_names else none for name in ("dimension", "judge", "task")}
    rest |= {"dimension": pc.fill_null(rest["dimension"], dimension), "winner": raw["winner"]}
    return pa.table({name: column.cast(_TEXT) for name, column in (columns | rest).items()})


def _names_of(path: Path, raw: pa.Table, known: frozenset[str]) -> dict[str, pa.Array]:
    """Prompt and models of each row, from their columns or else from the key."""
    by_name = set(NAMED) <= set(raw.column_names)
    if not by_name and "key" not in raw.column_names:
        raise MatchError(f"{path}: neither a key nor {', '.join(NAMED)} in its matches")
    for name in NAMED if by_name else ("key",):
        _refuse(path, pc.is_null(raw[name]), f"no {name}")
    return {name: pc.dictionary_encode(raw[name]) for name in NAMED} if by_name else _resolved(path, raw["key"], known)


def _refuse_verdicts(path: Path, raw: pa.Table, columns: dict[str, pa.Array]) -> None:
    """MatchError for a winner outside the vocabulary, and for a model that meets itself."""
    if "winner" not in raw.column_names:
        raise MatchError(f"{path}: no match has a winner")
    unknown = pc.invert(pc.is_in(raw["winner"], pa.array([*WINNERS, None], pa.string())))
    _refuse(path, unknown, f"winner {{!r}} is none of {', '.join(WINNERS)} and null", raw["winner"])
    a, b = (columns[side].cast(pa.string()) for side in NAMED[1:])
    _refuse(path, pc.equal(a, b), "{!r} meets itself", a)


def _resolved(path: Path, keys: pa.ChunkedArray, known: frozenset[str]) -> dict[str, pa.Array]:
    """Prompt and models of each key."""
    form = f"key {{!r}} is not <prompt>{_PAIR}<model A>{_VS}<model B>"
    _refuse(path, pc.invert(_whole(keys)), form, keys)
    prompts, tails, plain = _split(keys)
    sides = [
        tail.split(_VS) if one else (None, None) for tail, one in zip(tails.dictionary.to_pylist(), plain, strict=True)
    ]
    columns = {
        "prompt": prompts,
        "model_a": pa.array([a for a, _ in sides], pa.string()).take(tails.indices),
        "model_b": pa.array([b for _, b in sides], pa.string()).take(tails.indices),
    }
    clear = plain[tails.indices.to_numpy()]
    _refuse(path, pc.and_(pc.equal(prompts.cast(pa.string()), ""), pa.array(clear)), form, keys)
    rows = np.flatnonzero(~clear)
    return _with_unclear(path, columns, rows, keys, known) if len(rows) else columns


def _with_unclear(
    path: Path, columns: dict[str, pa.Array], rows: np.ndarray, keys: pa.ChunkedArray, known: frozenset[str]
) -> dict[str, pa.Array]:
    """The columns with the rows filled in whose keys only the list of models can resolve."""
    found = _readings_of(keys.take(pa.array(rows)).combine_chunks(), known)
    for row, ways in zip(rows, found, strict=True):
        if len(ways) != 1:
            how = f"in {len(ways)} ways" if ways else "in no way"
            raise MatchError(
                f"{_place(path, int(row))}: key {keys[int(row)].as_py()!r} can be read {how} with these models; give "
                f"the list of all models, or a file with the columns {', '.join(NAMED)}"
            )
    filled = {}
    for part, (name, column) in enumerate(columns.items()):
        values = column.cast(pa.string()).to_numpy(zero_copy_only=False).copy()
        values[rows] = [ways[0][part] for ways in found]
        filled[name] = pa.array(values, pa.string())
    return filled


def _readings_of(keys: pa.Array, models: frozenset[str]) -> list[list[tuple[str, str, str]]]:
    """`readings` of each key. Where `_pair_` can be in no model, only what follows the last one can name the models."""
    if any(_PAIR in f"_{model}_" for model in models):
        return [readings(key, models) for key in keys.to_pylist()]
    halves = pc.split_pattern(keys, _PAIR, max_splits=1, reverse=True)
    prompts, tails = (pc.list_element(halves, part).dictionary_encode() for part in (0, 1))
    names = prompts.dictionary.to_pylist()
    sides = [_sides(tail, models) for tail in tails.dictionary.to_pylist()]
    pairs = zip(prompts.indices.to_pylist(), tails.indices.to_pylist(), strict=True)
    return [[(names[p], a, b) for a, b in sides[t]] if names[p] else [] for p, t in pairs]


def _dimension_names(paths: Sequence[Path]) -> list[str]:
    """The files' names without their suffix; with folder, and then with suffix, where two would be the same."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise MatchError(f"a match file is given twice among {', '.join(map(str, paths))}")
    stems, places = [path.stem for path in paths], [str(path.with_suffix("")) for path in paths]
    apart = (names for names in (stems, places) if len(set(names)) == len(names))
    return next(apart, [str(path) for path in paths])


def _refuse(path: Path, bad: pa.Array, why: str, column: pa.ChunkedArray | None = None) -> None:
    """MatchError for the first bad row; `why` may have a place for its value in the column."""
    if pc.any(bad).as_py():
        row = pc.index(bad, True).as_py()
        raise MatchError(f"{_place(path, row)}: {why if column is None else why.format(column[row].as_py())}")


def _place(path: Path, row: int) -> str:
    """The file and the line of a row; the number of the match from 1 where matches are not lines."""
    lines = [number for number, _ in _lines(path)] if path.suffix == ".jsonl" else []
    return f"{path}: line {lines[row]}" if row < len(lines) else f"{path}: match {row + 1}"


def _refuse_repeated(table: pa.Table, paths: Sequence[Path], sizes: Sequence[int]) -> None:
    named = table.select(["judge", "dimension", *NAMED]).to_pandas()
    repeated = named[named.duplicated(keep=False)].astype(object).fillna("")
    if repeated.empty:
        return
    once, again = (int(row) for row in repeated.index[(repeated == repeated.iloc[0]).all(axis=1)][:2])
    at = [_place_among(paths, sizes, row) for row in (once, again)]
    names = ", ".join(repr(table[name][once].as_py()) for name in NAMED)
    raise MatchError(f"{at[1]}: the match {names} occurs for the second time, after {at[0]}")


def _place_among(paths: Sequence[Path], sizes: Sequence[int], row: int) -> str:
    """The place of a row of all files together."""
    file = int(np.searchsorted(np.cumsum(sizes), row, side="right"))
    return _place(paths[file], row - sum(sizes[:file]))


def _of_judge(table: pa.Table, judge: str | None) -> pa.Table:
    judges = sorted(name for name in table["judge"].unique().to_pylist() if name is not None)
    if judge is None and len(judges) + bool(judges and table["judge"].null_count) > 1:
        unnamed = "" if len(judges) > 1 else ", and of none that is named"
        raise MatchError(f"matches of several judges: choose one of {', '.join(judges)}{unnamed}")
    if judge is not None and judge not in judges:
        raise MatchError(f"no matches of the judge {judge!r}; there are: {', '.join(judges) or 'no names of judges'}")
    return table if judge is None else table.filter(pc.equal(table["judge"].cast(pa.string()), judge))


def _codes(columns: Sequence[pa.ChunkedArray]) -> tuple[np.ndarray, list[str]]:
    """Each text's number among the sorted texts that occur, all columns one after the other."""
    chunks = [chunk for column in columns for chunk in column.cast(_TEXT).chunks]
    whole = pa.chunked_array(chunks, _TEXT).unify_dictionaries().to_pandas().cat.remove_unused_categories()
    names = sorted(whole.cat.categories)
    return whole.cat.set_categories(names).cat.codes.to_numpy(np.int64), names
