"""Images by their address: kept on disk, tried again, and never from a private host.

An image lies under the SHA-256 of its address, and is not asked for again, unless it was damaged."""

import asyncio
import errno
import hashlib
import ipaddress
import re
import socket
import ssl
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path
from typing import Annotated, Any

import tenacity
from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.files import keep, kept
from editjudge.core.settings import FORBID, Flag, Positive, Real
from editjudge.core.tables import RowError

REDIRECTS = (301, 302, 303, 307, 308)
AGAIN = (408, 425, 429, 500, 502, 503, 504)
HOPS = 5
LONGEST_WAIT = 120.0  # seconds between two tries, whatever the server asks for
# IPv6 addresses that end with the IPv4 address that is meant: compatible, mapped, translated, NAT64.
WITH_IPV4 = [ipaddress.IPv6Network(each) for each in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")]
SITE_LOCAL = [ipaddress.IPv6Network(each) for each in ("fec0::/10", "64:ff9b:1::/48")]
MAGIC = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|RIFF....WEBP", re.DOTALL)
HEAD = 12  # bytes that MAGIC looks at
HEADERS = (("User-Agent", "editjudge"), ("Accept", "image/*"), ("Accept-Encoding", "identity"))
FAILED, ADDRESS, PRIVATE = "download failed", "bad address", "private host"


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

    An IPv4 address inside an IPv6 one is judged by itself."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        if any(ip in network for network in SITE_LOCAL):
            return False
        last = ipaddress.IPv4Address(int(ip) % 2**32) if any(ip in network for network in WITH_IPV4) else None
        if inner := last or ip.sixtofour:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


class Downloads:
    """A folder of downloaded images. An event loop in a thread of its own fetches them, `at_once` at a time."""

    def __init__(
        self, folder: Path, limits: DownloadLimits, first_wait: float = 1.0, own: tuple[str, int] | None = None
    ) -> None:
        """first_wait: seconds before the second try; each further one waits about twice as long.

        own: a host and port that may be asked though its address is private; no redirect leads to another such one."""
        self.folder, self.limits, self.most = folder, limits, int(limits.megabytes * 1e6)
        found = socket.getaddrinfo(*own, type=socket.SOCK_STREAM) if own else []
        self._own = {entry[4][:2] for entry in found}
        self._backoff = tenacity.wait_exponential_jitter(initial=first_wait, max=LONGEST_WAIT, jitter=first_wait)
        self._under_way: dict[str, asyncio.Task[bytes]] = {}
        self._loop, self._places = asyncio.new_event_loop(), asyncio.Semaphore(limits.at_once)
        self._session: Any = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _opened(self) -> Any:
        """The session of aiohttp, which takes long to import where nothing is downloaded."""
        import aiohttp

        if self._session is None:
            how: dict[str, Any] = {"ssl": ssl.create_default_context(), "socket_factory": self._socket}
            self._session = aiohttp.ClientSession(
                headers=HEADERS,
                connector=aiohttp.TCPConnector(limit=0, use_dns_cache=False, **how),
                timeout=aiohttp.ClientTimeout(total=self.limits.seconds),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session

    def _socket(self, place: Any) -> socket.socket:
        """A socket to the very address that is checked here: a name that answers otherwise the next time gains nothing.
        OSError: it is private."""
        family, kind, protocol, _, address = place
        if not (self.limits.private_hosts or address[:2] in self._own or is_public(address[0])):
            raise OSError(errno.EACCES, PRIVATE)
        return socket.socket(family, kind, protocol)

    def close(self) -> None:
        """Ends what is under way, and the connections that are kept for further images."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for task in [*self._under_way.values()]:
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def fetch(self, url: str) -> bytes:
        """The image's bytes, which begin as a PNG, JPEG or WebP. Raises RowError."""
        return self.start(url).result()

    def start(self, url: str) -> Future[bytes]:
        """As `fetch`, at once: what comes of it."""
        return asyncio.run_coroutine_threadsafe(self._once(url), self._loop)

    async def _once(self, url: str) -> bytes:
        """Two rows may have the same image."""
        if url not in self._under_way:
            self._under_way[url] = task = asyncio.ensure_future(self._had(url))
            task.add_done_callback(lambda _: self._under_way.pop(url))
        return await asyncio.shield(self._under_way[url])

    async def _had(self, url: str) -> bytes:
        done = self._place(url)
        data = kept(done)
        if data is None:
            stop = tenacity.stop_after_attempt(self.limits.attempts)
            again = tenacity.retry_if_exception_type(_TryAgain)
            tries = tenacity.AsyncRetrying(retry=again, stop=stop, wait=self._wait, reraise=True)
            async with self._places:
                try:
                    data = bytes(await tries(self._try, url))
                    keep(done, data)
                except _TryAgain as error:
                    raise RowError(FAILED, str(error)) from error
        return data

    def forget(self, url: str) -> None:
        """An image that was broken on the way: another run asks for it again."""
        self._place(url).unlink(missing_ok=True)

    def _place(self, url: str) -> Path:
        name = hashlib.sha256(url.encode(errors="backslashreplace")).hexdigest()
        return self.folder / name[:2] / f"{name}.image"

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, _TryAgain) and error.after is not None:
            return min(error.after, LONGEST_WAIT)
        return self._backoff(state)

    async def _try(self, url: str) -> bytes:
        """One try, its redirects and the body within the seconds that it has."""
        import aiohttp

        if not url.lower().startswith(("http://", "https://")):
            raise RowError(ADDRESS, f"{url:.200}: only http and https")
        try:
            async with self._opened().get(url, max_redirects=HOPS + 1) as answer:
                return await self._body(answer)
        except RowError:
            raise
        except aiohttp.TooManyRedirects as error:
            raise RowError(FAILED, f"more than {HOPS} redirects") from error
        except aiohttp.NonHttpUrlClientError as error:
            raise RowError(ADDRESS, f"{error!s:.200}: only http and https") from error
        except TimeoutError as error:
            raise _TryAgain(f"not here after {self.limits.seconds:g} seconds") from error
        except aiohttp.ClientConnectorError as error:
            if PRIVATE in str(error.os_error):
                raise RowError(PRIVATE, str(error.host)) from error
            raise _TryAgain(type(error).__name__) from error
        except (ValueError, AssertionError) as error:  # of aiohttp and what it calls, for names that cannot be
            raise RowError(ADDRESS, f"{url:.200}: {error}") from error
        except aiohttp.ClientError as error:
            raise _TryAgain(type(error).__name__) from error

    async def _body(self, answer: Any) -> bytes:
        if answer.status in AGAIN:
            raise _TryAgain(f"HTTP {answer.status}", retry_after(answer.headers.get("Retry-After")))
        if answer.status != 200:
            raise RowError(FAILED, f"HTTP {answer.status}{' to nowhere' * (answer.status in REDIRECTS)}")
        data, declared = bytearray(), answer.content_length or 0
        async for chunk in answer.content.iter_any():
            data += chunk
            if max(declared, len(data)) > self.most:
                raise RowError("image too large", f"more than {self.limits.megabytes:g} MB")
            if len(data) >= HEAD and not MAGIC.match(data):
                break  # an HTML page, mostly
        if not MAGIC.match(data):
            raise RowError("not an image", f"begins with {bytes(data[:HEAD])!r}")
        return bytes(data)


def retry_after(header: str | None) -> float | None:
    """The seconds that a Retry-After header asks for, as seconds or as a date; None without a header of this form."""
    with suppress(ValueError):
        return max(0.0, float(header or ""))
    with suppress(ValueError, OverflowError):  # of a date that there is not
        if date := parsedate_tz(header):
            return max(0.0, mktime_tz(date) - time.time())
    return None
