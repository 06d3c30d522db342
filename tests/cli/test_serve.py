"""`serve --scorer`: the command as a process of its own, its options, and its end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
import yaml
from cases import each_row
from killing import wait_until
from pictures import picture
from pixel_scorer import SETTING

from editjudge.cli.main import main
from tools import reward_client

ROOT = Path(__file__).parents[2]
HELD = """
import time
from pathlib import Path
from editjudge.cli import main, serve
from pixel_scorer import PixelScorer

class Held(PixelScorer):
    def score(self, edits):
        while not Path("go").exists():
            time.sleep(0.01)
        return super().score(edits)

serve.copies_of = lambda *given: [Held]
main.main()
"""


@pytest.fixture
def folder(workdir: Path) -> Path:
    values = {"reward_service": SETTING | {"allow_pickle": False}, "scorers": {"pixels": {"kind": "pixels"}}}
    (workdir / "params.yaml").write_text(yaml.safe_dump(values))
    return workdir


@pytest.fixture
def started(folder: Path) -> Iterator[subprocess.Popen]:
    path = os.pathsep.join(str(ROOT / each) for each in ("src", "tests/helpers"))
    words = [sys.executable, "-c", HELD, "serve", "--scorer", "pixels", "--batch-size", "3", "--allow-pickle"]
    process = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


def test_sigterm_ends_it_when_what_was_asked_is_answered(folder: Path, started: subprocess.Popen) -> None:
    assert started.stdout is not None
    url, _, name = started.stdout.readline().strip().partition(" serves ")
    assert name == "pixels"

    def answers() -> bool:
        try:
            return requests.get(f"{url}/health", timeout=60).ok
        except requests.ConnectionError:
            return False

    wait_until(answers)
    assert requests.post(f"{url}/flow_grpo", data=b"", timeout=60).status_code == 400, "pickles are on"
    with ThreadPoolExecutor(10) as threads:
        asked = [threads.submit(reward_client.score, url, [("x", picture(n), picture(n + 1))]) for n in range(10)]
        try:
            wait_until(lambda: "editjudge_reward_pending 10.0\n" in requests.get(f"{url}/metrics", timeout=60).text)
            started.send_signal(signal.SIGTERM)
            wait_until(lambda: not answers())
        finally:
            (folder / "go").touch()
        assert all(each.result()[0]["overall"] is not None for each in asked)
    assert started.wait(60) in (0, -signal.SIGTERM)


@each_row("words, line")
def test_what_is_wrong_is_one_line(folder: Path, words: list[str], line: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", *words])
    assert str(ended.value.code).startswith(line)
    assert len(str(ended.value.code).splitlines()) == 1
