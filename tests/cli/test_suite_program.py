"""Models are ranked on ImgEdit-Bench, two months compared, and answers that exist already scored."""

import base64
import csv
import functools
import json
import math
import re
from pathlib import Path
from typing import Any

import benchmark_files
import forks
import numpy as np
import pandas as pd
import program
import pytest
import suite_files
from cases import each_row, yaml_beside
from chat_client import chat_server
from fake_server import Server
from suite_files import reply
from table_files import parquet

from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.suites.imgedit import TYPES
from editjudge.core import records
from editjudge.editors.galleries import pictures
from editjudge.editors.galleries.metadata import GalleryError
from tools import drift


def asked(count: int, *models: str) -> list[str]:
    """The options of a suite of so many cases and of these models' edits of them, all written here."""
    file = suite_files.basic(Path("b"), count)
    folders = [suite_files.gallery(Path("edits") / name, suite_files.load("imgedit_basic", file)) for name in models]
    return ["--suite", "imgedit_basic", "--cases", str(file), "--gallery", *map(str, folders)]


def test_a_model_is_ranked_with_one_command_and_drift_is_told(workdir: Path, capsys) -> None:
    words = [*asked(4, "mine", "theirs"), "--model", "gpt-4.1"]
    Path("edits/theirs/4.png").rename("edits/theirs/1_SRCIMG.png")  # a source beside an edit, as GEdit-Bench wants it
    for month, numbers in (("old", (4, 4, 4)), ("new", (5, 4, 3))):
        replies = {f"edit {n}": [reply(*numbers) if n < 3 else reply(2, 2, 2)] for n in range(1, 5)}
        with chat_server(replies=replies) as server:
            done = forks.program("suite", *words, "--base-url", server.url, "--out", month)
        assert done.returncode == 0, done.stderr
        (workdir / "work/judge/raters.vlm.sqlite").unlink()
    assert "suite: theirs: 1 missing: 4" in done.stderr
    assert "suite: theirs: unscored are 1 of 4 ratings by vlm: 1 no edit: no image for this key" in done.stderr
    assert done.stdout.splitlines() == yaml_beside(__file__)["BOARD"].splitlines()
    [lacking] = csv.DictReader(Path("new/gallery.csv").read_text().splitlines())
    assert lacking == {"model": "theirs", "kind": "missing", "name": "4", "reason": "no image for this key"}
    assert len(records.read(Path("new/ratings.parquet"), "ratings")) == 8
    drift.main(Path("old/ratings.parquet"), Path("new/ratings.parquet"), json=Path("drift.json"))
    found = {row["dimension"]: row for row in json.loads(Path("drift.json").read_text())}
    assert (found["score"]["change"], found["score"]["changed"]) == (0.0, 0.0)
    assert (found["adherence"]["edits"], found["adherence"]["changed"]) == (7, pytest.approx(4 / 7, abs=1e-6))
    assert "vlm: gpt-4.1 (20" in capsys.readouterr().out


VIESCORE = """_context_no_delimit = "JSON.\\n"
_prompts_0shot_two_image_edit_rule = "Two images."
_prompts_0shot_tie_rule_SC = "Instruction: <instruction>\\n"
_prompts_0shot_rule_PQ = "Alone."
"""


def asked_for(url: str, *words: str) -> tuple[list[tuple[Any, ...]], str]:
    """What a server was asked: the text of the user's turn and then the images' bytes; and the program's board."""
    done = forks.program("suite", *words, "--model", "gpt-4o", "--base-url", url)
    assert done.returncode == 0, done.stderr
    found = []
    for body in map(json.loads, Server(url).log()["bodies"]):
        assert set(body) == {"model", "messages", "max_tokens", "temperature", "seed"}
        [turn] = body["messages"]
        assert (turn["role"], body["temperature"]) == ("user", 1)
        text, *shown = turn["content"]
        urls = [image["image_url"]["url"] for image in shown]
        found.append((text["text"], *(base64.b64decode(url.partition(",")[2]) for url in urls)))
    return found, done.stdout


def test_published_prompts_are_sent_to_the_letter_with_the_images_behind(workdir: Path) -> None:
    words = [*asked(9, "mine"), "--prompts", "p/prompts.json"]
    done = forks.program("suite", *words, "--model", "m", "--base-url", "http://127.0.0.1:1/v1")
    assert done.stderr.startswith("suite: p/prompts.json not found: get it with curl -o prompts.json https://")
    Path("p").mkdir()
    texts = {kind: f"Rate {kind}.\nInstruction: <edit_prompt>\nKept? <edit_prompt>\n" for kind in TYPES}
    Path("p/prompts.json").write_text(json.dumps(texts))
    said = "So.\nPrompt Compliance: 4\nVisual Naturalness: 4\nPhysical & Detail Integrity: 4"
    replies = {f"edit {n}": [said] for n in range(1, 10)}
    cases = suite_files.load("imgedit_basic", Path("b/basic_edit.json"))
    wanted = {
        (texts[case["type"]].replace("<edit_prompt>", case["instruction"]), case["source_image"]["bytes"],
         Path(f"edits/mine/{case['file']}.png").read_bytes())
        for case in cases
    }  # fmt: skip
    with chat_server(replies=replies, bodies=True) as server:
        found, board = asked_for(server.url, *words)
    assert (len(found), set(found)) == (9, wanted)
    assert "| vlm | mine | here, in the words of p/prompts.json | 4.00 |" in board


