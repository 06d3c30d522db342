"""Rows of scorer data: by the rules of ADIEE, of EditReward-Data, of tables of ratings and of annotations."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cases import each_row
from pictures import png
from table_files import jsonl
from tiny_models import clip_folder

from editjudge.core import images, records
from editjudge.core.settings import read
from editjudge.core.tables import RowError
from editjudge.editors import procedural
from editjudge.labels import adiee, scored
from editjudge.labels import published as data
from editjudge.labels.adiee import EditFeatures
from editjudge.labels.rows import AdieeSource, EditRewardSource, ImageSink, RatingsSource
from editjudge.labels.tiers import AreaRule, PairsSetting
from editjudge.sources.builtin import scenes

GIVEN = {"source": "adiee", "tasks": ["tone_transfer"], "truth": "precise", "bad": ["shifted"], "good": ["leaky"]}
GIVEN |= {"clip": "clip"}


def sink() -> ImageSink:
    return ImageSink(Path("data/scorer_images/x.parquet"), lambda row: None)


SETTING = read("scorer_data.x", AdieeSource, GIVEN | {"bad": ["sdedit"], "good": ["magicbrush"]})


@each_row("sample, rule, label")
def test_the_first_rule_that_fits_decides(sample: list, rule: str | None, label: float | None) -> None:
    assert adiee.rule_of(EditFeatures(*sample), (0.8, 0.6), SETTING) == rule
    if rule is not None:
        assert adiee.RULES[rule][0] == label
        assert adiee.RULES[rule][1].endswith(f": {label:g}")


def test_thresholds_are_percentiles_of_the_sources_alone() -> None:
    samples = [EditFeatures("input", None, 0.0, value, value / 2) for value in (0.2, 0.4, 0.6, 1.0)]
    others = [EditFeatures("edit", "x", 0.0, -1.0, -1.0), EditFeatures("truth", "y", 0.0, 1.0, 1.0)]
    others.append(EditFeatures("input", None))
    assert adiee.thresholds([*samples, *others], 50) == (0.5, 0.25)
    assert adiee.thresholds([*samples, *others], 100) == (1.0, 0.5)
    assert adiee.thresholds(others, 50) == (None, None)
    assert adiee.rule_of(EditFeatures("edit", "x", 0.5, -1.0, -1.0), (None, None), SETTING) is None


def test_a_sequence_scores_its_share_of_the_turns() -> None:
    """The published Eq. 4: of turns 2..4 (from image 1 to image 4), images 0..6."""
    assert [adiee.sequence_score(k, 1, 4) for k in range(7)] == [0, 0, 1 / 3, 2 / 3, 1, 0.5, 0.5]
    assert adiee.joined(["Add a cup", "make it red!", "remove the dog. "]) == "Add a cup. make it red! remove the dog. "


@pytest.fixture
def pool(workdir: Path, rng: Any) -> None:
    """Four prompts of the probe with the edits of four editors, one of which failed once."""
    clip_folder(Path("clip"))
    prompts = scenes.make_pairs("tone_transfer", "train", 4, 64, 5)
    records.write(Path("data/pools/tone_transfer.parquet"), prompts, "pools")
    for editor, amount in {"precise": 0.0, "shifted": 9.0, "leaky": 1.5, "unedited": 0.0}.items():
        rows = []
        for prompt in prompts:
            source = images.decode(prompt["image"])
            image, damage = procedural.edit_image(source, json.loads(prompt["edit"]), editor, amount, rng)
            row = {"key": prompt["key"], "task": "tone_transfer", "model": editor, "status": "done", "reason": None}
            rows.append(row | {"image": images.encode_png(image), "damage": damage})
        if editor == "leaky":
            rows[0] |= {"status": "failed", "reason": "too dark", "image": None, "damage": None}
        records.write(Path(f"data/candidates/{editor}/tone_transfer.parquet"), rows, "candidates")


def test_each_image_has_the_label_of_its_rule_or_is_counted(pool: None) -> None:
    to = sink()
    rows = list(adiee.rows(read("scorer_data.x", AdieeSource, GIVEN | {"others": ["unedited"], "augmented": True}), to))
    records.check("scorer_data", rows, "x")
    by_rule = {rule: [row for row in rows if row["rule"].startswith(f"{rule}:")] for rule in adiee.RULES}
    assert [len(by_rule[rule]) for rule in ("truth", "input", "augmented", "bad_editor")] == [4, 4, 4, 4]
    assert {row["overall_a"] for row in by_rule["truth"]} == {1.0}
    assert {row["overall_a"] for row in by_rule["input"] + by_rule["augmented"] + by_rule["bad_editor"]} == {0.0}
    assert {row["sha256_a"] for row in by_rule["augmented"]} == to.written
    assert not to.written & {row["source_sha256"] for row in rows}, "no longer the source"
    assert all(row["scores_a"] == [{"dimension": "overall_quality", "score": row["overall_a"]}] for row in rows)
    assert all(row["winner"] is None and row["edit_b"] is None for row in rows)
    assert to.dropped["the edit failed"] == 1
    assert len(rows) + to.dropped["no rule fits"] == 4 * 6 - 1
    named = by_rule["bad_editor"][0]["edit_a"]
    assert named.startswith("data/candidates/shifted/tone_transfer.parquet/tone_transfer-train-")
    without = sink()
    rows = list(adiee.rows(read("scorer_data.x", AdieeSource, GIVEN | {"truth": None}), without))
    assert {row["rule"].partition(":")[0] for row in rows} >= {"input", "bad_editor"}
    assert not {row["rule"].partition(":")[0] for row in rows} & {"truth", "augmented", "unlike_truth"}
    assert without.report["thresholds"] == [{"clip_i": None, "dino_i": None, "percentile": 50.0}]
    file = Path("data/pools/tone_transfer.parquet")
    prompts = [row | {"shown": [{"name": "source_2", "image": row["image"]}]} for row in records.read(file, "pools")]
    records.write(file, [*prompts[:1], *scenes.make_pairs("tone_transfer", "train", 4, 64, 5)[1:]], "pools")
    setting, several = read("scorer_data.x", AdieeSource, GIVEN | {"truth": None}), sink()
    fewer = list(adiee.rows(setting, several))
    assert len({row["prompt"] for row in fewer}) == len({row["prompt"] for row in rows}) - 1
    assert several.dropped["several source images"] == len(setting.editors)


def test_sequences_are_scored_by_their_formula_and_broken_ones_counted(pool, tmp_path) -> None:
    for n in range(4):
        (tmp_path / f"s{n}.png").write_bytes(png(n))
    (tmp_path / "bad.png").write_bytes(b"none")
    names = [f"s{n}.png" for n in range(4)]
    lines = [
        {"key": "s", "images": names, "instructions": ["Add a cup", "Make it red.", "Remove it."]},
        {"key": "t", "images": names, "instructions": ["Add a cup"]},
        {"key": "u", "images": ["s0.png", "bad.png"], "instructions": ["Add a cup"]},
        {"key": "v", "images": ["s0.png", "gone.png"], "instructions": ["Add a cup"]},
    ]
    given = GIVEN | {"sequences": str(jsonl(tmp_path / "turns.jsonl", *lines)), "draws": 3}
    to = sink()
    rows = [row for row in adiee.rows(read("scorer_data.x", AdieeSource, given), to) if row["task"] == "multi_turn"]
    records.check("scorer_data", rows, "x")
    assert len(rows) == 3 * 4
    assert len(to.written) == 4
    for drawn in (rows[n : n + 4] for n in (0, 4, 8)):
        first = [row["edit_a"] for row in drawn].index(drawn[0]["source"])
        last = [row["overall_a"] for row in drawn].index(1)
        assert [row["overall_a"] for row in drawn] == [adiee.sequence_score(k, first, last) for k in range(4)]
        assert drawn[0]["instruction"].count(".") == last - first
        assert drawn[0]["prompt"] == drawn[3]["prompt"]
    told = ("not one image more than instructions", "a broken image", "an image is missing")
    assert {f"sequence: {why}" for why in told} <= set(to.dropped)


COLUMNS = ("source", "edited", "instruction", "type")


def record(**more: Any) -> dict[str, Any]:
    """A record as published: people preferred path1."""
    scores = {"model1_dim1_score": 4, "model1_dim2_score": 3, "model2_dim1_score": 2, "model2_dim2_score": 3}
    overall = {"model1_overall_score": 7, "model2_overall_score": 5}
    base = {"prompt": "Make the cup red.", "choice_dist": None, "confidence": None, "path_src": "p/source.png"}
    return base | {"path1": "p/a.png", "path2": "p/b.png", "model1": "m", "model2": "n"} | scores | overall | more


def tie(a: tuple[float | None, float | None], b: tuple[float | None, float | None]) -> dict[str, Any]:
    names = ("model1_dim1_score", "model1_dim2_score", "model2_dim1_score", "model2_dim2_score")
    return record(tie_case=True) | dict(zip(names, (*a, *b), strict=True))


def test_a_preference_is_one_sample_and_a_tie_that_disagrees_two_opposite_ones() -> None:
    [won] = data.read(record(tie_case=False), "k")
    assert (won.winner, won.preferred, won.rule) == ("Image A", "p/a.png", data.PREFERRED)
    assert won.a.scores == {"instruction_following": 4, "visual_quality": 3}
    assert won.b.scores == {"instruction_following": 2, "visual_quality": 3}
    first, second = data.read(tie((4, 2), (3, 3)), "k")
    assert (first.winner, second.winner) == ("Image A", "Image B")
    assert "better in instruction following" in first.rule
    assert "better in visual quality" in second.rule
    assert (first.key, second.key) == ("k.1", "k.2")
    first, second = data.read(tie((2, 4), (3, 3)), "k")
    assert (first.winner, second.winner) == ("Image B", "Image A")
    for scores in ((4, 2), (4, 2)), ((2, 4), (3, 3)), ((4, None), (3, 2)):  # the code never reads tie_case
        [one] = data.read(tie(*scores), "k", "code")
        assert (one.preferred, one.rule) == ("p/a.png", data.TIED_CODE)


@each_row("given, reason")
def test_what_cannot_be_used_has_a_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowError) as error:
        data.read(tie(*given["tie"]) if "tie" in given else record(**given), "k")
    assert error.value.reason == reason


@pytest.mark.parametrize("case", [True, "both", False, None, "no"])
def test_tie_case(case: Any) -> None:
    assert data.is_tie({"tie_case": case}) is (case in (True, "both"))


def test_duplicates_go_and_contradictions_take_both_with_them() -> None:
    opposite = record(path1="p/b.png", path2="p/a.png")
    other = record(path2="p/c.png")
    read = [data.read(each, f"k{n}") for n, each in enumerate((record(), record(), opposite, other))]
    kept, dropped = data.once(read)
    assert [sample.key for sample in kept] == ["k3"]
    assert dropped == [("duplicate", "k1", "k0"), ("duplicate with another label", "k2", "k0")]
    turned = tie((3, 3), (4, 2)) | {"path1": "p/b.png", "path2": "p/a.png"}
    kept, dropped = data.once([data.read(tie((4, 2), (3, 3)), "t0"), data.read(turned, "t1")])
    assert [sample.key for sample in kept] == ["t0.1", "t0.2"]
    assert [reason for reason, *_ in dropped] == ["duplicate"]


def test_a_published_file_becomes_rows_of_the_contract(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for seed, name in enumerate(("source", "a", "b", "c")):
        (tmp_path / f"p/{name}.png").write_bytes(png(seed))
    (tmp_path / "p/broken.png").write_bytes(b"none")
    lines = [record(), tie((4, 2), (3, 3)) | {"path2": "p/c.png"}, tie((4, 2), (4, 2))]
    lines += [record(path2=f"p/{name}.png") for name in ("gone", "broken")]
    lines.append(record(path2="p/c.png", prompt="Another one."))
    lines.append(record(prompt="Another one.", path1="p/c.png", path2="p/a.png"))
    (tmp_path / "train.json").write_text(json.dumps(lines))
    setting = read("scorer_data.x", EditRewardSource, {"source": "editreward", "path": str(tmp_path / "train.json")})
    images = sink()
    rows = list(data.preferences(setting, images))
    records.check("scorer_data", rows, "x")
    assert len(rows) == 3
    won, *tied = rows
    first = won["winner"] == "Image A"
    assert won["model_a" if first else "model_b"] == "m"
    assert won["overall_a" if first else "overall_b"] == 7
    assert won["scores_a" if first else "scores_b"][0] == {"dimension": "instruction_following", "score": 4}
    preferred = [row["edit_a" if row["winner"] == "Image A" else "edit_b"] for row in tied]
    assert len(set(preferred)) == 2
    told = ("tie with equal dimension scores", "an image is missing", "a broken image", "duplicate with another label")
    assert images.dropped == dict.fromkeys(told, 1)
    [again] = images.report["duplicates"]
    assert again["reason"] == "duplicate with another label"
    assert again["key"].endswith("-00006")
    assert again["earlier"].endswith("-00005")
    assert images.report["samples_of_ties"] == 2


def scores(row: dict[str, Any], side: str = "a") -> dict[str, float]:
    return {each["dimension"]: each["score"] for each in row[f"scores_{side}"]}


def test_a_table_and_peoples(tmp_path: Path):
    for n in range(4):
        (tmp_path / f"{n}.png").write_bytes(png(n))
    (tmp_path / "broken.png").write_bytes(b"no image")
    first = dict(zip(COLUMNS, ("0.png", "1.png", "Add a cup", "add"), strict=True))
    rows = [
        first | {"key": "a", "scores": [5, 4, 3], "model": "flux"},
        first | {"key": "b", "edited": "2.png", "scores": {"adherence": 1, "quality": 2, "preservation": "3"}},
        first | {"key": "c", "type": "color_alter", "adherence": 4, "quality": 4, "preservation": 4},
        first | {"key": "d", "edited": "broken.png", "scores": [1, 1, 1]},
        first | {"key": "e", "edited": "none.png", "scores": [1, 1, 1]},
        first | {"key": "f", "scores": [1, 1]},
        first | {"key": "g", "scores": [1, 1, 6]},
        first | {"key": "h", "instruction": " ", "scores": [1, 1, 1]},
    ]
    with (tmp_path / "people.csv").open("w") as file:
        out = csv.writer(file)
        out.writerow(["key", *COLUMNS, "adherence", "quality", "preservation"])
        for given in ((5, 4, 2), (4, 4, 1), (4, 3, 1)):
            out.writerow(["p", "3.png", "1.png", "Remove it", "remove", *given])
    to = sink()
    paths = {"path": str(jsonl(tmp_path / "r.jsonl", *rows)), "people": str(tmp_path / "people.csv")}
    setting = RatingsSource(source="ratings", **paths, test_share=0.0)
    found = {row["key"]: row for row in data.ratings(setting, to)}
    assert list(found) == ["ratings-a", "ratings-b", "ratings-c", "people-p"]
    assert scores(found["ratings-a"]) == {"adherence": 5.0, "quality": 4.0, "preservation": 3.0}
    assert scores(found["ratings-b"]) == {"adherence": 1.0, "quality": 2.0, "preservation": 3.0}
    assert scores(found["people-p"]) == {"adherence": 4.0, "quality": 4.0, "preservation": 1.0}, "means, rounded"
    assert [(row["part"], row["rule"], row["task"]) for row in found.values()] == [
        ("train", "ratings", "add"), ("train", "ratings", "add"), ("train", "ratings", "adjust"),
        ("test", "people", "remove"),
    ]  # fmt: skip
    assert found["ratings-a"]["model_a"] == "flux"
    assert found["ratings-a"]["edit_b"] is None
    assert found["ratings-a"]["prompt"] == found["ratings-b"]["prompt"] != found["people-p"]["prompt"]
    assert to.dropped.total() == 5
    assert {"a broken image", "scores that cannot be read", "a score outside of 1..5"} <= set(to.dropped)


@each_row("values, words")
def test_scores_that_are_none(values: dict[str, Any], words: str):
    with pytest.raises(RowError, match=words):
        data.scores_of(values)


RULES = [AreaRule("unedit_area", "ssim", 1, 0.6, -0.2)]
TIERS = PairsSetting(mode="three_tiers", margin=0.3, least_change=6.0, prompts_per_task=9, seed=1, thresholds={})
PROMPTS = {"p": {"instruction": "Make it red.", "origin": "coffee"}, "q": {"instruction": "Add a cup.", "origin": None}}
PROMPTS["of_two"] = PROMPTS["p"] | {"shown": [{"name": "source_2", "image": b""}]}


def annotation(key: str, model: str, ssim: float | None, change: float = 20.0, status: str = "done") -> dict[str, Any]:
    measures = [{"area": "unedit_area", "measure": "ssim", "value": ssim, "reason": None}]
    failed = status == "failed"
    row = {"key": key, "model": model, "status": status, "change": change, "measures": [] if failed else measures}
    return row | {"source_sha256": "0" * 64, "edit_sha256": None if failed else f"{hash(model) % 16**64:064x}"}


def test_winners_and_dimensions_of_each_pair() -> None:
    annotations = [annotation("p", "clean", 0.99), annotation("p", "idle", 1.0, change=0.0)]
    annotations += [annotation("p", "bad", 0.2), annotation("p", "worse", 0.19)]
    annotations += [annotation("p", "gone", None, status="failed"), annotation("p", "unmeasured", None)]
    annotations += [annotation("q", "idle", 1.0, change=0.0), annotation("q", "lazy", 1.0, change=1.0)]
    annotations += [annotation("of_two", "clean", 0.99), annotation("of_two", "bad", 0.2)]
    dropped = Counter[str]()
    found = list(scored.rows("color_alter", annotations, PROMPTS, RULES, TIERS, 0.0, dropped))
    records.check("scorer_data", found, "x")
    told = {(row["model_a"], row["model_b"]): (row["winner"], row["rule"]) for row in found}
    wins = "measures of the pipeline: elite over failure"
    idle = f"measures of the pipeline: {scored.UNEDITED}"
    assert told == {
        ("bad", "clean"): ("Image B", wins),
        ("clean", "worse"): ("Image A", wins),
        ("bad", "worse"): (None, "measures of the pipeline: no pair in train_pairs"),
        ("bad", "idle"): (None, idle),
        ("clean", "idle"): (None, idle),
        ("idle", "worse"): (None, idle),
    }
    [pair] = [row for row in found if (row["model_a"], row["model_b"]) == ("clean", "idle")]
    assert scores(pair, "b") == {"instruction_following": 0.0}
    assert scores(pair)["instruction_following"] == 1.0
    assert scores(pair)["visual_consistency"] > 1
    assert pair["edit_a"] == "data/candidates/clean/color_alter.parquet/p"
    assert pair["origin"] == "coffee"
    assert dropped == {"candidates_failed": 1, "candidates_unscored": 1, "both_unedited": 1, "several_sources": 2}
