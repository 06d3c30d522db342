"""What an endpoint may send back: its size is bounded, and the key is in no form of it. Images as they are sent: the
stored bytes wherever possible, each encoded once."""

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np
import pytest
from http_handler import Handler, served
from hypothesis import given
from hypothesis import strategies as st
from pictures import encoded, png
from PIL import Image

from editjudge.core import images
from editjudge.models.endpoint import client
from editjudge.models.endpoint.client import HIDDEN, TOO_LARGE, CallFailed, Connection, Endpoint, Refused, masked
from editjudge.models.endpoint.pictures import DataUrls, PixelLimits, data_url

KEY = 'sk-canary/0123+"456'
CHUNK = 1 << 20


class Echo(Handler):
    """Answers with what the request says: a status and a body, or as many MiB as are taken."""

    sent: ClassVar = Counter[str]()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(asked["status"])
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        try:
            self.wfile.write(asked["body"].encode())
            for _ in range(asked.get("mib", 0)):
                self.wfile.write(bytes(CHUNK))
                self.sent["mib"] += 1
        except ConnectionError:
            pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(Echo) as server:
        yield f"http://127.0.0.1:{server.server_port}"


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
    forms = {"plain": plain, "slash": plain.replace("/", r"\/"), "lower": every, "twice": json.dumps(every)[1:-1]}
    url = "".join(f"%{ord(each):02x}" for each in key)
    forms |= {"url": url, "url twice": url.replace("%", "%25"), "html": "".join(f"&#{ord(each)};" for each in key)}
    forms |= {"hex": key.encode().hex(), "hex, upper": key.encode().hex().upper(), "some of url": quote(key)}
    forms |= {"html, hex": "".join(f"&#X0{ord(each):x};" for each in key)}
    return (forms | {"upper": every.replace("u002b", "u002B")})[how]


HOW = ["plain", "slash", "lower", "upper", "twice", "url", "url twice", "some of url", "html", "html, hex", "hex"]


@pytest.mark.parametrize("how", [*HOW, "hex, upper"])
def test_an_echoed_key_is_in_no_reply_and_no_reason_however_it_is_escaped(how: str, url: str) -> None:
    words = f"you sent {escaped(KEY, how)}, thanks"
    body = f'{{"choices": [{{"message": {{"content": "{words}"}}}}]}}'
    completion = ask(url, client.read_completion, status=200, body=body)
    assert completion.text == f"you sent {HIDDEN}, thanks"
    for status in (400, 500):
        with pytest.raises(CallFailed) as failed:
            ask(url, status=status, body=f'{{"error": {{"message": "{words}"}}}}')
        assert isinstance(failed.value, Refused) == (status == 400)
        assert failed.value.reason.partition(": {")[2].startswith(f'"error": {{"message": "you sent {HIDDEN}, thanks"')


HOPELESS = {401: "the key is refused", 402: "no credit is left", 404: "unknown model or path"}
HOPELESS |= {429: "no quota is left", 302: "unexpected answer", 307: "unexpected answer"}  # the key follows no redirect


def test_a_status_ends_the_run_or_the_question_or_may_pass(url: str) -> None:
    assert [ask(url, status=status, body="x") for status in (200, 201, 202)] == [b"x"] * 3
    for status, words in HOPELESS.items():
        with pytest.raises(client.EndpointError, match=rf"completions answers {status}, {words}: .*insufficient_quota"):
            ask(url, status=status, body='{"error": {"code": "insufficient_quota"}}')
    refused = dict.fromkeys((400, 403, 410, 422), ("refuses the question ({})", ""))
    may_pass = dict.fromkeys((408, 409, 425, 429, 500, 502, 503, 504), ("answers {}", " (try 1)"))
    for status, (said, tried) in (refused | may_pass).items():
        with pytest.raises(CallFailed) as failed:
            ask(url, status=status, body="x" * 999)
        assert failed.value.reason == f"the endpoint {said.format(status)}: {'x' * 300}{tried}"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4), st.data())
