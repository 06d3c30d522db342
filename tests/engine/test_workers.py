"""What processes for work on many records import and need; their progress bars. tests/editors/test_edit_pool.py: how
they fail and end."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from ruamel.yaml import YAML

from editjudge.core.params import ParamsError
from editjudge.editors import making
from editjudge.engine import local, workers
from editjudge.engine.local import hosted
from editjudge.engine.progress import bar, progress
from editjudge.engine.unfinished import Gap, Unfinished, check
from editjudge.engine.workers import Failure, WorkerBroken, Workers, without_device
from editjudge.models.chat import models

ROOT = Path(__file__).parents[2]
IMPORTED = """
import sys
import torch

asked = []
for name in ("device_count", "is_available", "init", "_lazy_init", "current_device", "get_device_capability"):
    setattr(torch.cuda, name, lambda *given, name=name: asked.append(name))
for module in sys.argv[1:]:
    __import__(module)
print(asked)
"""
AHEAD = (making.DIFFUSERS, models.LOCAL, "transformers.modeling_utils", "editjudge.measures.annotation.slots")


def test_what_a_server_of_processes_imports_asks_for_no_gpu() -> None:
    """One that CUDA knows could fork no process that uses a GPU."""
    words = [sys.executable, "-c", IMPORTED, *AHEAD]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_program_needs_no_main_guard_and_is_not_begun_again(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "from editjudge import api\n"
        "from editjudge.engine import resume, workers\n"
        "with resume.RecordCache(Path('cache.sqlite')) as cache:\n"
        "    print(workers.spread(str, [1], 'numbers'))\n"
    )
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "['1']\n"), done.stderr


def test_the_engine_is_of_params_and_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDITJUDGE_ENGINE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert workers.engine() is local, "without params.yaml, too"
    for name in ("ray", "spark"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "params.yaml").write_text(f"engine: {name}\n")
    monkeypatch.chdir(tmp_path / "ray")
    assert workers.engine().__name__.endswith("engine.ray")
    monkeypatch.chdir(tmp_path / "spark")
    with pytest.raises(ParamsError, match="engine must be local or ray"):
        workers.engine()
    monkeypatch.setenv("EDITJUDGE_ENGINE", "local")
    assert workers.engine() is local


def test_no_stage_runs_again_for_another_engine() -> None:
    stages = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]
    watched = [str(name) for each in stages.values() for name in each.get("do", each).get("params", [])]
    assert watched
    assert not [name for name in watched if name.partition(".")[0] == "engine"]


class ZlibError(Exception):
    """Of a library: none that Python's own errors know."""


def bad_day(word: str) -> object:
    if word == "strange":
        raise ZlibError("incorrect header")
    if word == "exit":
        os._exit(3)
    return (lambda: word) if word == "unpicklable" else word


def test_errors_of_any_kind_fail_their_item_alone_and_come_last() -> None:
    with Workers(partial(without_device, bad_day), ["cpu"]) as several:
        found = dict(several.map((word, word) for word in ("strange", "a", "unpicklable", "b")))
        assert not [seat for seat in several._seats if seat.worker], "idle workers end where no item is left"
    assert {word: got.kind for word, got in found.items() if isinstance(got, Failure)} == {
        "strange": "exception", "unpicklable": "exception",
    }  # fmt: skip
    assert found["strange"].reason == "ZlibError: incorrect header"


class Stage:
    """The engine; its workers do what `script` says, round by round."""

    def __init__(self, patch: pytest.MonkeyPatch, script: list[dict[str, object]], at_once: int = 1) -> None:
        self.script, self.given, self.at_once, self.started = script, list[list[str]](), at_once, 0
        self.engine = SimpleNamespace(Worker=lambda *_: Stage.Worker(self), wait=lambda several, _: several)
        patch.setattr(workers, "engine", lambda: self.engine)

    class Worker:
        def __init__(self, stage: "Stage") -> None:
            self.given, self.lost, self.at_once, self.stage = list[str](), False, stage.at_once, stage
            stage.started += 1

        def alive(self) -> bool:
            return True

        def give(self, items: list[str]) -> None:
            self.given += items
            self.stage.given.append(items)
            self.next = self.stage.script.pop(0)

        def said(self) -> object:
            if not self.given and not hasattr(self, "loaded"):
                self.loaded = True
                return [None]
            self.lost = bool(self.next.get("lost"))
            return self.next["says"]

        def end(self, grace: float) -> str:
            return "SIGKILL"


