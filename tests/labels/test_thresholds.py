"""What the thresholds do to the pairs, on candidates whose z scores are known by hand."""

import csv
import shutil
from pathlib import Path

import program
import pytest
import yaml

from editjudge.core import images, records
from editjudge.labels import thresholds, tiers

RULES = [tiers.AreaRule("unedit_area", "ssim", 1, 0.64, -0.2)]
SETTING = tiers.PairsSetting(
    mode="three_tiers", margin=0.3, prompts_per_task=9, least_change=1.0, seed=1, thresholds={}
)
ROOT = Path(__file__).parents[2]


def row(key: str, model: str, value: float, damage: float | None) -> records.Row:
    values = {"ssim": value, "delta_e": 3.0 - value}
    measures = [{"area": "unedit_area", "measure": name, "value": v, "reason": None} for name, v in values.items()]
    found = {"key": key, "task": "subject_add", "model": model, "status": "done", "reason": None, "change": 9.0}
    found |= {"damage": damage, "edited_area_ratio": 0.2, "measures": measures}
    return found | {"source_sha256": "0" * 64, "edit_sha256": "0" * 64}


# z of (0, 1, 2) is -1.2247, 0, 1.2247: failure, normal, elite. In the second prompt the truth is the other way round.
ROWS = [row("a", f"m{n}", n, 2.0 - n) for n in range(3)] + [row("b", f"m{n}", n, float(n)) for n in range(3)]


def test_pairs_and_true_pairs_by_threshold() -> None:
    found = list(thresholds.table_of("subject_add", ROWS, RULES, SETTING))
    now = [each for each in found if each["quantile"] == thresholds.NOW]
    assert [(each["threshold"], each["pairs"], each["share_pairs"], each["share_right"]) for each in now] == [
        ("failure", 6, 1.0, 0.5),
        ("elite", 6, 1.0, 0.5),
    ]
    high = next(each for each in found if each["threshold"] == "elite" and each["quantile"] == 0.95)
    assert high["z"] == pytest.approx(1.224745)
    assert (high["pairs"], high["known"]) == (4, 4), "no candidate is above the highest z: two normal over failure each"
    assert all(each["z"] <= 0.64 for each in found if each["threshold"] == "failure"), "never above elite"


def test_an_unknown_truth_is_no_share() -> None:
    unknown = [each | {"damage": None} for each in ROWS]
    found = list(thresholds.table_of("subject_add", unknown, RULES, SETTING))[-1]
    assert (found["pairs"], found["known"], found["share_pairs"], found["share_right"]) == (6, 0, 1.0, None)


def test_the_command_writes_a_table_and_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"tasks": {"subject_add": "object_centric"}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    shutil.copytree(ROOT / "pipelines", "pipelines")
    records.write(Path("data/annotations/subject_add.parquet"), ROWS, "annotations")
    said = program.run("thresholds --out t.csv --plot t.png").splitlines()
    with Path("t.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {(each["area"], each["measure"]) for each in table} == {("unedit_area", "ssim")}
    assert images.decode(Path("t.png").read_bytes()).std() > 5
    assert said[-1].split() == ["subject_add", "unedit_area", "ssim", "elite", "0.640", "6", "1.000", "6", "0.500"]
