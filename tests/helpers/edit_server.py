"""A small OpenAI-compatible images/edits server for the tests: `python edit_server.py '{"delay": 0.05}'` prints its
port.

It answers with the negative of the first image that was sent. Settings: delay (s); failures, the share of requests that
fail, by the prompt and how often it came, evenly by 429 with Retry-After 0.2, 500, hanging and a cut connection;
behave, what each prompt meets the first, second, ... time (the last one goes on), else `usual`: a name in BEHAVIOURS;
key; port; journal, a file that gets each prompt as it comes. GET /log: what came; GET /image: an image for answers that
give an address."""

import asyncio
import base64
import hashlib
import io
import json
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aiohttp import web
from fake_server import Flight, fate
from PIL import Image, ImageOps

settings = {"delay": 0.0, "failures": 0.0, "usual": "good", "port": 0} | json.loads(sys.argv[1])
came: Counter[str] = Counter()
answered: Counter[str] = Counter()
kinds: Counter[str] = Counter()
times: list[float] = []
last: dict[str, Any] = {}
flight = Flight(now=0, most=0)
pictures: dict[str, bytes] = {}


def negative(source: bytes, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    ImageOps.invert(Image.open(io.BytesIO(source)).convert("RGB")).save(buffer, form)
    return buffer.getvalue()


def image(data: bytes) -> web.Response:
    return web.json_response({"created": 0, "data": [{"b64_json": base64.b64encode(data).decode()}]})


def error(status: int, message: str, code: str, **headers: str) -> web.Response:
    words = {"error": {"message": message, "type": "image_generation_user_error", "code": code}}
    return web.json_response(words, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})


async def cut(request: web.Request, _source: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"created": 0, "data": [{"b64')
    assert request.transport is not None
    request.transport.close()
    return response


async def hang(_request: web.Request, _source: bytes) -> web.Response:
    await asyncio.sleep(600)
    raise AssertionError


async def address(request: web.Request, source: bytes) -> web.Response:
    name = hashlib.sha256(source).hexdigest()
    pictures[name] = negative(source)
    return web.json_response({"data": [{"url": f"http://{request.host}/image/{name}?signature=secret"}]})


def other_address(url: str) -> web.Response:
    return web.json_response({"data": [{"url": url}]})


SENSITIVE = {"code": "OutputImageSensitiveContentDetected", "message": "may be sensitive"}
BEHAVIOURS: dict[str, Any] = {
    "good": lambda _request, source: image(negative(source)),
    "jpeg": lambda _request, source: image(negative(source, "JPEG")),
    "address": address,
    "private": lambda _request, _source: other_address("https://127.0.0.1:1/image?signature=secret"),
    "insecure": lambda _request, _source: other_address("http://example.com/image?signature=secret"),
    "elsewhere": lambda request, _source: other_address(f"http://{request.host}/away"),
    "page": lambda request, _source: other_address(f"http://{request.host}/page"),
    "nowhere": lambda _request, _source: other_address("http://[::1/x"),
    "429": lambda _request, _source: error(429, "slow down", "rate_limit_exceeded", Retry_After="0.2"),
    "500": lambda _request, _source: error(500, "worker died", "server_error"),
    "hang": hang,
    "cut": cut,
    "no_json": lambda _request, _source: web.Response(text="<html>gateway</html>"),
    "no_image": lambda _request, _source: web.json_response({"data": []}),
    "broken": lambda _request, source: image(negative(source)[:-60]),
    "text": lambda _request, _source: image(b"no image at all"),
    "huge": lambda _request, _source: image(bytes(3_000_000)),
    "blocked": lambda *_: error(400, "Your request was rejected by the safety system.", "moderation_blocked"),
    "blocked_item": lambda *_: web.json_response({"data": [{"error": SENSITIVE}]}),
    "bad_size": lambda _request, _source: error(400, "Invalid value: '7x7' for size", "invalid_value"),
    "no_key": lambda request, _source: error(401, f"Incorrect API key: {request.headers.get('Authorization')}", "key"),
    "no_model": lambda _request, _source: error(404, "The model `m` does not exist", "model_not_found"),
    "forbidden": lambda _request, _source: error(403, "No access", "forbidden"),
}


def behaviour(prompt: str) -> str:
    given = settings.get("behave", {}).get(prompt)
    if given:
        return given[min(came[prompt], len(given)) - 1]
    return fate(prompt, came[prompt], settings["failures"]) or settings["usual"]


async def edits(request: web.Request) -> web.StreamResponse:
    times.append(time.monotonic())
    with flight:
        return await answer(request)


async def answer(request: web.Request) -> web.StreamResponse:
    parts = []
    async for part in await request.multipart():
        data = bytes(await part.read())
        parts.append([part.name, part.filename, part.headers.get("Content-Type"), data])
    fields = {name: data for name, filename, _, data in parts if filename is None}
    source = next(data for _, filename, _, data in parts if filename is not None)
    prompt = fields["prompt"].decode()
    came[prompt] += 1
    if "journal" in settings:
        with Path(settings["journal"]).open("a") as out:
            out.write(json.dumps(prompt) + "\n")
    last.update(
        headers=dict(request.headers),
        fields={name: data.decode() for name, data in fields.items()},
        files=[[*named, hashlib.sha256(data).hexdigest()] for *named, data in parts if named[1] is not None],
    )
    name = behaviour(prompt)
    kinds[name] += 1
    if name != "hang":
        await asyncio.sleep(settings["delay"])
    response = BEHAVIOURS[name](request, source)
    response = await response if asyncio.iscoroutine(response) else response
    if name in ("good", "jpeg", "address"):
        answered[prompt] += 1
    return response


async def log(_request: web.Request) -> web.Response:
    counts = {"answered": answered, "came": came, "kinds": kinds}
    return web.json_response(counts | {"times": times, "last": last, "flight": flight})


async def picture(request: web.Request) -> web.Response:
    kinds["fetched"] += 1
    return web.Response(body=pictures[request.match_info["name"]], content_type="image/png")


async def away(_request: web.Request) -> web.Response:
    raise web.HTTPFound("http://127.0.0.1:1/secret")


async def page(_request: web.Request) -> web.Response:
    return web.Response(text="<html>please log in</html>", content_type="image/png")


async def main() -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just used
    listener.bind(("127.0.0.1", settings["port"]))
    app = web.Application(client_max_size=2**28)
    app.router.add_post("/v1/images/edits", edits)
    app.router.add_get("/log", log)
    app.router.add_get("/image/{name}", picture)
    app.router.add_get("/away", away)
    app.router.add_get("/page", page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    print(listener.getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
