"""`editjudge bench`: a tiny judge and measures on a small file of every form, kept answers, tables and differences."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import program
import pytest
import yaml
from benchmark_files import editreward, editscore, genai, imagenhub, mmrb2, save
from cases import each_row, yaml_beside
from chat_client import chat_server
from table_files import jsonl, parquet

from editjudge.benchmarks.preferences import forms
from editjudge.core import records
from editjudge.core.errors import UserError
from editjudge.sources.builtin import scenes
from editjudge.stages import probe_bench

ROOT = Path(__file__).parents[2]
TINY = {"backend": "transformers", "model": str(ROOT / "models/tiny_base"), "prompt": "pvc", "rule": "probability"}
ANSWER = {"key": "c-00000", "score_winner": 2, "score_loser": 1}
JUDGES = {"tiny": TINY | {"workers": 1}, "measures": {"backend": "measures", "rule": "agreement"}}


def files(folder: Path) -> dict[str, Path]:
    """A small benchmark of every form, of three images."""
    save(folder, **{str(seed): seed for seed in range(3)})
    prompts = scenes.make_pairs("color_alter", "train", 2, 64, seed=0)
    pairs = [probe_bench.make_pair(prompt, {"precise": 0.0, "leaky": 2.0}, 1.0, seed=1) for prompt in prompts]
    records.write(folder / "vcreward.parquet", pairs, "vcreward_bench")
    names, paths = {"instruction": "Go.", "source": "0.png"}, ["1.png", "2.png"]
    rows: dict[str, list[dict[str, Any]]] = {
        "aurora": [{"input": "0.png", "prompt": "Go.", "gens": paths, "models": ["x", "y"], "winner": "x"}],
        "compass": [{"dimension": of, "source_image": "0.png", "prompt": "Go.", "winner": "1.png", "loser": "2.png"}
                    | {"label": "preference"} for of in ("IA", "VC", "VQ")],
        "firm": [names | {"edited": path, "execution": n, "consistency": n} for n, path in enumerate(paths, 1)],
        "rewardbench": [{"prompt": "Go.", "image": "0.png", "chosen": "1.png", "rejected": "2.png"}],
        "tiedit": [names | {"edited": path, "perceptual_quality": n} for n, path in enumerate(paths)],
    }  # fmt: skip
    found = {form: jsonl(folder / f"{form}.jsonl", *own) for form, own in rows.items()}
    inside = {"genai": genai("leftvote"), "editreward": editreward("k_AvsB", "2pair", "A>B", "AvsB")}
    inside["editscore"] = editscore("x", "y", "overall")
    found |= {form: parquet(folder / f"{form}.parquet", [row]) for form, row in inside.items()}
    (folder / "edit.json").write_text(json.dumps({"pairs": [mmrb2("p", "A")]}))
    found["imagenhub"] = imagenhub(folder / "hub", {"r": {"u": {"m1": "[1, 1]", "m2": "[0, 1]"}}})
    return found | {"mmrb2": folder / "edit.json", "vcreward": folder / "vcreward.parquet"}


@pytest.fixture
def settings(workdir: Path) -> Path:
    """A folder with recipes, and settings of two judges and of a benchmark of each form."""
    shutil.copytree(ROOT / "pipelines", workdir / "pipelines")
    own = {form: {"form": form, "path": str(path)} for form, path in files(workdir / "data").items()}
    own["editscore"]["dimension"] = "overall"
    values = {"tasks": {"color_alter": "object_centric"}, "measures": {}, "judges": JUDGES, "benchmarks": own}
    (workdir / "params.yaml").write_text(yaml.safe_dump(values))
    return workdir


@pytest.fixture
def bench(settings: Path, capsys: pytest.CaptureFixture) -> Callable[..., tuple[str, str]]:
    """bench(*words): what the command prints, and what it says beside."""
    return lambda *words: (program.run(["bench", *map(str, words)]), capsys.readouterr().err)


def test_a_tiny_judge_and_measures_on_every_form(bench: Any, settings: Path) -> None:
    out = [settings / f"board{ending}" for ending in (".md", ".tex", ".csv", ".json")]
    shown, said = bench("--judge", "tiny", "measures", "--out", *out)
    assert "bench: tiny on mmrb2: 2 questions at most with 6 images, 9,680 tokens read" in said
    found = json.loads(out[3].read_text())
    assert set(found["benchmarks"]) == set(forms.FORMS)
    for form, each in found["benchmarks"].items():
        judged = {judge["judge"]: judge["accuracy"] for judge in each["judges"]}
        assert min(seen["n"] for seen in judged.values()) > 0, form
        if form == "vcreward":
            assert [seen["scored"] for seen in judged.values()] == [2, 2]
    assert "p_holm" in shown
    text = out[0].read_text()
    assert "| Gemini 3.1 Pro [1] | 0.743 |" in text
    assert "[1] bxhsort/Edit-Compass-and-EditReward-Compass@6ee6caa" in text
    assert out[1].read_text().count(r"\begin{tabular}") == len(forms.FORMS)
    rows = [line.split(",") for line in out[2].read_text().splitlines()]
    assert sum("here" in row for row in rows) > 20
    assert "bench: tiny: 0 answers came, 4 were kept before" in bench("vcreward", "--judge", "tiny")[1]


def test_two_ways_of_asking_have_a_paired_difference(bench: Any) -> None:
    assert "tiny, decision  tiny, pvc" in bench("vcreward", "--judge", "tiny", "--prompt", "pvc", "decision")[0]
    assert bench("vcreward", "--dry", "--judge", "tiny", ROOT / "models/tiny_base")[0] == "", "a folder is a judge, too"


@each_row("words, why")
def test_a_mistake_is_one_line(bench: Any, words: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        bench(*words.split())


def test_each_endpoint_has_answers_of_its_own_and_what_cannot_be_asked_is_told(bench: Any, settings: Path) -> None:
    rows = [{"dimension": "VC", "source_image": "0.png", "prompt": "Go.", "winner": "1.png", "loser": "2.png"}] * 2
    file = jsonl(settings / "data/c.jsonl", rows[0] | {"label": "preference"}, rows[1])
    for _ in range(2):
        with chat_server(brightest=True) as server:
            _, said = bench("--data", f"compass={file}", "--judge", "m", "--base-url", server.url)
        assert "bench: m: 2 answers came, 0 were kept before" in said
        assert "1 of 2 rows cannot be asked (1 left out, 0 count as wrong); the first: " in said
        assert "missing field: label" in said
    known = ("--data", f"compass={file}", "--answers", jsonl(settings / "m.jsonl", ANSWER))
    assert re.search("visual consistency +m +1\\.0", bench(*known)[0])
    with pytest.raises(UserError, match="m is also a --judge: give the file another name"):
        bench(*known, "--judge", "m", "--base-url", "http://127.0.0.1:9/v1")


def test_each_place_that_others_figures_are_from_is_told(bench: Any) -> None:
    with chat_server(brightest=True) as server:
        shown, _ = bench("mmrb2", "--judge", "m", "--base-url", server.url)
    told = re.findall("^MMRB2 editing accuracy of each order, one image of other judges: .*; (.*), ", shown, re.M)
    assert told == ["all 1,000 pairs, those whose prompt shows several images, too", "the single-image part"]


def test_pairs_of_our_own_have_no_published_name(bench: Any) -> None:
    shown, _ = bench("vcreward", "--judge", "measures")
    assert shown.splitlines() == yaml_beside(__file__)["SHOWN"].splitlines()
