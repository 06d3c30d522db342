"""An OpenAI-compatible endpoint over HTTP: many calls in flight, each tried until it is answered or hopeless.

Plain aiohttp instead of the openai client: a call with three small images and the probabilities of its tokens takes
that one 2.6 to 3.1 ms of the one core that it can use, so 320 to 380 calls a second; this takes 0.6 ms. 64 in flight at
an endpoint that answers in 50 ms, 1,280 calls a second, would go at less than a third of their pace
(benchmarks/test_asking.py compares the two). What is sent is what the openai client sends, which a test holds."""

import asyncio
import base64
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import cycle
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
from aiolimiter import AsyncLimiter

from editjudge.core.downloads import retry_after
from editjudge.core.errors import UserError, printable
from editjudge.models.endpoint.replies import END_OF_THINKING, THINKING

DONE = (200, 201, 202)
AGAIN = (408, 409, 425, 429)  # statuses that may pass, beside all from 500 on
HOPELESS = {401: "the key is refused", 402: "no credit is left", 404: "unknown model or path"}
QUOTA = "insufficient_quota"  # a 429 that does not pass
CONNECT_SECONDS = 10.0  # of a try, until there is a connection
LONGEST_WAIT = 300.0  # seconds that an endpoint may ask to wait (Retry-After)
FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 60.0  # most seconds between tries, which double from try to try
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 4.0  # seconds before it is asked whether work is done, which double, too
LOOPBACK = ("127.0.0.1", "localhost", "::1")
QUOTED = 300  # characters of an endpoint's words in a reason
HIDDEN = "[key]"
# What becomes a control character once JSON is read.
ESCAPED = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:[bfnrt]|u00(?:[0189][0-9a-f]|7f)|u20(?:0[ef]|2[89a-e]|6[6-9]))", re.I)
SPECIAL = frozenset('/"\\')  # characters that JSON may write behind a backslash
TOO_LARGE = "too_large"  # the kind of an answer beyond most_bytes
REAL = 16  # characters of a key that no reply contains by chance
# Refusals of a first request that are everyone's; later ones may be about what a single request shows.
FORBIDDEN, OF_THE_KEY = 403, re.compile(r"\bAPI[ _]key\b", re.IGNORECASE)
MOST_BYTES = 16 * 2**20  # of a reply: 4,096 tokens with the 20 likeliest at each place are about 8 MB
T = TypeVar("T")
Body: TypeAlias = bytes | aiohttp.FormData  # JSON as bytes, or a form with files, sent as multipart/form-data


class EndpointError(UserError, RuntimeError):
    """The endpoint answers no question at all: the key, the model or the address is wrong. Ends the run."""


class CallFailed(Exception):
    """A call without an answer. kind: of the failure (a status, or what happened); requests: how many were sent."""

    def __init__(self, kind: str, reason: str, requests: int = 1) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.requests = kind, reason, requests


class TryFailed(CallFailed):
    """A try that may be repeated. wait: seconds that the endpoint asks for."""

    def __init__(self, kind: str, reason: str, wait: float = 0.0) -> None:
        super().__init__(kind, reason)
        self.wait = wait


class Refused(CallFailed):
    """The endpoint refuses what was sent; status and text: its answer."""

    def __init__(self, status: int, text: str) -> None:
        text = ESCAPED.sub(r"\1 ", printable(text))
        super().__init__(str(status), f"the endpoint refuses the question ({status}): {text[:QUOTED]}")
        self.status, self.text = status, text

    def everyones(self) -> bool:
        """Whether every other request would be refused alike, as long as none has been answered: it is the key."""
        return self.status == FORBIDDEN or bool(OF_THE_KEY.search(self.text))


class Later(NamedTuple):
    """In an answer's place: the work is not done yet. url: where to ask again; None: where was asked last."""

    url: str | None = None


@dataclass(frozen=True)
class Completion:
    """What came back. tokens: `choices[0].logprobs.content`; tokens_in, tokens_out: None where nothing says it. cut:
    whether the limit ended the reply; apart: whether its thinking was told apart."""

    text: str
    tokens: list[dict[str, Any]]
    tokens_in: int | None
    tokens_out: int | None
    cut: bool
    apart: bool

    def marked(self, opened: bool | None) -> str:
        """The text, with THINKING before it where it is thinking without an end that something else has begun.

        opened: whether the chat's template begins with thinking; None: not known, so that a reply that was cut may be
        thinking from its first word. What begins as JSON was held to a schema, and is none."""
        said = self.apart or END_OF_THINKING in self.text or self.text.lstrip().startswith((THINKING, "{", "[", "`"))
        return THINKING + self.text if not said and (self.cut if opened is None else opened) else self.text


@dataclass(frozen=True)
class Connection:
    """How an endpoint is reached. header: the key's, with {} in its place. timeouts: seconds of one try, and of work
    that is asked for again. per_minute, 0: no limit. most_bytes: of a reply."""

    base_url: str
    key: str | None = field(default=None, repr=False)
    max_in_flight: int = 64
    per_minute: int = 0
    timeout: float = 120.0
    tries: int = 6
    most_bytes: int = MOST_BYTES
    header: tuple[str, str] = ("Authorization", "Bearer {}")
    copies: tuple[str, ...] = ()  # of the endpoint, which take turns in its place


