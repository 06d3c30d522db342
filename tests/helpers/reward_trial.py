"""Requests to a reward service in all forms, every 20th hostile: what becomes of them."""

import base64
import json
import os
import pickle
import socket
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import requests
from pictures import many_scans, picture

from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.rewards.reward_forms import FORMS
from tools.reward_endpoint import RewardEndpoint

EVERY = 20  # one request in so many is hostile


class Command:
    def __reduce__(self) -> tuple:
        return os.system, ("exit 9",)


def colliding(n: int) -> bytes:
    """An item of a pickled dict, whose keys all have one hash: to build the dict takes quadratic time."""
    return b"\x8a\x0a" + (n * (2**61 - 1)).to_bytes(10, "little") + b"K\x01"


def hostile(length: int) -> list[tuple[str, bytes | None]]:
    """Paths and bodies, up to `length` bytes; None: whoever sends hangs up in the middle."""

    def own(instruction: str, source: bytes, edited: bytes) -> bytes:
        told = {"instruction": instruction, "source": base64.b64encode(source).decode()}
        return json.dumps({"edits": [told | {"edited": base64.b64encode(edited).decode()}]}).encode()

    image = picture(1)
    wide = image[:16] + (60_000).to_bytes(4) * 2 + image[24:]
    columns = {"images": [image], "ref_images": [image], "prompts": ["word " * (length // 5)]}
    return [
        ("/score", own("w" * length, image, image)),
        ("/score", own("word " * 50_000, image, image)),
        ("/score", own("a \ud800", image, image)),
        ("/score", own("x", image, os.urandom(length // 2))),
        ("/score", own("x", wide, image)),
        ("/score", own("x", image, many_scans(3000, 1000))),
        ("/score", b"[" * length),
        ("/score", json.dumps({"edits": [[]] * (length // 4)}).encode()),
        ("/score", None),
        ("/compute", os.urandom(length)),
        ("/flow_grpo", pickle.dumps(columns)),
        ("/flow_grpo", pickle.dumps(Command())),
        ("/mode/any", b"\x80\x02}(" + b"".join(map(colliding, range(length // 20))) + b"u."),
        ("/verl_omni", b"\x80\x04" + b"(" * length),
        ("/", pickle.dumps({"input_images": [[image]], "output_image": [b""], "meta_datas": ["{}"]})),
    ]


@dataclass
class Outcome:
    """answers: to the requests that were none of the hostile; statuses: of these, 0 where they hung up."""

    answers: list[Score | Unscored] = field(default_factory=list)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)


def trial(url: str, name: str, edits: Sequence[Edit], length: int, in_flight: int) -> Outcome:
    """Asks about each edit by itself, in the forms in turn; before every 20th a hostile request is sent. OSError: the
    service is gone."""
    clients = [RewardEndpoint(url, form, name) for form in FORMS]
    attacks, found = hostile(length), Outcome()

    def ask(n: int) -> Score | Unscored:
        if n % EVERY == 0:
            path, body = attacks[n // EVERY % len(attacks)]
            got = hung_up(url, path) if body is None else requests.post(url + path, data=body, timeout=600).status_code
            found.statuses[path, got] += 1
        [answer] = clients[n % len(clients)].score([edits[n]])
        return answer

    with ThreadPoolExecutor(in_flight) as threads:
        found.answers = list(threads.map(ask, range(len(edits))))
    return found


def hung_up(url: str, path: str) -> int:
    to = urlsplit(url)
    with socket.create_connection((str(to.hostname), int(to.port or 0)), 60) as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{{".encode())
    return 0
