"""The best edits of a data set, by a scorer or a rater: a selection with its scores, and why the others were left out.

    python -m editjudge.rewards.curation --pairs pairs.parquet --scorer editreward --share 0.5 --out best
    python -m editjudge.rewards.curation --source photos --edited flux kontext --instructions prompts.csv \\
        --scorer dino_i --top 20000 --per-task 2000 --per-prompt 1 --out best
    python -m editjudge.rewards.curation --pairs pairs.parquet --rater imgedit_judge --share 0.8 --out best

--pairs is a Parquet file with source_image, edited_image and instruction, and perhaps key, task, model and damage. Or
edits lie in folders, galleries or tables by key, as `commands.measure` takes them, and --instructions is a table of key
and instruction, and perhaps task; NAME=PATH gives a model's edits another name than their folder's. A scorer is an
entry of `scorers` in params.yaml; dino_i needs none. A rater is an entry of `raters`: a VLM
that rates each edit by the rubric of its task, 1 to 5, as ImgEdit's pairs were filtered. OUT gets selection.parquet,
dropped.csv and report.json. An edit without a score is never kept, and never a 0.
"""

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import imagehash
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from editjudge.core import images, params, records
from editjudge.core.errors import FileError
from editjudge.core.files import replacing, work
from editjudge.core.main import guarded
from editjudge.core.records import Row, StoredImage
from editjudge.core.settings import known
from editjudge.core.tables import RowError, TableError
from editjudge.editors.galleries.given import Given
from editjudge.engine.progress import bar
from editjudge.judges.asking import open_judge
from editjudge.judges.protocol import Edit, Score, Scorer
from editjudge.judges.scorers.opening import open_scorer
from editjudge.sources import formats
from editjudge.sources.duplicates import Seen

AT_ONCE = 64  # edits in memory
BUILT_IN = "dino_i"  # the scorer that needs no entry in params.yaml
TASK = "unknown"
NO_INSTRUCTION = "unscored: no instruction"
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
Picture = Callable[[], bytes | str]


@dataclass(frozen=True)
class Candidate:
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
        """Raises ValueError where there is no score."""
        if self.score is None:
            raise ValueError(f"{self.name} has no score")
        return self.score.overall


@dataclass(frozen=True)
class Limits:
    """top, share: how many edits are kept at most, or which share of those with a score that are no near-duplicates.

    per_task, per_prompt: of each task, and of each key, at most. near_bits: of 64 bits of the edits' perceptual
    hashes, in which two edits with one instruction may differ to be one; -1: equal bytes alone.
    """

    top: int | None = None
    share: float | None = None
    per_task: int | None = None
    per_prompt: int | None = None
    near_bits: int = 4

    def most(self, scored: int) -> int:
        return min(
            scored if self.top is None else self.top, math.floor((1.0 if self.share is None else self.share) * scored)
        )


def scored(candidates: Iterable[Candidate], scorer: Scorer, by: str | None = None) -> Iterator[Candidate]:
    """The candidates with their scores, or with the reason why there is none. by: the dimension that counts."""
    rest = iter(candidates)
    while group := list(islice(rest, AT_ONCE)):
        found = [_edit(candidate) for candidate in group]
        answers = iter(scorer.score([edit for edit in found if isinstance(edit, Edit)]))
        for candidate, edit in zip(group, found, strict=True):
            answer = edit if isinstance(edit, str) else next(answers)
            if isinstance(answer, Score) and by is not None:
                of_it = {"overall": answer.dimensions[by], "overall_std": answer.std.get(by), "calibrated": None}
                answer = replace(answer, **of_it)  # type: ignore[arg-type]
            if isinstance(answer, Score) and math.isfinite(answer.overall):
                yield replace(candidate, score=answer)
            else:
                why = answer if isinstance(answer, str) else getattr(answer, "reason", "the score is not finite")
                yield replace(candidate, reason=f"unscored: {why}")


