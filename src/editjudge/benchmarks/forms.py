"""Every published form that is read, and the one way to a benchmark's items."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from editjudge.benchmarks import aurora, editreward, editscore, genai, imagenhub, vcreward
from editjudge.benchmarks.item import Item
from editjudge.benchmarks.reading import Setting
from editjudge.core.tables import TableError

SHOWN = 20
FORMS: dict[str, Callable[[Setting], list[Item]]] = {
    "aurora": aurora.load,
    "editreward": editreward.load,
    "editscore": editscore.load,
    "genai": genai.load,
    "imagenhub": imagenhub.load,
    "vcreward": vcreward.load,
}


def load(name: str, setting: Mapping[str, Any]) -> list[Item]:
    """The items of `benchmarks.<name>` in params.yaml, in the order of its files; failed rows are among them.

    Raises TableError for no settings, an unknown form or key, a missing file, a field that the form lacks, and no
    item with people's verdict.
    """
    if not isinstance(setting, Mapping):
        raise TableError(f"benchmarks.{name}: form and path or hub expected, not {setting!r:.80}")
    unknown = sorted(set(setting) - {field.name for field in fields(Setting)})
    if unknown:
        raise TableError(f"benchmarks.{name}: unknown {', '.join(unknown)}")
    if setting.get("form") not in FORMS:
        raise TableError(f"benchmarks.{name}.form is {setting.get('form')!r}; known: {', '.join(FORMS)}")
    items = FORMS[setting["form"]](Setting(**setting))
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
