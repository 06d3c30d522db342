"""A small OpenAI-compatible server for the tests: `python chat_server.py '{"delay": 0.05, ...}'` prints its port.

Settings: delay (s); failures, the share of requests that fail, evenly by 429 with Retry-After 0.2, 500, hanging and a
cut connection; by the request's bytes and how often they came, so that the same questions meet the same failures.
replies, to the n-th request of an instruction (the last one goes on), each a text, or a message's fields and the
finish_reason; brightest, whether the brighter of the last two
images wins, and prose, the share of requests that are answered without JSON then, if they are not sampled; key; refuse,
options answered with 400 and refuse_words; status, of every answer; bad, instructions answered with bad_status and
bad_words; wait, the Retry-After of the first answer to each request, 429; tell_tokens, whether usage is given; bodies,
whether to log them.
GET /log: what was answered and how often; POST /log forgets it."""

import asyncio
import base64
import functools
import hashlib
import io
import json
import math
import re
import sys
from collections import Counter

import numpy as np
from fake_server import Flight, fail, fate, serve
from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

INSTRUCTION = re.compile(rb"Instruction: (.*?)\\n")
IMAGE = re.compile(rb"data:image/[a-z]+;base64,([^\"]+)")
settings = {"delay": 0.0, "failures": 0.0, "tell_tokens": True} | json.loads(sys.argv[1])
came: Counter[str] = Counter()
answered: Counter[str] = Counter()
kinds: Counter[str] = Counter()
instructions: Counter[str] = Counter()
last: dict = {}
bodies: list[str] = []
fates: dict[str, list[str | None]] = {}
flight = Flight(now=0, most=0)


def tokens_of(text: str) -> list[dict]:
    """The reply in tokens, the likeliest ones beside each; at a side's letter A has 3 times the probability of B."""
    tokens = []
    for piece in re.findall(r"\w+|\W", text):
        sides = {"A": 0.75, "B": 0.25} if piece in ("A", "B") else {piece: 1.0}
        others = {f"other{n}": 0.0001 for n in range(20 - len(sides))}
        top = [{"token": t, "logprob": math.log(p), "bytes": list(t.encode())} for t, p in (sides | others).items()]
        tokens.append({"token": piece, "logprob": -0.1, "bytes": list(piece.encode()), "top_logprobs": top})
    return tokens


@functools.cache
def completion(reply: str, likeliest: bool) -> bytes:
    """reply: a text or a message's fields, as JSON."""
    given = json.loads(reply)
    said = {"content": given} if isinstance(given, str) else given
    choice: dict = {"index": 0, "finish_reason": said.pop("finish_reason", "stop")}
    choice["message"] = {"role": "assistant", **said}
    thought = said.get("reasoning_content") or said.get("reasoning")
    whole = (f"{thought}</think>" if thought else "") + (said.get("content") or "")
    choice["logprobs"] = {"content": tokens_of(whole)} if likeliest else None
    body = {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    if settings["tell_tokens"]:
        body["usage"] = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return json.dumps(body).encode()


def name_of(body: bytes) -> str:
    found = INSTRUCTION.search(body)
    return found[1].decode() if found else ""


def hashed(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


def refusal(request: Request, body: bytes) -> Response | None:
    """What is wrong with the request, by the settings."""
    given = request.headers.get("authorization", "")
    if settings.get("key") and given != f"Bearer {settings['key']}":
        return JSONResponse({"error": {"message": f"Incorrect API key provided: {given}"}}, 401)
    for option in settings.get("refuse", []):
        if f'"{option}":'.encode() in body:
            words = settings.get("refuse_words", f"Unsupported parameter: '{option}'")
            return JSONResponse({"error": {"message": words}}, 400)
    if name_of(body) in settings.get("bad", []):
        words = settings.get("bad_words", "this image is not allowed")
        return JSONResponse({"error": {"message": words}}, settings.get("bad_status", 400))
    if "wait" in settings and came[hashed(body)] == 1:
        return JSONResponse({"error": {"message": "slow down"}}, 429, {"Retry-After": settings["wait"]})
    if "status" in settings:
        return JSONResponse({"error": {"message": "as set"}}, settings["status"])
    return None


def brightest(name: str, body: bytes) -> str:
    """The decision of a judge that likes light, and that is no better at JSON for being asked the same way again."""
    if int(name[:8], 16) / 16**8 < settings.get("prose", 0.0) and b'"temperature": 0.0' in body:
        return "Both edits have something to them."
    shown = [Image.open(io.BytesIO(base64.b64decode(data))) for data in IMAGE.findall(body)[-2:]]
    a, b = (float(np.asarray(image.convert("RGB"), float).mean()) for image in shown)
    return json.dumps({"winner": "Tie" if a == b else "Image A" if a > b else "Image B"})


async def chat(request: Request) -> Response:
    with flight:
        return await answer(request, await request.body())


async def answer(request: Request, body: bytes) -> Response:
    name = hashed(body)
    came[name] += 1
    wrong = refusal(request, body)
    if wrong is not None:
        kinds[str(wrong.status_code)] += 1
        return wrong
    kind = fate(name, came[name], settings["failures"])
    fates.setdefault(name, []).append(kind)
    if kind != "hang":
        await asyncio.sleep(settings["delay"])
    if kind is not None:
        kinds[kind] += 1
        return await fail(kind)
    instruction = name_of(body)
    replies = settings.get("replies", {}).get(instruction, ['{"winner": "Image A"}'])
    text = replies[min(instructions[instruction], len(replies) - 1)]
    if settings.get("brightest"):
        text = brightest(name, body)
    instructions[instruction] += 1
    answered[name] += 1
    kinds["200"] += 1
    last.update(body=body.decode(), headers=dict(request.headers))
    if settings.get("bodies"):
        bodies.append(last["body"])
    return Response(completion(json.dumps(text), b'"logprobs": true' in body), media_type="application/json")


async def log(request: Request) -> Response:
    counts = {"answered": answered, "kinds": kinds, "instructions": instructions, "came": came}
    response = JSONResponse(counts | {"last": last, "bodies": bodies, "flight": flight, "fates": fates})
    if request.method == "POST":
        for counter in counts.values():
            counter.clear()
        bodies.clear()
    return response


if __name__ == "__main__":
    serve([Route("/v1/chat/completions", chat, methods=["POST"]), Route("/log", log, methods=["GET", "POST"])])
