"""The public functions: their examples, and that importing them is quick and changes nothing."""

import doctest
import inspect
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_families
from peft import LoraConfig, get_peft_model

import editjudge
from editjudge.cli import ranking
from editjudge.core import hub
from editjudge.models.chat.checkpoint import load_model

BASE = str(Path(__file__).parents[1] / "models/tiny_base")

CHANGES = """
import os, sys
before = dict(os.environ)
import editjudge
assert dict(os.environ) == before
assert not hasattr(editjudge, "Path"), "what api.py imports for itself"
print({"numpy", "cv2", "pydantic", "torch", "editjudge.api"} & set(sys.modules), callable(editjudge.compare))
"""


def test_importing_is_quick_and_changes_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", CHANGES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "set() True\n"), done.stderr


@pytest.mark.parametrize("name", ["load_judge", "compare", "score", "measure", "rank"])
def test_an_example_runs(name: str, workdir: Path, photo: np.ndarray) -> None:
    near = photo.copy()
    near[20:52, 30:66] = 255 - near[20:52, 30:66]
    rows = [("Image A", n) for n in range(3)] + [("Image B", 3), (None, 4)]
    lines = [json.dumps({"key": f"p{n}_pair_x_vs_y", "winner": winner}) for winner, n in rows]
    Path("matches.jsonl").write_text("\n".join(lines))
    given = {each: getattr(editjudge, each) for each in editjudge.__all__}
    given |= {"photo": photo, "near": near, "far": 255 - photo}
    [test] = doctest.DocTestFinder(recurse=False).find(getattr(editjudge, name), name, globs=given)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_a_model_needs_no_entry(workdir: Path, photo: np.ndarray) -> None:
    """Its folder names it: a checkpoint, one of another family, an adapter. What it says at random is no verdict."""
    asked = (photo, photo, 255 - photo, "Make it red")
    with editjudge.load_judge(BASE, prompt="pvc") as judge:
        found = judge.compare(*asked)
    assert found.winner in ("Image A", "Image B", "Tie")
    assert found.p_a is not None
    other = str(tiny_families.save("internvl", workdir / "internvl"))
    model = get_peft_model(load_model(other), LoraConfig(r=2, init_lora_weights=False, target_modules=["q_proj"]))
    model.peft_config["default"].base_model_name_or_path = other
    model.save_pretrained(workdir / "adapter")
    for folder in (other, str(workdir / "adapter")):
        said = editjudge.compare(*asked, judge=folder)
        assert (said.winner, said.forward.reply != "") == (None, True), said.reason
    scored = editjudge.score(photo, photo, "Make it red", scorer=other)
    assert scored.overall is None
    assert str(scored.reason).startswith("instruction_following: the reply holds no JSON object"), "VIEScore's question"
    with pytest.raises(editjudge.UserError, match="no judge, scorer or rater 'nowhere'"):
        editjudge.load_judge("nowhere")


def test_the_function_and_the_program_rank_alike_where_nothing_is_said() -> None:
    ours, theirs = (inspect.signature(each).parameters for each in (editjudge.rank, ranking.rank))
    for name in ours.keys() & theirs.keys():
        assert (ours[name].default or None) == (theirs[name].default or None), name


def test_an_adapters_base_has_its_revision_and_a_hub_id_is_fetched_first(tmp_path, monkeypatch) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    monkeypatch.setattr(hub, "find", lambda where, model: {"me/adapter": adapter}.get(model, Path(model)))
    file = adapter / "adapter_config.json"
    judge = {"backend": "transformers", "adapter": str(adapter), "rule": "probability"}
    for revision, model in (("v1", "a/b@v1"), (None, "a/b")):
        file.write_text(json.dumps({"base_model_name_or_path": "a/b", "revision": revision}))
        assert editjudge.api.entry_of("me/adapter") == ("judges", judge | {"model": model})
    file.write_text(json.dumps({"base_model_name_or_path": str(tmp_path), "revision": "v1"}))
    assert editjudge.api.entry_of(str(adapter)) == ("judges", judge | {"model": str(tmp_path)})
    scored = editjudge.api.entry_of(str(adapter), scores=True)
    assert scored == ("judges", judge | {"model": str(tmp_path), "prompt": "viescore_10"})
    for text, why in (("{", "is no JSON"), ("[]", "an object expected"), ("{}", "names no base_model_name_or_path")):
        file.write_text(text)
        with pytest.raises(editjudge.UserError, match=f"adapter_config.json.*{why}"):
            editjudge.load_judge(str(adapter))
    (adapter / "scorer.json").touch()
    assert editjudge.api.entry_of("me/adapter") == ("scorers", {"kind": "checkpoint", "model": "me/adapter"})
