"""A stage starts one server for a judge, at the first question without a kept reply, and reads its weights once."""

import contextlib
import json
import os
import sqlite3
from collections import Counter
from pathlib import Path

import yaml
from chat_client import picture
from tiny_base import adapted
from training_pairs import setting

from editjudge.core import params
from editjudge.engine import resume
from editjudge.judges import opening
from editjudge.models.chat.checkpoint import load_model
from editjudge.models.endpoint.spending import Account
from editjudge.stages import compare_models
from editjudge.stages.graph.arena import ArenaPlan
from editjudge.training.lesson import lora

DIMENSIONS = ["visual_consistency", "overall"]
PLAN = ArenaPlan(budget=4, seed=0, least_share=0.5, few_images="keep")


def test_dimensions_of_an_arena_start_one_server_and_hash_once(base_dir, workdir, monkeypatch) -> None:
    values = params.load(Path(__file__).parents[2] / "params.yaml")
    values["serve"]["port"] = 0
    adapted(load_model(base_dir), workdir / "adapter", lora(setting(lora_rank=4, lora_alpha=8)))
    how = {"backend": "served", "model": str(base_dir), "adapter": str(workdir / "adapter")}
    how |= {"dtype": "float32", "batch_size": 4, "rule": "agreement", "reply_tries": 1}
    values |= {"tasks": {}, "judges": {"j": how}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    prompts = [
        {"key": f"p{n}", "task": "t", "instruction": f"Make it {n}.", "source_image": {"bytes": picture(n)}}
        for n in range(4)
    ]
    done = {"status": "done", "damage": None}
    gallery = {
        model: {f"p{n}": done | {"image": picture(100 + 10 * m + n)} for n in range(4)} for m, model in enumerate("abc")
    }
    pairs, _ = compare_models.pairs_of(prompts, gallery)
    files = [file for folder in (how["model"], how["adapter"]) for file in Path(folder).rglob("*") if file.is_file()]
    for file in files:
        os.utime(file, (1e9, 1e9))  # not of this moment: what is hashed is kept
    read = Counter[Path]()
    monkeypatch.setattr(resume, "sha256", lambda file, plain=resume.sha256: read.update([file]) or plain(file))

    def arena() -> tuple[list, Account]:
        judges = opening.open_judges(values["judges"])
        matches = compare_models.ask_judges(values, PLAN, pairs, gallery, judges, {"j": DIMENSIONS})
        return matches, judges["j"].account

    matches, account = arena()
    assert (account.asked, account.failures) == (16, Counter()), "4 pairs in both orders, about 2 dimensions"
    assert len(list(Path("work/serve").iterdir())) == 1, "one log, so one server, for both dimensions"
    assert read == Counter(files), "each file of the weights once"
    again, account = arena()
    assert (again, account.asked, account.reused) == (matches, 0, 16)
    assert len(list(Path("work/serve").iterdir())) == 1, "nothing is served where nothing is asked"
    assert read == Counter(files), "nor read again"
    here = how | {"backend": "transformers"}
    here.pop("reply_tries")
    values["judges"] = {"here": here}
    judges = opening.open_judges(values["judges"])
    compare_models.ask_judges(values, PLAN, pairs, gallery, judges, {"here": DIMENSIONS})
    assert judges["here"].account.asked == 16
    assert said("here") == said("j"), "the adapter answers over HTTP as in this process"


def said(judge: str) -> Counter[str]:
    """The replies that are kept."""
    with contextlib.closing(sqlite3.connect(f"work/judge/{judge}.sqlite")) as database:
        return Counter(json.loads(meta)["text"] for (meta,) in database.execute("SELECT meta FROM records"))
