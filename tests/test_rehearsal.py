"""The paper's profile, with tiny models of the same classes, through the whole graph on four tasks; killed once."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pyarrow.parquet as pq
import pytest

pytest.importorskip("diffusers", reason='the rehearsal edits through diffusers: pip install -e ".[editors]"')
import rehearsal
from chat_client import kept
from killing import wait_until

SOURCE = ("src/editjudge/core", "src/editjudge/engine", "src/editjudge/models/serve", "src/editjudge/stages")
pytestmark = pytest.mark.nightly("profiles", "params.yaml", "dvc.yaml", "pipelines", "stages", *SOURCE)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rehearsal.Rehearsal]:
    made = rehearsal.Rehearsal(tmp_path_factory.mktemp("rehearsal"))
    made.prepare(few=True)
    with made.photos():
        yield made


@pytest.fixture(scope="module")
def killed(copy: rehearsal.Rehearsal) -> tuple[int, int]:
    """Killed while an editing API is asked, and gone on with to the end: (edits kept, edits asked for) by the kill."""
    cache = copy.folder / "work/candidates/step1x_edit_v1p2.sqlite"
    words = [*rehearsal.DVC, "repro", "candidates@step1x_edit_v1p2"]
    graph = subprocess.Popen(words, cwd=copy.folder, env=copy.env, start_new_session=True)
    while kept(cache) < 2 and graph.poll() is None:
        time.sleep(0.01)
    assert len(copy.left()) == 1, "the editing model's"
    os.killpg(graph.pid, signal.SIGKILL)
    graph.wait()
    wait_until(lambda: not copy.left())
    before, asked = kept(cache), len(copy.edits("step1x_edit_v1p2"))
    copy.run(*rehearsal.DVC, "repro")
    return before, asked


def test_a_killed_rehearsal_keeps_what_it_paid_for(copy: rehearsal.Rehearsal, killed: tuple[int, int]) -> None:
    before, asked = killed
    assert before >= 2
    counted = copy.json("metrics/resume/candidates_step1x_edit_v1p2.json")
    assert counted["reused"] == before
    came = copy.edits("step1x_edit_v1p2")
    data = copy.folder / "data"
    files = [data / "gedit_bench.parquet", *data.glob("pools/*.parquet"), *data.glob("suites/*.parquet")]
    told = [text for file in files for text in pq.read_table(file)["instruction"].to_pylist()]
    assert len(told) == counted["reused"] + counted["computed"]
    assert set(came) == set(told), "the server counts by instruction, and suites have some twice"
    assert len(came) == asked + counted["computed"], "what was kept is not asked for again"


@pytest.mark.usefixtures("killed")
def test_every_slot_gave_what_it_must(copy: rehearsal.Rehearsal) -> None:
    assert copy.faults() == []
    assert "up to date" in copy.run("dvc", "status")


@pytest.mark.usefixtures("killed")
def test_stages_started_each_roles_server_and_left_none(copy: rehearsal.Rehearsal) -> None:
    """As vLLM is started; each thing was asked once."""
    asked = copy.asked()
    assert {each["role"] for each in asked} == {"parser", "grounder", "captioner", "writer"}
    assert {each["status"] for each in asked} == {200}
    assert len({each["asked"] for each in asked}) == len(asked)
    assert copy.left() == []
