"""Models by hub id: pinned once, and what a gated one asks for. The hub is a real HTTP server on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_hub import COMMITS, Hub, small_hub

from editjudge.core import hub

FIND = "import sys; from editjudge.core import hub; print(hub.find('judges.x.model', sys.argv[1], ['*.json'], 'a/b'))"


@pytest.fixture
def server() -> Iterator[str]:
    with small_hub() as running:
        yield running


def found(server: str, folder: Path, model: str) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
    env |= {"HF_ENDPOINT": server, "HF_HOME": str(folder / "cache"), "PYTHONPATH": str(Path(hub.__file__).parents[2])}
    return subprocess.run([sys.executable, "-c", FIND, model], cwd=folder, env=env, capture_output=True, text=True)


def test_an_id_without_a_commit_is_resolved_once_and_recorded(server: str, tmp_path: Path) -> None:
    first = found(server, tmp_path, "own/open")
    assert Path(first.stdout.strip()).name == COMMITS[0], first.stderr
    assert json.loads((tmp_path / "models.lock").read_text()) == {"own/open": COMMITS[0]}
    Hub.latest = 1
    assert found(server, tmp_path, "own/open").stdout == first.stdout
    assert Path(found(server, tmp_path, f"own/open@{COMMITS[1]}").stdout.strip()).name == COMMITS[1]
    assert list(json.loads((tmp_path / "models.lock").read_text())) == ["own/open"]
    (tmp_path / "models.lock").unlink()
    assert Path(found(server, tmp_path, "own/open@main").stdout.strip()).name == COMMITS[1]
    assert hub.name_of(Path(first.stdout.strip())) == f"own/open@{COMMITS[0]}"
    assert hub.name_of(tmp_path) is None


def test_a_gated_model_says_which_licence_to_accept_and_which_variable_to_set(server: str, tmp_path: Path) -> None:
    said = found(server, tmp_path, "own/gated@main").stderr.splitlines()[-1]
    told = f"own/gated is gated: accept the licence dinov3-license at {server}/own/gated, then set HF_TOKEN to"
    assert said.endswith(f"judges.x.model: {told} your token")


@pytest.mark.parametrize("model", ["models/mine", "data/mine", "mine", "../mine", "/a/b", "a/b/c", "a b/c"])
def test_what_is_no_hub_id(model: str, workdir: Path) -> None:
    assert not hub.is_id(model)
    assert hub.is_id("own/open")
    Path("own/open").mkdir(parents=True)
    assert not hub.is_id("own/open")
