"""Pairs of candidates, drawn and judged: by a real HTTP server in a process of its own, and by the embedded base.

Of the candidates here the brighter edit is the better one."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import each_row
from chat_client import chat_server
from fake_server import Server
from hypothesis import given
from hypothesis import strategies as st

from editjudge.core import images, params, records
from editjudge.editors import settings
from editjudge.engine import resume
from editjudge.judges import opening
from editjudge.judges.protocol import BothOrders, Verdict, combine, mirrored
from editjudge.labels import verdicts
from editjudge.measures.annotation.recipe import Judging, Recipe, load_recipe
from editjudge.models.endpoint.spending import Account
from editjudge.sources.builtin import scenes
from editjudge.stages import annotate, train_pairs
from editjudge.stages import candidates as editing

ROOT = Path(__file__).parents[2]
SEVEN = ("FLUX.2-dev", "FLUX.2-klein-4B", "FLUX.2-klein-9B", "Qwen-Image-Edit", "Qwen-Image-Edit-2509", "a10", "a9")
NAMES = st.lists(st.from_regex(r"[A-Za-z0-9._-]{1,8}", fullmatch=True), min_size=2, max_size=7, unique=True)
SETTING = {"prompts_per_task": 99, "least_change": 1.0}
MODELS = ("flux-2", "flux-10", "qwen-2509", "qwen-2511")
# Of equal ones neither wins; the order of the names is not that of the light.
LIGHT = {"flux-2": 140, "flux-10": 40, "qwen-2509": 140, "qwen-2511": 90}


def grey(level: int, contrast: int = 0) -> bytes:
    """A PNG of this mean brightness, its left half darker and its right half brighter by the contrast."""
    pixels = np.full((24, 32, 3), level, np.uint8)
    pixels[:, :16] -= np.uint8(contrast)
    pixels[:, 16:] += np.uint8(contrast)
    return images.encode_png(pixels)


def recipe(most: int = 6, prompt: str = "decision") -> Recipe:
    """A recipe of a task that a VLM judges."""
    judging = Judging(prompt, "visual_consistency", most)
    return Recipe("enhancement", (), pipeline="vlm_as_a_judge", image_side=1024, judge=judging)


def prompts(count: int) -> list[dict[str, Any]]:
    """Rows of a pool, as far as judges need them, with instructions q0, q1, ..."""
    plain = {"task": "enhancement", "image": grey(100), "regions": []}
    return [plain | {"key": f"k{n}", "instruction": f"q{n}"} for n in range(count)]


def candidates(count: int, models: Iterable[str] = MODELS) -> list[dict[str, Any]]:
    """Every model's edit of every prompt."""
    done = {"task": "enhancement", "status": "done", "reason": None}
    return [
        done | {"key": f"k{n}", "model": model, "damage": 255.0 - LIGHT[model]}
        | {"image": grey(LIGHT[model] + n % 100, contrast)}
        for contrast, model in enumerate(models) for n in range(count)
    ]  # fmt: skip


def endpoint(url: str, **changes: Any) -> dict[str, Any]:
    """A judge's setting."""
    plain = {"backend": "endpoint", "base_url": url, "model": "m", "rule": "agreement", "logprobs": 0, "timeout": 5.0}
    return plain | changes


def annotated(
    judges: dict[str, dict[str, Any]], count: int, file: Path, edits: Sequence[dict[str, Any]] | None = None, **how: Any
) -> tuple[list[dict[str, Any]], dict[str, Account]]:
    """The verdicts on the pairs of so many prompts."""
    prompt = {"prompt": recipe(**how).judge.prompt}
    opened = {n: opening.open_judge(f"{verdicts.SECTION}.{n}", prompt | given, file) for n, given in judges.items()}
    shown = candidates(count) if edits is None else list(edits)
    rows = verdicts.annotate_pairs(prompts(count), shown, recipe(**how), opened)
    return rows, {name: judge.account for name, judge in opened.items()}


def test_names_are_ordered_as_people_count() -> None:
    wanted = ["2b", "a9", "A10", "a10", "FLUX.2-dev", "FLUX.2-klein-4B", "flux-10", "Qwen-Image-Edit"]
    wanted += ["Qwen-Image-Edit-2509", "Qwen-Image-Edit-2511"]
    assert sorted(sorted(wanted), key=verdicts.canonical) == sorted(set(wanted), key=verdicts.canonical) == wanted


