"""Every published form of a reward benchmark, made here, and what becomes of rows and files that are broken."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from benchmark_files import editreward, editscore, genai, imagenhub, save, struct, vcreward
from cases import each_row
from pictures import picture as png
from table_files import jsonl, parquet

from editjudge.benchmarks import report
from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import Point, pairs
from editjudge.core.keys import plain
from editjudge.core.tables import TableError


def vcreward_paths(**changes) -> dict:
    return vcreward(source_image="s.png", edited_images=["a.png", "b.png"]) | changes


def load(form: str, path: Path, **more) -> list:
    return forms.load("bench", {"form": form, "path": str(path)} | more)


def test_vcreward_as_parquet_and_as_jsonl_with_paths(tmp_path: Path) -> None:
    [item] = load("vcreward", parquet(tmp_path / "a.parquet", [vcreward()]))
    assert (item.key, item.task, item.verdict, item.dimension) == ("k1", "color_alter", "Image B", "visual_consistency")
    assert (item.source, item.a, item.b, item.failed) == (png(0), png(1), png(2), None)
    assert (item.damages, item.regions, item.failed) == (None, None, None)
    twins = load("vcreward", parquet(tmp_path / "b.parquet", [vcreward(), vcreward(key="k2")]))
    assert len({each.cluster for each in twins}) == 1, "one source image, one cluster"
    save(tmp_path / "folder", source=0, images__a=1, images__b=2)
    paths = {"source_image": "source.png", "edited_images": ["images/a.png", "images/b.png"]}
    jsonl(tmp_path / "folder/metadata.jsonl", vcreward(**paths))
    [other] = load("vcreward", tmp_path / "folder")
    assert (other.source, other.a, other.b) == (item.source, item.a, item.b)


def test_editscore_takes_one_dimension_and_its_shuffle_map(tmp_path: Path) -> None:
    rows = [editscore("x", "y"), editscore("x", "z"), editscore("x", "y", "prompt_following"), editscore("u", "v")]
    file = parquet(tmp_path / "bench.parquet", rows)
    shuffle = tmp_path / "shuffle.json"
    shuffle.write_text(json.dumps({"x_vs_y_task_subject-add": True, "x_vs_z_task_subject-add": False}))
    items = load("editscore", file, dimension="consistency", shuffle=str(shuffle))
    assert [item.key for item in items[:2]] == ["x_vs_y_task_subject-add", "x_vs_z_task_subject-add"]
    assert [item.verdict for item in items[:2]] == ["Image B", "Image A"]
    assert (items[0].a, items[0].b, items[1].a) == (png(2), png(1), png(1)), "the first is the better one"
    assert items[0].cluster == items[1].cluster, "one source image, one cluster"
    assert items[2].failed == "the shuffle map has no true or false for u_vs_v_task_subject-add"
    assert items[2].verdict is None
    [following] = load("editscore", file, dimension="prompt_following")
    assert following.dimension == "prompt_following"
    with pytest.raises(TableError, match=r"dimension is 'beauty'; known: consistency"):
        load("editscore", file, dimension="beauty")
    with pytest.raises(TableError, match=r"none\.json not found"):
        load("editscore", file, dimension="consistency", shuffle=str(tmp_path / "none.json"))


def test_editscore_without_a_map_has_both_sides_and_the_same_ones_again(tmp_path: Path) -> None:
    file = parquet(tmp_path / "bench.parquet", [editscore(f"x{n}", "y") for n in range(40)])
    verdicts = [item.verdict for item in load("editscore", file, dimension="consistency")]
    assert 10 < verdicts.count("Image A") < 30
    assert verdicts == [item.verdict for item in load("editscore", file, dimension="consistency")]


def test_editreward_reads_pairs_and_tuples(tmp_path: Path) -> None:
    rows = [
        editreward("p1", "2pair", "A>B", None),
        editreward("p2", "2pair", "A=B=Bad", "AvsB"),
        editreward("p3", "2pair", "A<B", "AvsB"),
        editreward("t1_AvsB", "3pair", "A>B", "AvsB"),
        editreward("t1_AvsC", "3pair", "C>A", "AvsC"),
        editreward("t1_BvsC", "3pair", "B>A", "BvsC"),
    ]
    items = load("editreward", parquet(tmp_path / "a.parquet", rows))
    assert [item.verdict for item in items] == ["Image A", "Both bad", "Image B", "Image A", "Image B", None]
    assert [item.group for item in items[:5]] == ["2pair-p1", "2pair-p2", "2pair-p3", "3pair-t1", "3pair-t1"]
    assert [item.size for item in items[:5]] == [2, 2, 2, 3, 3]
    assert [item.key for item in items[2:4]] == ["2pair-p3", "3pair-t1_AvsB"]
    assert items[4].models == ("A", "C")
    assert len({item.cluster for item in items}) == 1, "one source image, one cluster"
    assert "does not rank B and C" in str(items[5].failed)
    sides = [*(editreward(str(n), "3pair", "A>B", c) for n, c in enumerate(["", "AvsA"])), rows[3]]
    items = load("editreward", parquet(tmp_path / "b.parquet", [*sides, editreward("t1_BvsA", "3pair", "A>B", "BvsA")]))
    assert [item.models for item in items] == [("A", "B"), None, ("A", "B"), ("B", "A")]
    assert "'AvsA' does not name two of the edits" in str(items[1].failed)
    assert items[3].failed == "A and B of 3pair-t1 stand already in an earlier row", "with its sides exchanged"


def test_editrewards_tuples_are_told_apart_by_dataset_and_by_the_whole_id_and_keep_broken_rows(tmp_path: Path) -> None:
    rows = [
        *(editreward(f"sample_{n}", "2pair", "A>B", None) for n in range(2)),
        editreward("1", "2pair", "A>B", None),
        *(editreward(f"{name}_AvsB", "3pair", "A>B", "AvsB") for name in ("1", "s_0", "s_1")),
        editreward("1_AvsB", "4pair", "A>B", "AvsB"),
    ]
    items = load("editreward", parquet(tmp_path / "a.parquet", rows))
    assert [item.failed for item in items] == [None] * 7
    assert len({item.key for item in items}) == len({item.group for item in items}) == 7
    assert [item.size for item in items] == [2, 2, 2, 3, 3, 3, 4]
    rows = [rows[3], editreward("1_BvsC", "3pair", "?", "BvsC"), editreward("u_AvsB", "4pair", "?", "AvsB")]
    items = load("editreward", parquet(tmp_path / "c.parquet", rows))
    assert [item.verdict for item in items] == ["Image A", None, None]
    assert [(item.group, item.size) for item in items] == [("3pair-1", 3), ("3pair-1", 3), ("4pair-u", 4)]
    base = {"instruction": "Go.", "source_image_path": "s", "edited_image_paths": ["a", "b"], "winner": "Image A"}
    keys = ["7", "7_AvsB", "7_BvC", "u_1_AvB", "u_2_AvB"]
    items = load("editreward", jsonl(tmp_path / "b.jsonl", *(base | {"key": key} for key in keys)))
    assert [item.group for item in items] == ["pair-7", "tuple-7", "tuple-7", "tuple-u_1", "tuple-u_2"]
    assert [item.size for item in items] == [2, 3, 3, 2, 2]
    broken = base | {"key": "t_BvC", "winner": "?"}
    items = load("editreward", jsonl(tmp_path / "d.jsonl", base | {"key": "t_AvB"}, broken))
    assert [(item.group, item.size, item.task) for item in items] == [("tuple-t", 3, "K=3")] * 2


def test_editrewards_visual_quality_file_finds_its_images_by_the_end_of_their_address(tmp_path: Path) -> None:
    def row(key: str, winner: str) -> dict:
        address = "s3://somebody/editreward_bench"
        edited = [f"{address}/candidate_{side}/{key}.png" for side in (1, 2)]
        source = f"{address}/input/{key}.png"
        paths = {"source_image_path": source, "edited_image_paths": edited}
        return {"key": key, "instruction": "Go.", "winner": winner} | paths

    file = jsonl(tmp_path / "visual_quality.jsonl", row("p", "Image A"), row("t_AvB", "Image B"), row("t_BvD", "Tie"))
    for key, seed in (("p", 0), ("t_AvB", 3)):
        folder = {f"input__{key}": seed, f"candidate_1__{key}": seed + 1, f"candidate_2__{key}": seed + 2}
        save(tmp_path / "pictures", **folder)
    items = load("editreward", file, images=str(tmp_path / "pictures"))
    assert [(item.group, item.size) for item in items] == [("pair-p", 2), ("tuple-t", 4), ("tuple-t", 4)]
    assert [item.task for item in items] == ["K=2", "K=4", "K=4"]
    assert items[1].cluster == items[2].cluster != items[0].cluster, "a tuple is of one photo, also where an edit fails"
    assert (items[1].source, items[1].b, items[1].models) == (png(3), png(5), ("A", "B"))
    assert "image missing: somebody/editreward_bench/input/t_BvD.png" in str(items[2].failed)
    assert items[2].verdict == "Tie", "people's verdict stays, so that the tuple cannot be right"


def test_genai_bench_has_four_labels(tmp_path: Path) -> None:
    rows = [genai("leftvote", "A cup."), *map(genai, ("rightvote", "tievote", "bothbad_vote", "maybe"))]
    parquet(tmp_path / "image_generation/test-0.parquet", [{"prompt": "x"}])
    parquet(tmp_path / "image_edition/test-0.parquet", rows)
    items = load("genai", tmp_path, files="image_edition/*.parquet")
    assert [item.verdict for item in items] == ["Image A", "Image B", "Both good", "Both bad", None]
    assert (items[0].models, items[0].key) == (("m1", "m2"), plain("image_edition/test-0") + "-00000")
    assert len({item.cluster for item in items[:4]}) == 1, "one source image, one cluster"
    assert [item.captions for item in items[:2]] == [("A cup.", "A red cup."), None]
    assert items[4].failed == "field vote_type: 'maybe' is none of leftvote, rightvote, tievote, bothbad_vote"
    counted = forms.counts(items)
    assert (counted["items"], counted["failed"], counted["with_verdict"]) == (5, 1, 4)
    assert counted["failures"][0].startswith(f"{tmp_path}/image_edition/test-0.parquet: row 4: field vote_type")


def test_aurora_in_pairs_names_the_winning_model(tmp_path: Path) -> None:
    save(tmp_path, source=0, a=1, b=2)
    pair = {"input": "source.png", "gens": ["a.png", "b.png"], "models": ["x", "y"], "prompt": "Go.", "task": "kubric"}
    rows = [pair | {"winner": winner} for winner in ("x", "y", "tie", "both_bad", "z")]
    (tmp_path / "human_ratings_pairwise.json").write_text(json.dumps(rows))
    items = load("aurora", tmp_path)
    assert [item.verdict for item in items] == ["Image A", "Image B", "Tie", "Both bad", None]
    assert items[0].task == "kubric"
    assert {item.cluster for item in items[:4]} == {"source.png"}


def test_aurora_one_edit_at_a_time_becomes_all_pairs_of_a_prompt(tmp_path: Path) -> None:
    save(tmp_path, source=0, a=1, b=2, c=3)
    rows = [
        {"input": "source.png", "gen": f"{name}.png", "model": name, "prompt": "Go.", "score": score}
        for name, score in (("a", 0.5), ("b", 1.0), ("c", 0.5))
    ]
    (tmp_path / "ratings.json").write_text(json.dumps(rows))
    items = load("aurora", tmp_path)
    assert [item.models for item in items] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [item.verdict for item in items] == ["Image B", "Tie", "Image A"]
    assert items[0].ratings == ((0.5,), (1.0,))
    assert len({item.group for item in items}) == len({item.cluster for item in items}) == 1
    (tmp_path / "b.png").unlink()
    again = rows[1] | {"score": 0.0}
    (tmp_path / "ratings.json").write_text(json.dumps([*rows, again]))
    broken = load("aurora", tmp_path)
    assert [item.failed is None for item in broken] == [False, True, False]
    assert {item.cluster for item in broken} == {items[0].cluster}, "a failed edit is of the same photo"
    assert (broken[2].ratings, broken[2].verdict) == (((1.0, 0.0), (0.5,)), "Tie"), "two people rated b"
    (tmp_path / "ratings.json").write_text(json.dumps([*rows, again | {"gen": "c.png"}]))
    with pytest.raises(TableError, match="row 3: field gen: rated before, as another image"):
        load("aurora", tmp_path)


def test_equal_means_are_a_tie_whatever_the_order_of_their_raters() -> None:
    raters = {"a": (0.1, 0.2, 0.3), "b": (0.3, 0.2, 0.1)}
    edits = [Point("p", model, "t", "Go.", b"s", b"e", rated) for model, rated in raters.items()]
    assert np.mean(edits[0].ratings) != np.mean(edits[1].ratings), "in the last bit"
    assert [item.verdict for item in pairs(edits, "overall")] == ["Tie"]


def test_imagenhub_takes_the_root_of_both_ratings_and_the_mean_of_raters(tmp_path: Path) -> None:
    cells = [("[1, 0.5]", "[0,1]"), ("[0.5 , 0.5]", "[1, 1]"), ("[0, 0]", "[0.5, 0.5]")]
    raters = {f"r{n}": {"s1": {"m1": one, "m2": other}} for n, (one, other) in enumerate(cells)}
    [item] = load("imagenhub", imagenhub(tmp_path, raters))
    assert item.ratings == ((pytest.approx(0.5**0.5), 0.5, 0.0), (0.0, 1.0, 0.5))
    assert (item.verdict, item.models, item.instruction) == ("Image B", ("m1", "m2"), "Go.")
    assert (item.source, item.a, item.b) == (png(0), png(1), png(2))


@each_row("cells, reason")
def test_a_broken_rating_names_file_row_and_model(tmp_path: Path, cells: list[str], reason: str) -> None:
    folder = imagenhub(tmp_path, {"r1": {"s1": {"m1": "[1, 1]", "m2": "\t".join(cells)}}})
    with pytest.raises(TableError, match=rf"r1\.tsv: row 0{reason}"):
        load("imagenhub", folder)


@each_row("change, reason")
def test_a_broken_row_is_a_failed_item_and_the_others_go_on(tmp_path: Path, change: dict, reason: str) -> None:
    save(tmp_path.parent, secret=9)
    save(tmp_path, s=0, a=1, b=2)
    file = jsonl(tmp_path / "a.jsonl", vcreward_paths(), vcreward_paths(key="k2") | change, vcreward_paths(key="k3"))
    items = load("vcreward", file)
    assert [item.failed is None for item in items] == [True, False, True]
    assert reason in str(items[1].failed)
    assert ("instruction" not in change) or items[1].verdict == "Image B", "people's verdict stays"
    assert items[1].where == f"{file}: row 1"
    assert items[1].source == items[1].a == b""


def test_two_edits_of_one_model_are_compared_as_any_two(tmp_path: Path) -> None:
    save(tmp_path, s=0, a=1, b=2)
    items = load("vcreward", jsonl(tmp_path / "a.jsonl", vcreward_paths(models=["m", "m"]), vcreward_paths(key="k2")))
    assert report.judge_report(items, report.to_verdicts("j", items, {}))["accuracy"]["n"] == 2


def test_images_behind_links_and_paths_of_another_machine_are_found(tmp_path: Path) -> None:
    """The hub's cache holds links to its blobs."""
    save(tmp_path / "blobs", one=0, two=1)
    (tmp_path / "snapshot").mkdir()
    for name, blob in (("source", "one"), ("a", "two"), ("b", "one")):
        (tmp_path / f"snapshot/{name}.png").symlink_to(tmp_path / f"blobs/{blob}.png")
    paths = {"source_image": "source.png", "edited_images": ["/there/bench/a.png", "s3://bench/b.png"]}
    [item] = load("vcreward", jsonl(tmp_path / "snapshot/metadata.jsonl", vcreward(**paths)))
    assert (item.failed, item.source, item.a, item.b) == (None, png(0), png(1), png(0))


