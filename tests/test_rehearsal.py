"""The published profile and then the paper's, with tiny models of the same classes, through the whole graph on few
tasks, as on eight GPUs; killed once."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("diffusers", reason='the rehearsal edits through diffusers: pip install -e ".[editors]"')
import rehearsal
from chat_client import kept
from killing import wait_until

SOURCE = ("core", "engine", "models/serve", "stages", "editors/making.py", "training/runs.py")
INPUTS = ("profiles", "params.yaml", "dvc.yaml", "pipelines", "stages", *(f"src/editjudge/{name}" for name in SOURCE))
pytestmark = pytest.mark.nightly(*INPUTS)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rehearsal.Rehearsal]:
    made = rehearsal.Rehearsal(tmp_path_factory.mktemp("rehearsal"))
    made.prepare(few=True)
    made.put("published")
    with made.photos():
        yield made


@pytest.fixture(scope="module")
def killed(copy: rehearsal.Rehearsal) -> dict[str, Any]:
    """Killed while an editing API is asked, and gone on with to the end of the published profile."""
    name = "step1x_edit_v1p2"
    cache, begun = copy.folder / f"work/candidates/{name}.sqlite", [*rehearsal.DVC, "repro", f"candidates@{name}"]
    graph = subprocess.Popen(begun, cwd=copy.folder, env=copy.env, start_new_session=True)
    while kept(cache) < 2 and graph.poll() is None:
        time.sleep(0.01)
    assert len(copy.left()) == 8, "the editing model's, on each GPU"
    os.killpg(graph.pid, signal.SIGKILL)
    graph.wait()
    wait_until(lambda: not copy.left())
    before, asked = kept(cache), len(copy.edits(name))
    copy.play("published")
    files = [copy.folder / "data/gedit_bench.parquet", *copy.folder.glob("data/pools/*.parquet")]
    told = [text for file in files for text in pq.read_table(file)["instruction"].to_pylist()]
    found = {"kept": before, "asked": asked, "told": told, "came": copy.edits(name), "faults": copy.faults()}
    return found | copy.json(f"metrics/resume/candidates_{name}.json")


@pytest.fixture(scope="module")
def played(copy: rehearsal.Rehearsal, killed: dict[str, Any]) -> dict[str, Any]:
    """The paper's profile has run, too."""
    copy.play("paper")
    return {"faults": copy.faults(), "status": copy.run("dvc", "status"), "asked": copy.asked(), "left": copy.left()}


def test_a_killed_rehearsal_keeps_what_it_paid_for(killed: dict[str, Any]) -> None:
    assert killed["reused"] == killed["kept"] >= 2
    assert len(killed["told"]) == killed["reused"] + killed["computed"]
    assert set(killed["came"]) == set(killed["told"])
    assert len(killed["came"]) == killed["asked"] + killed["computed"], "what was kept is not asked for again"


def test_every_slot_gave_what_it_must(killed: dict[str, Any], played: dict[str, Any]) -> None:
    """And lay on the GPUs on which it must."""
    assert killed["faults"] == []
    assert played["faults"] == []
    assert "up to date" in played["status"]


def test_stages_started_each_roles_server_and_left_none(played: dict[str, Any]) -> None:
    """As vLLM is started; no server was asked a thing twice. (Two tasks may ask their own about one photograph.)"""
    asked = played["asked"]
    assert {each["role"] for each in asked} == {"parser", "grounder", "captioner", "writer"}
    assert {each["status"] for each in asked} == {200}
    assert len({each["asked"] for each in asked}) == len(asked)
    assert played["left"] == []
