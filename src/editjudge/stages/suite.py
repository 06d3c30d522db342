"""Stage suite: the cases of a suite of single edits, such as ImgEdit-Bench, from its published form.

A row that cannot be used is counted in metrics/suite_cases/<suite>.json, and stands with its reason in
data/refused/suites/<suite>.csv.
"""

from pathlib import Path

from editjudge.benchmarks.suites import forms as suites
from editjudge.core import params, records
from editjudge.core.main import stage
from editjudge.core.settings import read
from editjudge.core.tables import TableError
from editjudge.engine import progress


def run(name: str) -> None:
    setting = read(f"suites.{name}", suites.SuiteSetting, params.leaf(params.load(), "suites").get(name))
    bad_rows = Path(f"data/refused/suites/{name}.csv")
    with (
        records.RowWriter(Path(f"data/suites/{name}.parquet"), "suites") as cases,
        records.TableWriter(bad_rows, suites.REFUSED) as bad,
    ):
        shown = progress.bar(None, f"cases of {name}", "case", suites.cases(name, setting))
        types, counts = records.sort_out(shown, cases, bad, "type")
        report = counts | {"types": [{"type": each, "cases": number} for each, number in types]}
        records.write_details(Path(f"metrics/suite_cases/{name}.json"), report)
        if not types:
            raise TableError(f"suites.{name}: no row can be used as a case; {bad_rows} says why")


if __name__ == "__main__":
    stage(__doc__, run, "suite")
