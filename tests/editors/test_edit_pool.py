"""Workers: what becomes of the edits where editors fail, die and hang, and of the workers where the parent does."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import bad_editors
import numpy as np
import pytest
from cases import each_row, yaml_beside
from killing import alive, wait_until

from editjudge.core import images
from editjudge.core.params import ParamsError
from editjudge.editors import making
from editjudge.editors.protocol import Outcome, Request
from editjudge.engine import workers

SOURCE = images.encode_png(np.full((24, 32, 3), 255, np.uint8))


def request(key: str, instruction: str, image: bytes | None = None) -> tuple[str, Request]:
    return f"name of {key}", Request(key, instruction, image or SOURCE, None, "data", 1)


def run(log: Path, moods: dict[str, str], count: int = 2, timeout: float = 60.0) -> tuple[dict[str, Outcome], int]:
    """The outcomes by key, and how many workers were replaced."""
    found: dict[str, Outcome] = {}

    def keep(name: str, outcome: Outcome) -> None:
        assert name not in found
        found[name] = outcome

    requests = (request(key, mood) for key, mood in moods.items())
    replaced = making.run_pool(bad_editors.moody(log), ["cpu"] * count, requests, keep, timeout)
    return {key: found[f"name of {key}"] for key in moods}, replaced


def tries(log: Path) -> Counter[str]:
    return Counter(key for _, key in bad_editors.read(log))


FAILURES = yaml_beside(__file__)["FAILURES"]


def test_each_failure_has_its_kind_and_reason_and_the_others_are_made(tmp_path: Path) -> None:
    moods = {f"{mood.replace(' ', '-')}": mood for mood in FAILURES}
    moods = {key: mood for pair in moods.items() for key, mood in (pair, (f"after-{pair[0]}", "well"))}
    outcomes, replaced = run(tmp_path / "log", moods)
    for key, mood in moods.items():
        if mood == "well":
            assert outcomes[key] == Outcome(images.encode_png(bad_editors.GREY), 1.2346)
        else:
            kind, reason, _ = FAILURES[mood]
            assert (outcomes[key].kind, outcomes[key].image) == (kind, None)
            assert str(outcomes[key].reason).startswith(reason)
    assert tries(tmp_path / "log") == {key: FAILURES[mood][2] if mood in FAILURES else 1 for key, mood in moods.items()}
    assert replaced == 2 * 4  # exit, kill, crash and cuda, twice each


def test_what_fails_once_is_made_by_another_try(tmp_path: Path) -> None:
    moods = {"a": "kill once", "b": "cuda memory once", "c": "cuda once", "d": "hang once", "e": "well"}
    outcomes, replaced = run(tmp_path / "log", moods, timeout=4.0)
    assert {key: outcome.kind for key, outcome in outcomes.items()} == dict.fromkeys(moods)
    assert replaced == 3
    assert tries(tmp_path / "log") == {"a": 2, "b": 2, "c": 2, "d": 2, "e": 1}


def test_an_edit_that_takes_too_long_is_ended_and_has_failed(tmp_path: Path) -> None:
    outcomes, _ = run(tmp_path / "log", {"a": "hang", "b": "hang in C", "c": "well", "d": "well"}, timeout=3.0)
    assert [outcomes[key].kind for key in "abcd"] == ["timeout", "timeout", None, None]
    assert outcomes["a"].reason == outcomes["b"].reason == "no answer in 3 seconds"
    assert not [pid for pid, _ in bad_editors.read(tmp_path / "log") if alive(pid)]


def test_a_source_that_is_no_image_is_not_asked_for(tmp_path: Path) -> None:
    found: list[Outcome] = []
    requests = iter([request("html", "well", b"<html>")])
    load = bad_editors.moody(tmp_path / "log")
    making.run_pool(load, ["cpu"], requests, lambda _, outcome: found.append(outcome), 60.0)
    assert [(outcome.kind, outcome.reason) for outcome in found] == [("bad_source", "not a PNG, JPEG or WebP image")]
    assert not tries(tmp_path / "log")


def test_requests_are_read_only_as_workers_come_free(tmp_path: Path) -> None:
    kept = 0
    ahead = []

    def requests() -> Iterator[tuple[str, Request]]:
        for number in range(30):
            ahead.append(number - kept)
            yield request(str(number), "well")

    def keep(name: str, outcome: Outcome) -> None:
        nonlocal kept
        kept += 1

    making.run_pool(bad_editors.moody(tmp_path / "log"), ["cpu"] * 2, requests(), keep, 60.0)
    assert kept == 30
    assert max(ahead) <= 5  # answered, with each worker, and the one that is next


@each_row("how, words, loaded")
def test_an_editor_that_cannot_be_loaded_ends_the_stage(tmp_path: Path, how: str, words: str, loaded: int) -> None:
    log, requests = tmp_path / "log", (request(str(number), "well") for number in range(9))
    with pytest.raises(workers.WorkerBroken, match=words):
        making.run_pool(partial(bad_editors.broken, log, how), ["cpu"], requests, lambda *_: None, 60.0)
    assert len(bad_editors.read(log)) == loaded


def test_an_editor_that_survives_no_edit_ends_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "DEATHS", 5)
    with pytest.raises(workers.WorkerBroken, match=r"5 workers in a row died without an answer.*exit code 3"):
        run(tmp_path / "log", {str(number): "exit" for number in range(20)})
    assert len(bad_editors.read(tmp_path / "log")) <= 2 * 5, "at one of two places"


def test_each_worker_sees_its_own_gpus_before_cuda_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    requests = (request(str(number), "") for number in range(6))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,MIG-a,MIG-b,8")
    places = workers.groups("editors.m.gpus_per_worker", 5, 2)
    making.run_pool(bad_editors.Witness, places, requests, lambda _, outcome: seen.add(str(outcome.reason)), 60.0)
    assert seen == {"cuda, sees 4,5, CUDA False", "cuda, sees MIG-a,MIG-b, CUDA False"}


def test_gpus_are_grouped_and_too_few_are_an_error() -> None:
    """A worker's or a server's places, on a machine of 8, 6, 2, 1 and no GPUs."""
    where = "editors.m.gpus_per_worker"
    each = {n: [len(workers.groups(where, n, size)) for size in (1, 2, 4) if size <= n] for n in (8, 6, 2, 1)}
    assert each == {8: [8, 4, 2], 6: [6, 3, 1], 2: [2, 1], 1: [1]}
    assert workers.groups(where, 6, 4) == ["cuda:0,1,2,3"], "two stay idle"
    assert workers.groups(where, 3, 1) == ["cuda:0", "cuda:1", "cuda:2"]
    assert workers.groups(where, 0, 4) == ["cpu"]
    with pytest.raises(ParamsError, match=r"editors\.m\.gpus_per_worker is 4, but only 2 GPUs are visible"):
        workers.groups(where, 2, 4)


STAGE = """
import signal
import sys
from pathlib import Path
import bad_editors
from editjudge.editors import making
from editjudge.editors.protocol import Request