@given(models=NAMES, key=st.text(max_size=9), most=st.integers(1, 30), data=st.data())
def test_the_draw_depends_on_the_key_and_the_names_alone(models: list[str], key: str, most: int, data: st.DataObject):
    found = verdicts.drawn(key, models, most)
    assert found == verdicts.drawn(key, data.draw(st.permutations(models)), most)
    every = list(combinations(sorted(models, key=verdicts.canonical), 2))
    assert len(found) == min(most, len(every))
    assert found == [pair for pair in every if pair in found], "in canonical order, none twice"


def test_the_draw_is_the_same_in_each_process_even_over_the_keys_and_mostly_kept_with_another_model() -> None:
    wanted = [("a9", "FLUX.2-klein-4B"), ("a10", "FLUX.2-klein-9B"), ("FLUX.2-dev", "Qwen-Image-Edit-2509")]
    assert verdicts.drawn("k1", SEVEN, 3) == wanted
    assert len({tuple(verdicts.drawn(f"k{n}", SEVEN, 3)) for n in range(50)}) > 45
    count = Counter(pair for n in range(3000) for pair in verdicts.drawn(f"k{n}", MODELS, 2))
    assert len(count) == 6
    assert all(abs(times / 3000 - 2 / 6) < 0.04 for times in count.values())
    stayed = [set(verdicts.drawn(f"k{n}", SEVEN[:6], 6)) & set(verdicts.drawn(f"k{n}", SEVEN, 6)) for n in range(200)]
    assert sum(map(len, stayed)) / 200 > 6 * 15 / 21 - 0.3, "15 of the 21 pairs are without the new one"


def test_failed_candidates_are_in_no_pair_and_are_counted() -> None:
    rows = candidates(2)
    rows[0] |= {"status": "failed", "image": None, "reason": "out of memory"}  # the first model's edit of k0
    pairs = verdicts.pairs_of(prompts(2), rows, 6)
    assert Counter(prompt["key"] for prompt, *_ in pairs) == {"k0": 3, "k1": 6}
    assert all(a["status"] == b["status"] == "done" for _, a, b in pairs)
    rows[2] |= {"status": "failed"}
    rows[4] |= {"status": "failed"}
    assert {prompt["key"] for prompt, *_ in verdicts.pairs_of(prompts(2), rows, 6)} == {"k1"}
    counted = verdicts.counts(prompts(2), rows, [], {"j": Account()})
    assert (counted["candidates_failed"], counted["prompts_without_pair"], counted["pairs_not_drawn"]) == (3, 1, [6])


def answer(winner: str | None, reason: str | None = None) -> BothOrders:
    """A judge that says the same in both orders."""
    forward = Verdict("k", winner, None, "said", reason)
    return BothOrders(forward, mirrored(forward), forward)


@each_row("winners, wanted")
def test_the_majority_of_the_judges_decides_and_who_says_nothing_has_no_vote(winners: list, wanted: str | None) -> None:
    answers = {f"j{n}": answer(each, None if each else "prose") for n, each in enumerate(winners)}
    verdict = verdicts.over_judges(answers)
    assert verdict.winner == wanted
    assert verdict.reason == (None if wanted else "j0: prose; j1: prose")


SIDED = st.tuples(st.sampled_from(["Image A", "Image B", "Tie", None]), st.none() | st.floats(0, 1))


def both(sided: list, rule: str, exchanged: bool) -> dict[str, BothOrders]:
    """Judges whose two answers are given; with the two models' names exchanged, the other order is the first."""
    found = {}
    for n, pair in enumerate(sided):
        first, second = (Verdict("k", winner, p, "", None if winner else "?") for winner, p in pair)
        forward, backward = (second, first) if exchanged else (first, second)
        found[f"j{n}"] = BothOrders(forward, backward, combine(forward, backward, rule))
    return found


@given(st.lists(st.tuples(SIDED, SIDED), min_size=1, max_size=4), st.sampled_from(["agreement", "probability"]))
def test_the_models_names_decide_nothing(sided: list, rule: str) -> None:
    named = verdicts.over_judges(both(sided, rule, False))
    turned = verdicts.over_judges(both(sided, rule, True))
    assert turned.winner == mirrored(named).winner


