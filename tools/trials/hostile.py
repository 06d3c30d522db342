"""Hostile servers, clients and paths for fuzz.py: what a server of downloads sends, what is sent to our own servers,
and names of files.

Each good input is mutated there; here is what takes it. How it is sent (dripped, cut, without end, with a wrong length
or key) is drawn from the input itself, so that it comes again with it.
"""

import base64
import functools
import io
import json
import random
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import uvicorn
from PIL import Image
from starlette.applications import Starlette

from editjudge.core import downloads
from editjudge.core.downloads import DownloadLimits
from editjudge.core.errors import UserError
from editjudge.core.keys import FILE_NAME, plain
from editjudge.core.reading import local
from editjudge.core.tables import RowError
from editjudge.editors.galleries.pictures import Given, at_path
from editjudge.judges.protocol import Score
from editjudge.models.chat.local_model import TOP, Reply
from editjudge.models.serve.launch import free_port, healthy
from editjudge.models.serve.server import Server
from editjudge.rewards.reward_settings import RewardSetting
from editjudge.rewards.rewards import RewardService

HOST, OTHER = "127.0.0.1", "127.0.0.2"
LIMITS = DownloadLimits(at_once=2, megabytes=0.05, seconds=0.3, attempts=2, private_hosts=False)
WAYS = ("whole",) * 20 + ("cut", "drip", "hold", "endless", "tls")
SECRET, KEY = b"\x89PNG\r\n\x1a\nsecret", "sesame"


def small_png() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.zeros((2, 3, 3), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


# What a server of downloads sends


def answers() -> list[bytes]:
    """Whole HTTP answers; PORT is that of the server."""
    png, version = small_png(), b'ETag: "a"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT'
    good = b"HTTP/1.1 200 OK\r\n%s\r\nContent-Length: %d\r\n\r\n%s" % (version, len(png), png)
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(png), png)
    part = b"HTTP/1.1 206 Partial Content\r\n%s\r\nContent-Range: bytes 20-%d/%d\r\nContent-Length: %d\r\n\r\n%s"
    page = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 9\r\n\r\n<html></h>"
    again = b"HTTP/1.1 503 Busy\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n"
    to = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
    places = [
        f"http://{host}:PORT/" for host in (HOST, OTHER, "[::1]", "2130706434", "[::ffff:127.0.0.2]", "localhost")
    ]
    places += ["/", "//", "file:///etc/passwd", "http://xn--a/", "http://\xe4\xb6\xff:PORT/"]
    return [
        good,
        good.replace(b"Content-Length: ", b"Content-Length: 9"),
        chunked,
        page,
        part % (version, len(png) - 1, len(png), len(png) - 20, png[20:]),
        *(again % when for when in (b"0", b"Mon, 01 Jan 2024 00:00:00 +0000", b"Fri, 31 Dec 9999 23:59:59 -2359")),
        *(to % place.encode("latin-1") for place in places),
    ]