def test_optional_columns_may_be_whole_numbers_empty_or_strange(tmp_path: Path) -> None:
    changes = [
        {"damages": [0, 3.5], "regions": [{"box": [1, 2.0, 3, 4]}], "models": ["x", "y"], "origin": "flower"},
        {"damages": [None, None], "models": [None, None], "origin": {"a": 1}},
        {"origin": float("nan")},
    ]
    rows = [vcreward_paths(key=f"k{n}") | change for n, change in enumerate(changes)]
    items = load("vcreward", jsonl(tmp_path / "a.jsonl", *rows))
    assert [item.verdict for item in items] == ["Image B"] * 3
    assert (items[0].damages, items[0].regions, items[0].models) == ((0.0, 3.5), ((1, 2, 3, 4),), ("x", "y"))
    assert (items[1].damages, items[1].models) == (None, None)
    assert [item.cluster for item in items] == ["flower", "k1", "k2"]


def test_keys_are_made_plain_and_stay_different(tmp_path: Path) -> None:
    keys = ["a/b", "a-b", "a b", "é" * 300, "x" * 200, "a.b_c"]
    items = load("vcreward", parquet(tmp_path / "a.parquet", [vcreward(key=key) for key in keys]))
    assert [item.failed for item in items] == [None] * 6
    assert len({item.key for item in items}) == 6
    assert all(re.fullmatch("[A-Za-z0-9._-]{1,200}", item.key) for item in items)
    assert [item.key for item in items if item.key in keys] == ["a-b", "x" * 200, "a.b_c"]
    twice = load("vcreward", parquet(tmp_path / "b.parquet", [vcreward(), vcreward()]))
    assert [item.failed for item in twice] == [None, "key k1 stands already in an earlier row"]