class Endpoint:
    """A session of calls, opened by `async with`; it counts tries that are repeated in `retries`, by kind."""

    def __init__(self, line: Connection, retries: Counter[str]) -> None:
        self.line, self.retries = line, retries
        self._slots, self._urls = asyncio.Semaphore(line.max_in_flight), cycle(line.copies or (line.base_url,))
        self._pace = AsyncLimiter(1, 60 / line.per_minute) if line.per_minute else None

    async def __aenter__(self) -> Self:
        headers, url = {"Accept": "application/json"}, urlsplit(self.line.base_url)
        if self.line.key is not None:
            name, value = self.line.header
            headers[name] = value.format(self.line.key)
        direct = url.hostname in LOOPBACK or proxy_bypass(url.netloc)
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=self.line.timeout, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=None if direct else getproxies().get(url.scheme),  # of HTTPS_PROXY; looked up once, not each call
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()

    async def post(
        self,
        path: str,
        write: Callable[[], Awaitable[Body]],
        read: Callable[[bytes], T | Later],
        failed: Callable[[str], None] = lambda kind: None,
    ) -> tuple[T, int, float]:
        """What `read` makes of the answer to a request, whose body `write` gives anew for each try; the tries that it
        took; the seconds from the first one, waits included. Where `read` gives Later, what was asked for has been
        taken on: it is asked whether it is done, and a failure of that does not ask for the work anew.

        A failure that may pass (408, 409, 425, 429, 5xx, a cut connection, a timeout, an answer for which `read` raises
        TryFailed) is tried again after a random wait that doubles, or after Retry-After, without holding one of the
        `max_in_flight` places meanwhile. CallFailed: no try left. Refused: the endpoint refuses this request (400 and
        other 4xx). EndpointError: it refuses the key (401), the model or the path (404), or has no quota left.
        failed: gets the kind of each try that failed, at once, the last one's too. What `write` raises is raised."""
        start, tries = time.monotonic(), 0
        while True:
            url = f"{next(self._urls).rstrip('/')}/{path}"
            if self._pace is not None:
                await self._pace.acquire()
            async with self._slots:
                body = await write()
                tries += 1
                try:
                    answer = await self._done(url, read(await self._send(url, body)), read)
                    return answer, tries, time.monotonic() - start
                except CallFailed as failure:
                    failed(failure.kind)
                    failure.requests = tries
                    if not isinstance(failure, TryFailed):
                        raise
                    kind, wait = failure.kind, failure.wait
                    if tries == self.line.tries:
                        raise CallFailed(kind, self._hidden(f"{failure.reason} (try {tries})"), tries) from None
            self.retries[kind] += 1
            backoff = random.uniform(0, min(FIRST_BACKOFF * 2 ** (tries - 1), LONGEST_BACKOFF))
            await asyncio.sleep(wait + backoff * (0.1 if wait else 1.0))

    async def _done(self, url: str, answer: T | Later, read: Callable[[bytes], T | Later]) -> T:
        """An answer that is not Later. CallFailed: there is none in time, or the place to ask is a stranger's."""
        end, pause = time.monotonic() + self.line.timeout, FIRST_PAUSE
        while isinstance(answer, Later):
            url = answer.url or url
            if not _is_of_one(url, self.line.base_url):
                raise CallFailed("stranger", "the address to ask again is not the endpoint's own")
            if time.monotonic() + pause > end:
                raise CallFailed("timeout", f"not done within {self.line.timeout:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            try:
                answer = read(await self._send(url, None))
            except TryFailed as failure:
                answer, pause = Later(), max(pause, failure.wait)
            except EndpointError as error:
                raise CallFailed("lost", str(error)) from None
        return answer

    async def _send(self, url: str, body: Body | None) -> bytes:
        """The body of an answer with status 200 (201, 202), without the key; raises what any other one means. Without
        a body it is a GET."""
        headers = {"Content-Type": "application/json"} if isinstance(body, bytes) else None
        most, raw = self.line.most_bytes, bytearray()
        try:
            ask = self._session.get if body is None else partial(self._session.post, data=body, headers=headers)
            async with ask(url, allow_redirects=False) as response:
                async for part in response.content.iter_any():
                    raw += part
                    if len(raw) > most:
                        raise CallFailed(TOO_LARGE, f"the answer is larger than {most / 1e6:.1f} MB")
        except TimeoutError:
            raise TryFailed("timeout", f"no answer within {self.line.timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise TryFailed("connection", f"no connection: {error}"[:QUOTED]) from None
        status, key = response.status, self.line.key or ""
        if status in DONE:
            return masked(bytes(raw), key) if len(key) >= REAL else bytes(raw)
        text = self._hidden(" ".join(raw.decode(errors="replace").split()))
        if status in HOPELESS or status < 400 or (status == 429 and QUOTA in text):
            why = HOPELESS.get(status, "no quota is left" if status == 429 else "unexpected answer")
            raise EndpointError(f"{url} answers {status}, {why}: {text[:QUOTED]}")
        if status not in AGAIN and status < 500:
            raise Refused(status, text)
        seconds = retry_after(response.headers.get("Retry-After")) or 0.0
        if seconds > LONGEST_WAIT:
            raise CallFailed(str(status), f"the endpoint asks to wait {seconds:.0f} s ({status}): {text[:QUOTED]}")
        raise TryFailed(str(status), f"the endpoint answers {status}: {text[:QUOTED]}", seconds)

    def _hidden(self, text: str) -> str:
        text = ESCAPED.sub(r"\1 ", printable(text))
        return masked(text.encode(), self.line.key).decode() if self.line.key else text


def _is_of_one(url: str, base_url: str) -> bool:
    """Whether the key may go to an address that an endpoint named: by https, at a host of its own domain, or as it was
    reached itself."""
    try:
        asked, own = urlsplit(url), urlsplit(base_url)
        same = (asked.scheme, asked.netloc) == (own.scheme, own.netloc)
        domain = (own.hostname or "").split(".")[-2:]
        return same or (asked.scheme == "https" and (asked.hostname or "").split(".")[-2:] == domain)
    except ValueError:
        return False


def masked(raw: bytes, key: str) -> bytes:
    """Text or JSON without the key, however its characters are escaped: as they are, by backslashes, as `\\u0073`,
    `%73` or `&#115;`. A list of their codes, which is how the bytes of tokens are told, is taken out, too.

    Escapes of escapes count, too: JSON in a JSON text. So do hex digits, and base64 of the key or a text around it."""
    codes, encoded, escapes, spelled = _forms(key)
    raw = codes.sub(b"0", raw)
    for each in encoded:
        raw = raw.replace(each, HIDDEN.encode())
    if not any(each in raw for each in escapes):  # most replies; the pattern is slow
        return raw.replace(key.encode(), HIDDEN.encode())
    return spelled.sub(HIDDEN.encode(), raw)


@lru_cache
def _forms(key: str) -> tuple[re.Pattern[bytes], list[bytes], list[bytes], re.Pattern[bytes]]:
    """How a reply may tell a key: the list of its codes; of a key that is long, its hex digits, and what of its base64
    is its own, wherever in three bytes of a text it begins, in all alphabets; what only a reply that escapes one of its
    characters has; its characters, which are printable ASCII, in any escapes."""
    codes = re.compile(rb"\b" + rb"\s*,\s*".join(b"%d" % each for each in key.encode()) + rb"\b")
    encoded = {(digits := key.encode().hex().encode()), digits.upper()}
    for before, shared in ((0, 0), (1, 2), (2, 3)):
        text = base64.b64encode(bytes(before) + key.encode())[shared : (before + len(key)) * 8 // 6]
        encoded |= {text, text.replace(b"/", rb"\/"), text.replace(b"+", b"-").replace(b"/", b"_")}
    urls = {form.format(ord(each)).encode() for each in key for form in ("%{:02X}", "%{:02x}")}
    escapes = [b"\\" if SPECIAL & set(key) else b"\\u00", b"&#", b"%25", *sorted(urls)]
    spelled = (
        rf"(?:\\{{0,8}}{re.escape(each)}|(?:\\{{1,8}}u00|%(?:25){{0,4}})(?i:{ord(each):02x})"
        rf"|&#(?:[xX]0{{0,6}}(?i:{ord(each):02x})|0{{0,6}}{ord(each)});)"
        for each in key
    )
    return codes, sorted(encoded) if len(key) >= REAL else [], escapes, re.compile("".join(spelled).encode())


def read_completion(raw: bytes) -> Completion:
    """The first choice of a chat completion; a refusal is text, and so is thinking that is told apart (`reasoning` or
    `reasoning_content`) where nothing else was said. TryFailed: anything else, as of a gateway with 200."""
    shown = raw[:QUOTED].decode(errors="replace")
    try:
        completion = orjson.loads(raw)
        [choice, *_] = completion["choices"]
        message = choice["message"]
        thought = message.get("reasoning_content") or message.get("reasoning")
        cut = choice.get("finish_reason") == "length"
        text = message.get("content") or message.get("refusal") or (f"{THINKING}{thought}" if thought else "")
        tokens = (choice.get("logprobs") or {}).get("content") or []
        usage = completion.get("usage") or {}
        counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise TryFailed("malformed", f"no chat completion: {shown}") from None
    if not isinstance(text, str) or not isinstance(tokens, list):
        raise TryFailed("malformed", f"no text in the completion: {shown}")
    tokens = [] if HIDDEN in text else tokens  # which may spell the key, each a part
    told_in, told_out = (count if type(count) is int and count >= 0 else None for count in counts)
    return Completion(text, tokens, told_in, told_out, cut, bool(thought))