def test_lost_nodes_cost_no_try_and_end_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 workers are lost with their nodes, with the same item; then it is answered."""
    Stage(monkeypatch, [*[{"says": workers.DEAD, "lost": True}] * 30, {"says": ["answer"]}])
    with Workers(str, ["cpu"]) as several:
        assert list(several.map([("a", "a")])) == [("a", "answer")]
    assert several.replaced == 30


def test_an_item_that_fells_nodes_fails_in_the_end_and_those_beside_it_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    says = [{"says": workers.DEAD, "lost": True}] * 2 + [{"says": ["b"]}]
    stage = Stage(monkeypatch, [*says[:2], *says[1:], *[says[0]] * (workers.NODES - 3)], at_once=2)
    with Workers(str, ["cpu"]) as several:
        found = dict(several.map([("a", "a"), ("b", "b")]))
    assert (found["b"], found["a"].kind) == ("b", "worker_died")
    assert stage.given[:2] == [["a", "b"], ["a", "b"]]
    assert stage.given[2:] == [["a"], ["b"], *[["a"]] * (workers.NODES - 3)]


def test_what_was_given_together_is_tried_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three items end their worker, and each item is tried as often as if it had been given alone: a ends two more.
    What there was no time for is given again."""
    says = [workers.DEAD, workers.DEAD, ["b"], ["c"], workers.DEAD, ["d", "e"], ["f"]]
    stage = Stage(monkeypatch, [{"says": each} for each in says], at_once=3)
    with Workers(str, ["cpu"]) as several:
        found = dict(several.map((name, name) for name in "abcdef"))
    assert found.pop("a").kind == "worker_died"
    assert found == {name: name for name in "bcdef"}
    assert stage.given == [["a", "b", "c"], ["a"], ["b"], ["c"], ["a"], ["d", "e", "f"], ["f"]]


@pytest.mark.parametrize(("idle", "started"), [(-1.0, 2), (60.0, 1)])
def test_a_death_while_idle_costs_no_try(idle: float, started: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker dies after its answer, and is replaced when the next item comes. Nobody asks a worker that answered
    a moment ago whether it lives."""
    stage = Stage(monkeypatch, [{"says": ["answer"]}] * 2)
    monkeypatch.setattr(workers, "IDLE_SECONDS", idle)
    monkeypatch.setattr(Stage.Worker, "alive", lambda worker: not worker.given)
    with Workers(str, ["cpu"], stay=True) as several:
        assert [list(several.map([(name, name)])) for name in "ab"] == [[("a", "answer")], [("b", "answer")]]
    assert (several.replaced, stage.started) == (0, started)


def test_an_answer_that_is_there_when_the_time_is_over_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, [{"says": ["answer"]}])
    stage.engine.wait = lambda several, _: [each for each in several if not each.given]
    with Workers(str, ["cpu"] * 3, timeout=0.0) as several:
        assert list(several.map([("a", "a")])) == [("a", "answer")]
    assert stage.started == 1, "no more than there are items for"


def test_what_is_heard_with_the_last_straw_is_given_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "DEATHS", 1)
    Stage(monkeypatch, [{"says": workers.DEAD}, {"says": ["answer"]}])
    with Workers(str, ["cpu", "cpu"]) as several:
        answers = several.map([("a", "a"), ("b", "b"), ("c", "c")])
        assert next(answers) == ("b", "answer")
        with pytest.raises(WorkerBroken, match="1 workers in a row died without an answer"):
            next(answers)


def test_a_stage_ends_where_more_is_missing_than_its_share_and_else_says_what(capsys) -> None:
    lost = [Gap("edits of m", Counter(timeout=1, budget=4), 100, "editors.m.budget"), Gap("y", Counter(), 100, "z")]
    told, again = (
        "5 of 100 edits of m are missing (budget: 4, timeout: 1)",
        "run `dvc repro code && dvc repro -f -s c@t`",
    )
    for shares in ({}, {"default": 0.05}, {"candidates": 0.05, "default": 0.0}):
        check({"unfinished": shares}, "candidates", "c@t", lost)
        assert capsys.readouterr().err == f"candidates: {told}; to try them again, {again}\n"
    how = "What is finished is kept. To go on, run `dvc repro` again, with more editors.m.budget, or allow more by"
    for n, shares in ((6, {}), (1, {"default": 0.04})):
        with pytest.raises(
            Unfinished, match=rf"unfinished\.candidates, which is {shares.get('default', 0.05)}$"
        ) as error:
            check({"unfinished": shares}, "candidates", "c@t", [lost[0], Gap("y", Counter(no=n), 100, "z")])
        assert str(error.value).startswith(f"{told}; {n} of 100 y are missing (no: {n}). {how} unfinished.")


def asked(device: str) -> Callable[[str], object]:
    return bad_day


def test_a_host_is_started_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with hosted(asked, "cpu") as host:
        assert host("a") == "a"
        with pytest.raises(ZlibError, match="incorrect header"):
            host("strange")
        with pytest.raises(ConnectionError):
            host("exit")  # asked of the first, and of the one that takes its place
        with pytest.raises(ConnectionError):
            host("a")


@pytest.mark.parametrize("shown", [True, False])
def test_a_bar_is_drawn_on_a_terminal_alone(shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stderr := io.StringIO())
    monkeypatch.setattr(stderr, "isatty", lambda: shown)
    assert list(progress(iter("abc"), 3, "letters")) == ["a", "b", "c"]
    with bar(2, "edits", "image") as counted:
        counted.set_postfix(failed=1, refresh=False)
        counted.update(2)
    said = stderr.getvalue()
    assert (said != "") is shown
    assert ("letters: 100%" in said and "image/s" in said) is shown


@pytest.mark.timeout(300)
def test_a_worker_that_dies_with_half_an_item_is_noticed() -> None:
    worker = local.Worker(partial(without_device, len), "cpu", 1.0, False)
    while worker.said() is workers.NOTHING:  # until it has loaded
        pass
    os.kill(worker.process.pid or 0, signal.SIGSTOP)
    threading.Timer(0.5, worker.process.kill).start()
    worker.give([("name", bytes(8 << 20))])
    worker.process.join()
    assert worker.said() is workers.DEAD
    assert worker.end(0) == "SIGKILL"
