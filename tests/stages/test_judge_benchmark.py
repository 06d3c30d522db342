"""The stage that measures judges on a reward benchmark: every kind of item, the whole stage on a small one, and
scorers as judges, with real images and a broken one."""

import json
import shutil
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import lessons
import numpy as np
import pandas as pd
import pytest
import yaml
from benchmark_files import editreward
from chat_client import chat_server, questions, setting
from table_files import parquet
from tiny_models import clip_folder

from editjudge.benchmarks import report
from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import BenchmarkSetting, Item
from editjudge.core import images, records
from editjudge.core.main import stage
from editjudge.core.settings import read
from editjudge.judges import opening
from editjudge.judges.protocol import BothOrders, Verdict
from editjudge.judges.styles import told
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.sources.builtin import scenes
from editjudge.stages import judge_benchmark, probe_bench, summary

ROOT = Path(__file__).parents[2]
A, B, TIE = "Image A", "Image B", "Tie"
OTHER = {A: B, B: A, TIE: TIE, None: None}
PNG = images.encode_png(np.zeros((4, 4, 3), np.uint8))


def item(key: str, **changes: object) -> Item:
    plain = Item(key, "t", "overall", "Go.", PNG, PNG, PNG, "Image A", cluster=key)
    return replace(plain, **changes)


def answer(key: str, forward: str | None, backward: str | None, p_a: float | None = None) -> BothOrders:
    """What a judge said to both orders, `backward` in the terms of the exchanged question."""
    agreed = forward if OTHER[backward] == forward else (None if None in (forward, backward) else TIE)
    winners = (forward, backward, agreed)
    one, two, both = (Verdict(key, w, p_a, "", None if w else "prose") for w in winners)
    return BothOrders(one, two, both)


def reported(items: list[Item], winners: list[str | None]) -> dict:
    asked = [(i, w) for i, w in zip(items, winners, strict=True) if i.failed is None]
    answers = [answer(i.key, winner, OTHER[winner]) for i, winner in asked]
    return report.judge_report(items, judge_benchmark.to_verdicts("j", items, answers))


def test_a_failed_item_is_not_asked_but_stays_in_the_denominator() -> None:
    broken = item("b", failed="image 'x.png' is not in pictures", source=b"", a=b"", b=b"")
    items = [item("k"), broken, item("row", failed="field winner: 'x'", verdict=None)]
    assert [question.key for question in judge_benchmark.questions_of(items, {}, SlotSetting())] == ["k"]
    rows = judge_benchmark.to_verdicts("j", items, [answer("k", A, B)])
    said = [(row["key"], row["winner"], row["reason"]) for row in rows]
    assert said == [("k", A, None), ("b", None, "image 'x.png' is not in pictures")]
    accuracy = report.judge_report(items, rows)["accuracy"]
    assert (accuracy["n"], accuracy["unparsed"], accuracy["accuracy"]) == (2, 1, 0.5)
    summary = judge_benchmark.summary("bench", {"form": "genai"}, items, {"j": rows}, {}, {})
    assert summary["benchmark"][0]["failed"] == 2
    assert summary["benchmark"][0]["items"] == 3


def tuple_items() -> list[Item]:
    sides = [("A", "B"), ("A", "C"), ("B", "C")]
    return [item(f"{g}_{a}v{b}", group=g, cluster=g, size=3, models=(a, b)) for g in ("x", "y") for a, b in sides]


