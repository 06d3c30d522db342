"""The stages' pure functions on small rows: candidates, annotations, benchmark, matches, leaderboard."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from editjudge.core import images, params, records
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.editors import procedural, settings
from editjudge.engine import resume
from editjudge.engine.unfinished import Unfinished
from editjudge.judges.protocol import BothOrders, Verdict
from editjudge.sources.builtin import scenes
from editjudge.stages import candidates, compare_models, leaderboard, probe_bench, raw_pairs, raw_sources, summary
from editjudge.stages.graph.arena import read_panel

ROOT = Path(__file__).parents[2]
KINDS = {"precise": 0.0, "leaky": 2.0, "shifted": 8.0}


@pytest.fixture(scope="module")
def prompts() -> list[dict]:
    return scenes.make_pairs("color_alter", "benchmark", 3, 96, seed=0)


def test_candidates_keep_the_order_and_a_failed_edit_is_a_record_with_its_reason(prompts, tmp_path) -> None:
    broken = [prompts[0] | {"key": "html", "image": b"<html>"}, prompts[1] | {"key": "none", "edit": None}]
    wanted = [candidates.EditPrompt("data", row) for row in (*prompts, *broken)]
    leaky = settings.read({"editors": {"m": {"kind": "leaky", "amount": 2.0, "seed": 1}}}, "m")
    with resume.RecordCache(tmp_path / "c") as cache:
        made, _ = candidates.edit_all(wanted, "m", leaky, cache)
        rows = list(candidates.rows(made, "m", cache.data))
    records.check("candidates", rows, "candidates")
    assert [row["key"] for row in rows] == [*(p["key"] for p in prompts), "html", "none"]
    assert [row["status"] for row in rows[-2:]] == ["failed", "failed"]
    counted = candidates.counts(made)
    assert (counted["records"], counted["failed"]) == (5, 2)
    assert counted["kinds"] == [{"kind": "bad_source", "records": 1}, {"kind": "no_edit", "records": 1}]
    assert {"reason": "not a PNG, JPEG or WebP image", "records": 1} in counted["reasons"]


def test_tasks_without_probe_photos_are_left_out_of_the_benchmark(workdir: Path) -> None:
    setting = {"per_task": 1, "easy_per_task": 1, "least_gap": 1.0, "seed": 1}
    tasks = {"sref": "vlm_as_a_judge", "color_alter": "object_centric"}
    pairs = params.load(ROOT / "params.yaml")["raw_pairs"] | {"image_side": 96}
    values = {"tasks": tasks, "raw_pairs": pairs, "probe_bench": setting}
    (workdir / "params.yaml").write_text(json.dumps(values))
    probe_bench.run()
    for name in ("probe_bench", "probe_easy"):
        [row] = records.read(workdir / f"data/{name}.parquet", "vcreward_bench")
        assert row["task"] == "color_alter"


def test_benchmark_pairs_have_the_published_form_and_a_known_winner(prompts: list[dict]) -> None:
    rows = [probe_bench.make_pair(p, KINDS, 1.0, seed=1) for p in prompts]
    records.check("vcreward_bench", rows, "bench")
    for row in rows:
        better = row["damages"][0] < row["damages"][1]
        assert row["winner"] == ("Image A" if better else "Image B")
        assert abs(row["damages"][0] - row["damages"][1]) >= 1.0
    assert probe_bench.make_pair(prompts[0], {"precise": 0.0, "unedited": 0.0}, 1.0, seed=1) is None


@pytest.fixture(scope="module")
def chosen() -> list[tuple[dict, tuple[probe_bench.KnownEdit, probe_bench.KnownEdit]]]:
    asked = [p for task in ("color_alter", "subject_remove") for p in scenes.make_pairs(task, "benchmark", 40, 64, 0)]
    pairs = probe_bench.choose(asked, [probe_bench.make_edits(prompt, 1) for prompt in asked], 1.0, 1)
    return [(prompt, pair) for prompt, pair in zip(asked, pairs, strict=True) if pair]


def test_what_knows_no_places_is_right_on_the_probe_as_often_as_not(chosen) -> None:
    found = probe_bench.baselines(chosen)
    assert [row["baseline"] for row in found] == [*probe_bench.BASELINES]
    assert all(0.35 <= row["accuracy"] <= 0.65 and row["n"] >= 60 for row in found), found
    kinds = {edit.kind for _, pair in chosen for edit in pair}
    assert kinds >= {"precise", *procedural.UNSEEN}


def test_the_truth_of_the_probe_is_the_damage_to_what_had_to_stay(chosen) -> None:
    rows = [probe_bench.probe_row(*each, swapped=bool(n % 2)) for n, each in enumerate(chosen)]
    records.check("vcreward_bench", rows, "bench")
    for (prompt, pair), row in zip(chosen, rows, strict=True):
        scene = procedural.carry_out(images.decode(prompt["image"]), procedural.parse_edit(prompt["edit"]))
        shown = [images.decode(each["bytes"]) for each in row["edited_images"]]
        # What had to stay is the source's, however much of the edit was made.
        damages = [images.delta_e(scene.source, image)[scene.preserve].mean() for image in shown]
        assert damages == pytest.approx(row["damages"], abs=1e-3)
        if row["stratum"] == "tie":
            assert (row["winner"], damages[0]) == ("Tie", damages[1])
            assert not np.array_equal(*shown)
        else:
            assert row["winner"] == ("Image A" if damages[0] < damages[1] - 0.9 else "Image B")
            less = pair[0].whole[0] < pair[1].whole[0]
            assert row["stratum"] == ("agrees" if less else "misleads")
    assert {row["stratum"] for row in rows} == {"agrees", "misleads", "tie"}


def say(pairs: list[tuple[dict, str, str]]) -> list[BothOrders]:
    """A judge for whom the model with the earlier name is better, and that cannot read one prompt."""
    answers = []
    for prompt, a, b in pairs:
        winner = None if prompt["key"] == "p1" else "Image A" if a < b else "Image B"
        key, reason = f"{prompt['key']}_pair_{a}_vs_{b}", None if winner else "prose"
        answers.append(BothOrders(*[Verdict(key, winner, None, "", reason)] * 3))
    return answers


def test_a_budget_asks_so_many_questions_once_and_none_asks_all() -> None:
    pairs = [({"key": f"p{n}"}, a, b) for n in range(6) for a, b in ("ab", "ac", "bc") if (n, a) != (2, "b")]
    assert compare_models.within(0, pairs, 0) == compare_models.within(99, pairs, 0) == pairs
    asked = [pairs.index(each) for each in compare_models.within(9, pairs, 0)]
    assert asked == sorted(set(asked))
    assert len(asked) == 9


def test_the_report_of_the_arena_counts_questions_and_measures_the_interval() -> None:
    pairs = [({"key": f"p{n}", "task": "t"}, a, b) for n in range(6) for a, b in ("ab", "ac", "bc")]
    gallery = {model: {f"p{n}": {"damage": None} for n in range(6)} for model in "abc"}
    asked = compare_models.within(9, pairs, 0)
    rows = compare_models.to_matches("j", asked, say(asked), gallery)
    records.check("matches", rows, "matches")
    found, name = compare_models.report(rows, len(pairs), 2, [], {}), "visual_consistency"
    counted = {"records": 9, "failed": sum(row["prompt"] == "p1" for row in rows), "pairs_without_image": [2]}
    counted |= {"questions": {"j": {name: 9}}, "questions_possible": 18, "models": [], "cost": []}
    assert found == counted | {"interval_width": {"j": {name: None}}}, "a never loses: its distance has no end"
    every = compare_models.to_matches("j", pairs, say(pairs), gallery)
    lost = [row | {"winner": "Image B" if row["prompt"] == "p2" else row["winner"]} for row in every]
    two = [row for row in lost if row["prompt"] in ("p0", "p2")]  # of prompts: the fewest that have an interval
    for its in (lost, two):
        assert compare_models.report(its, len(pairs), 2, [], {})["interval_width"]["j"][name] > 0
    assert compare_models.report(rows[:1], 18, 2, [], {})["interval_width"] == {"j": {name: None}}
    compare_models.check_verdicts(every)
    unheard = [row | {"judge": "k"} for row in every if row["prompt"] == "p1"]
    words = r"k has no verdict in any of 3 matches: prose; .* set judges\.k\.arena to false"
    with pytest.raises(Unfinished, match=words):
        compare_models.check_verdicts([*every, *unheard])


def test_prompts_of_one_photo_stand_or_fall_together() -> None:
    """The photo travels from the arena's prompts through the matches, and widens what is said of a board and of a judge
    that prefers doing nothing."""
    prompts = [{"key": f"p{n}", "origin": f"photo{n % 4}", "task": "t"} for n in range(64)]
    pairs = [(prompt, a, b) for prompt in prompts for a, b in ("ab", "ac", "bc")]
    gallery = {model: {f"p{n}": {"damage": 0.0} for n in range(64)} for model in "abc"}
    rows = compare_models.to_matches("j", pairs, say(pairs), gallery)
    records.check("matches", rows, "matches")
    lost = {f"p{n}" for n in range(0, 64, 4) if n % 3} | {f"p{n}" for n in range(64) if n % 21 == 1}
    taste = pd.DataFrame([row | {"winner": "Image B" if row["prompt"] in lost else "Image A"} for row in rows])
    each = (taste, taste.assign(origin=None))
    few, many = (leaderboard.rank(table, SETTING | {"idle": "a", "clean": "b"}) for table in each)
    assert (few["clusters"], many["clusters"]) == (4, 64)
    for one, two in zip(few["models"][::2], many["models"][::2], strict=True):
        assert one["high"] - one["low"] > 1.5 * (two["high"] - two["low"])
    pair, single = few["idle_against_clean"], many["idle_against_clean"]
    assert pair["high"] - pair["low"] > 1.5 * (single["high"] - single["low"])
    assert (pair["p"] >= 2 / 16, single["p"] < 0.01) == (True, True)


def test_a_perfect_order_is_a_tau_of_one_where_known_damage_is_equal() -> None:
    assert leaderboard.kendall_tau([4, 3, 2, 1], [0.0, 0.0, 1.5, 3.0]) == 1
    assert leaderboard.kendall_tau([1, 3, 2, 4], [0.0, 0.0, 1.5, 3.0]) == pytest.approx(-0.6)
    assert leaderboard.kendall_tau([1, 2], [1.0, 1.0]) is None


SETTING = {"prior": "weak", "weighting": "balanced", "ties": "davidson", "replicates": 50, "seed": 0}
SETTING |= {"idle": "best", "clean": "middle", "gate": False, "anchor": "none", "anchor_rating": 1000.0, "exclude": ()}


def match(prompt: str, a: str, b: str, winner: str | None) -> dict:
    damage = {"best": 0.0, "middle": 2.0, "worst": 5.0}
    task = "even" if int(prompt[1:]) % 2 == 0 else "odd"
    row = {"prompt": prompt, "origin": None, "task": task, "dimension": "visual_consistency", "winner": winner}
    return row | {"model_a": a, "model_b": b, "damage_a": damage[a], "damage_b": damage[b]}


def test_the_leaderboard_finds_the_known_order_and_counts_what_was_not_scored() -> None:
    rows = []
    for number in range(12):
        p = f"p{number}"
        rows += [match(p, "best", "middle", "Tie" if number == 3 else "Image A"), match(p, "best", "worst", "Image A")]
        rows += [match(p, "worst", "middle", "Image A" if number == 5 else "Image B")]
    rows.append(match("p12", "middle", "worst", None))
    board = leaderboard.rank(pd.DataFrame(rows), SETTING)
    assert [row["model"] for row in board["models"]] == ["best", "middle", "worst"]
    assert board["kendall_tau"] == 1.0
    assert (board["matches"], board["ties"], board["unscored"]) == (37, 1, 1)
    best = board["models"][0]
    assert best["low"] <= best["rating"] <= best["high"]
    assert board["separated"] == [], "a tie joins best to the others"
    idle = board["idle_against_clean"]
    assert (idle["n"], idle["win_rate"], idle["p"] < 0.01) == (12, 11.5 / 12, True)
    second = leaderboard.against(pd.DataFrame(rows), "middle", "best")
    assert second is not None
    assert second["win_rate"] == pytest.approx(0.5 / 12), "the idle model may stand second"
    assert (best["rank_low"], board["models"][-1]["rank_high"]) == (1, 3)
    assert best["known_damage"] == 0.0
    assert [part["task"] for part in board["tasks"]] == ["even", "odd"]
    assert [part["models"][0]["model"] for part in board["tasks"]] == ["best", "best"]
    assert board["win_rates"]["models"] == ["best", "middle", "worst"]
    assert board["win_rates"]["rates"][0] == [None, 11.5 / 12, 1.0]
    circles = board["transitivity"]
    assert (circles["triples"], circles["circular"], circles["unscored"]) == (12, 0, 0)
    assert json.dumps(board)


def test_an_arena_of_one_prompt_has_no_intervals_and_names_who_was_never_scored() -> None:
    rows = [match("p1", "best", "worst", "Image A"), match("p1", "best", "middle", None)]
    nothing = leaderboard.rank(pd.DataFrame(rows[1:]), SETTING)
    assert (nothing["models"], nothing["matches"], nothing["unscored"]) == ([], 1, 1)
    assert nothing["reason"] == "no scored matches among 1"
    assert json.dumps(nothing)
    board = leaderboard.rank(pd.DataFrame(rows), SETTING)
    shown = [(row["model"], row["low"], row["rank_low"]) for row in board["models"]]
    assert shown == [("best", None, None), ("worst", None, None)]
    assert "model middle has no match with a verdict: it is not rated" in board["warnings"]


def test_ties_and_weighting_of_the_setting_are_those_of_the_board() -> None:
    """best wins what has many matches, worst what has few; a third of each are ties."""
    rows = [match(f"p{n}", "best", "worst", ("Image A", "Tie", "Image A", "Image B")[n % 4]) for n in range(40)]
    few = [match(f"p{n}", "best", "worst", ("Image B", "Tie", "Image A")[n % 3]) for n in range(9)]
    table = pd.DataFrame(rows + [row | {"dimension": "visual_quality"} for row in few])
    boards = {
        (ties, weighting): leaderboard.rank(table, SETTING | {"ties": ties, "weighting": weighting})
        for ties in ("davidson", "halves")
        for weighting in ("balanced", "by_matches")
    }
    assert len({board["models"][0]["rating"] for board in boards.values()}) == 4
    assert {key[0] for key, board in boards.items() if board["tie"]} == {"davidson"}
    published = leaderboard.rank(table, SETTING | {"prior": "published"})
    assert published["models"][0]["rating"] < boards["davidson", "balanced"]["models"][0]["rating"]


def test_the_summary_has_the_headline_figures_with_their_intervals() -> None:
    seen = {"accuracy": 0.75, "low": 0.5, "high": 0.9, "scored": 8, "n": 8}
    place = {"first_side_preference": 0.5, "low": 0.4, "high": 0.6}
    mute = {"accuracy": 0.0, "low": 0.0, "high": 0.2, "scored": 0, "n": 8}
    nothing = dict.fromkeys(place)
    part = [{"stratum": "misleads", "accuracy": 0.25, "low": 0.0, "high": 0.5}]
    judges = [
        {"judge": "j", "accuracy": seen, "position": place, "silent": 0, "strata": part},
        {"judge": "base", "accuracy": seen, "position": place, "silent": 0, "strata": []},
        {"judge": "m", "accuracy": mute, "position": nothing, "silent": 8, "strata": part},
    ]
    difference = {"difference": -0.2, "low": -0.3, "high": -0.1}
    between = [{"pairs": [{"first": "base", "second": "j", "difference": difference}]}]
    rows = [match(f"p{n}", "best", "middle", "Tie" if n == 3 else "Image A") for n in range(12)]
    own = {"judge": "j", "dimension": "visual_consistency"} | leaderboard.rank(pd.DataFrame(rows), SETTING)
    board = {"judges": [own], "overall": None}
    report = {"probe": {"judges": judges, "between_judges": between}}
    found = summary.summarised(report, board, {"gain": difference}, ("j", "base"))
    assert found["accuracy"]["probe"]["j"] == {"value": 0.75, "low": 0.5, "high": 0.9}
    assert found["accuracy"]["probe"]["m"]["value"] is None, "unscored is not zero"
    assert found["accuracy"]["probe_misleads"]["j"] == {"value": 0.25, "low": 0.0, "high": 0.5}
    assert found["accuracy"]["probe_misleads"]["m"]["value"] is None
    assert found["silent"] == {"probe": {"m": 8}}
    assert found["gain"]["probe"] == {"value": 0.2, "low": 0.1, "high": 0.3}, "the judge less its base"
    assert found["gain"]["held_out"]["value"] == -0.2
    assert found["position_bias"] == {"probe": {"value": 0.5, "low": 0.4, "high": 0.6}}
    assert found["kendall_tau"] == {"j": None}, "beside the idle model there is one"
    assert found["idle_over_clean"]["j"]["value"] == round(11.5 / 12, 4)
    assert found["rating"]["best"]["low"] < found["rating"]["best"]["value"] < found["rating"]["best"]["high"]
    lost = summary.summarised(report, board, {"gain": None}, ("m", "base"))
    assert lost["gain"] == {"held_out": {"value": None, "low": None, "high": None}}


def test_the_overall_board_is_of_each_dimensions_judge() -> None:
    """Doing nothing keeps all and does not what was asked: the dimensions disagree, the overall board hears both."""
    names = ("best", "middle", "worst")
    lasting = {"visual_consistency": "eye", "instruction_following": "ear"}
    rows = []
    for n in range(40):
        for a, b in (names[:2], names[1:], names[::2]):
            wins = "Tie" if n % 8 == 3 else ("Image B" if n % 8 == 5 else "Image A")
            idle = "Image B" if a == "best" and n % 8 != 5 else "Image A"
            for judge, said in (("eye", wins), ("ear", idle), ("other", "Image B")):
                row = match(f"p{n}", a, b, said) | {"judge": judge, "origin": f"photo{n % 10}"}
                rows.append(row | ({"dimension": "instruction_following"} if judge == "ear" else {}))
    table = pd.DataFrame(rows)
    board = leaderboard.overall(table, lasting, SETTING)
    assert board["matches"] == 240, "the third judge is not of the panel"
    apart = {part["dimension"]: [row["model"] for row in part["models"]] for part in board["dimensions"]}
    assert apart == {"instruction_following": ["middle", "worst", "best"], "visual_consistency": [*names]}
    assert board["models"][0]["model"] == "middle"
    assert sum(row["p_best"] for row in board["models"]) == pytest.approx(1)
    assert board["win_rates"]["n"] == [[0, 80, 80], [80, 0, 80], [80, 80, 0]]
    assert board["kendall_tau"] == 1, "of the two that do something"
    assert leaderboard.overall(table, {}, SETTING) is None
    gated = leaderboard.overall(table, lasting, SETTING | {"gate": True})
    keys = ["prompt", "model_a", "model_b"]
    eye, ear = (table[table["judge"] == judge].set_index(keys)["winner"] for judge in lasting.values())
    assert gated["gated"] == ((eye != ear) & (eye != "Tie") & (ear != "Tie")).sum() > 20
    assert (board["gated"], gated["models"][-1]["model"]) == (None, "best")
    assert gated["dimensions"] == board["dimensions"], "each dimension by itself has no gate"
    anchored = leaderboard.overall(table, lasting, SETTING | {"anchor": "worst", "anchor_rating": 800.0})
    [worst] = [row for row in anchored["models"] if row["model"] == "worst"]
    assert (worst["rating"], worst["low"], worst["high"]) == (800, 800, 800)
    free = {row["model"]: row["rating"] for row in board["models"]}
    fixed = {row["model"]: row["rating"] for row in anchored["models"]}
    assert fixed["middle"] - fixed["worst"] == pytest.approx(free["middle"] - free["worst"], abs=0.02)
    without = leaderboard.taking_part(table, SETTING | {"exclude": ("worst",)})
    assert {*without["model_a"], *without["model_b"]} == {"best", "middle"}
    for field, value in (("exclude", ("nobody",)), ("anchor", "nobody")):
        with pytest.raises(FileError, match=rf"leaderboard\.{field} has 'nobody': .*best, middle, worst"):
            leaderboard.taking_part(table, SETTING | {field: value})


def test_judges_are_asked_about_their_dimensions() -> None:
    judges = {name: {"backend": "measures", "rule": "agreement", "arena": name == "own"} for name in ("own", "gpt")}
    panel = {"visual_consistency": "own", "instruction_following": "gpt", "visual_quality": "gpt"}
    asked = compare_models.asked_about(judges, panel)
    assert asked == {"own": ["visual_consistency"], "gpt": ["instruction_following", "visual_quality"]}
    assert read_panel({}, judges) == {}
    for wrong, why in (({"beauty": "own"}, r"arena\.beauty must be"), ({"visual_quality": "x"}, "quality is 'x'")):
        with pytest.raises(ParamsError, match=why):
            read_panel(wrong, judges)


def test_a_changed_source_of_one_task_changes_what_is_known_of_that_task_alone(workdir: Path) -> None:
    values = yaml.safe_load((ROOT / "params.yaml").read_text()) | {"tasks": {"color_alter": "x", "subject_add": "x"}}
    sources: dict[str, Any] = {}
    for task in values["tasks"]:
        sources[task] = {"own": {"format": "plain", "path": f"{task}.csv"}}
        Path(f"{task}.csv").write_text("key,instruction,image\n")
    values["raw_pairs"]["sources"] = sources

    def known() -> dict[str, bytes]:
        Path("params.yaml").write_text(yaml.safe_dump(values))
        raw_sources.run()
        return {file.stem: file.read_bytes() for file in Path("data/raw_sources").iterdir()}

    before = known()
    Path("subject_add.csv").write_text("key,instruction,image\n1,Add a cup,a.png\n")
    after = known()
    assert {task for task in before if before[task] != after[task]} == {"subject_add"}
    sources["color_alter"]["own"]["most"] = 3
    assert {task for task, said in known().items() if said != after[task]} == {"color_alter"}
    values["raw_pairs"]["seed"] += 1
    Path("params.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ParamsError, match=r"is not as data/raw_sources/color_alter\.json has it: run `dvc repro`"):
        raw_pairs.run("color_alter")
