"""What a server takes and holds at a time, and how it refuses the rest."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from PIL import Image
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from editjudge.core import images

MAX_BODY = 128 * 2**20  # bytes of a request
BODY_SECONDS = 120.0  # for a request's body: who sends it more slowly holds a place no longer
MAX_DECODED = 2**30  # bytes of images that are decoded at a time, but for those of a single request


class Rejected(Exception):
    """A request that is not answered: its HTTP status, the words, and the parameter and code of OpenAI's error form."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code


def rejected(error: Exception) -> Rejected:
    """What is told of an error; 500 is our own fault, whose traceback is in the log."""
    if isinstance(error, HTTPException):
        return Rejected(error.status_code, error.detail)
    if isinstance(error, Rejected):
        return error
    return Rejected(500, " ".join(f"{type(error).__name__}: {error}".split())[:500])


def invalid(error: ValidationError) -> Rejected:
    """The first thing that is wrong with a body."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return Rejected(400, f"{where or 'the body'}: {first['msg']}"[:500], where.partition(".")[0][:200] or None)


class Room:
    """At most `most` bytes are held at a time; who needs more waits, first come, first served."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0
        self.turn, self.freed = asyncio.Lock(), asyncio.Condition()

    @asynccontextmanager
    async def of(self, size: int) -> AsyncIterator[None]:
        """Room for `size` bytes within the block; more than `most` only when nothing else is held."""
        async with self.turn, self.freed:
            await self.freed.wait_for(lambda: self.held == 0 or self.held + size <= self.most)
            self.held += size
        try:
            yield
        finally:
            async with self.freed:
                self.held -= size
                self.freed.notify_all()


def decoded_size(encoded: Iterable[bytes]) -> int:
    """Bytes of RGB that images will take, by their headers; 0 for what is no image, which decoding refuses."""
    size = 0
    for data in set(encoded):
        with suppress(OSError, SyntaxError, ValueError), Image.open(io.BytesIO(data), formats=images.FORMATS) as image:
            size += 3 * min(image.width * image.height, images.MAX_PIXELS)
    return size


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """Rejected: more than `limit` bytes, of which no more are read (413); not here after BODY_SECONDS (408); the client
    has hung up (499).
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise Rejected(413, f"the request has more than {limit} bytes")
    except TimeoutError:
        raise Rejected(408, f"the request is not here after {BODY_SECONDS:g} seconds") from None
    except ClientDisconnect:
        raise Rejected(499, "the client has hung up") from None
    return bytes(body)