def test_gedit_is_asked_as_viescore_asks(workdir: Path) -> None:
    file = suite_files.gedit(Path("g"), ("ps_human",), 1)
    cases = suite_files.load("gedit_v1", file)
    suite_files.gallery(Path("edits/mine"), cases)
    Path("vie_prompts.py").write_text(VIESCORE)
    words = ["--suite", "gedit_v1", "--cases", str(file), "--gallery", "edits/mine", "--prompts", "vie_prompts.py"]
    said = {case["instruction"]: ['{"score": [9, 4], "reasoning": "so"}'] for case in cases}
    with chat_server(replies=said | {"": ['{"score": [4, 9]}']}, bodies=True) as server:
        found, board = asked_for(server.url, *words)
    edits = [Path(f"edits/mine/{case['file']}.png").read_bytes() for case in cases]
    semantics = {
        (f"JSON.\n\nTwo images.\nInstruction: {case['instruction']}\n", case["source_image"]["bytes"], edit)
        for case, edit in zip(cases, edits, strict=True)
    }
    assert set(found) == semantics | {("JSON.\n\nAlone.", edit) for edit in edits}
    assert "| vlm | mine | here, in the words of vie_prompts.py | 4.00 |" in board


def test_replies_that_nobody_can_read_are_no_board(workdir: Path) -> None:
    words = [*asked(2, "mine"), "--model", "gpt-4.1"]
    with chat_server(replies={f"edit {n}": ["I see a cat."] for n in (1, 2)}) as server:
        done = forks.program("suite", *words, "--base-url", server.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert "unscored are 2 of 2 ratings by vlm: 2 " in done.stderr
    assert done.stderr.splitlines()[-1] == "suite: suite has no score: all 2 ratings are unscored"


def test_a_mistake_is_one_line(workdir: Path) -> None:
    file = suite_files.basic(Path("b"), 1)
    whole = ["--suite", "imgedit_basic", "--cases", str(file)]
    asked = [*whole, "--model", "m", "--base-url", "http://127.0.0.1:1/v1"]
    for words, said in (
        (whole, "suite: who rates? --rater"),
        ([*whole, "--rater", "x"], "suite: params.yaml has no key 'raters.x'; raters: "),
        ([*whole[:3], "nowhere", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"], "suite: nowhere not found"),
        (asked, "suite: whose edits? --gallery"),
        ([*asked, "--gallery", "a/m", "b/m"], "suite: a/m not found"),
    ):
        done = forks.program("suite", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
        assert done.stderr.startswith(said)


def test_folders_name_their_models_and_what_is_no_case_is_counted(workdir: Path) -> None:
    words = asked(3, "m-4.1", "m-4.5")
    words[-1] += "/"
    Path("b/photos/1.jpg").unlink()
    with chat_server(replies={f"edit {n}": [reply(4, 4, 4)] for n in range(1, 4)}) as server:
        done = forks.program("suite", *words, "--model", "j", "--base-url", server.url, "--out", "o")
    assert done.returncode == 0, done.stderr
    assert "suite: 1 rows are no cases: o/refused.csv" in done.stderr
    assert "image missing" in Path("o/refused.csv").read_text()
    found = json.loads(Path("o/metrics.json").read_text())
    assert found["suite"] == {"form": "imgedit_basic", "cases": 2, "refused": 1}
    assert [model["model"] for model in found["raters"][0]["models"]] == ["m-4.1", "m-4.5"]


def test_an_endpoint_that_never_answers_is_no_ranking(workdir: Path) -> None:
    done = forks.program("suite", *asked(1, "m"), "--model", "j", "--base-url", "http://127.0.0.1:1/v1", "--out", "o")
    assert done.returncode == 1
    assert "suite: 1 of 1 answers of raters.vlm are missing" in done.stderr.splitlines()[-1]
    assert records.read(Path("o/ratings.parquet"), "ratings")[0]["scores"] is None


def test_a_suites_gallery_is_written(workdir: Path) -> None:
    cases = suite_files.load("imgedit_basic", suite_files.basic(Path("b"), 3))
    records.write(Path("data/suites/s.parquet"), cases, "suites")
    folder = suite_files.gallery(Path("g/m"), cases[:2])
    report = pictures.GalleryReport()
    rows = pictures.read_suite(folder, cases, "m", report)
    records.write(Path("data/suite_gallery/m/s.parquet"), rows, "candidates")
    assert report.lines() == ["2 images of 3 cases", "1 missing: 3"]
    write = "gallery write --suite s --model m --out out"
    assert program.run(write) == "m: 2 images of 3 cases"
    assert sorted(file.name for file in Path("out/m").iterdir()) == ["1.png", "2.png"]
    assert Path("out/m/1.png").read_bytes() == (folder / "1.png").read_bytes()
    with pytest.raises(GalleryError, match="is there already"):
        program.run(write)


run = functools.partial(forks.program, "bench", "--answers")


@pytest.fixture
def genai(tmp_path: Path) -> Path:
    """Eight votes, two of each kind."""
    votes = ["leftvote", "rightvote", "tievote", "bothbad_vote"] * 2
    return parquet(tmp_path / "genai.parquet", [benchmark_files.genai(vote) for vote in votes])


def keys(genai: Path) -> list[str]:
    return [item.key for item in forms.load("genai", {"form": "genai", "path": str(genai)})]


def figures(file: Path, form: str, path: Path) -> tuple[str, dict[str, float], dict]:
    """What the command says, the published figures by name, and all that is told of the judge."""
    done = run(file, "--data", f"{form}={path}", "--out", file.parent / "out.json")
    assert done.returncode == 0, done.stderr
    [found] = json.loads((file.parent / "out.json").read_text())["benchmarks"].values()
    [judge] = found["judges"]
    return done.stdout, {row["name"]: row["value"] for row in judge["published"]}, judge


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_four_answers_are_scored_as_published_and_folded(genai: Path, tmp_path: Path, kind: str) -> None:
    said = ["Image A", "Image B", "Both good", "Both good", "Failed", None, "Tie", "Both bad"]
    table = pd.DataFrame({"key": keys(genai), "winner": said, "score_a": 1.0, "score_b": 2.0})
    table.loc[4:5, "score_a"] = None  # a winner that is given counts, whatever the scores
    file = tmp_path / f"mine.{kind}"
    if kind == "jsonl":
        table.to_json(file, orient="records", lines=True)
    elif kind == "csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file)
    told, found, judge = figures(file, "genai", genai)
    assert re.search(r"three answers +mine +0\.7500 .* 6 +8 +1$", told, re.M)
    assert judge["accuracy"]["clusters"] == 1, "one source image"
    assert [found[f"GenAI-Bench accuracy, of {n} answers"] for n in ("four", "three")] == [0.5, 0.75]


def test_scores_of_pairs_give_ties_and_their_calibration(genai: Path, tmp_path: Path) -> None:
    """Ties within 1: the calibrated accuracy finds that margin; equal scores from 5 on are Both good, else Both bad."""
    scores = [(8, 2), (2, 8), (5, 5), (3, 3), (9, 3), (3, 9), (7, 6), (2, 3)]
    rows = [{"key": key, "score_a": a, "score_b": b} for key, (a, b) in zip(keys(genai), scores, strict=True)]
    pd.DataFrame(rows).to_json(tmp_path / "s.jsonl", orient="records", lines=True)
    _, found, _ = figures(tmp_path / "s.jsonl", "genai", genai)
    assert found["GenAI-Bench accuracy, ties calibrated"] == 1
    assert found["GenAI-Bench accuracy, of three answers"] == 0.75
    assert found["GenAI-Bench accuracy, of four answers"] == 0.75


def test_peoples_own_means_are_the_perfect_scorer_of_imagenhub(tmp_path: Path) -> None:
    """Not counts of won pairs, which give 0.6: Fisher's mean is 1, and the published formula's tanh(1)."""
    rng, uids, models = np.random.default_rng(0), [f"u{n}" for n in range(30)], ["a", "b", "c"]
    ratings = rng.choice([0, 0.5, 1], size=(3, len(uids), len(models), 2))
    raters = {
        f"rater{n}": {
            uid: dict(zip(models, map(json.dumps, row), strict=True)) for uid, row in zip(uids, own, strict=True)
        }
        for n, own in enumerate(ratings.tolist())
    }
    folder = benchmark_files.imagenhub(tmp_path / "imagenhub", raters)
    means = np.sqrt(ratings.prod(axis=-1)).mean(axis=0)
    every = [(n, k) for n in range(len(uids)) for k in range(len(models))]
    rows = [{"prompt": f"{uids[n]}.png", "model": models[k], "score": means[n, k]} for n, k in every]
    pd.DataFrame(rows).to_csv(tmp_path / "people.csv", index=False)
    _, found, _ = figures(tmp_path / "people.csv", "imagenhub", folder)
    assert found["ImagenHub Spearman, Fisher's mean over models"] == pytest.approx(1.0, abs=1e-6)
    assert found["ImagenHub Spearman, tanh of the mean over models"] == pytest.approx(math.tanh(1), abs=1e-6)


@each_row("row, why")
def test_a_wrong_answer_is_named_in_one_line(genai: Path, tmp_path: Path, row: dict, why: str) -> None:
    (tmp_path / "bad.jsonl").write_text(json.dumps(row).replace("FIRST", keys(genai)[0]) + "\n")
    done = run(tmp_path / "bad.jsonl", "--data", f"genai={genai}")
    assert done.returncode == 1
    assert done.stderr.startswith("bench: ")
    assert why in done.stderr
    assert "Traceback" not in done.stderr
