"""`editjudge fetch` against a hub that is a real HTTP server on this machine: pinned, resumed, verified."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import forks
import pytest
import yaml
from small_hub import COMMITS, FILES, INDEX, Hub, small_hub

from editjudge.core import params
from tools.fetch import wanted

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(workdir: Path) -> Iterator[Callable[..., forks.Done]]:
    """`editjudge fetch` in an empty folder, where the hub is that server."""
    own = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "HF_HOME": str(workdir / "cache"), "HF_HUB_DISABLE_XET": "1"}
    left_out = ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE")
    with small_hub() as server:
        env = {name: value for name, value in forks.ENV.items() if name not in left_out}
        yield lambda *words: forks.program("fetch", *words, env=env | own | {"HF_ENDPOINT": server})


def test_models_and_data_sets_are_fetched_once_at_one_commit_and_verified(run, workdir: Path) -> None:
    values = params.load(ROOT / "params.yaml")
    values["judges"] = {"own": {"backend": "transformers", "model": "own/judge"}}
    values["gedit_bench"] |= {"hub": "own/arena"}
    (workdir / "params.yaml").write_text(yaml.safe_dump(values))
    for name in ("pipelines", "models"):
        (workdir / name).symlink_to(ROOT / name)
    first = run("--check")
    assert first.returncode == 1
    assert "own/judge: LACKS judges.own: " in first.stdout
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"own/judge: 0.00 GB {'a' * 12}" in done.stdout
    assert sorted(Hub.sent) == sorted([*FILES["models/own/judge"], "test.parquet"])
    kept = json.loads((workdir / "models.lock").read_text())
    assert kept == {"own/judge": COMMITS[0], "datasets/own/arena": COMMITS[0]}
    Hub.latest = 1
    Hub.sent.clear()
    assert run().returncode == 0
    assert Hub.sent == [], "what is pinned and here is not fetched again"
    [shard] = (workdir / "cache/hub").glob("models--own--judge/snapshots/*/model-2.safetensors")
    shard.resolve().write_bytes(b"x" * 5000)
    told = run("--check")
    assert "judges.own: model-2.safetensors is missing or damaged" in told.stdout
    assert (told.returncode, Hub.sent) == (1, [])
    assert run().returncode == 0
    assert Hub.sent == ["model-2.safetensors"], "that file alone"
    (workdir / "mine").mkdir()
    (workdir / "mine/model.safetensors.index.json").write_bytes(INDEX)
    values["judges"]["own"]["model"] = "mine"
    (workdir / "params.yaml").write_text(yaml.safe_dump(values))
    assert "mine: LACKS judges.own: model-1.safetensors is missing or damaged" in run().stdout


def test_each_name_of_a_profile_is_wanted_once() -> None:
    values = params.load(ROOT / "params.yaml") | {"judges": {n: {"backend": "x", "model": "own/judge"} for n in "ab"}}
    names = [need.name for need in wanted(values)]
    assert names.count("own/judge") == 1
    assert len(names) == len(set(names))
