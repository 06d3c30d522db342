"""Our measures beside the published system's own values: each case and measure of data/reference_measures by name.

`python -m tools.trials.measures_vs_reference FOLDER...` prints the same as a table, also of other such folders.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tools.trials import measures_vs_reference as reference

FOLDER = Path(os.environ.get("EDITJUDGE_SHARED", "../shared")) / "data/reference_measures"
CASES: dict[str, Any] = json.loads((FOLDER / "values.json").read_text())["cases"] if FOLDER.is_dir() else {}
EACH = [(case, name) for case, given in CASES.items() for name in given["measures"]]


@pytest.mark.skipif(not CASES, reason=f"no {FOLDER}; EDITJUDGE_SHARED says where the shared folder is")
@pytest.mark.parametrize(("case", "name"), EACH, ids=[f"{case}-{name}" for case, name in EACH])
def test_it_is_the_published_value_or_what_stands_for_a_defect(case: str, name: str) -> None:
    measure = CASES[case]["measures"][name]
    ours = reference.taken(reference.Case(FOLDER, CASES[case], name, measure))
    right, far = reference.verdict(measure, ours)
    assert right, f"published {measure['value']}, ours {ours}, {far} apart; follow: {measure.get('follow', True)}"
