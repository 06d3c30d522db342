"""Stage suite: the cases of a suite of single edits, such as ImgEdit-Bench, from its published form.

A row that cannot be used is counted in metrics/suite_cases/<suite>.json, and stands with its reason in
data/refused/suites/<suite>.csv."""

from pathlib import Path

from editjudge.benchmarks.suites import forms as suites
from editjudge.core import params, records
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.engine import progress


def run(name: str) -> None:
    setting = section(params.load(), f"suites.{name}", suites.SuiteSetting)
    out, bad_rows = Path(f"data/suites/{name}.parquet"), Path(f"data/refused/suites/{name}.csv")
    nothing = f"suites.{name}: no row can be used as a case"
    with records.sifted(out, "suites", bad_rows, suites.REFUSED, nothing) as (cases, refuse):
        shown = progress.bar(None, f"cases of {name}", "case", suites.cases(name, setting))
        report = records.sort_out(shown, cases, refuse, "type", "cases")
        records.write_details(Path(f"metrics/suite_cases/{name}.json"), report)


if __name__ == "__main__":
    stage(__doc__, run, "suite")
