"""What the tests' servers share: how requests fail, and how a server starts; `Server` is one that runs.

A server is the fork of a warm process that has imported what all need: a start takes a tenth of the time."""

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp.web  # noqa: F401  for the fork that needs it
import numpy as np  # noqa: F401
import uvicorn
from PIL import ImageOps  # noqa: F401
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

KINDS = ("429", "500", "hang", "cut")


def fate(name: str, came: int, share: float, kinds: Sequence[str] = KINDS) -> str | None:
    """How the request of a name fails when it comes for the n-th time, if it does: a share of requests, evenly."""
    draw = int.from_bytes(hashlib.sha256(f"{name} {came}".encode()).digest()[:8], "little") / 2**64
    return kinds[int(draw / share * len(kinds))] if draw < share else None


async def fail(kind: str) -> Response:
    if kind == "hang":
        await asyncio.sleep(600)
    if kind == "429":
        return JSONResponse({"error": {"message": "slow down"}}, 429, {"Retry-After": "0.2"})
    if kind == "cut":
        return StreamingResponse(iter([b'{"id": ']), 200, {"Content-Length": "1000"})
    return JSONResponse({"error": {"message": "worker died"}}, 500)


def serve(routes: Sequence[Route], port: int = 0) -> None:
    """Prints the port, and answers until it is killed."""
    # With its protocol named: asyncio sets TCP_NODELAY then only, and without it each reply waits 40 ms for an ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just used
    listener.bind(("127.0.0.1", port))
    listener.listen(2048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(Starlette(routes=routes), log_level="critical", access_log=False)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


class Flight(Counter[str]):
    """How many requests are being answered now, and at most at a time; a context of each."""

    def __enter__(self) -> None:
        self["now"] += 1
        self["most"] = max(self["most"], self["now"])

    def __exit__(self, *error: object) -> None:
        self["now"] -= 1


@dataclass(frozen=True)
class Server:
    """A server of the tests that runs."""

    url: str

    def log(self, forget: bool = False) -> dict[str, Any]:
        """What it has been asked."""
        request = urllib.request.Request(self.url.replace("/v1", "/log"), method="POST" if forget else "GET")
        with urllib.request.urlopen(request) as response:
            return json.load(response)


@functools.cache
def warm() -> subprocess.Popen[str]:
    """It ends when nobody can ask any more, with all of its servers."""
    return subprocess.Popen([sys.executable, __file__], stdin=-1, stdout=-1, text=True)


@contextlib.contextmanager
def running(script: str, **settings: Any) -> Iterator[Server]:
    """A server of this folder in a process of its own, as long as it is needed."""
    asked, answers = warm().stdin, warm().stdout
    assert asked
    assert answers
    print(json.dumps([script, json.dumps(settings)]), file=asked, flush=True)
    child, port = json.loads(answers.readline())
    try:
        yield Server(f"http://127.0.0.1:{port}/v1")
    finally:
        os.kill(child, signal.SIGKILL)


def main() -> None:
    """The warm process: a server for each line [script, settings]. Answers with its process and its port."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        script, settings = json.loads(line)
        said, saying = os.pipe()
        if not (child := os.fork()):
            os.dup2(saying, 1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.argv = [script, settings]
            runpy.run_path(str(Path(__file__).with_name(script)), run_name="__main__")
        os.close(saying)
        with open(said) as first_line:
            print(json.dumps([child, int(first_line.readline())]), flush=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    os.setpgrp()
    main()
