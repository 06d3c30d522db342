"""Single edits that people rated in several respects: FIRM-Bench (Zhao et al. 2026, arXiv 2603.12247) and TIEdit (Gao
et al. 2026, arXiv 2603.19775).

The files of neither could be read when this was written (FIRM-Bench: the hub's zpy777/FIRM-Bench, FIRM-Bench-Edit/
result/human_bench_v1.jsonl; TIEdit names none), so this is a form of our own into which theirs have to be put: JSON
lines, CSV or Parquet, a row an edit, with source and edited (images or paths), instruction, model if it is known, and
people's score under the name of each respect. FIRM-Bench: execution and consistency, 1 to 5. TIEdit: the mean opinion
scores perceptual_quality, editing_alignment and content_preservation. Several rows on one edit are several people. An
edit without another one of its prompt is shown as both sides of a pair, of which only scores say something."""

from collections.abc import Iterator, Mapping
from functools import partial

from editjudge.benchmarks.preferences.item import BenchmarkSetting, Item, Point, merged, pairs, photo
from editjudge.core.reading import Record, number, read
from editjudge.core.tables import RowError

ASKED = ("visual_quality", "prompt_following", "visual_consistency")
TIEDIT = zip(("perceptual_quality", "editing_alignment", "content_preservation"), ASKED, strict=True)
RESPECTS = {"firm": {"execution": ASKED[1], "consistency": ASKED[2]}, "tiedit": dict(TIEDIT)}  # and what is asked


def load(setting: BenchmarkSetting) -> list[Item]:
    """The items of every respect, which is their task: all pairs of a prompt's edits. Raises TableError."""
    respects = RESPECTS[setting.form]
    points = merged(read(setting), partial(_points, respects))
    every = {name: [point for point in points if point.task == name] for name in respects}
    return [item for name, own in every.items() for item in pairs(own, respects[name], alone=True)]


def _points(respects: Mapping[str, str], record: Record) -> Iterator[Point]:
    """The edit in each respect in which it has a score."""
    instruction, place = record.text("instruction"), record.get("source")
    (source, edited), failed = record.found(place, record.get("edited"))
    scored = {name: record.get(name) for name in respects if record.get(name) not in (None, "")}
    if not scored:
        raise RowError("missing field", f"none of {', '.join(respects)}")
    where = place if isinstance(place, str) else photo(source, record.key)
    model = str(record.get("model") or f"edit-{photo(edited, record.key)}")
    for name, value in scored.items():
        try:
            score = number(float(value) if isinstance(value, str) else value, name)  # a text in CSV
        except ValueError as error:
            raise RowError("wrong type", f"{name}: a number expected, not {value!r:.40}") from error
        yield Point(f"{name}: {where}: {instruction}", model, name, instruction, source, edited, (score,), failed)
