"""Stage candidates_report: what became of the edits of all editing models, in one file."""

from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.main import stage


def report(counts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The counts of each model (`candidates.counts`), and their sums. A list, which `dvc metrics` leaves out."""
    sums = {name: sum(count[name] for count in counts.values()) for name in ("records", "failed")}
    return {"per_model": [{"model": model} | count for model, count in counts.items()]} | sums


def run() -> None:
    models = params.leaf(params.load(), "editors")
    counts = {model: records.read_details(Path(f"metrics/candidates/{model}.json")) for model in models}
    records.write_details(Path("metrics/candidates.json"), report(counts))


if __name__ == "__main__":
    stage(__doc__, run)