def test_a_judge_by_measures_and_wrong_settings_are_named_before_any_work(tmp_path: Path) -> None:
    measures = {"backend": "measures", "rule": "agreement"}
    with pytest.raises(params.ParamsError, match=r"pairwise\.judges\.m\.backend: measures cannot judge enhancement"):
        verdicts.open_judges(recipe(), {"m": measures})
    local = {"backend": "transformers", "model": str(tmp_path / "none"), "dtype": "float32", "batch_size": 1}
    with pytest.raises(params.ParamsError, match=r"pairwise\.judges\.b\.model: no folder"):
        verdicts.open_judges(recipe(), {"a": endpoint("http://127.0.0.1:9/v1"), "b": local | {"rule": "agreement"}})
    with pytest.raises(params.ParamsError, match=r"`pairwise\.judges` has none"):
        verdicts.open_judges(recipe(), {})
    assert verdicts.open_judges(replace(recipe(), judge=None), {}) == {}


def brighter(row: dict) -> str:
    """What the server's judge has to say of the pair."""
    a, b = LIGHT[row["model_a"]], LIGHT[row["model_b"]]
    return "Tie" if a == b else "Image A" if a > b else "Image B"


def test_pairs_are_judged_end_to_end_where_requests_fail_and_replies_are_prose(tmp_path: Path) -> None:
    with chat_server(brightest=True, failures=0.1, prose=0.3) as server:
        judges = {name: endpoint(server.url, model=name, timeout=1.0, tries=8) for name in ("one", "two")}
        rows, accounts = annotated(judges, 12, tmp_path / "c")
        log = server.log()
    records.check("pair_verdicts", rows, "verdicts")
    assert len(rows) == 12 * 6
    assert [row["winner"] for row in rows] == [brighter(row) for row in rows]
    assert sum(log["answered"].values()) > 2 * 2 * len(rows), "prose was asked again"
    assert len(log["kinds"]) == 5, "and every kind of failure was met"
    counted = verdicts.counts(prompts(12), candidates(12), rows, accounts)
    assert (counted["pairs"], counted["pairs_tied"], counted["pairs_failed"]) == (72, 12, 0)
    assert [(judge["scored"], judge["both_orders_agree"]) for judge in counted["judges"]] == [(72, 72), (72, 72)]
    chosen, left_out = train_pairs.choose_judged(rows, [], SETTING)
    assert (len(chosen), left_out["dropped_tie"]) == (60, 12)
    assert all(LIGHT[item.pair.winner] > LIGHT[item.pair.loser] for item in chosen)
    again, _ = annotated(judges, 12, tmp_path / "c", list(reversed(candidates(12))))
    assert again == rows, "whatever the order of the candidates, and from the cache alone: the server is gone"


@pytest.fixture(scope="module")
def sound() -> "pytest.Generator[Server]":
    with chat_server(brightest=True) as server:
        yield server


def test_what_has_no_verdict_is_kept_with_its_reason_and_left_out_of_the_pairs(tmp_path: Path) -> None:
    edits = candidates(2)
    edits[0]["image"] = b"<html>"
    with chat_server(replies={"q1": ["Hard to say."]}) as server:
        rows, accounts = annotated({"j": endpoint(server.url, reply_tries=2)}, 2, tmp_path / "c", edits)
    records.check("pair_verdicts", rows, "verdicts")
    said = Counter((row["key"], row["status"]) for row in rows)
    assert said == {("k0", "unasked"): 3, ("k0", "done"): 3, ("k1", "failed"): 6}
    reasons = [row["reason"] for row in rows if row["status"] != "done"]
    assert all(reason.startswith("j: forward order: ") for reason in reasons)
    assert "not a PNG" in reasons[0]
    assert {row["winner"] for row in rows if row["status"] == "done"} == {"Tie"}, "Image A in both orders"
    chosen, left_out = train_pairs.choose_judged(rows, [], SETTING)
    assert chosen == []
    assert [left_out[f"dropped_{name}"] for name in ("tie", "failed", "unasked")] == [3, 6, 3]
    counted = verdicts.counts(prompts(2), edits, rows, accounts)
    assert (counted["pairs_failed"], counted["pairs_unasked"], counted["cost"][0]["unread"]) == (6, 3, 12)


def test_a_pair_has_failed_where_one_judge_was_not_understood_and_the_other_not_asked(tmp_path: Path) -> None:
    with chat_server(replies={"q0": ["Hard to say."]}) as server:
        spent = endpoint(server.url, model="b", budget={"questions": 1}, reply_tries=1)
        rows, _ = annotated({"a": endpoint(server.url, reply_tries=1), "b": spent}, 1, tmp_path / "c")
    assert {row["status"] for row in rows} == {"failed"}
    assert "b: forward order: budget spent" in rows[-1]["reason"]


