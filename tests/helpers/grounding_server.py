"""An OpenAI-compatible server that really finds coloured rectangles, and that sometimes misbehaves.

`python grounding_server.py '{"share": 0.4, ...}'` prints its port. Settings: share of requests that go wrong, by all of
KINDS, drawn from what was asked and how often, so that the same questions meet the same fates; always:
{instruction: kind}; changes, what of a subject; anywhere, whether what is not to be seen has a box in the middle; port.
GET /log: what was asked, by name, with temperatures and seeds, and how it ended."""

import base64
import hashlib
import io
import json
import re
import sys
from collections import Counter, defaultdict

import fake_server
import numpy as np
from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

COLOURS = {"red": (230, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 230), "yellow": (240, 240, 20)}
SPOILT = ("prose", "broken", "empty", "unknown", "turned", "outside", "judged", "refusal", "listed")
FAILING = ("429", "500", "hang", "cut", "html")
KINDS = (*SPOILT, *FAILING)
settings: dict = {"share": 0.0, "always": {}, "changes": ["hair", "face_texture"], "anywhere": False, "port": 0}
came: Counter[str] = Counter()
kinds: Counter[str] = Counter()
asked: defaultdict[str, list] = defaultdict(list)


def fate(name: str, instruction: str) -> str | None:
    """How this request goes wrong, if it does."""
    if instruction in settings["always"]:
        return settings["always"][instruction]
    return fake_server.fate(name, came[name], settings["share"], KINDS)


def rectangle(pixels: np.ndarray, colour: str) -> list[int] | None:
    """Where the image has this colour: x0, y0, x1, y1, x1 and y1 exclusive."""
    there = np.abs(pixels.astype(int) - COLOURS[colour]).max(-1) < 40
    if not there.any():
        return None
    rows, columns = np.flatnonzero(there.any(1)), np.flatnonzero(there.any(0))
    x0, y0, x1, y1 = int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
    if settings["anywhere"] and there[y0:y1, x0:x1].mean() < 0.5:  # specks of a random model's edit
        return None
    return [x0, y0, x1, y1]


def boxes(text: str, url: str) -> dict:
    """The truth of a grounder."""
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))
    height, width = pixels.shape[:2]
    found = re.search(r"pixels of this image, (\d+) wide and (\d+) high", text)
    assert found is None or (int(found[1]), int(found[2])) == (width, height), "the size in the prompt is the sent one"
    sides = (1, 1) if found else (1000 / width, 1000 / height)
    items = []
    for label in json.loads(re.search(r"^Names: (.*)$", text, re.MULTILINE)[1]):
        box = rectangle(pixels, label.split()[0])
        if box is None and settings["anywhere"]:
            box = [width // 4, height // 4, width * 3 // 4, height * 3 // 4]
        if box is not None:
            items.append({"label": label, "bbox_2d": [round(v * sides[n % 2], 3) for n, v in enumerate(box)]})
    return {"objects": items}


def names(instruction: str, text: str) -> dict:
    """The truth of a parser."""
    things = re.findall(r"the ((?:red|green|blue|yellow) square)", instruction)
    if '"generated"' in text:
        return {"edited": things[:1], "generated": things[1:]}
    if '"subject"' in text:
        return {"subject": things[0], "changes": settings["changes"]}
    return {"objects": things}


def of_photos(text: str) -> dict | None:
    """The truth of what captions photographs and writes instructions; None for another question."""
    if '"caption"' in text:
        nouns = {"objects": ["red square", "green square"], "background": ["blue square"]}
        return {"caption": "Squares on a wall.", "summary": "Squares.", **nouns}
    edit = {"object": "red square", "instruction": "Please edit the red square in this photograph."}
    if '"turns"' in text:
        lines = re.findall(r"^(\d)\. (.*)$", text, re.MULTILINE)
        return {"turns": [edit | {"instruction": f"Turn {n}, as was told: {line}."} for n, line in lines]}
    return edit if '"instruction"' in text else None


def spoilt(kind: str, truth: dict) -> str:
    """A reply that must not be believed."""
    text = json.dumps(truth)
    first = next(iter(truth.values()))
    is_boxes = isinstance(first, list) and bool(first) and isinstance(first[0], dict)
    always = {
        "prose": "Sure! The object is on the left side of the picture, at about a third of its height.",
        "broken": text[: len(text) * 2 // 3],
        "listed": json.dumps([truth, truth]),
        "judged": '{"score": [8, 7], "reasoning": "the objects are at [1, 2, 3, 4]"}',
        "refusal": "I'm sorry, but I can't help with that.",
    }
    if kind in always:
        return always[kind]
    if not is_boxes:
        return json.dumps({"objects": [], "edited": [], "generated": []})
    item = first[0]
    x0, y0, x1, y1 = item["bbox_2d"]
    wrong = {
        "empty": {"objects": []},
        "unknown": {"objects": [item | {"label": "a unicorn"}]},
        "turned": {"objects": [item | {"bbox_2d": [x1, y1, x0, y0]}]},
        "outside": {"objects": [item | {"bbox_2d": [x0 + 5000, y0, x1 + 5000, y1]}]},
    }
    return json.dumps(wrong[kind])


async def fail(kind: str) -> Response:
    if kind == "html":
        return Response("<html>bad gateway</html>", 200)
    if kind == "400":
        return JSONResponse({"error": {"message": "this image is against our policy"}}, 400)
    return await fake_server.fail(kind)


async def chat(request: Request) -> Response:
    body = json.loads(await request.body())
    [turn] = body["messages"]
    text = "".join(part.get("text", "") for part in turn["content"])
    urls = [part["image_url"]["url"] for part in turn["content"] if part["type"] == "image_url"]
    said = re.search(r"^Instruction: (.*)$", text, re.MULTILINE)
    instruction = said[1] if said else ""
    truth = of_photos(text) or (boxes(text, urls[0]) if urls else names(instruction, text))
    name = hashlib.sha256(json.dumps(turn).encode()).hexdigest()[:16]
    came[name] += 1
    kind = fate(name, instruction)
    asked[name].append([kind, body["temperature"], body.get("seed")])
    kinds[kind or "200"] += 1
    if kind is not None and kind not in SPOILT:
        return await fail(kind)
    reply = json.dumps(truth) if kind is None else spoilt(kind, truth)
    message = {"role": "assistant", "content": reply}
    if kind == "refusal":
        message = {"role": "assistant", "content": None, "refusal": reply}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return JSONResponse({"choices": [{"index": 0, "message": message}], "usage": usage})


async def log(_request: Request) -> Response:
    return JSONResponse({"kinds": kinds, "asked": asked})


if __name__ == "__main__":
    settings |= json.loads(sys.argv[1])
    routes = [Route("/v1/chat/completions", chat, methods=["POST"]), Route("/log", log)]
    fake_server.serve(routes, settings["port"])