def test_files_of_the_same_name_are_all_read(tmp_path: Path) -> None:
    names = ("source_image", "left_output_image", "right_output_image", "left_model", "right_model")
    row = dict.fromkeys(names, "x") | {"instruct_prompt": "Go.", "vote_type": "leftvote"}
    for folder in ("a", "b", "my bench"):
        jsonl(tmp_path / folder / "t.jsonl", row, row, row | {"vote_type": "?"})
    items = load("genai", tmp_path)
    assert len(items) == len({item.key for item in items}) == 9
    assert [item.verdict for item in items] == ["Image A", "Image A", None] * 3
    row = vcreward(key="t-00000", source_image="x", edited_images=["a", "b"])
    items = load("vcreward", jsonl(tmp_path / "t.jsonl", row | {"key": " "}, row))
    assert [item.verdict for item in items] == [None, "Image B"], "a broken row's place hides no key"


LARGE = '{"input": "source.png", "gen": "a.png", "model": "a", "prompt": "Go.", "score": 1%s}' % ("0" * 400)
SCORE = r"r\.jsonl: row 0: wrong type: score: a number expected, not "


@each_row("form, name, content, error", ("aurora", "r.jsonl", LARGE, f"{SCORE}1000"))
def test_strange_files_are_one_clear_error(tmp_path: Path, form: str, name: str, content: str, error: str) -> None:
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(TableError, match=error):
        load(form, tmp_path)