def test_one_judge_without_a_budget_left_does_not_silence_the_other(sound: Server, tmp_path: Path) -> None:
    judges = {"a": endpoint(sound.url), "b": endpoint(sound.url, model="b", budget={"questions": 4})}
    rows, accounts = annotated(judges, 2, tmp_path / "c")
    assert [row["winner"] for row in rows] == [brighter(row) for row in rows]
    assert accounts["b"].unasked == 2 * 12 - 4
    assert sum(each["winner"] is None for row in rows for each in row["verdicts"]) == 10
    alone, _ = annotated({"b": judges["b"]}, 2, tmp_path / "c")
    assert Counter(row["status"] for row in alone) == {"done": 2, "unasked": 10}


def test_the_recipes_dimension_is_asked_and_its_prompt_where_a_judge_has_none_of_its_own(tmp_path: Path) -> None:
    with chat_server(brightest=True, bodies=True) as server:
        annotated({"j": endpoint(server.url)}, 1, tmp_path / "c", most=1, prompt="reason_first")
        assert "the reason first" in server.log(forget=True)["bodies"][0]
        own = endpoint(server.url, prompt="reason_last")
        annotated({"j": own}, 1, tmp_path / "c", most=1, prompt="reason_first")
        assert "the decision first" in server.log(forget=True)["bodies"][0]
        how = replace(recipe(), judge=Judging("decision", "visual_quality", 1))
        judge = opening.open_judge("pairwise.judges.j", endpoint(server.url), tmp_path / "c")
        [row] = verdicts.annotate_pairs(prompts(1), candidates(1), how, {"j": judge})
        assert "The respect is visual quality" in server.log(forget=True)["bodies"][0]
        judge = opening.open_judge("pairwise.judges.j", endpoint(server.url), tmp_path / "c")
        verdicts.annotate_pairs(prompts(1), candidates(1), replace(recipe(most=1), task="sref"), {"j": judge})
        assert "The source is a reference for style" in server.log()["bodies"][0], "as the task has it"
    assert row["dimension"] == "visual_quality"


def test_a_small_task_is_judged_by_the_embedded_base_from_probe_to_training_pairs(tmp_path, monkeypatch) -> None:
    """On a task that the base has some skill in; on those with a recipe of this kind it has none."""
    monkeypatch.chdir(ROOT)
    task = "subject_remove"
    how = replace(load_recipe(ROOT / "pipelines/vlm_as_a_judge/background_change.yaml"), task=task)
    judges = params.load()["pairwise"]["judges"]
    pool = scenes.make_pairs(task, "benchmark", 4, 128, seed=0)
    edits = []
    for kind, amount in (("unedited", 0.0), ("precise", 0.0), ("regenerated", 9.0), ("shifted", 12.0)):
        with resume.RecordCache(tmp_path / kind) as cache:
            setting = settings.read({"editors": {kind: {"kind": kind, "amount": amount, "seed": 1}}}, kind)
            made, _ = editing.edit_all([editing.EditPrompt("data", row) for row in pool], kind, setting, cache)
            edits += editing.rows(made, kind, cache.data)
    with resume.RecordCache(tmp_path / "c") as cache:
        measured = list(annotate.annotate(records.beside(pool, [edits[n::4] for n in range(4)]), how, cache))
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("EDITJUDGE_WORK", str(tmp_path))
        rows = verdicts.annotate_pairs(pool, edits, how, verdicts.open_judges(how, judges))
    records.check("annotations", measured, "annotations")
    records.check("pair_verdicts", rows, "verdicts")
    assert len(rows) == 4 * 6
    assert all(row["status"] == "done" for row in rows), "the base has learnt the form of the answer"
    chosen, left_out = train_pairs.choose_judged(rows, measured, SETTING)
    assert left_out["dropped_unedited"] == 4 * 3, "doing nothing is no virtue"
    assert chosen
    pairs = train_pairs.to_rows(chosen, {row["key"]: row["instruction"] for row in pool}, measured, 42)
    records.check("train_pairs", pairs, "pairs")
    assert {(pair["tiers"], pair["margin"]) for pair in pairs} == {("judged", None)}
    assert sum(train_pairs.truth(chosen).values()) == len(chosen), "of each pair it is known whether it is right"
