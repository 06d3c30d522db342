"""Images by their address: kept on disk, resumed where they broke off, tried again, and never from a private host.

A finished image lies under the SHA-256 of its address and is not asked for again. An unfinished one lies beside it as
`.part`, with what the server said its version is, and goes on from there (Range, If-Range) in this run or another.
"""

import hashlib
import ipaddress
import os
import re
import socket
import ssl
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any

import httpcore2
import httpx2
import tenacity
from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.files import held
from editjudge.core.settings import FORBID, Flag, Positive, Real
from editjudge.core.tables import RowError

SCHEMES = ("http", "https")
REDIRECTS = (301, 302, 303, 307, 308)
AGAIN = (408, 425, 429, 500, 502, 503, 504)
HOPS = 5
LONGEST_WAIT = 120.0  # seconds between two tries, whatever the server asks for
HEAD = 12  # bytes that tell the format
NAT64 = ipaddress.ip_network("64:ff9b::/96")
MAGIC = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|RIFF....WEBP", re.DOTALL)
FAILED = "download failed"
LOCK = "lock"  # a file in each of the 256 folders of images


@dataclass(frozen=True, config=FORBID)
class DownloadLimits:
    """How images are downloaded.

    at_once: rows worked on at a time. megabytes: of one image, on disk too. seconds: of one
    try. attempts: tries of one image in a run. private_hosts: whether loopback, private and link-local addresses may be
    asked.
    """

    at_once: Positive = 16
    megabytes: Annotated[Real, Field(ge=0.001)] = 32.0
    seconds: Annotated[Real, Field(ge=0.001)] = 60.0
    attempts: Positive = 4
    private_hosts: Flag = False


class _TryAgain(Exception):
    """A try that failed for now; `after` are the seconds that the server asks to wait."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


def is_public(address: str) -> bool:
    """Whether an IP address is one of the open internet: not private, loopback, link-local, reserved or multicast.

    An IPv4 address inside an IPv6 one (mapped, 6to4, NAT64) is judged by itself.
    """
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ipaddress.IPv4Address(int(ip) % 2**32) if ip in NAT64 else None)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


class _Timely(httpcore2.NetworkStream):
    """A connection on which a whole answer, headers too, comes within `seconds` of the request's last byte.

    The timeout of the library is that of a single read, which a byte now and then satisfies for ever.
    """

    def __init__(self, stream: httpcore2.NetworkStream, seconds: float) -> None:
        self._stream, self._seconds = stream, seconds
        self._until = time.monotonic() + seconds

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self._until - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("the answer takes too long")
        return self._stream.read(max_bytes, left if timeout is None else min(timeout, left))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)
        self._until = time.monotonic() + self._seconds

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Timely(self._stream.start_tls(ssl_context, server_hostname, timeout), self._seconds)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Checked(httpcore2.NetworkBackend):
    """Connects to the very address that was checked: a name that answers otherwise the next time gains nothing."""

    def __init__(self, private: bool, own: tuple[str, int] | None, seconds: float) -> None:
        """private: whether addresses that are not public will do. own: a host and port that may have such a one.

        seconds: for an answer.
        """
        self._private, self._own, self._seconds = private, own, seconds

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host} has no address") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not (self._private or (host, port) == self._own or all(is_public(address) for address in addresses)):
            raise RowError("private host", host)

        def connect(address: str) -> httpcore2.NetworkStream:
            stream = httpcore2.SyncBackend().connect_tcp(address, port, timeout, local_address, socket_options)
            return _Timely(stream, self._seconds)

        for address in addresses[:-1]:
            try:
                return connect(address)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return connect(addresses[-1])


class Downloads:
    """A folder of downloaded images. `fetch` may be called from many threads."""

    def __init__(
        self, folder: Path, limits: DownloadLimits, first_wait: float = 1.0, own: tuple[str, int] | None = None
    ) -> None:
        """first_wait: seconds before the second try; each further one waits about twice as long.

        own: a host and port that may be asked though its address is private; no redirect leads to another such one.
        """
        self.folder, self.limits = folder, limits
        self.most = int(limits.megabytes * 1e6)
        backend = _Checked(limits.private_hosts, own, limits.seconds)
        self._pool = httpcore2.ConnectionPool(max_connections=limits.at_once, network_backend=backend)
        self._backoff = tenacity.wait_exponential_jitter(initial=first_wait, max=LONGEST_WAIT, jitter=first_wait)

    def close(self) -> None:
        """Ends the connections that are kept for further images."""
        self._pool.close()

    def fetch(self, url: str) -> bytes:
        """The image's bytes, which begin as a PNG, JPEG or WebP. Raises RowError."""
        done = self._place(url)
        with held(done.parent / LOCK):  # two rows, or two runs, may have the same image
            if not done.is_file():
                self._try_often(url, done)
            return done.read_bytes()

    def forget(self, url: str) -> None:
        """An image that was broken on the way: another run asks for it again."""
        done = self._place(url)
        with held(done.parent / LOCK):
            done.unlink(missing_ok=True)

    def _place(self, url: str) -> Path:
        name = hashlib.sha256(url.encode()).hexdigest()
        return self.folder / name[:2] / name

    def _try_often(self, url: str, done: Path) -> None:
        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_TryAgain),
            stop=tenacity.stop_after_attempt(self.limits.attempts),
            wait=self._wait,
            reraise=True,
        )
        try:
            tries(self._try, url, done)
        except _TryAgain as error:
            raise RowError(FAILED, str(error)) from error

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, _TryAgain) and error.after is not None:
            return min(error.after, LONGEST_WAIT)
        return self._backoff(state)

    def _try(self, url: str, done: Path) -> None:
        """One try: the redirects one by one, so that each is checked, then the body."""
        deadline = time.monotonic() + self.limits.seconds
        part = Part(done)
        target = _address(url)
        try:
            for _ in range(HOPS + 1):
                if time.monotonic() > deadline:
                    raise _TryAgain(f"not here after {self.limits.seconds:g} seconds")
                with self._ask(target, part) as answer:
                    if answer.status not in REDIRECTS:
                        self._take(answer, part, deadline)
                        return
                    if not (location := _header(answer, b"location")):
                        raise RowError(FAILED, f"HTTP {answer.status} to nowhere")
                    target = _address(location, target)
        except httpcore2.ReadTimeout as error:
            raise _TryAgain(f"not here after {self.limits.seconds:g} seconds") from error
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise _TryAgain(type(error).__name__) from error
        raise RowError(FAILED, f"more than {HOPS} redirects")

    def _ask(self, target: httpx2.URL, part: "Part") -> AbstractContextManager[httpcore2.Response]:
        address = httpcore2.URL(
            scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path
        )
        asked = {"User-Agent": "editjudge", "Accept": "image/*", "Accept-Encoding": "identity"} | part.wish()
        headers: list[tuple[bytes | str, bytes | str]] = list(asked.items())
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), self.limits.seconds)
        return self._pool.stream("GET", address, headers=headers, extensions={"timeout": timeout})

    def _take(self, answer: httpcore2.Response, part: "Part", deadline: float) -> None:
        if answer.status in AGAIN:
            raise _TryAgain(f"HTTP {answer.status}", _seconds(_header(answer, b"retry-after")))
        size = part.begin(answer)
        if size + int(_digits(_header(answer, b"content-length")) or 0) > self.most:
            self._too_large(part)
        with part.path.open("ab") as file:
            for chunk in answer.iter_stream():
                file.write(chunk)
                size += len(chunk)
                if size > self.most:
                    self._too_large(part)
                if size - len(chunk) < HEAD <= size:
                    file.flush()
                    part.check()
                if time.monotonic() > deadline:
                    raise _TryAgain(f"not here after {self.limits.seconds:g} seconds")
        part.check()
        part.finish()

    def _too_large(self, part: "Part") -> None:
        part.drop()
        raise RowError("image too large", f"more than {self.limits.megabytes:g} MB")


