"""Stage import_gallery: edits of the arena's prompts that were made elsewhere, as one more model of the arena.

A prompt without an image, and an image that cannot be used, is a failed candidate with its reason.
"""

from collections import Counter
from pathlib import Path

from editjudge.arena import pictures
from editjudge.arena.given import Given
from editjudge.arena.settings import ImportedSetting
from editjudge.core import params, records
from editjudge.core.main import stage
from editjudge.core.progress import progress
from editjudge.core.settings import read

REASONS = 20  # that metrics list, the most frequent first


def run(model: str) -> None:
    pictures.check_name(model, "model")
    values = params.load()
    setting = read(f"imported.{model}", ImportedSetting, params.leaf(values, "imported").get(model))
    path, counts = Path(setting.path), Counter[str]()
    if model in values["editors"]:
        raise params.ParamsError(f"imported.{model}: `editors` has a model of this name")
    if not path.exists():
        raise params.ParamsError(f"imported.{model}.path: {path} not found")
    prompts = records.iterate(Path("data/gedit_bench.parquet"), "gedit_bench")
    tasks = {row["key"]: row["task"] for row in prompts}
    given = Given(path, model)
    rows = (pictures.candidate(key, task, model, given(key)) for key, task in tasks.items())
    with records.RowWriter(Path(f"data/gallery/{model}.parquet"), "candidates") as out:
        for row in progress(rows, len(tasks), f"images of {model}"):
            out.add(row)
            counts.update([row["reason"]] if row["reason"] is not None else [])
    reasons = [{"reason": reason, "records": number} for reason, number in counts.most_common(REASONS)]
    report = {"records": len(tasks), "failed": counts.total(), "reasons": reasons}
    records.write_details(Path(f"metrics/gallery/{model}.json"), report)


if __name__ == "__main__":
    stage(__doc__, run, "model")
