"""The published forms of reward benchmarks, and how a setting becomes a benchmark's items."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from editjudge.benchmarks.preferences import compared, editreward, rated
from editjudge.benchmarks.preferences.item import BenchmarkSetting, Form, Item, collect
from editjudge.core import reading
from editjudge.core.reading import Record
from editjudge.core.settings import read
from editjudge.core.tables import TableError

SHOWN = 20


def _by_row(build: Callable[[Record], Item]) -> Callable[[BenchmarkSetting], list[Item]]:
    """A form in which each row is an item."""
    return lambda setting: collect(reading.read(setting), build)


FORMS: dict[Form, Callable[[BenchmarkSetting], list[Item]]] = {
    "aurora": compared.aurora,
    "compass": _by_row(compared.compass),
    "editreward": editreward.load,
    "editscore": compared.editscore,
    "firm": rated.respects,
    "genai": _by_row(compared.genai),
    "imagenhub": rated.imagenhub,
    "mmrb2": compared.mmrb2,
    "rewardbench": _by_row(compared.rewardbench),
    "tiedit": rated.respects,
    "vcreward": _by_row(compared.vcreward),
}


def load(name: str, setting: Mapping[str, Any]) -> list[Item]:
    """The items of `benchmarks.<name>` in params.yaml, in the order of its files; failed rows are among them.

    Raises ParamsError, and TableError for a missing file, a field that the form lacks, and no item with people's
    verdict."""
    own = read(f"benchmarks.{name}", BenchmarkSetting, setting)
    items = FORMS[own.form](own)
    if not items:
        raise TableError(f"benchmarks.{name}: no rows")
    if all(item.verdict is None for item in items):
        raise TableError(f"benchmarks.{name}: no row can be used; {items[0].where}: {items[0].failed}")
    return items


def counts(items: Sequence[Item]) -> dict[str, Any]:
    """How many items there are, how many have people's verdict, how many failed and why (the 20 first of each)."""
    failed = [item for item in items if item.failed]
    reasons = Counter(str(item.failed) for item in failed).most_common(SHOWN)
    verdicts = Counter(item.verdict for item in items if item.verdict)
    return {
        "items": len(items),
        "with_verdict": sum(verdicts.values()),
        "failed": len(failed),
        "reasons": [{"reason": reason, "items": number} for reason, number in reasons],
        "failures": [f"{item.where}: {item.failed}" for item in failed[:SHOWN]],
        "verdicts": [{"verdict": verdict, "items": number} for verdict, number in sorted(verdicts.items())],
    }