def _edit(candidate: Candidate) -> Edit | str:
    source, edited = candidate.source(), candidate.edited()
    if isinstance(source, str):
        return f"source: {source}"
    if isinstance(edited, str):
        return f"edit: {edited}"
    return Edit(candidate.instruction, source, edited, task=candidate.task)


def select(candidates: Sequence[Candidate], limits: Limits) -> tuple[list[Candidate], list[Candidate]]:
    """Those that are kept, the best first, and the others, each with its reason.

    Near-duplicates go first, all but the best of them. What a quota leaves free goes to the next best.
    """
    dropped = [candidate for candidate in candidates if not candidate.score]
    known = sorted((c for c in candidates if c.score), key=lambda c: (-c.overall, c.name))
    distinct, again = apart(known, limits.near_bits)
    dropped += again
    most, kept = limits.most(len(distinct)), list[Candidate]()
    tasks, prompts = Counter[str](), Counter[str]()
    for candidate in distinct:
        if len(kept) >= most:
            dropped.append(replace(candidate, reason="below the cut"))
        elif limits.per_task is not None and tasks[candidate.task] >= limits.per_task:
            dropped.append(replace(candidate, reason=f"quota of {candidate.task}"))
        elif limits.per_prompt is not None and prompts[candidate.key] >= limits.per_prompt:
            dropped.append(replace(candidate, reason="better edits of its prompt are kept"))
        else:
            kept.append(candidate)
            tasks[candidate.task] += 1
            prompts[candidate.key] += 1
    return kept, dropped


def apart(candidates: Iterable[Candidate], near_bits: int) -> tuple[list[Candidate], list[Candidate]]:
    """The candidates without those that are the same as an earlier one or nearly, and these with their reason."""
    distinct, again = list[Candidate](), list[Candidate]()
    with Seen(work("curate", "seen.sqlite"), near_bits) as seen:
        for candidate in candidates:
            try:
                _see(seen, candidate)
                distinct.append(candidate)
            except RowError as error:
                number = int(error.detail.split()[-1])
                again.append(replace(candidate, reason=f"{error.reason} of {distinct[number].name}"))
    return distinct, again


def _see(seen: Seen, candidate: Candidate) -> None:
    """Raises RowError where a better edit with the same instruction is the same, or nearly."""
    data = candidate.edited()
    assert isinstance(data, bytes)
    hashed = int(str(imagehash.phash(Image.fromarray(images.decode(data)))), 16)
    seen.add(candidate.name, candidate.instruction, data, hashed)


def report(kept: Sequence[Candidate], dropped: Sequence[Candidate]) -> dict[str, Any]:
    """What was kept and why the rest was not; with the known damage of both where it is known."""
    every = [*kept, *dropped]
    reasons = Counter(DETAIL.split(each.reason or "")[0] for each in dropped)
    tasks = {task: [each for each in every if each.task == task] for task in sorted({each.task for each in every})}
    ours = set(map(id, kept))
    return {
        "edits": len(every),
        "scored": sum(each.score is not None for each in every),
        "kept": len(kept),
        "dropped": [{"reason": reason, "edits": count} for reason, count in sorted(reasons.items())],
        "score": {"kept": _mean(c.overall for c in kept), "all": _mean(c.overall for c in every if c.score)},
        "damage": {"kept": _mean(c.damage for c in kept), "all": _mean(c.damage for c in every if c.score)},
        "per_task": [
            {"task": task, "edits": len(own), "kept": sum(id(c) in ours for c in own)} for task, own in tasks.items()
        ],
    }


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def write(out: Path, kept: Sequence[Candidate], dropped: Sequence[Candidate]) -> None:
    """The selection with its images, a row group in memory at a time; what was left out; and the report."""
    with replacing(out / "selection.parquet") as partial, pq.ParquetWriter(partial, FORM, compression="zstd") as file:
        for group in records.in_groups(map(_row, kept)):
            file.write_table(pa.Table.from_pylist(group, schema=FORM))
    with records.TableWriter(out / "dropped.csv", ("key", "model", "task", "score", "reason", "said")) as table:
        for each in sorted(dropped, key=lambda c: c.name):
            score, said = (each.score.overall, each.score.said) if each.score else (None, None)
            own = {name: getattr(each, name) for name in ("key", "model", "task", "reason")}
            table.add(own | {"score": score, "said": said})
    records.write_json(out / "report.json", report(kept, dropped))


