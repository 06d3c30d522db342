"""A canary as the key of endpoints of judges and of editors that send it back in many ways: no file, no log and no
process list has it."""

import base64
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
import small_repro
import yaml
from http_handler import Handler, served
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from editjudge.core import records
from editjudge.models.endpoint.client import HIDDEN
from editjudge.sources.builtin import scenes
from editjudge.stages import probe_bench

ROOT = Path(__file__).parents[1]
KEY = 'sk-canary/0123+"456'
WAYS = ("plain", "slash", "token", "bytes", "codes", "400", "500", "page")
EDIT_WAYS = ("header", "body", "escapes", "400", "base64", "500", "page", "address", "picture")
JUDGE = {"backend": "endpoint", "model": "m", "rule": "probability", "api_key_env": "CANARY_KEY", "tries": 1}
NEEDLES = [
    KEY.encode(),
    json.dumps(KEY)[1:-1].encode(),
    KEY.replace("/", r"\/").encode(),
    "".join(rf"\u{ord(each):04x}" for each in KEY).encode(),
    quote(KEY, safe="").encode(),
    *(base64.b64encode(bytes(before) + KEY.encode())[4:-4] for before in range(3)),
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


def edit(way: str) -> str:
    """An answer for an edit, with or without an image."""
    told, out = json.dumps(KEY)[1:-1], io.BytesIO()
    escapes = "".join(rf"\u{ord(each):04x}" for each in KEY)
    note = PngInfo()
    note.add_text("key", KEY)
    Image.new("RGB", (48, 48), "red").save(out, "PNG", pnginfo=note if way == "picture" else None)
    image = f'"b64_json": "{base64.b64encode(out.getvalue()).decode()}"'
    inside = {
        "header": image,
        "picture": image,
        "body": f'"key": "{told}"',
        "escapes": f'"key": "{escapes}", "again": "{told.replace("/", chr(92) + "/")}"',
        "address": f'"url": "https://127.0.0.1:1/{quote(KEY, safe="")}"',
    }
    return f'{{"data": [{{{inside.get(way, "")}}}]}}'


class Echo(Handler):
    """Sends the key back, the n-th time in the n-th way, and looks for it in the list of processes meanwhile."""

    asked: ClassVar[list[str]] = []
    seen: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Authorization"] == f"Bearer {KEY}"
        edits = self.path.endswith("/images/edits")
        ways = EDIT_WAYS if edits else WAYS
        way = ways[len(self.asked) % len(ways)]
        self.asked.append(way)
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                self.seen.extend(needle for needle in NEEDLES if needle in file.read_bytes())
        self.send_response({"400": 400, "base64": 400, "500": 500}.get(way, 200), KEY if way == "header" else None)
        if way == "header":
            self.send_header("X-Key", KEY)
            self.send_header("Content-Type", f"application/json; key={KEY}")
        self.end_headers()
        bodies = {"400": json.dumps({"error": {"message": f"not {KEY}"}}), "500": f"no {KEY}", "page": f"<p>{KEY}"}
        bodies["base64"] = base64.b64encode(f"Bearer {KEY}".encode()).decode()
        self.wfile.write(bodies.get(way, edit(way) if edits else completion(way)).encode())


@pytest.fixture
def url() -> Iterator[str]:
    Echo.asked.clear()
    with served(Echo) as server:
        yield f"http://127.0.0.1:{server.server_port}/v1"


def told_in(folder: Path, log: bytes) -> list[tuple[str, bytes]]:
    """Which forms of the key are where: in a file of the folder, the rows of a table, or what was said."""
    found = {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for name in [name for name, data in found.items() if data.startswith(b"PAR1")]:
        found[f"rows of {name}"] = b" ".join(map(as_bytes, pq.read_table(name).to_pylist()))
    assert len(found) > 5
    return [(name, needle) for name, data in (found | {"log": log}).items() for needle in NEEDLES if needle in data]


def as_bytes(value: Any) -> bytes:
    """All that is inside a value."""
    if isinstance(value, dict | list):
        return b" ".join(as_bytes(each) for each in (value.values() if isinstance(value, dict) else value))
    return value if isinstance(value, bytes) else str(value).encode()


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
    command = [sys.executable, "-m", "editjudge.stages.judge_benchmark", "--benchmark", "small"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "CANARY_KEY": KEY}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(Echo.asked) == set(WAYS)
    assert not Echo.seen
    assert (tmp_path / "work/judge/echo.sqlite").is_file()
    assert told_in(tmp_path, done.stdout + done.stderr) == []
    verdicts = records.read(tmp_path / "data/verdicts/small.parquet", "verdicts")
    assert KEY not in str(verdicts)
    assert HIDDEN in str(verdicts), "what came was kept, with the key masked"


def test_a_key_that_an_editing_model_sends_back_is_nowhere_either(url: str, tmp_path: Path) -> None:
    """Through DVC, with its lock, its cache and the report of all candidates."""
    plain = {"kind": "api", "base_url": url, "model": "m", "seed": 1, "api_key_env": "CANARY_KEY", "max_in_flight": 1}
    folder = small_repro.write(tmp_path / "one", {"echo": plain | {"tries": 1, "timeout": 20.0}}, len(EDIT_WAYS) + 1)
    run = small_repro.repro(folder, CANARY_KEY=KEY)
    said = run.communicate(timeout=120)[0]
    assert run.returncode == 0, said
    assert set(Echo.asked) == set(EDIT_WAYS)
    assert not Echo.seen
    assert "Traceback" not in said
    assert {"dvc.lock", "params.yaml"} <= {file.name for file in folder.iterdir()}
    assert told_in(tmp_path, said.encode()) == []
    rows = records.read(folder / f"data/candidates/echo/{small_repro.TASK}.parquet", "candidates")
    assert [row["status"] for row in rows].count("done") == 1, "the one with an image in the answer"
    reasons = " ".join(str(row["reason"]) for row in rows)
    assert reasons.count(HIDDEN) >= 5, reasons
    assert HIDDEN in (folder / "metrics/candidates/echo.json").read_text()
