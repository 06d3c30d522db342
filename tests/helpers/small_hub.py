"""A small hub of models and data sets: a real HTTP server on this machine, as huggingface_hub asks one."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from http_handler import Handler, served

COMMITS = ["a" * 40, "b" * 40]
INDEX = b'{"weight_map": {"w": "model-1.safetensors", "v": "model-2.safetensors"}}'
SHARDS = {f"model-{n}.safetensors": bytes([n]) * 5000 for n in (1, 2)}
FILES = {
    "models/own/open": {"config.json": b"{}"},
    "models/own/gated": {"config.json": b"{}"},
    "models/own/judge": {"config.json": b"{}", "model.safetensors.index.json": INDEX, **SHARDS},
    "datasets/own/arena": {"test.parquet": b"rows" * 100},
}


class Hub(Handler):
    """own/gated has a licence that nobody has accepted. latest: the number of main's commit; sent: what was fetched."""

    latest = 0
    sent: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        path, listing = self.path.partition("?")[0], "/tree/" in self.path
        repo, _, rest = path.removeprefix("/api").lstrip("/").partition("/tree/" if listing else "/resolve/")
        if path.startswith("/api/"):
            repo, _, revision = repo.partition("/revision/")
            files, commit = FILES[repo], revision if revision in COMMITS else COMMITS[self.latest]
            listed = [{"type": "file", "path": n, "size": len(d), "oid": git_hash(d)} for n, d in files.items()]
            info = {"id": repo.partition("/")[2], "sha": commit, "siblings": [{"rfilename": name} for name in files]}
            info |= {"gated": "manual", "cardData": {"license": "other", "license_name": "dinov3-license"}}
            self.answer(200, json.dumps(listed if listing else info).encode(), {})
        elif "own/gated" in repo:
            self.answer(403, b"", {"X-Error-Code": "GatedRepo"})
        else:
            commit, _, name = rest.partition("/")
            data = FILES[repo if repo.startswith("datasets/") else f"models/{repo}"][name]
            self.sent.extend([name] if self.command == "GET" else [])
            self.answer(200, data, {"X-Repo-Commit": commit, "ETag": f'"{git_hash(data)}"'})

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextmanager
def small_hub() -> Iterator[str]:
    """Its address, as long as it is needed."""
    Hub.latest = 0
    Hub.sent.clear()
    with served(Hub) as running:
        yield f"http://127.0.0.1:{running.server_port}"