def test_missing_files_columns_and_hubs_are_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, error in (
        (tmp_path / "none.parquet", r"none\.parquet not found"),
        (tmp_path, r"no file \*\.parquet, \*\.a"),
    ):
        with pytest.raises(TableError, match=error):
            load("vcreward", path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(TableError, match="owner/bench cannot be had from the hub"):
        forms.load("bench", {"form": "genai", "hub": "owner/bench", "revision": "0" * 40})
    short = parquet(tmp_path / "a.parquet", [{"key": "k", "edited_images": [struct(1), struct(2)]}])
    with pytest.raises(TableError, match=r"a\.parquet: row 0: missing field: task; the row has key, edited_images"):
        load("vcreward", short)


def test_a_hub_id_is_downloaded_and_read_as_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def download(hub: str, **more: object) -> str:
        asked.update(more, hub=hub)
        return str(tmp_path)

    parquet(tmp_path / "2pair/train-0.parquet", [editreward("p1", "2pair", "A>B", None)])
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    setting = {"form": "editreward", "hub": "owner/bench", "revision": "abc", "files": "*pair/*.parquet"}
    [item] = forms.load("bench", setting)
    assert (item.key, item.where) == ("2pair-p1", "owner/bench/2pair/train-0.parquet: row 0")
    assert asked.pop("allow_patterns") == "*pair/*.parquet"
    assert asked == {"hub": "owner/bench", "repo_type": "dataset", "revision": "abc"}
    jsonl(tmp_path / "metadata.jsonl", vcreward_paths())
    forms.load("bench", {"form": "vcreward", "hub": "owner/bench", "files": "*.jsonl"})
    assert asked["allow_patterns"] is None, "the images lie beside"