def _row(candidate: Candidate) -> Row:
    score = candidate.score
    assert score is not None
    row: Row = {name: getattr(candidate, name) for name in ("key", "model", "task", "instruction", "damage")}
    row |= {"score": score.overall, "std": score.overall_std, "calibrated": score.calibrated}
    row["scores"] = [{"dimension": name, "score": value} for name, value in score.dimensions.items()]
    shown = {"source_image": candidate.source(), "edited_image": candidate.edited()}
    return row | {name: {"bytes": image, "path": None} for name, image in shown.items()}


def of_pairs(file: Path) -> list[Candidate]:
    """The edits of a Parquet file with both images inside; they are read when they are asked for. TableError."""
    try:
        opened = pq.ParquetFile(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise TableError(f"{file}: {' '.join(str(error).split())}") from error
    names = opened.schema_arrow.names
    if missing := [name for name in ("source_image", "edited_image", "instruction") if name not in names]:
        raise TableError(f"{file}: no column {', '.join(missing)}; it has {', '.join(names)}")
    light = [name for name in ("key", "model", "task", "instruction", "damage") if name in names]
    written, found = file.stat().st_mtime_ns, list[Candidate]()
    inside = {
        name: f"{name}.bytes" if pa.types.is_struct(opened.schema_arrow.field(name).type) else name
        for name in ("source_image", "edited_image")
    }
    for group in range(opened.num_row_groups):
        for number, row in enumerate(opened.read_row_group(group, columns=light).to_pylist()):
            places = [StoredImage(str(file.absolute()), written, group, number, column) for column in inside.values()]
            source, edited = (_at(place) for place in places)
            key = str(row.get("key") or f"{file.stem}-{len(found):06d}")
            own = (row.get("model"), row.get("task") or TASK, row["instruction"] or "")
            reason = None if own[-1] else NO_INSTRUCTION
            found.append(Candidate(key, *own, source, edited, row.get("damage"), reason=reason))
    return found


def _at(place: StoredImage) -> Picture:
    def read() -> bytes | str:
        try:
            return bytes(place)
        except AssertionError:  # null
            return "no image"

    return read


def of_folders(source: Path, edited: Sequence[str], instructions: Path) -> list[Candidate]:
    """Edits by key, of one model each. Raises GalleryError and TableError."""
    rows = formats.by_key(instructions)
    told = {key: {name: values.get(name) for name in ("task", "instruction")} for key, values in rows}
    sources, found = Given(source), list[Candidate]()
    for each in edited:
        name, _, path = each.rpartition("=")
        model = name or Path(path).name
        given, damages = Given(Path(path), model if name == "" else None), _damages(Path(path))
        for key in given.listed():
            row = told.get(key, {})
            task, instruction = str(row.get("task") or TASK), str(row.get("instruction") or "")
            own = Candidate(key, model, task, instruction, _of(sources, key), _of(given, key), damages.get(key))
            found.append(own if instruction else replace(own, reason=NO_INSTRUCTION))
    return found


def _of(given: Given, key: str) -> Picture:
    return lambda: given(key)


def _damages(path: Path) -> dict[str, float | None]:
    """Known damage by key, of a Parquet file that has it, as the graph's candidates do."""
    if path.suffix != ".parquet" or "damage" not in pq.read_schema(path).names:
        return {}
    return {row["key"]: row["damage"] for row in pq.read_table(path, columns=["key", "damage"]).to_pylist()}


def scorer_of(name: str, file: Path) -> Scorer:
    """The scorer of params.yaml, or dino_i with its built-in model. ParamsError."""
    given = (params.load(file) if file.is_file() else {}).get("scorers") or {}
    if name not in given and name == BUILT_IN:
        return open_scorer(f"scorers.{name}", {"kind": name})
    if name not in given:
        raise params.ParamsError(f"--scorer {name}: {file} has scorers {', '.join(given) or 'none'}; or {BUILT_IN}")
    return open_scorer(f"scorers.{name}", given[name])


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[Scorer]:
    """The scorer or rater that is asked for. ParamsError."""
    if options.rater is None:
        yield scorer_of(options.scorer, options.params)
        return
    raters = (params.load(options.params) if options.params.is_file() else {}).get("raters") or {}
    if options.rater not in raters:
        raise params.ParamsError(f"--rater {options.rater}: {options.params} has raters {', '.join(raters) or 'none'}")
    with open_judge(f"raters.{options.rater}", raters[options.rater]) as rater:
        yield rater


def run(options: argparse.Namespace) -> None:
    """The command. Raises ParamsError, GalleryError, TableError and FileError before anything is scored."""
    if options.share is not None and not 0 < options.share <= 1:
        raise params.ParamsError(f"--share {options.share:g}: above 0, at most 1")
    if options.pairs is not None:
        candidates = of_pairs(options.pairs)
    elif options.source and options.edited and options.instructions:
        candidates = of_folders(options.source, options.edited, options.instructions)
    else:
        raise FileError("either --pairs, or --source, --edited and --instructions")
    asked = [candidate for candidate in candidates if candidate.reason is None]
    done = [candidate for candidate in candidates if candidate.reason is not None]
    with opened(options) as scorer:
        if options.by is not None and options.by not in scorer.dimensions:
            raise params.ParamsError(f"--by {options.by}: {known(options.by, scorer.dimensions)}")
        done += bar(len(asked), "edits scored", items=scored(asked, scorer, options.by))
    limits = Limits(options.top, options.share, options.per_task, options.per_prompt, options.near_bits)
    kept, dropped = select(done, limits)
    write(options.out, kept, dropped)
    _tell(json.loads((options.out / "report.json").read_text()))


def _tell(found: dict[str, Any]) -> None:
    print(f"curate: {found['kept']} of {found['edits']} edits kept, {found['scored']} scored")
    for each in found["dropped"]:
        print(f"  {each['edits']} {each['reason']}")
    for what in ("score", "damage"):
        if found[what]["kept"] is not None and found[what]["all"] is not None:
            print(f"  mean {what}: {found[what]['kept']:.4f} of what is kept, {found[what]['all']:.4f} of all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--pairs", type=Path, metavar="FILE", help="Parquet, with the images inside")
    add("--source", type=Path, metavar="DIR", help="with --edited and --instructions")
    add("--edited", nargs="+", metavar="[NAME=]DIR", help="of one model each")
    add("--instructions", type=Path, metavar="FILE", help="a table of key, instruction and perhaps task")
    by = parser.add_mutually_exclusive_group(required=True)
    by.add_argument("--scorer", metavar="NAME", help="an entry of `scorers`")
    by.add_argument("--rater", metavar="NAME", help="an entry of `raters`: a VLM with a rubric a task")
    add("--by", metavar="DIMENSION", help="of the scorer's: what counts is this score, not the overall one")
    add("--top", type=int, metavar="K", help="keep at most so many")
    add("--share", type=float, metavar="S", help="keep at most this share of them, such as 0.5")
    add("--per-prompt", type=int, metavar="N", help="keep at most so many edits of each key: the best ones")
    add("--per-task", type=int, metavar="N", help="keep at most so many of each task")
    add(
        "--near-bits",
        type=int,
        default=4,
        metavar="B",
        help="of 64: edits that differ in fewer are one; -1: equal bytes",
    )
    add("--out", type=Path, required=True, metavar="DIR")
    add(
        "--params",
        type=Path,
        default=Path("params.yaml"),
        metavar="FILE",
        help="with the sections `scorers` and `raters`",
    )
    guarded("curate", run, parser.parse_args())


if __name__ == "__main__":
    main()