class Sender:
    """A server on two addresses of loopback that sends `data` in its way. elsewhere: it was asked at the other."""

    def __init__(self) -> None:
        self.port, self.data, self.elsewhere = free_port(HOST, 0), b"", False
        for host in (HOST, OTHER):
            server = socket.create_server((host, self.port), backlog=64)
            threading.Thread(target=self.accept, args=(server,), daemon=True).start()

    def accept(self, server: socket.socket) -> None:
        while True:
            asked, _ = server.accept()
            self.elsewhere |= asked.getsockname()[0] != HOST
            threading.Thread(target=self.send, args=(asked, self.data), daemon=True).start()

    def send(self, asked: socket.socket, data: bytes) -> None:
        way, data = way_of(data), data.replace(b"PORT", b"%d" % self.port)
        with asked, suppress(OSError):
            asked.recv(65536)
            if way == "cut":
                asked.sendall(data[: len(data) // 2])
                asked.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            for at in range(len(data) if way in ("drip", "tls") else 0):
                asked.sendall(data[at : at + 1])
                time.sleep(0.01)
            asked.sendall(data)
            while way == "endless":
                asked.sendall(bytes(65536))
            time.sleep(1.0 if way == "hold" else 0)


def way_of(data: bytes) -> str:
    return random.Random(data).choice(WAYS)


@functools.cache
def sender() -> Sender:
    return Sender()


def resolve(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
    """Nobody outside is asked, neither for a name nor by one: only numbers of this machine are known."""
    found = RESOLVE(host, port, family, type, proto, flags | (0 if host == "localhost" else NUMBER))
    if any(downloads.is_public(str(entry[4][0])) for entry in found):
        raise socket.gaierror("not outside")
    return found


RESOLVE, NUMBER = socket.getaddrinfo, socket.AI_NUMERICHOST


def download(path: Path) -> object:
    """The image that a server gives which sends the file's bytes."""
    server = sender()
    server.data = path.read_bytes()
    scheme = "https" if way_of(server.data) == "tls" else "http"
    place = f"{scheme}://{HOST}:{server.port}/"
    with patch.object(socket, "getaddrinfo", resolve), patch.object(downloads, "LONGEST_WAIT", 0.05):
        had = downloads.Downloads(path.parent / "d", LIMITS, 0.01, (HOST, server.port))
        try:
            found = had.fetch(place)
            had.forget(place)
        finally:
            had.close()
            if server.elsewhere:
                server.elsewhere = False
                raise AssertionError("a private host was asked")
    return found


# Names of files


def inside(path: Path) -> object:
    """The image that the file's text names in a folder with links out of it; never what is outside."""
    text, folder = path.read_bytes().decode(errors="surrogateescape"), path.parent / "images"
    if not folder.exists():
        (folder / "in").mkdir(parents=True)
        (folder.parent / "secret.png").write_bytes(SECRET)
        (folder / "image.png").write_bytes(small_png())
        for name, target in {"out.png": "../secret.png", "up": "..", "loop.png": "loop.png"}.items():
            (folder / name).symlink_to(target)
    assert not (key := plain(text)).strip(".") or FILE_NAME.fullmatch(key)
    found: list[bytes | str] = [Given(folder)(text), at_path(folder, text)]
    try:
        found.append(local(text, folder, 10**6))
    except RowError as error:
        found.append(str(error))
    assert SECRET not in found, "a file outside of its folder"
    assert all(isinstance(each, bytes) or (each and "\n" not in each) for each in found)
    return found


# Requests to our own servers


class Model:
    """A chat model that says nothing, for a server whose requests are tried."""

    def __init__(self) -> None:
        tokens = {0: SimpleNamespace(special=True, content="<|image_pad|>")}
        tokenizer = SimpleNamespace(added_tokens_decoder=tokens, decode=lambda tokens: "x")
        self.processor = SimpleNamespace(tokenizer=tokenizer, image_token="<|image_pad|>")
        text = SimpleNamespace(max_position_embeddings=4096)
        self.model = SimpleNamespace(config=SimpleNamespace(text_config=text))

    def render(self, messages: list[dict[str, Any]]) -> str:
        parts = [part for message in messages for part in message["content"]]
        return "".join("<|image_pad|>" if part["type"] == "image" else part["text"] for part in parts)

    def length(self, chat: Any, pixels: Any) -> int:
        return len(chat.text.encode())

    def reply(self, chats: list[Any], pixels: Any) -> list[Any]:
        nothing = np.zeros((1, TOP), np.float32)
        return [Reply("x", (0,), nothing[:, 0], nothing.astype(int), nothing, nothing, 1, 1, 0, True) for _ in chats]

    def piece(self, token: int) -> bytes:
        return b"x"


def chat_app() -> Starlette:
    return Server(cast(Any, Model()), "judge", 16, 4096, 3).app()


def reward_app() -> Starlette:
    scorer: Any = SimpleNamespace(dimensions=(), score=lambda edits: [Score(1.0, {}) for _ in edits])
    how = RewardSetting(
        host=HOST,
        port=0,
        batch_size=16,
        gathering=0.0,
        most_waiting=64,
        most_megabytes=8,
        stop_seconds=1,
        reward="overall",
        api_key_env="HOSTILE_KEY",
        sources="none",
        allow_pickle=False,
    )
    with patch.dict("os.environ", HOSTILE_KEY=KEY):
        return RewardService([lambda: scorer], "nothing", how).app()


@functools.cache
def served(name: str) -> int:
    """The port of a server in a thread."""
    port = free_port(HOST, 0)
    config = uvicorn.Config({"chat": chat_app, "reward": reward_app}[name](), HOST, port, log_level="critical")
    threading.Thread(target=uvicorn.Server(config).run, daemon=True).start()
    while not healthy(f"http://{HOST}:{port}/health"):
        time.sleep(0.02)
    return port


def chats() -> list[bytes]:
    url = "data:image/png;base64," + base64.b64encode(small_png()).decode()
    parts = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": url}}]
    asked = {"model": "judge", "messages": [{"role": "user", "content": parts}], "max_tokens": 4, "seed": 1}
    plain_asked = {"model": "judge", "messages": [{"role": "user", "content": "x"}], "logprobs": True}
    return [json.dumps(each).encode() for each in (asked, plain_asked | {"top_logprobs": 2, "temperature": 0.5})]


def rewards() -> list[bytes]:
    image = base64.b64encode(small_png()).decode()
    own = {"edits": [{"instruction": "x", "source": image, "edited": image}]}
    turns = [{"text": "x", "image_b64": image}] * 2
    return [json.dumps(each).encode() for each in (own, {"requests": [{"history": turns, "required_rewards": []}]})]


SENT = ("right",) * 16 + ("long", "short", "none", "chunked", "twice", "no number", "key", "slow", "head")
HALF = ("long", "chunked", "head")  # after which no more comes


def asked(name: str, where: str, path: Path) -> object:
    """The answer of a server to the file's bytes. Raises UserError with the server's words where it refuses them."""
    body, port = path.read_bytes(), served(name)
    how, size = random.Random(body).choice(SENT), len(body)
    length = {
        "long": b"Content-Length: %d\r\n" % (size + 1000),
        "short": b"Content-Length: %d\r\n" % (size // 2),
        "none": b"",
        "chunked": b"Transfer-Encoding: chunked\r\n",
        "twice": b"Content-Length: 1\r\nContent-Length: %d\r\n" % size,
        "no number": b"Content-Length: -%d\r\n" % size,
    }.get(how, b"Content-Length: %d\r\n" % size)
    key = b"wrong\xff" if how == "key" else KEY.encode()
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\n" % (where.encode(), key)
    sent = body if how == "head" else head + length + b"\r\n" + body
    with socket.create_connection((HOST, port), 5) as client:
        with suppress(ConnectionError):
            for at in range(0, len(sent), 100) if how == "slow" and size < 2000 else ():
                client.sendall(sent[at : at + 100])
                time.sleep(0.01)
            client.sendall(b"" if how == "slow" and size < 2000 else sent)
            if how in HALF:
                client.shutdown(socket.SHUT_WR)
        answer = received(client)
    assert healthy(f"http://{HOST}:{port}/health"), "the server is gone"
    status, _, said = answer.partition(b"\r\n\r\n")
    code = int(status.split(b" ")[1]) if status else 0
    assert code < 500 or code == 503, f"{code}: {said[:200]!r}"
    assert code or how in HALF, "no answer"
    assert len(said) < 10_000, f"an answer of {len(said)} bytes"
    if code != 200:
        raise UserError(said.decode() or "hung up")
    return json.loads(said)


def received(client: socket.socket) -> bytes:
    found = b""
    with suppress(ConnectionError):
        while part := client.recv(65536):
            found += part
    return found


def huge(name: str) -> bytes:
    """A request of 120 MB with one image that is none."""
    [good, *_] = chats() if name == "chat" else rewards()
    image = base64.b64encode(small_png())
    return good.replace(image, b"A" * 120_000_000, 1)
