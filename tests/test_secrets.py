"""A canary as the key of an endpoint that sends it back in many ways: no file, no log and no process list has it."""

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pytest
import yaml

from editjudge.core import records
from editjudge.endpoints.client import HIDDEN
from editjudge.probe import scenes
from editjudge.stages import probe_bench

ROOT = Path(__file__).parents[1]
KEY = 'sk-canary/0123+"456'
WAYS = ("plain", "slash", "token", "bytes", "codes", "400", "500", "page")
JUDGE = {"backend": "endpoint", "model": "m", "rule": "probability", "api_key_env": "CANARY_KEY", "tries": 1}
NEEDLES = [
    KEY.encode(),
    json.dumps(KEY)[1:-1].encode(),
    KEY.replace("/", r"\/").encode(),
    "".join(rf"\u{ord(each):04x}" for each in KEY).encode(),
    quote(KEY, safe="").encode(),
    base64.b64encode(KEY.encode()).rstrip(b"="),
    KEY.encode().hex().encode(),
    json.dumps(list(KEY.encode())).encode(),
    KEY[3:9].encode(),  # a token of it
]


def completion(way: str) -> str:
    """A verdict whose reason, or whose tokens, are the key."""
    inside = json.dumps(KEY)[1:-1]
    told = {
        "plain": inside,
        "slash": inside.replace("/", r"\/"),
        "codes": "".join(rf"\u{ord(each):04x}" for each in KEY),
    }
    content = r"{\"winner\": \"Image A\"} " + told.get(way, "")
    tokens: list[dict[str, Any]] = [{"token": "A", "logprob": -0.1, "top_logprobs": []}]
    if way == "token":
        tokens[0] = {"token": KEY, "logprob": -0.1, "top_logprobs": [{"token": KEY, "logprob": -0.1}]}
    if way == "bytes":
        tokens[0] |= {"bytes": list(KEY.encode())}
    if way in told:
        tokens = [{"token": part, "logprob": -0.1} for part in ("sk-", KEY[3:9], KEY[9:])]
    choice = f'{{"message": {{"content": "{content}"}}, "logprobs": {{"content": {json.dumps(tokens)}}}}}'
    return f'{{"choices": [{choice}], "usage": {{"prompt_tokens": 1, "completion_tokens": 1}}}}'


class Echo(BaseHTTPRequestHandler):
    """Sends the key back, the n-th time in the n-th way, and looks for it in the list of processes meanwhile."""

    asked: ClassVar[list[str]] = []
    seen: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Authorization"] == f"Bearer {KEY}"
        way = WAYS[len(self.asked) % len(WAYS)]
        self.asked.append(way)
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                self.seen.extend(needle for needle in NEEDLES if needle in file.read_bytes())
        self.send_response({"400": 400, "500": 500}.get(way, 200))
        self.end_headers()
        bodies = {"400": json.dumps({"error": {"message": f"not {KEY}"}}), "500": f"no {KEY}", "page": f"<p>{KEY}"}
        self.wfile.write(bodies.get(way, completion(way)).encode())

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_a_key_that_is_sent_back_is_in_no_file_log_or_process_list(url: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "pipelines", tmp_path / "pipelines")
    values: dict[str, Any] = {"tasks": {"color_alter": "object_centric"}, "measures": {}}
    values |= {"benchmarks": {"small": {"form": "vcreward", "path": "data/small.parquet"}}}
    values |= {"judges": {"echo": JUDGE | {"base_url": url, "max_in_flight": 1, "reply_tries": 1}}}
    values |= {"unfinished": {"judge_benchmark": 1.0}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values))
    prompts = scenes.make_pairs("color_alter", "benchmark", len(WAYS), 64, seed=0)
    rows = [probe_bench.make_pair(each, {"precise": 0.0, "leaky": 2.0}, 1.0, seed=1) for each in prompts]
    records.write(tmp_path / "data/small.parquet", rows, "vcreward_bench")
    done = subprocess.run(
        [sys.executable, "-m", "editjudge.stages.judge_benchmark", "--benchmark", "small"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "CANARY_KEY": KEY},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(Echo.asked) == set(WAYS)
    assert not Echo.seen
    files = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert any(name.endswith("work/judge/echo.sqlite") for name in files)
    files |= {"stdout": done.stdout, "stderr": done.stderr}
    assert [(name, needle) for name, data in files.items() for needle in NEEDLES if needle in data] == []
    verdicts = records.read(tmp_path / "data/verdicts/small.parquet", "verdicts")
    assert KEY not in str(verdicts)
    assert HIDDEN in str(verdicts), "what came was kept, with the key masked"