def test_each_character_may_be_escaped_in_a_way_of_its_own(key: str, data: st.DataObject) -> None:
    forms = ("\\u{:04x}", "\\u{:04X}", "\\\\u{:04x}", "%{:02X}", "%25{:02x}", "&#{};", "&#x{:x};")
    ways = [[each, *(form.format(ord(each)) for form in forms)] for each in key]
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


@pytest.mark.parametrize("told", [True, -5, "7", 1e9])
def test_a_number_of_tokens_that_cannot_be_is_none(told: Any) -> None:
    """A budget would never end."""
    usage = {"prompt_tokens": told, "completion_tokens": 7}
    found = client.read_completion(json.dumps({"choices": [{"message": {"content": "x"}}], "usage": usage}).encode())
    assert (found.tokens_in, found.tokens_out) == (None, 7)


def test_a_reply_without_end_is_cut_off(url: str) -> None:
    with pytest.raises(CallFailed, match=r"larger than 16\.8 MB") as failed:
        ask(url, status=200, body="", mib=4096)
    assert (failed.value.kind, failed.value.requests) == (TOO_LARGE, 1)
    assert Echo.sent["mib"] < 64


def stored(seed: int, kind: str, size: tuple[int, int] = (60, 40), mode: str = "RGB", **options: object) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels).convert(mode), kind, **options)


def sent(url: bytes) -> tuple[str, bytes]:
    head, _, data = url.partition(b";base64,")
    return head.decode().removeprefix("data:image/"), base64.b64decode(data)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_inside_the_limits_are_sent_as_they_are_stored(kind: str, mode: str) -> None:
    data = stored(1, kind, mode=mode)
    assert sent(data_url(data, PixelLimits(60 * 40, 60 * 40))) == (kind.lower(), data)
    assert sent(data_url(data, PixelLimits())) == (kind.lower(), data)


@pytest.mark.parametrize("limits", [PixelLimits(0, 60_000), PixelLimits(960_000, 0), PixelLimits(960_000, 1_200_000)])
def test_images_outside_are_resized_with_their_aspect(limits: PixelLimits) -> None:
    kind, data = sent(data_url(stored(1, "JPEG", (600, 400)), limits))
    height, width, _ = images.decode(data).shape
    assert kind == "png"
    assert height * width >= limits.least
    assert not limits.most or height * width <= limits.most
    assert width / height == pytest.approx(1.5, rel=0.1)
    assert width % 32 == height % 32 == 0


def test_what_readers_show_differently_is_sent_plain() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for data in (stored(1, "JPEG", exif=exif), stored(1, "PNG", mode="RGBA"), stored(1, "PNG", mode="I;16")):
        kind, plain = sent(data_url(data, PixelLimits()))
        assert kind == "png"
        assert np.array_equal(images.decode(plain), images.decode(data))


def test_broken_and_foreign_images_are_errors() -> None:
    for data in (b"", b"text", png(1)[:-40], stored(1, "JPEG")[:300], stored(1, "BMP")):
        with pytest.raises(images.ImageError):
            asyncio.run(DataUrls(PixelLimits()).url(data))


def test_each_image_is_encoded_once_by_all_who_ask_and_memory_is_bounded() -> None:
    small, large = [png(n) for n in range(4)], stored(9, "PNG", (300, 300))
    assert len(large) > 100_000

    async def ask() -> None:
        pictures = DataUrls(PixelLimits())
        urls = await asyncio.gather(*(pictures.url(data) for data in [*small, large] * 20))
        assert pictures.encoded == 5
        assert urls[:5] == [data_url(data, PixelLimits()) for data in [*small, large]]
        tight = DataUrls(PixelLimits(), kept=2 * len(urls[0]) + 100)
        for data in [*small, *small]:
            await tight.url(data)
        assert tight.encoded == 8
        await tight.url(small[-1])
        assert tight.encoded == 8

    asyncio.run(ask())