def requests():
    image = Path(sys.argv[1]).read_bytes()
    for number in range(1000):
        yield str(number), Request(str(number), "hang", image, None, "data", 1)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit that it is ignored
    log = Path(sys.argv[2])
    try:
        making.run_pool(bad_editors.moody(log), ["cpu"] * 3, requests(), lambda *_: None, 600.0)
    except KeyboardInterrupt:
        sys.exit("stopped")
"""


def test_ctrl_c_ends_the_stage_and_its_workers(tmp_path: Path) -> None:
    (tmp_path / "stage.py").write_text(STAGE)
    (tmp_path / "source.png").write_bytes(SOURCE)
    paths = os.pathsep.join([*filter(None, sys.path), str(Path(bad_editors.__file__).parent)])
    command, env = [sys.executable, "stage.py", "source.png", "log"], os.environ | {"PYTHONPATH": paths}
    how: dict[str, Any] = {"cwd": tmp_path, "env": env, "start_new_session": True, "text": True}
    with subprocess.Popen(command, stderr=subprocess.PIPE, **how) as process:
        try:
            wait_until(lambda: len({pid for pid, _ in bad_editors.read(tmp_path / "log")}) == 3)  # each has an edit
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does, workers and all
            _, words = process.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, words) == (1, "stopped\n")
    assert not any(alive(pid) for pid, _ in bad_editors.read(tmp_path / "log"))
