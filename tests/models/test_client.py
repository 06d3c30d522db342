"""What an endpoint may send back: its size is bounded, and the key is in no form of it."""

import asyncio
import base64
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editjudge.models.endpoint.client import (
    HIDDEN,
    TOO_LARGE,
    CallFailed,
    Connection,
    Endpoint,
    Refused,
    masked,
    read_completion,
)

KEY = 'sk-canary/0123+"456'
CHUNK = 1 << 20


class Echo(BaseHTTPRequestHandler):
    """Answers with what the request says: a status and a body, or as many MiB as are taken."""

    sent: ClassVar = Counter[str]()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(asked["status"])
        self.end_headers()
        try:
            self.wfile.write(asked["body"].encode())
            for _ in range(asked.get("mib", 0)):
                self.wfile.write(bytes(CHUNK))
                self.sent["mib"] += 1
        except ConnectionError:
            pass

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def ask(url: str, read: Callable[[bytes], Any] = bytes, **answer: Any) -> Any:
    """What `read` makes of an answer of the server."""

    async def body() -> bytes:
        return json.dumps(answer).encode()

    async def once() -> Any:
        async with Endpoint(Connection(url, KEY, tries=1), Counter()) as endpoint:
            return (await endpoint.post("chat/completions", body, read))[0]

    return asyncio.run(once())


def escaped(key: str, how: str) -> str:
    """A key inside of a JSON text."""
    plain = json.dumps(key)[1:-1]
    every = "".join(rf"\u{ord(each):04x}" for each in key)
    upper = every.replace("u002b", "u002B")
    forms = {
        "plain": plain,
        "slash": plain.replace("/", r"\/"),
        "lower": every,
        "upper": upper,
    }
    return forms[how] if how in forms else json.dumps(every)[1:-1]


HOW = ["plain", "slash", "lower", "upper", "twice"]


@pytest.mark.parametrize("how", HOW)
def test_an_echoed_key_is_masked_however_it_is_escaped(how: str, url: str) -> None:
    words = f"you sent {escaped(KEY, how)}, thanks"
    completion = ask(url, read_completion, status=200, body=f'{{"choices": [{{"message": {{"content": "{words}"}}}}]}}')
    assert completion.text == f"you sent {HIDDEN}, thanks"


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("status", [400, 500])
def test_reasons_do_not_tell_the_key(status: int, how: str, url: str) -> None:
    with pytest.raises(CallFailed) as failed:
        ask(url, status=status, body=f'{{"error": {{"message": "not with {escaped(KEY, how)}"}}}}')
    assert isinstance(failed.value, Refused) == (status == 400)
    assert failed.value.reason.partition(": {")[2].startswith(f'"error": {{"message": "not with {HIDDEN}"')


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4), st.data())
def test_each_character_may_be_escaped_in_a_way_of_its_own(key: str, data: st.DataObject) -> None:
    ways = [[each, rf"\u{ord(each):04x}", rf"\u{ord(each):04X}", rf"\\u{ord(each):04x}"] for each in key]
    spelled = "".join(data.draw(st.sampled_from(own)) for own in ways)
    assert masked(f'"{spelled}"'.encode(), key).count(HIDDEN.encode()) >= 1


@given(st.binary(max_size=8), st.binary(max_size=8), st.booleans())
def test_base64_of_a_text_with_the_key_is_masked(before: bytes, after: bytes, urlsafe: bool) -> None:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    text = encode(before + KEY.encode() + after)
    for shown in (text, text.replace(b"/", rb"\/")):
        assert HIDDEN.encode() in masked(shown, KEY)


def test_other_text_is_left_alone() -> None:
    raw = json.dumps({"content": f'{KEY[:-1]} \\ / " é \u0073k'}).encode()
    assert masked(raw, KEY) == raw


def test_a_reply_without_end_is_cut_off(url: str) -> None:
    with pytest.raises(CallFailed, match=r"larger than 16\.8 MB") as failed:
        ask(url, status=200, body="", mib=4096)
    assert (failed.value.kind, failed.value.requests) == (TOO_LARGE, 1)
    assert Echo.sent["mib"] < 64