def test_tuples_count_as_a_whole_circles_are_seen_and_a_pair_that_failed_or_has_no_verdict_breaks_its_tuple() -> None:
    items = tuple_items()
    result = reported(items, [A, A, A, A, B, A])
    assert result["accuracy"]["accuracy"] == pytest.approx(5 / 6)
    assert (result["tuples"]["n"], result["tuples"]["correct"]) == (2, 1)
    assert (result["transitivity"]["scored"], result["transitivity"]["circular"]) == (2, 1)
    assert (result["pointwise"], result["psychometric"]) == (None, None)
    failed = replace(items[2], failed="no image", source=b"", a=b"", b=b"")
    result = reported([*items[:2], failed, *items[3:]], [A, A, None, A, A, A])
    assert (result["tuples"]["correct"], result["tuples"]["unscored"]) == (1, 1)
    assert result["transitivity"]["unscored"] == 1
    items[2] = replace(items[2], failed="field ranking: '?'", verdict=None, source=b"", a=b"", b=b"")
    items.append(replace(items[2], key="z", group="z"))
    result = reported(items, [A, A, None, A, A, A, None])
    counted = {name: result["tuples"][name] for name in ("n", "correct", "unscored", "incomplete")}
    assert counted == {"n": 3, "correct": 1, "unscored": 2, "incomplete": 1}
    assert result["accuracy"]["n"] == 5


def test_ratings_become_a_rank_correlation_a_model() -> None:
    rng = np.random.default_rng(0)
    items = []
    for prompt in range(12):
        scores = dict(zip("abc", rng.random(3), strict=True))
        for a, b in (("a", "b"), ("a", "c"), ("b", "c")):
            both = ((scores[a],), (scores[b],))
            verdict = A if scores[a] > scores[b] else B
            key = f"p{prompt}{a}{b}"
            items.append(item(key, group=f"p{prompt}", models=(a, b), size=3, ratings=both, verdict=verdict))
    result = reported(items, [i.verdict for i in items])
    assert result["tuples"] is None
    assert (result["pointwise"]["n"], result["pointwise"]["scored"], result["pointwise"]["models"]) == (36, 36, 3)
    assert result["pointwise"]["spearman"] > 0.5
    assert reported(items, [None] * 36)["pointwise"]["spearman"] is None


def test_known_damage_gives_a_curve_and_plot_data() -> None:
    rng = np.random.default_rng(0)
    items, winners = [], []
    for n in range(200):
        gap = float(rng.uniform(0.5, 10))
        worse = int(rng.integers(2))
        damages = gap * worse + 1, gap * (1 - worse) + 1
        models = ("precise", "box") if worse == 0 else ("box", "precise")
        truth = A if damages[0] < damages[1] else B
        items.append(item(f"k{n}", damages=damages, models=models, verdict=truth, cluster=f"c{n % 8}"))
        winners.append(truth if rng.random() < 0.5 + 0.5 * (gap > 4) else OTHER[truth])
    everything, box = reported(items, winners)["psychometric"]
    assert (everything["kind"], box["kind"], box["n"]) == ("all", "box", 200)
    assert everything["threshold"] == pytest.approx(4, abs=1.5)
    answers = [answer(i.key, w, OTHER[w]) for i, w in zip(items, winners, strict=True)]
    rows = judge_benchmark.to_verdicts("j", items, answers)
    plot = judge_benchmark.plot_rows(items, {"j": rows})
    assert {row["judge"] for row in plot} == {"j"}
    assert plot[0]["accuracy"] < plot[-1]["accuracy"]
    assert all(row["low"] <= row["accuracy"] <= row["high"] for row in plot)
    assert judge_benchmark.plot_rows([item("k")], {"j": rows})[0]["damage_gap"] is None


def test_probabilities_give_the_tie_calibrated_accuracy() -> None:
    items = [item("a"), item("b", verdict="Both good"), item("c", verdict=B)]
    answers = [answer("a", A, B, 0.9), answer("b", A, B, 0.55), answer("c", B, A, 0.2)]
    rows = judge_benchmark.to_verdicts("j", items, answers)
    result = report.judge_report(items, rows)
    assert (rows[1]["truth"], rows[1]["label"]) == (TIE, "Both good")
    assert result["accuracy"]["accuracy"] == pytest.approx(2 / 3)
    assert result["tie_calibrated"]["accuracy"] == 1
    assert result["accuracy"]["decided"]["accuracy"] == 1
    labels = [(row["label"], row["n"], row["correct"]) for row in result["labels"]]
    assert labels == [(A, 1, 1), (B, 1, 1), ("Both good", 1, 0)]
    close = judge_benchmark.to_verdicts("j", [item("a")], [answer("a", A, B, 0.50004)])
    records.check("verdicts", close, "verdicts")
    assert (close[0]["p_a"], close[0]["forward"], close[0]["backward"]) == (0.5, A, A)
    assert report.tie_calibrated(close)["accuracy"] == 1, "rounding made no Tie of it"
    said = [answer("a", A, B, 0.7), answer("b", B, A, 0.3)]
    alike = judge_benchmark.to_verdicts("j", [item("a", verdict="Tie"), item("b", verdict=B)], said)
    assert report.tie_calibrated(alike)["accuracy"] == 0.5, "as sure of A as of B, to the last bit"