class Part:
    """An unfinished image on disk, and the server's name for its version: only the same version is gone on with."""

    def __init__(self, done: Path) -> None:
        self.done, self.path, self.version = done, done.with_suffix(".part"), done.with_suffix(".version")

    def wish(self) -> dict[str, str]:
        """The headers that ask for what is missing; none where nothing is here."""
        if not (self.path.is_file() and self.version.is_file() and self.path.stat().st_size):
            return {}
        return {"Range": f"bytes={self.path.stat().st_size}-", "If-Range": self.version.read_text()}

    def begin(self, answer: httpcore2.Response) -> int:
        """How many bytes are here already. Raises RowError for a status without an image, _TryAgain to start anew."""
        here = self.path.stat().st_size if self.path.is_file() else 0
        if answer.status == 206 and (_header(answer, b"content-range") or "").startswith(f"bytes {here}-"):
            return here
        self.drop()
        if answer.status in (206, 416):
            raise _TryAgain(f"HTTP {answer.status} for another part")
        if answer.status != 200:
            raise RowError(FAILED, f"HTTP {answer.status}")
        etag = _header(answer, b"etag") or ""
        version = etag if etag.startswith('"') else _header(answer, b"last-modified")  # a weak ETag serves no ranges
        if version and version.isascii():
            self.version.write_text(version)
        return 0

    def check(self) -> None:
        """Raises RowError, and forgets what is here, where it does not begin as an image: an HTML page, mostly."""
        with self.path.open("rb") as file:
            head = file.read(HEAD)
        if not MAGIC.match(head):
            self.drop()
            raise RowError("not an image", f"begins with {head!r}")

    def finish(self) -> None:
        """All is here: the part becomes the image."""
        os.replace(self.path, self.done)
        self.version.unlink(missing_ok=True)

    def drop(self) -> None:
        """Forget what is here."""
        self.path.unlink(missing_ok=True)
        self.version.unlink(missing_ok=True)


def _address(url: str, base: httpx2.URL | None = None) -> httpx2.URL:
    """The address, a redirect's relative to the page it came from. Raises RowError for other schemes than http(s)."""
    try:
        target = httpx2.URL(url) if base is None else base.join(url)
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise RowError("bad address", f"{url:.200}: {error}") from error
    if target.scheme not in SCHEMES or not target.host:
        raise RowError("bad address", f"{target!s:.200}: only http and https")
    return target


def _header(answer: httpcore2.Response, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in answer.headers if key.lower() == name), None)


def _digits(text: str | None) -> str | None:
    return text if text is not None and text.isascii() and text.isdigit() else None


def _seconds(text: str | None) -> float | None:
    """Retry-After: seconds, or a date."""
    if _digits(text):
        return float(str(text))
    try:
        when = parsedate_to_datetime(text or "").astimezone(UTC)
    except (ValueError, OverflowError):  # of a year or a zone that there is not
        return None
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
