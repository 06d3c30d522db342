"""Tables, charts and the drawing of the graph, from the committed metrics and from made-up ones."""

import copy
from pathlib import Path

import pytest
import yaml

from editjudge.core import params, records
from editjudge.report import figures

ROOT = Path(__file__).parents[2]
BOARD = records.read_details(ROOT / "metrics/leaderboard.json")
BENCH = {"probe": records.read_details(ROOT / "metrics/benchmarks/probe.json")}


def test_boards_have_the_whole_and_each_task_and_dimension() -> None:
    together, *judges = figures.boards(BOARD)
    assert [part["kind"] for part in together["parts"]] == ["", *["dimension"] * 3, *["task"] * 8]
    assert "measures, visual consistency" in [board["judge"] for board in judges]
    assert all([part["kind"] for part in board["parts"]] == ["", *["task"] * 8] for board in judges)
    assert len(figures.boards(BOARD | {"overall": None})) == len(judges)
    assert figures.boards(None) == []
    given, found = BOARD["judges"][0], judges[0]["win_rates"]
    assert found["models"] == [row["model"] for row in given["models"]], "in the order of their ranks"
    models, rates = given["win_rates"]["models"], given["win_rates"]["rates"]
    for row, one in enumerate(found["models"]):
        for column, other in enumerate(found["models"]):
            assert found["rates"][row][column] == rates[models.index(one)][models.index(other)]


@pytest.mark.parametrize(
    ("verdicts", "chance"),
    [
        (["Image A", "Image B"], 1 / 2),
        (["Image A", "Image B", "Tie"], 1 / 3),
        (["Image A", "Both bad", "Both good", "Image B"], 1 / 3),
        ([], None),
    ],
)
def test_chance(verdicts: list[str], chance: float | None) -> None:
    report = {"benchmark": [{"verdicts": [{"verdict": verdict, "items": 1} for verdict in verdicts]}]}
    assert figures.chance(report) == chance


def test_a_judge_that_was_not_heard_has_no_accuracy() -> None:
    report = copy.deepcopy(BENCH["probe"])
    seen = report["judges"][0]["accuracy"]
    for part in (seen, *seen["per_task"].values()):
        part |= {"scored": 0, "accuracy": 0.0, "low": 0.0, "high": 1.0}
    [row] = [row for row in figures.judges({"probe": report})[0]["rows"] if not row["scored"]]
    assert set(row["accuracy"].values()) == set(row["mean_over_tasks"].values()) == {None}
    [chart] = [chart for chart in figures.judge_charts({"probe": report}, {}) if "by task" in chart["title"]]
    assert row["judge"] not in {point["judge"] for point in chart["spec"]["data"]["values"]}


def test_the_trained_judge_less_its_base_is_that_way_round() -> None:
    judges = {"new": {"model": "models/judge"}, "old": {"model": "models/tiny_base"}, "rule": {"backend": "measures"}}
    difference = {"first": "old", "second": "new", "difference": -0.2, "low": -0.3, "high": -0.1, "p": 0.1}
    other = difference | {"second": "rule"}
    measured = [{"benchmark": "probe", "differences": [difference, other]}]
    [found] = figures.against_base(measured, judges, "models/tiny_base")
    assert (found["judge"], found["base"]) == ("new", "old")
    assert (found["difference"], found["low"], found["high"]) == (0.2, 0.1, 0.3)


def test_failures_name_stage_reason_and_number() -> None:
    metrics = {
        "candidates": {"per_model": [{"model": "a", "reasons": [{"reason": "timeout", "records": 3}]}]},
        "leaderboard": {"judges": [{"judge": "j", "unscored": 2}]},
        "annotate": {"t": {"reasons": [], "unscored_reasons": [{"measure": "m", "reason": "no face", "values": 4}]}},
    }
    found = {(row["stage"], row["what"], row["reason"]): row["records"] for row in figures.failures(metrics)}
    assert found == {
        ("candidates", "a", "timeout"): 3,
        ("compare_models", "j", "no verdict"): 2,
        ("annotate@t", "m", "no face"): 4,
    }
    assert figures.failures({"benchmarks": BENCH, "leaderboard": BOARD}) == []


def test_every_chart_names_its_axes_columns() -> None:
    curves = {"probe": [{"judge": "base", "damage_gap": 1.0, "fit": 0.5}]}
    charts = list(figures.judge_charts(BENCH, curves))
    learnt = {"pairs": 1, "accuracy": 0.5, "low": 0.4, "high": 0.6}
    charts += figures.training_charts({"learning_curve/judge": [learnt]})
    for chart in charts:
        columns = set(chart["spec"]["data"]["values"][0])
        for layer in chart["spec"].get("layer", [chart["spec"]]):
            own = set(layer.get("data", {"values": [{}]})["values"][0])
            fields = {each["field"] for each in layer["encoding"].values() if "field" in each}
            assert fields <= (own or columns), chart["title"]


def test_the_graph_has_each_stage_beneath_what_it_reads() -> None:
    given = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    found = {node["name"]: node for node in figures.nodes(given, params.load(ROOT / "params.yaml"), {"filter": 240})}
    assert set(found) == set(given["stages"]) - {"code"}
    for node in found.values():
        assert all(found[name]["depth"] < node["depth"] for name in node["reads"]), node["name"]
    assert found["annotate"]["reads"] == ["filter", "candidates"]
    assert found["candidates"]["items"] == 6
    assert found["filter"]["records"] == 240
    assert "summary" in found["report"]["reads"]
