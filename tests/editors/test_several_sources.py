"""Edits made from several pictures, from a table of raw pairs to what a judge learns from."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lessons
import numpy as np
import pytest
import yaml
from chat_client import chat_server, edit_server, setting
from fake_server import Server
from pictures import png
from table_files import jsonl

from editjudge.core import images, params, records
from editjudge.core.errors import FileError
from editjudge.stages import annotate, candidates, filter, raw_pairs, train_judge, train_pairs
from editjudge.training import lesson
from editjudge.training.samples import faulty, stored_images

ROOT = Path(__file__).parents[2]
TASK, WORDS = "sref", "Paint the first picture in the style of the second."
API = {"kind": "api", "model": "m", "seed": 1, "sources": 3}
PAIRS = {"a": (1, 2), "b": (1, 3), "c": (4,)}  # by key: the pictures, the first one the edited


@pytest.fixture
def painter() -> Iterator[Server]:
    with edit_server() as server:
        yield server


@pytest.fixture
def values(workdir: Path, entry: Callable[..., Any], painter: Server) -> dict[str, Any]:
    """The committed params with a table of three pairs, one of a single picture, and a row whose second is broken."""
    for n in range(1, 5):
        Path(f"{n}.png").write_bytes(png(n, 96, 128))
    Path("broken.png").write_bytes(png(5)[:-60])
    shown = {key: [f"{n}.png" for n in own] for key, own in PAIRS.items()} | {"d": ["4.png", "broken.png"]}
    rows = [{"key": key, "instruction": WORDS, "sources": own} for key, own in shown.items()]
    own = {"format": "plain", "path": str(jsonl(Path("t.jsonl"), *rows))}
    api = {"kind": "api", "base_url": painter.url, "model": "m", "seed": 1, "use": ["pools"]}
    editors = {"klein": entry("Flux2KleinPipeline", use=["pools"]), "painter": api | {"sources": 2}, "single": api}
    found = params.load(ROOT / "params.yaml") | {"tasks": {TASK: "vlm_as_a_judge"}, "suites": {}, "editors": editors}
    found["raw_pairs"] |= {"sources": {TASK: {"own": own}}}
    found["train_pairs"] |= {"least_change": 0.0}
    Path("params.yaml").write_text(yaml.safe_dump(found))
    Path("pipelines").symlink_to(ROOT / "pipelines")
    return found


def test_all_sources_reach_editors_judges_and_training(values: dict[str, Any], painter: Server) -> None:
    raw_pairs.run(TASK)
    told = records.read_details(Path(f"metrics/raw_pairs/{TASK}.json"))["sources"][0]
    assert (told["kept"], told["reasons"]) == (3, [{"reason": "broken image", "rows": 1}])
    assert "source_2: broken image" in Path(f"data/refused/{TASK}.csv").read_text()
    Path("data/embeddings").mkdir()
    np.save(f"data/embeddings/{TASK}.npy", np.eye(3, dtype=np.float32))
    filter.run()
    pool = {row["key"].rpartition(".")[2]: row for row in records.read(Path(f"data/pools/{TASK}.parquet"), "pools")}
    held = {key: [row["image"], *records.references(row).values()] for key, row in pool.items()}
    assert held == {key: [png(n, 96, 128) for n in own] for key, own in PAIRS.items()}

    for model in values["editors"]:
        candidates.run(model)
    made = {m: records.read(Path(f"data/candidates/{m}/{TASK}.parquet"), "candidates") for m in values["editors"]}
    reasons = {m: sorted({str(row["reason"]) for row in rows}) for m, rows in made.items()}
    alone = "2 source images: this editor takes 1"
    assert reasons == {"klein": ["None"], "painter": ["None"], "single": [alone, "None"]}
    edits = {row["key"].rpartition(".")[2]: images.decode(row["image"]) for row in made["painter"]}
    assert np.array_equal(edits["a"], 255 - images.decode(png(1, 96, 128))), "the first is edited"
    assert painter.log()["came"] == {WORDS: 4}, "three of one editor, the single picture of the other"

    with chat_server(brightest=True, bodies=True) as judge:
        values["pairwise"] = {"judges": {"gpt": setting(judge.url, rule="agreement")}}
        Path("params.yaml").write_text(yaml.safe_dump(values))
        annotate.run(TASK)
        shown = [body.count(";base64,") for body in judge.log()["bodies"]]
    assert sorted(shown) == [3] * 3 + [4] * 4, "each in both orders; two editors give c the same edit"
    told = records.read_details(Path(f"metrics/annotate/{TASK}.json"))
    counted = {"records": 9, "failed": 2, "pairs": 5, "pairs_tied": 1, "pairs_unasked": 0, "candidates_failed": 2}
    assert {name: told[name] for name in counted} == counted
    train_pairs.run()
    pairs = records.read(Path("data/train_pairs.parquet"), "train_pairs")
    assert {pair["prompt"].rpartition(".")[2]: len(pair["shown"] or ()) for pair in pairs} == {"a": 1, "b": 1, "c": 0}

    job = train_judge.job()
    assert not faulty({pair["key"]: job.images(pair) for pair in pairs}, "pairs")
    samples = {sample.prompt.rpartition(".")[2]: sample for sample in job.samples(pairs)}
    names = [name for key in "ab" for name in (samples[key].source, *samples[key].more)]
    stored = stored_images(names)
    assert [bytes(stored[name]) for name in names] == [png(n, 96, 128) for key in "ab" for n in PAIRS[key]]
    asked, _ = lessons.judge().said(lesson.dataset([samples["a"]])[0])
    assert [part["type"] for part in asked[-1]["content"]].count("image") == 4
    with pytest.raises(FileError, match="pvc cannot show 8 source images"):
        lessons.judge().said(vars(replace(samples["a"], more=tuple("1234567"))) | {"filler": False})
    pool["a"]["shown"][0]["image"] = png(9)
    records.write(Path(f"data/pools/{TASK}.parquet"), pool.values(), "pools")
    told = faulty({pair["key"]: job.images(pair) for pair in pairs}, "pairs")
    [reason] = {reason for key, reason in told.items() if ".own.a." in key}
    assert (reason, len(told)) == ("source_2: not the image that was annotated: run `dvc repro`", 1)


def test_a_suite_s_case_of_several_sources_is_asked_with_them_and_named_by_them(workdir: Path, painter: Server) -> None:
    """What is no source (`truth`) is not shown. A case of one picture keeps the name that its edit had."""
    case = {"key": "k", "task": "t", "instruction": WORDS, "suite": "s", "type": "t", "file": "k", "edit": None}
    case |= {"source_image": {"bytes": png(1), "path": None}}
    shown = [{"name": name, "image": png(n)} for n, name in enumerate(("truth", "source_2", "source_3"), 2)]
    names = []
    for own, most in ((None, 3), (shown[:1], 3), (shown[:2], 3), (shown, 3), (shown, 9)):
        records.write(Path("data/suites/s.parquet"), [case | {"shown": own}], "suites")
        [prompt] = candidates.Prompts([], ["s"]).cases(first=True)
        how = candidates.settings.read({"editors": {"m": API | {"base_url": painter.url, "sources": most}}}, "m")
        with candidates.resume.RecordCache(workdir / "c.sqlite") as cache:
            [made], _ = candidates.edit_all([prompt], "m", how, cache)
        names.append(made.name)
        assert made.done
    assert names[0] == names[1]
    assert names[3] == names[4], "more would have been taken: it is not paid for again"
    assert len(set(names)) == 3
    unasked = (candidates.name_of(prompt, "m", replace(how, sources=most), "code") for most in (1, 2, 3))
    assert len(set(unasked)) == 3, "what failed for its count is asked for where more are taken"
    assert [name for name, *_ in painter.log()["last"]["files"]] == ["image[]"] * 3
