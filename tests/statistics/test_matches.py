"""Match files: what is read and written comes back, unclear keys are resolved or refused, malformed files are named."""

import functools
import itertools
import json
import re
from pathlib import Path

import forks
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.statistics import matches, ratings

KEYS = "p1_pair_a_vs_b", "p1_pair_b_vs_c", "p2_pair_a_vs_c", "p2_pair_b_vs_a"
GOOD = [*zip(KEYS, ("Image A", "Tie", "Image B", None), strict=True)]


def lines(pairs=GOOD) -> str:
    return "".join(json.dumps({"key": key, "winner": winner}) + "\n" for key, winner in pairs)


def saved(folder: Path, text: str | bytes = "", name: str = "m.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows(table: pd.DataFrame) -> list[tuple]:
    columns = ["prompt", "model_a", "model_b", "winner", "dimension", "judge", "task"]
    return list(table[columns].itertuples(index=False, name=None))


def test_a_file_in_the_references_form_is_read_row_by_row(tmp_path):
    table = matches.load([saved(tmp_path, lines())])
    assert rows(table) == [
        ("p1", "a", "b", "Image A", "m", None, None),
        ("p1", "b", "c", "Tie", "m", None, None),
        ("p2", "a", "c", "Image B", "m", None, None),
        ("p2", "b", "a", None, "m", None, None),
    ]
    found = matches.numbered(table)
    assert (found.models, found.dimensions, found.n_clusters) == (("a", "b", "c"), ("m",), 2)
    assert found.cluster.tolist() == [0, 0, 1]
    assert (found.first.tolist(), found.second.tolist(), found.outcome.tolist()) == ([0, 1, 0], [1, 2, 2], [1, 0, -1])
    assert matches.numbered(table.assign(origin="photo")).n_clusters == 1, "prompts of one photo stand or fall together"
    assert matches.numbered(table.assign(origin=["p2", None, None, None])).cluster.tolist() == [1, 0, 1]


@each_row("line", '{"key": "p_pair_a_vs_b", "winner": "Tie", "reply": "%s"}' % ("x" * 2_000_000))
def test_other_forms_of_a_line(tmp_path, line):
    failed = line.replace('"Tie"', '"Failed"')
    assert rows(matches.load([saved(tmp_path, failed)]))[0][3] is None, "no verdict is no tie"
    assert rows(matches.load([saved(tmp_path, line + "\n")])) == [("p", "a", "b", "Tie", "m", None, None)]


def test_several_files_are_several_dimensions_and_a_column_goes_before_the_name(tmp_path):
    (tmp_path / "x").mkdir()
    paths = [saved(tmp_path, lines(), "vq.jsonl"), saved(tmp_path, lines(), "if.jsonl")]
    assert matches.numbered(matches.load(paths)).dimensions == ("if", "vq")
    same = [paths[0], saved(tmp_path / "x", lines(), "vq.jsonl")]
    assert len(matches.numbered(matches.load(same)).dimensions) == 2
    same = [paths[0], saved(tmp_path, "key,winner\np2_pair_a_vs_b,Tie\n", "vq.csv")]
    assert len(set(matches.load(same)["dimension"].tolist())) == 2
    one = '{"key": "p_pair_a_vs_b", "winner": "Tie", "dimension": "d"}\n{"key": "p_pair_a_vs_b", "winner": "Tie"}\n'
    assert matches.load([saved(tmp_path, one)])["dimension"].tolist() == ["d", "m"]


def test_the_stage_s_own_file_is_read_and_several_judges_need_a_choice(tmp_path):
    same = {"prompt": "p", "model_a": "a", "model_b": "b", "task": "t", "dimension": "d", "key": "p_pair_a_vs_b"}
    said = [{"winner": "Tie", "judge": "one", "p_a": 0.5}, {"winner": "Image A", "judge": "two", "p_a": 0.7}]
    pq.write_table(pa.Table.from_pylist([same | each for each in said]), tmp_path / "m.parquet")
    assert matches.load([tmp_path / "m.parquet"], judge="two")["winner"].tolist() == ["Image A"]
    with pytest.raises(matches.MatchError, match="several judges: choose one of one, two"):
        matches.load([tmp_path / "m.parquet"])
    with pytest.raises(matches.MatchError, match="no matches of the judge 'three'; there are: one, two"):
        matches.load([tmp_path / "m.parquet"], judge="three")


def test_names_with_the_marks_in_them_are_resolved_against_the_list_of_models_and_others_refused(tmp_path):
    path = saved(tmp_path, lines([("p_pair_x_vs_y_vs_z", "Tie"), ("p_pair_q_pair_w_vs_x_vs_y", "Image A")]))
    table = matches.load([path], models=["x_vs_y", "z", "q_pair_w"])
    assert [row[:3] for row in rows(table)] == [("p", "x_vs_y", "z"), ("p", "q_pair_w", "x_vs_y")]
    with pytest.raises(matches.MatchError, match=r"m.jsonl: line 1: key 'p_pair_x_vs_y_vs_z' is no <prompt>_pair_"):
        matches.load([path])
    with pytest.raises(matches.MatchError, match=r"line 1: key .* is 2 <prompt>_pair_"):
        matches.load([path], models=["x_vs_y", "z", "x", "y_vs_z"])
    with pytest.raises(matches.MatchError, match=r"line 2: 'c' is not in the list of models"):
        matches.load([saved(tmp_path, lines())], models=["a", "b"])


def test_prompts_with_the_marks_in_them_are_resolved_by_the_other_keys(tmp_path):
    pairs = [("cat_vs_dog_pair_1_pair_a_vs_b", "Tie"), ("p_pair_a_vs_b", "Tie"), ("x_pair_pair_a_vs_b", "Image A")]
    table = matches.load([saved(tmp_path, lines(pairs))])
    assert table["prompt"].tolist() == ["cat_vs_dog_pair_1", "p", "x_pair"]


PIECES = st.sampled_from(["a", "b", "_", "_vs_", "_pair_", "vs", "pair", '"'])
NAME = st.lists(PIECES, min_size=1, max_size=5).map("".join)


@settings(max_examples=60)
@given(NAME, st.sets(NAME, min_size=2, max_size=5))
def test_a_key_can_be_read_as_what_it_was_made_of(prompt, models):
    for a, b in itertools.permutations(models, 2):
        ways = matches.readings(f"{prompt}_pair_{a}_vs_{b}")
        assert (prompt, a, b) in ways
        assert {f"{way[0]}_pair_{way[1]}_vs_{way[2]}" for way in ways} == {f"{prompt}_pair_{a}_vs_{b}"}


@each_row("content, message")
def test_malformed_lines_are_named(tmp_path, content, message):
    content = content.replace("ONE", lines(GOOD[:1])).encode("latin-1")
    file = saved(tmp_path, content, message.partition(":")[0])
    with pytest.raises(matches.MatchError, match=message):
        matches.load([file])


def test_other_bad_files_are_named(tmp_path):
    with pytest.raises(matches.MatchError, match=re.escape("none.jsonl: no such file")):
        matches.load([tmp_path / "none.jsonl"])
    with pytest.raises(matches.MatchError, match=r"m.txt: a match file is one of .jsonl, .parquet, .csv, not .txt"):
        matches.load([saved(tmp_path, lines(), "m.txt")])
    [data] = [pa.array([b"p_pair_a_vs_b\xff"]).buffers()]
    pq.write_table(pa.table({"key": pa.Array.from_buffers(pa.string(), 1, data)}), tmp_path / "latin.parquet")
    for bad in (saved(tmp_path, b"PAR1 cut", "m.parquet"), tmp_path / "latin.parquet"):
        with pytest.raises(matches.MatchError, match=rf"{bad.name}: not readable as Parquet"):
            matches.load([bad])
    pq.write_table(pa.table({"key": ["p_pair_a_vs_b"], "winner": [np.nan]}), tmp_path / "m.parquet")
    with pytest.raises(matches.MatchError, match=r"m.parquet: match 1: winner must be text, not nan"):
        matches.load([tmp_path / "m.parquet"])
    with pytest.raises(matches.MatchError, match="no match files"):
        matches.load([])
    with pytest.raises(matches.MatchError, match="no scored matches among 1"):
        matches.numbered(matches.load([saved(tmp_path, lines(GOOD))]).tail(1))


run = functools.partial(forks.program, "rank")


def test_the_command_ranks_files_that_lie_anywhere(tmp_path):
    rng = np.random.default_rng(0)
    strength = {"a": 1.0, "b_vs_c": 0.0, "d": -1.0}
    for dimension in ("vq", "if"):
        every = [(p, i, j) for p in range(30) for i, j in (("a", "b_vs_c"), ("d", "a"), ("b_vs_c", "d"))]
        better = {(i, j): "Image A" if strength[i] > strength[j] else "Image B" for _, i, j in every}
        pairs = [(f"p{p}_pair_{i}_vs_{j}", "Tie" if rng.random() < 0.3 else better[i, j]) for p, i, j in every]
        saved(tmp_path, lines(pairs), f"{dimension}.jsonl")
    listed, out = saved(tmp_path, "a\nb_vs_c\nd\n", "models.txt"), tmp_path / "out" / "board.json"
    files = [tmp_path / "vq.jsonl", tmp_path / "if.jsonl"]
    options = ["--prior", "published", "--replicates", 60, "--weighting", "balanced", "--seed", 3, "--models", listed]
    done = run(*files, *options, "--by", "dimension", "--json", out)
    assert done.returncode == 0, done.stderr
    board = json.loads(out.read_text())
    assert [row["model"] for row in board["models"]] == ["a", "b_vs_c", "d"]
    wanted = {"model", "ability", "rating", "low", "high", "rank_low", "rank_high", "matches"}
    assert all(wanted <= set(row) for row in board["models"])
    assert board["models"][0]["matches"] == 120
    assert set(board["tie"]) == {"vq", "if"}
    assert [part["dimension"] for part in board["by_dimension"]] == ["if", "vq"]
    found = matches.numbered(matches.load(files, models=list(strength)))
    expected = ratings.leaderboard(found, alpha=1.0, replicates=60, seed=3).models
    assert [row["ability"] for row in board["models"]] == pytest.approx([row["ability"] for row in expected], abs=1e-6)
    assert board["by_dimension"][0]["models"][0]["low"] < board["by_dimension"][0]["models"][0]["high"]


def test_a_part_that_cannot_be_rated_says_why(tmp_path):
    rows = [("p1", "a", "b", "Image A", "t1"), ("p2", "a", "b", "Image B", "t1"), ("p3", "a", "b", "Image A", "t2")]
    rows += [("p4", "a", "b", None, "t3"), ("p5", "a", "b", "Tie", None)]
    names = ("prompt", "model_a", "model_b", "winner", "task")
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    pq.write_table(table, tmp_path / "m.parquet")
    done = run(tmp_path / "m.parquet", "--by", "task", "--json", tmp_path / "board.json")
    assert done.returncode == 0, done.stderr
    one, two, three = json.loads((tmp_path / "board.json").read_text())["by_task"]
    assert [row["rating"] for row in one["models"]] == [1000, 1000]
    assert one["reason"] is None
    assert (two["models"][0]["low"], two["separated"]) == (None, [["a"], ["b"]])
    assert three["models"] == []
    assert "no scored matches" in three["reason"]


def test_csv_keeps_line_breaks_wherever_they_stand(tmp_path):
    """More than a megabyte, so that breaks stand on the reader's block borders too."""
    prompts = [f"say {n}\nplease {n} {'y' * 50}" for n in range(15000)]
    text = "prompt,model_a,model_b,winner\n" + "".join(f'"{prompt}",A,B,Tie\n' for prompt in prompts)
    assert matches.load([saved(tmp_path, text, "m.csv")])["prompt"].tolist() == prompts


def test_a_file_given_twice_and_a_judge_beside_none_are_refused(tmp_path):
    file = saved(tmp_path, "prompt,model_a,model_b,winner,judge\np1,A,B,Tie,x\np1,A,B,Tie,\n", "m.csv")
    with pytest.raises(matches.MatchError, match="given twice"):
        matches.load([file, tmp_path / ".." / tmp_path.name / "m.csv"])
    with pytest.raises(matches.MatchError, match="choose one of x, and of none that is named"):
        matches.load([file])
    assert len(matches.load([file], judge="x")) == 1
