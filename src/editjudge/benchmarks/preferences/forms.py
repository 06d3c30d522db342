"""The published forms of reward benchmarks, and how a setting becomes a benchmark's items."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from editjudge.benchmarks.preferences import aurora, chosen, editreward, editscore, genai, imagenhub, mmrb2, rated
from editjudge.benchmarks.preferences.item import BenchmarkSetting, Form, Item
from editjudge.benchmarks.preferences.vcreward import load as load_vcreward
from editjudge.core.settings import read
from editjudge.core.tables import TableError

SHOWN = 20
FORMS: dict[Form, Callable[[BenchmarkSetting], list[Item]]] = {
    "aurora": aurora.load,
    "compass": chosen.load,
    "editreward": editreward.load,
    "editscore": editscore.load,
    "firm": rated.load,
    "genai": genai.load,
    "imagenhub": imagenhub.load,
    "mmrb2": mmrb2.load,
    "rewardbench": chosen.load,
    "tiedit": rated.load,
    "vcreward": load_vcreward,
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
