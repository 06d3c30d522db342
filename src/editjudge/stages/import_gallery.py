"""Stage import_gallery: edits of the arena's prompts, or of a suite's cases, that were made elsewhere.

A prompt without an image, and an image that cannot be used, is a failed candidate with its reason; files that are of no
case of a suite are named in metrics/gallery/<model>.json."""

from collections import Counter
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.editors.galleries import pictures
from editjudge.editors.galleries.pictures import Given
from editjudge.engine import progress
from editjudge.stages.graph.arena import ImportedSetting

REASONS = 20  # that metrics list, the most frequent first


def run(model: str) -> None:
    pictures.check_name(model, "model")
    values = params.load()
    setting = section(values, f"imported.{model}", ImportedSetting)
    path, counts = Path(setting.path), Counter[str]()
    if model in values["editors"]:
        raise params.ParamsError(f"imported.{model}: `editors` has a model of this name")
    if not path.exists():
        raise params.ParamsError(f"imported.{model}.path: {path} not found")
    found = pictures.GalleryReport()
    if setting.suite:
        cases = records.iterate(Path(f"data/suites/{setting.suite}.parquet"), "suites")
        rows = pictures.read_suite(path, cases, model, found)
    else:
        prompts, given = records.iterate(Path("data/gedit_bench.parquet"), "gedit_bench"), Given(path, model)
        named = [(row["key"], row["task"]) for row in prompts]
        rows = (pictures.candidate(key, task, model, given(key)) for key, task in named)
    with records.row_writer(Path(f"data/gallery/{model}.parquet"), "candidates") as out:
        for row in progress.bar(None, f"images of {model}", "image", rows):
            out.add(row)
            counts.update([row["reason"]] if row["reason"] is not None else [])
    reasons = [{"reason": reason, "records": number} for reason, number in counts.most_common(REASONS)]
    report: dict[str, Any] = {"records": out.count, "failed": counts.total(), "reasons": reasons}
    report |= {"lacking": found.rows} if setting.suite else {}
    records.write_details(Path(f"metrics/gallery/{model}.json"), report)


if __name__ == "__main__":
    stage(__doc__, run, "model")
