"""`editjudge fetch` against a hub that is a real HTTP server on this machine: pinned, resumed, verified."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from http_handler import Handler, served

from editjudge.core import params
from tools.fetch import wanted

ROOT = Path(__file__).parents[2]
COMMITS = ["a" * 40, "b" * 40]
INDEX = b'{"weight_map": {"w": "model-1.safetensors", "v": "model-2.safetensors"}}'
FILES = {
    "models/own/judge": {"config.json": b"{}", "model.safetensors.index.json": INDEX}
    | {f"model-{n}.safetensors": bytes([n]) * 5000 for n in (1, 2)},
    "datasets/own/arena": {"test.parquet": b"rows" * 100},
}


def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(Handler):
    """A model and a data set. latest: the number of main's commit; sent: what was downloaded."""

    latest = 0
    sent: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        repo, _, rest = path.removeprefix("/api/").lstrip("/").partition("/tree/" if "/tree/" in path else "/resolve/")
        if path.startswith("/api/"):
            repo, _, revision = repo.partition("/revision/")
            files = FILES[repo]
            listed = [{"type": "file", "path": n, "size": len(d), "oid": git_hash(d)} for n, d in files.items()]
            commit = revision if revision in COMMITS else COMMITS[self.latest]
            info = {"id": repo.partition("/")[2], "sha": commit, "siblings": [{"rfilename": name} for name in files]}
            self.answer(json.dumps(listed if "/tree/" in path else info).encode(), "")
            return
        commit, _, name = rest.partition("/")
        data = FILES[repo if repo.startswith("datasets/") else f"models/{repo}"][name]
        if self.command == "GET":
            self.sent.append(name)
        self.answer(data, commit if commit in COMMITS else COMMITS[self.latest])

    do_HEAD = do_GET

    def answer(self, body: bytes, commit: str) -> None:
        self.send_response(200)
        named = {"X-Repo-Commit": commit, "ETag": f'"{git_hash(body)}"'} if commit else {}
        for name, value in ({"Content-Length": str(len(body))} | named).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[str]:
    with served(Hub) as running:
        yield f"http://127.0.0.1:{running.server_port}"
    Hub.latest = 0
    Hub.sent.clear()


def run(server: str, folder: Path, *words: str) -> subprocess.CompletedProcess:
    env = {
        name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE")
    }
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
