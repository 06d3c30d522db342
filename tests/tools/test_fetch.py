"""`editjudge fetch` against a hub that is a real HTTP server on this machine: pinned, resumed, verified."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from small_hub import COMMITS, FILES, INDEX, Hub, small_hub

from editjudge.core import params
from tools.fetch import wanted

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[str]:
    with small_hub() as running:
        yield running


def run(server: str, folder: Path, *words: str) -> subprocess.CompletedProcess:
    own = ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE")
    env = {name: value for name, value in os.environ.items() if name not in own}
    env |= {"HF_ENDPOINT": server, "HF_HOME": str(folder / "cache"), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    env |= {"HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "editjudge", "fetch", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_models_and_data_sets_are_fetched_once_at_one_commit_and_verified(server: str, tmp_path: Path) -> None:
    values = params.load(ROOT / "params.yaml")
    values["judges"] = {"own": {"backend": "transformers", "model": "own/judge"}}
    values["gedit_bench"] |= {"hub": "own/arena"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    for name in ("pipelines", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    first = run(server, tmp_path, "--check")
    assert first.returncode == 1
    assert "own/judge: LACKS judges.own: " in first.stdout
    done = run(server, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"own/judge: 0.00 GB {'a' * 12}" in done.stdout
    assert sorted(Hub.sent) == sorted([*FILES["models/own/judge"], "test.parquet"])
    kept = json.loads((tmp_path / "models.lock").read_text())
    assert kept == {"own/judge": COMMITS[0], "datasets/own/arena": COMMITS[0]}
    Hub.latest = 1
    Hub.sent.clear()
    assert run(server, tmp_path).returncode == 0
    assert Hub.sent == [], "what is pinned and here is not fetched again"
    [shard] = (tmp_path / "cache/hub").glob("models--own--judge/snapshots/*/model-2.safetensors")
    shard.resolve().write_bytes(b"x" * 5000)
    told = run(server, tmp_path, "--check")
    assert "judges.own: model-2.safetensors is missing or damaged" in told.stdout
    assert (told.returncode, Hub.sent) == (1, [])
    assert run(server, tmp_path).returncode == 0
    assert Hub.sent == ["model-2.safetensors"], "that file alone"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/model.safetensors.index.json").write_bytes(INDEX)
    values["judges"]["own"]["model"] = "mine"
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    assert "mine: LACKS judges.own: model-1.safetensors is missing or damaged" in run(server, tmp_path).stdout


def test_each_name_of_a_profile_is_wanted_once() -> None:
    values = params.load(ROOT / "params.yaml") | {"judges": {n: {"backend": "x", "model": "own/judge"} for n in "ab"}}
    names = [need.name for need in wanted(values)]
    assert names.count("own/judge") == 1
    assert len(names) == len(set(names))