@pytest.fixture
def repository(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the stage reads: recipes, params with the judge by measures, and a small benchmark."""
    shutil.copytree(ROOT / "pipelines", workdir / "pipelines")
    judge = {"backend": "measures", "arena": True, "rule": "agreement", "tie_margin": 0.0}
    benchmarks = {"small": {"form": "vcreward", "path": "data/small.parquet"}}
    values = {"tasks": {"color_alter": "object_centric"}, "judges": {"measures": judge}, "benchmarks": benchmarks}
    values["measures"] = {}
    (workdir / "params.yaml").write_text(yaml.safe_dump(values))
    prompts = scenes.make_pairs("color_alter", "train", 3, 96, seed=0)
    amounts = {"precise": 0.0, "leaky": 2.0, "shifted": 8.0}
    rows = [probe_bench.make_pair(prompt, amounts, 1.0, seed=1) for prompt in prompts]
    records.write(workdir / "data/small.parquet", rows, "vcreward_bench")
    monkeypatch.setattr(sys, "argv", ["judge_benchmark", "--benchmark", "small"])
    return workdir


def test_the_stage_writes_verdicts_metrics_and_plot_data(repository: Path) -> None:
    stage(judge_benchmark.__doc__, judge_benchmark.run, "benchmark")
    rows = records.read(repository / "data/verdicts/small.parquet", "verdicts")
    assert [row["judge"] for row in rows] == ["measures"] * 3
    [metrics] = json.loads((repository / "metrics/benchmarks/small.json").read_text())
    assert metrics["judges"][0]["accuracy"]["accuracy"] == 1
    assert metrics["benchmark"][0]["items"] == 3
    [cost] = metrics["cost"]
    assert (cost["judge"], cost["answers"], cost["unknown_cost"], cost["money"]) == ("measures", 6, 6, None)
    assert json.loads((repository / "metrics/resume/judge_small.json").read_text())["measures"]["failed"] == 0
    plot = pd.read_csv(repository / "plots/psychometric/small.csv")
    assert plot["questions"].sum() == 3
    assert (plot["accuracy"] == 1).all()
    accuracy = pd.read_csv(repository / "plots/accuracy/small.csv")
    told = accuracy[["judge", "task", "accuracy", "n"]].values.tolist()
    assert told == [["measures", task, 1, 3] for task in ("all", "color_alter")]


def change(repository: Path, **sections: object) -> None:
    file = repository / "params.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | sections))


def run(repository: Path, share: float, **judges: dict) -> dict:
    """The stage with these judges and this share in params.yaml; its metrics, however it ends."""
    change(repository, judges=judges, unfinished={"judge_benchmark": share})
    stage(judge_benchmark.__doc__, judge_benchmark.run, "benchmark")
    return records.read_details(repository / "metrics/benchmarks/small.json")


MEASURES = {"backend": "measures", "rule": "agreement"}


def test_a_missing_key_and_a_benchmark_that_cannot_be_read_end_the_stage_before_any_work(repository: Path) -> None:
    gpt = {"backend": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "m", "rule": "probability"}
    with pytest.raises(SystemExit, match="set the environment variable NO_SUCH_KEY"):
        run(repository, 0.0, gpt=gpt | {"api_key_env": "NO_SUCH_KEY"})
    (repository / "data/small.parquet").unlink()
    with pytest.raises(SystemExit, match=r"^judge_benchmark: data/small\.parquet not found"):
        run(repository, 0.0, measures=MEASURES)
    change(repository, benchmarks={"small": None})
    with pytest.raises(SystemExit, match=r"^judge_benchmark: benchmarks\.small must have fields"):
        run(repository, 0.0, measures=MEASURES)
    assert not (repository / "work").exists()


def test_a_benchmark_without_a_verdict_ends_the_stage(repository: Path) -> None:
    change(repository, tasks={})
    words = r"no judge has a verdict on any row of small; the first: .*the question says no regions to measure"
    with pytest.raises(SystemExit, match=f"^judge_benchmark: {words}"):
        run(repository, 1.0, measures=MEASURES)
    assert headline(records.read_details(repository / "metrics/benchmarks/small.json"), "measures") == (None, 3)
    first = (repository / "plots/accuracy/small.csv").read_text().splitlines()[1]
    assert first == "measures,all,,,,3,0", "unscored is not an accuracy of zero"
    head = "instruct_prompt,source_image,left_output_image,right_output_image,left_model,right_model,vote_type"
    (repository / "votes.csv").write_text(f'{head}\n"Red.",source.png,left.png,right.png,m1,m2,rightvote\n')
    change(repository, benchmarks={"small": {"form": "genai", "path": "votes.csv"}})
    with pytest.raises(SystemExit, match=r"^judge_benchmark: benchmarks\.small: no row can be used; .*image"):
        run(repository, 1.0, measures=MEASURES)


def headline(found: dict, judge: str) -> tuple[float | None, int]:
    """The judge's accuracy in metrics/summary.json, and how many rows it said nothing about."""
    told = summary.summarised({"small": found}, {"judges": [], "overall": None}, {})
    return told["accuracy"]["small"][judge]["value"], told.get("silent", {}).get("small", {}).get(judge, 0)


def test_a_spent_budget_is_unfinished_and_not_a_low_accuracy(repository: Path, capfd: pytest.CaptureFixture) -> None:
    with chat_server() as server:
        gpt = setting(server.url, prompt="decision", max_in_flight=1)
        few = gpt | {"budget": {"questions": 4}}
        words = r"2 of 6 answers of judges\.gpt are missing \(budget: 2\)\..* again, with more judges\.gpt\.budget, or"
        with pytest.raises(SystemExit, match=f"^judge_benchmark: {words}"):
            run(repository, 0.05, gpt=few)
        found = records.read_details(repository / "metrics/benchmarks/small.json")
        assert headline(found, "gpt") == (None, 1)
        assert "gpt said nothing on 1 of 3 rows: " in capfd.readouterr().err
        assert headline(run(repository, 1.0, gpt=few), "gpt") == (None, 1), "as the user wants it, and no figure of it"
        assert "run `dvc repro code && dvc repro -f -s judge_benchmark@small`" in capfd.readouterr().err
        whole = run(repository, 0.0, gpt=gpt)
        assert sum(server.log()["kinds"].values()) == 6, "what was paid for is not asked again"
    accuracy, silent = headline(whole, "gpt")
    assert (accuracy is not None, silent) == (True, 0)


def test_every_interval_of_a_judge_is_of_whole_photos() -> None:
    """200 questions of every kind, on 4 photos or on their own: the intervals of the first are wider, one and all."""
    rng = np.random.default_rng(3)
    items, answers, rated, scores = [], [], [], []
    for n in range(200):
        photo, gap, worth = n // 50, float(rng.uniform(0.5, 10)), float(rng.random())
        own = item(f"k{n}", cluster=f"photo{photo}", group=f"g{n}", models=("precise", "box"))
        items.append(replace(own, damages=(0.0, gap), verdict="Image A" if n % 10 else "Both good"))
        winner = A if gap > 3 * photo or rng.random() < 0.5 else B
        answers.append(answer(own.key, winner, OTHER[winner]))
        rated.append(replace(own, ratings=((worth,), (1 - worth,))))
        seen = np.array([worth, 1 - worth]) + rng.normal(size=2) * (9 if photo % 2 else 0.1)
        scores.append(scored_answer(own.key, *seen.tolist()))
    photos, alone = [], []
    for its, said in ((items, answers), (rated, scores)):
        for found, clustered in ((photos, its), (alone, [replace(i, cluster=i.key) for i in its])):
            found.append(report.judge_report(clustered, judge_benchmark.to_verdicts("j", clustered, said)))
    for few, many in zip(photos, alone, strict=True):
        for part in ("accuracy", "four_way", "tuples"):
            assert few[part] is None or width(few[part]) > 1.5 * width(many[part]), part
    curves = [found[0]["psychometric"][0] for found in (photos, alone)]
    assert width(curves[0]) > 1.5 * width(curves[1])
    assert width(curves[0]["points"][4]) > 1.2 * width(curves[1]["points"][4])
    assert width(photos[1]["pointwise"], "spearman_") > 2 * width(alone[1]["pointwise"], "spearman_")


def width(found: dict, prefix: str = "") -> float:
    return found[f"{prefix}high"] - found[f"{prefix}low"]


def scored_answer(key: str, a: float, b: float) -> BothOrders:
    winner = TIE if a == b else A if a > b else B
    return replace(answer(key, winner, OTHER[winner]), scores=(a, b))


@pytest.mark.parametrize("unit", [1.0, 0.01, 100.0])
def test_a_scorers_tie_is_both_good_by_its_own_scores_in_whatever_unit(unit: float) -> None:
    """Of 1, 1, 4, 4, 2, 3 the median is 2.5."""
    items = [item("low", verdict="Both bad"), item("high", verdict="Both good"), item("other")]
    answers = [scored_answer(i.key, a * unit, b * unit) for i, a, b in zip(items, (1, 4, 2), (1, 4, 3), strict=True)]
    rows = judge_benchmark.to_verdicts("j", items, answers)
    assert [row["answer"] for row in rows] == ["Both bad", "Both good", B]


def test_a_pair_of_two_is_tied_up_to_epsilon_and_a_larger_tuple_is_not() -> None:
    items = [item("two", group="two", verdict=TIE), *tuple_items()[:3]]
    answers = [scored_answer(i.key, 6.0, 5.5) for i in items]
    rows = judge_benchmark.to_verdicts("j", items, answers)
    records.check("verdicts", rows, "verdicts")
    strict, loose = (report.tuples(items, rows, epsilon) for epsilon in (0.0, 0.5))
    assert [row["correct"] for row in strict["per_size"]] == [0, 1]
    assert [row["correct"] for row in loose["per_size"]] == [1, 1]


def by_the_evaluator(size: int, rankings: list[str], scores: list[list[float]]) -> tuple[int, float]:
    """How many tuples EditReward's eval_bench.py counts as right, said again in the shortest way, and its epsilon."""
    epsilon, best = 0.0, -1.0
    if size == 2:
        people = [0 if "=" in r else 1 if r in ("A>B", "B<A") else -1 for r in rankings]
        leads = [a - b for a, b in scores]
        for bound in [0.0, *sorted({abs(lead) for lead in leads})]:
            signs = [0 if abs(lead) <= bound else np.sign(lead) for lead in leads]
            if (right := float(np.mean([s == p for s, p in zip(signs, people, strict=True)]))) > best:
                epsilon, best = bound, right
    count = 0
    for ranking, own in zip(rankings, scores, strict=True):
        if "=" in ranking:
            count += abs(own[0] - own[1]) <= epsilon
        else:
            better = ranking[::-1] if "<" in ranking else ranking
            count += [ord(letter) - ord("A") for letter in better[::2]] == np.argsort(own)[::-1].tolist()
    return int(count), epsilon


def test_tuples_by_the_evaluators_own_rule_and_its_own_files(tmp_path: Path) -> None:
    """Scores that are often equal, or nearly, and pairs that people tied: in each, the two rules differ."""
    rng = np.random.default_rng(0)
    (tmp_path / "a.png").write_bytes(PNG)
    known, wanted, places = {}, {}, {}
    for size in (2, 3, 4):
        words = ["A>B", "B>A", "A<B", "A=B=Good", "A=B=Bad"]
        orders = [">".join(rng.permutation(list("ABCD"[:size]))) for _ in range(100)]
        rankings = [str(rng.choice(words)) for _ in orders] if size == 2 else orders
        scores = [[float(np.round(rng.random(), rng.choice([1, 4]))) for _ in range(size)] for _ in rankings]
        tuples = [{"prompt": "Go on.", "path_src": "a.png", "paths_generated": ["a.png"] * size,
                   "human_vote": {"ranking": ranking}} for ranking in rankings]  # fmt: skip
        (tmp_path / f"EditReward_Bench_{size}pair.json").write_text(json.dumps(tuples))
        wanted[size], places[size] = by_the_evaluator(size, rankings, scores), scores
    setting = {"form": "editreward", "path": str(tmp_path)}
    items = forms.load("erb", setting)
    assert (len(items), [i.failed for i in items if i.failed]) == (100 * (1 + 3 + 6), [])
    for each in items:
        own = places[each.size][int(str(each.group)[-5:])]
        a, b = (own[ord(model) - ord("A")] for model in each.models or "")
        known[each.key] = scored_answer(each.key, a, b)
    rows = judge_benchmark.to_verdicts("j", items, list(known.values()))
    found = report.tuples_by_evaluator(items, rows)
    assert {row["size"]: row["correct"] for row in found["per_size"]} == {n: right for n, (right, _) in wanted.items()}
    assert found["epsilon"] == wanted[2][1]
    names = [row["name"] for row in report.published("editreward", report.judge_report(items, rows))]
    assert names[:4] == ["EditReward-Bench K=2", "EditReward-Bench K=3", "EditReward-Bench K=4", "EditReward-Bench all"]
    assert names[4] == "EditReward-Bench K=2, every pair right", "ours has a name of its own"
    assert found["correct"] != report.tuples(items, rows, 0.0)["correct"]


def test_vcreward_bench_as_its_runner_counts_and_in_both_orders() -> None:
    items = [item(str(n), task="st"[n % 2]) for n in range(6)]
    said = [(A, B), (A, A), (None, B), (TIE, TIE), (A, B), (B, A)]
    rows = judge_benchmark.to_verdicts("j", items, [answer(str(n), *each) for n, each in enumerate(said)])
    result = report.judge_report(items, rows)
    figures = {row["name"]: row["value"] for row in report.published("vcreward", result)}
    assert figures == {
        "VCReward-Bench accuracy, mean over tasks": pytest.approx((2 / 2 + 1 / 3) / 2),  # what is unread is left out
        "VCReward-Bench accuracy, overall": pytest.approx(3 / 5),
        "VCReward-Bench accuracy of both orders, mean over tasks": pytest.approx((2 / 3 + 0 / 3) / 2),
    }
    assert (result["both_right"]["correct"], result["both_right"]["n"], result["calibration"]) == (2, 6, None)


def test_a_scorer_is_correlated_by_its_scores() -> None:
    """Edits of a prompt differ by as much in all prompts: won pairs tell nothing between prompts, scores do."""
    items, answers = [], []
    for n in range(10):
        ratings = ((n / 10,), (n / 10 + 0.05,))
        items.append(item(f"p{n}", group=f"p{n}", models=("a", "b"), ratings=ratings, verdict=B))
        answers.append(scored_answer(f"p{n}", float(n), n + 0.5))
    result = report.judge_report(items, judge_benchmark.to_verdicts("j", items, answers))
    assert result["pointwise"]["aurora"] == pytest.approx(1)
    assert report.published("imagenhub", result)[0]["value"] == pytest.approx(np.tanh(1))
    assert report.published("imagenhub", result)[1]["value"] == pytest.approx(1)
    told = [
        {each["name"] for each in report.published("aurora", found)} for found in (result, result | {"pointwise": None})
    ]
    assert [{name for name in names if "accuracy" in name} for names in told] == [set(), told[1]], "of pairs alone"


def test_a_benchmark_may_choose_its_judges() -> None:
    setting = read("benchmarks.b", BenchmarkSetting, {"form": "genai", "path": "x", "judges": ["two"]})
    assert list(judge_benchmark.chosen("b", setting, {"one": {}, "two": {}})) == ["two"]
    with pytest.raises(judge_benchmark.params.ParamsError, match=r"benchmarks\.b\.judges has 'two'"):
        judge_benchmark.chosen("b", setting, {"one": {}})


def test_a_judge_is_asked_about_what_the_benchmark_measures(workdir: Path) -> None:
    """Every item about its dimension, in both orders; the verdicts stand in the items' order."""
    names = {"prompt_following": "instruction_following", "consistency": "visual_consistency", "overall": "overall"}
    names |= {name: name for name in ("visual_quality", "visual_consistency")}
    [asked] = questions(1)
    shown = {"instruction": "q0", "source": asked.source, "a": asked.a, "b": asked.b}
    items = [item(name, dimension=name, **shown) for name in names]
    with chat_server(bodies=True) as server:
        found, _ = judge_benchmark.ask_judges(
            opening.open_judges({"gpt": setting(server.url)}), items, {}, SlotSetting()
        )
        bodies = server.log()["bodies"]
    assert len(bodies) == 2 * len({*names.values()}), "the same question once"
    for words in {*names.values()}:
        assert sum(told(words)["criteria"].splitlines()[0] in body for body in bodies) == 2
    assert [row["key"] for row in found["gpt"]] == list(names)
    assert all(row["winner"] == "Tie" for row in found["gpt"])


def test_scorers_of_every_kind_are_judges(workdir: Path, base_dir: Path, photo: np.ndarray) -> None:
    """Of tuples of two, three and four edits, each with more noise than the one before it; the last edit is broken."""
    rng, rows = np.random.default_rng(0), []
    noisy = [photo + rng.integers(-most, most + 1, photo.shape) for most in (0, 6, 40, 90, 160)]
    shown = [{"bytes": images.encode_png(each.clip(0, 255).astype(np.uint8)), "path": None} for each in noisy]
    for size in (2, 3, 4):
        for a, b in combinations(range(size), 2):
            one, two = "ABCD"[a], "ABCD"[b]
            row = editreward(f"g_{one}vs{two}", f"{size}pair", f"{one}>{two}", f"{one}vs{two}")
            rows.append(row | {"source_image": shown[0], "candidate_1": shown[a + 1], "candidate_2": shown[b + 1]})
    rows[-1]["candidate_2"] = {"bytes": b"no image", "path": None}
    clip = str(clip_folder(workdir / "clip"))
    lessons.write_scorer(base_dir, workdir / "scorer")
    scorers = {name: {"kind": name, "model": clip} for name in ("clip_t", "clip_d", "clip_i")}
    scorers["dino_i"] = {"kind": "dino_i", "model": "embedded"}
    scorers["tiny"] = {"kind": "checkpoint", "model": "scorer", "dtype": "float32", "batch_size": 8}
    judges = {name: {"backend": "scorer", "scorer": name, "rule": "agreement"} for name in scorers}
    values = {"tasks": {}, "measures": {}, "judges": judges, "scorers": scorers, "unfinished": {"judge_benchmark": 0.6}}
    values["benchmarks"] = {"bench": {"form": "editreward", "path": str(parquet(workdir / "bench.parquet", rows))}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    judge_benchmark.run("bench")

    verdicts = records.read(Path("data/verdicts/bench.parquet"), "verdicts")
    for judge in judges:
        *scored, broken = [row for row in verdicts if row["judge"] == judge]
        assert (broken["winner"], bool(broken["reason"]), broken["score_b"]) == (None, True, None)
        assert all(np.isfinite([row["score_a"], row["score_b"]]).all() for row in scored)
        if judge == "dino_i":
            assert all(row["winner"] == row["truth"] for row in scored), "the more noise, the less like the source"
    found = records.read_details(Path("metrics/benchmarks/bench.json"))["judges"]
    assert {(row["accuracy"]["n"], row["accuracy"]["scored"]) for row in found} == {(len(rows), len(rows) - 1)}
    assert [[each["size"] for each in row["tuples"]["per_size"]] for row in found] == [[2, 3, 4]] * len(judges)
