"""Stage suite: the cases of a suite of single edits, such as ImgEdit-Bench, from its published form.

A row that cannot be used is counted in metrics/suite_cases/<suite>.json, and stands with its reason in
data/refused/suites/<suite>.csv.
"""

from collections import Counter
from pathlib import Path

from editjudge.benchmarks import suites
from editjudge.core import params, progress, records
from editjudge.core.main import stage
from editjudge.core.settings import read
from editjudge.core.tables import TableError


def run(name: str) -> None:
    setting = read(f"suites.{name}", suites.SuiteSetting, params.leaf(params.load(), "suites").get(name))
    types, refused = Counter[str](), 0
    bad_rows = Path(f"data/refused/suites/{name}.csv")
    with (
        records.RowWriter(Path(f"data/suites/{name}.parquet"), "suites") as cases,
        records.TableWriter(bad_rows, suites.REFUSED) as bad,
    ):
        for row in progress.bar(None, f"cases of {name}", "case", suites.cases(name, setting)):
            if "reason" in row:
                refused += 1
                bad.add(row)
            else:
                types[row["type"]] += 1
                cases.add(row)
        counts = [{"type": each, "cases": number} for each, number in sorted(types.items())]
        report = {"records": types.total(), "refused": refused, "types": counts}
        records.write_details(Path(f"metrics/suite_cases/{name}.json"), report)
        if not types:
            raise TableError(f"suites.{name}: no row can be used as a case; {bad_rows} says why")


if __name__ == "__main__":
    stage(__doc__, run, "suite")
