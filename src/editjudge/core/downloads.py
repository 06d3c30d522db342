"""Images by their address: kept on disk, tried again, and never from a private host.

An image lies under the SHA-256 of its address, and is not asked for again."""

import hashlib
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated

import httpcore2
import httpx2
import tenacity
from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.files import held, write_bytes
from editjudge.core.settings import FORBID, Flag, Positive, Real
from editjudge.core.tables import RowError

REDIRECTS = (301, 302, 303, 307, 308)
AGAIN = (408, 425, 429, 500, 502, 503, 504)
HOPS = 5
LONGEST_WAIT = 120.0  # seconds between two tries, whatever the server asks for
NAT64 = ipaddress.ip_network("64:ff9b::/96")
MAGIC = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|RIFF....WEBP", re.DOTALL)
HEAD = 12  # bytes that MAGIC looks at
HEADERS = (("User-Agent", "editjudge"), ("Accept", "image/*"), ("Accept-Encoding", "identity"))
FAILED = "download failed"
LOCK = "lock"  # a file in each of the 256 folders of images
_until: ContextVar[float] = ContextVar("until")  # when this thread's try ends, by time.monotonic()


@dataclass(frozen=True, config=FORBID)
class DownloadLimits:
    """How images are downloaded.

    at_once: rows worked on at a time. megabytes: of one image, on disk too. seconds: of one
    try. attempts: tries of one image in a run. private_hosts: whether loopback, private and link-local addresses may be
    asked."""

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

    An IPv4 address inside an IPv6 one (mapped, 6to4, NAT64) is judged by itself."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ipaddress.IPv4Address(int(ip) % 2**32) if ip in NAT64 else None)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


class _Timely(httpcore2.NetworkStream):
    """A connection on which an answer, headers too, comes before the try of the thread that reads it ends.

    The timeout of the library is that of a single read, which a byte now and then satisfies for ever."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream
        self.write, self.close = stream.write, stream.close  # type: ignore[method-assign]
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if (left := _until.get() - time.monotonic()) <= 0:
            raise httpcore2.ReadTimeout("the answer takes too long")
        return self._stream.read(max_bytes, left)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Timely(self._stream.start_tls(ssl_context, server_hostname, timeout))


class _Checked(httpcore2.NetworkBackend):
    """Connects to the very address that was checked: a name that answers otherwise the next time gains nothing."""

    def __init__(self, private: bool, own: tuple[str, int] | None) -> None:
        """private: whether addresses that are not public will do. own: a host and port that may have such a one."""
        self._private, self._own = private, own

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
        for address in addresses:
            try:
                more = timeout, local_address, socket_options
                return _Timely(httpcore2.SyncBackend().connect_tcp(address, port, *more))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if address == addresses[-1]:
                    raise
        raise httpcore2.ConnectError(f"{host} has no address")


class Downloads:
    """A folder of downloaded images. `fetch` may be called from many threads."""

    def __init__(
        self, folder: Path, limits: DownloadLimits, first_wait: float = 1.0, own: tuple[str, int] | None = None
    ) -> None:
        """first_wait: seconds before the second try; each further one waits about twice as long.

        own: a host and port that may be asked though its address is private; no redirect leads to another such one."""
        self.folder, self.limits = folder, limits
        self.most = int(limits.megabytes * 1e6)
        backend = _Checked(limits.private_hosts, own)
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
                stop, again = (
                    tenacity.stop_after_attempt(self.limits.attempts),
                    tenacity.retry_if_exception_type(_TryAgain),
                )
                try:
                    tries = tenacity.Retrying(retry=again, stop=stop, wait=self._wait, reraise=True)
                    write_bytes(done, tries(self._try, url))
                except _TryAgain as error:
                    raise RowError(FAILED, str(error)) from error
            return done.read_bytes()

    def forget(self, url: str) -> None:
        """An image that was broken on the way: another run asks for it again."""
        done = self._place(url)
        with held(done.parent / LOCK):
            done.unlink(missing_ok=True)

    def _place(self, url: str) -> Path:
        name = hashlib.sha256(url.encode()).hexdigest()
        return self.folder / name[:2] / name

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, _TryAgain) and error.after is not None:
            return min(error.after, LONGEST_WAIT)
        return self._backoff(state)

    def _try(self, url: str) -> bytes:
        """One try: the redirects one by one, so that each is checked, then the body."""
        _until.set(time.monotonic() + self.limits.seconds)
        limits = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), self.limits.seconds)}
        target = _address(url)
        try:
            for _ in range(HOPS + 1):
                address = httpcore2.URL(
                    scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path
                )
                with self._pool.stream("GET", address, headers=HEADERS, extensions=limits) as answer:
                    headers = httpx2.Headers(answer.headers)
                    if answer.status not in REDIRECTS:
                        return self._body(answer, headers)
                    if not (location := headers.get("location")):
                        raise RowError(FAILED, f"HTTP {answer.status} to nowhere")
                    target = _address(location, target)
        except httpcore2.ReadTimeout as error:
            raise _TryAgain(f"not here after {self.limits.seconds:g} seconds") from error
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise _TryAgain(type(error).__name__) from error
        raise RowError(FAILED, f"more than {HOPS} redirects")

    def _body(self, answer: httpcore2.Response, headers: httpx2.Headers) -> bytes:
        if answer.status in AGAIN:
            raise _TryAgain(f"HTTP {answer.status}", _seconds(headers.get("retry-after", "")))
        if answer.status != 200:
            raise RowError(FAILED, f"HTTP {answer.status}")
        data, declared = bytearray(), int(headers.get("content-length", 0))
        for chunk in answer.iter_stream():
            data += chunk
            if max(declared, len(data)) > self.most:
                raise RowError("image too large", f"more than {self.limits.megabytes:g} MB")
            if len(data) >= HEAD and not MAGIC.match(data):
                break  # an HTML page, mostly
        if not MAGIC.match(data):
            raise RowError("not an image", f"begins with {bytes(data[:HEAD])!r}")
        return bytes(data)


def _address(url: str, base: httpx2.URL | None = None) -> httpx2.URL:
    """The address, a redirect's relative to the page it came from. Raises RowError for other schemes than http(s)."""
    try:
        target = httpx2.URL(url) if base is None else base.join(url)
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise RowError("bad address", f"{url:.200}: {error}") from error
    if target.scheme not in ("http", "https") or not target.host:
        raise RowError("bad address", f"{target!s:.200}: only http and https")
    return target


def _seconds(text: str) -> float | None:
    """Retry-After: seconds, or a date."""
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        when = parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, OverflowError):  # of a year or a zone that there is not
        return None
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
