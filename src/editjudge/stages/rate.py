"""Stage rate: every model's edits of a suite's cases rated by the suite's raters, and the suite's board.

data/ratings/<suite>.parquet keeps every reply with the judge's name and the day of asking, data/suite_boards/<suite>
has the board beside the published figures."""

from pathlib import Path

from editjudge.benchmarks.suites import forms, suite_report
from editjudge.core import params, records
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.editors.settings import used
from editjudge.engine import unfinished
from editjudge.models.endpoint.spending import run_report
from editjudge.stages.graph.arena import of_suite


def run(name: str) -> None:
    values = params.load()
    setting = section(values, f"suites.{name}", forms.SuiteSetting)
    raters = forms.chosen(name, setting, params.leaf(values, "raters"))
    cases = [*records.iterate(Path(f"data/suites/{name}.parquet"), "suites", "source_image.bytes")]
    models = used(params.leaf(values, "editors"), "benchmark")
    files = {model: f"data/suite_gallery/{model}/{name}.parquet" for model in models}
    files |= {model: f"data/gallery/{model}.parquet" for model in of_suite(values.get("imported"), name)}
    rows_of = {model: records.iterate(Path(file), "candidates", "image") for model, file in files.items()}
    edits = {model: {row["key"]: row for row in its} for model, its in rows_of.items()}
    rows, told, board, accounts = suite_report.results(setting, cases, edits, raters)
    records.write(Path(f"data/ratings/{name}.parquet"), rows, "ratings")
    suite = {"name": name, "form": setting.form, "cases": len(cases)}
    records.write_details(Path(f"metrics/suites/{name}.json"), {"suite": suite, **told})
    records.write_json(Path(f"metrics/resume/rate_{name}.json"), run_report(accounts))
    suite_report.write(Path(f"data/suite_boards/{name}"), board)
    suite_report.plot(Path(f"plots/suites/{name}.csv"), board)
    gaps = [account.gap(f"raters.{rater}") for rater, account in accounts.items()]
    unfinished.check(values, "rate", f"rate@{name}", gaps)


if __name__ == "__main__":
    stage(__doc__, run, "suite")
