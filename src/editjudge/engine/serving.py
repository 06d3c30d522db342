"""What a server takes and holds at a time, how it refuses the rest, and answers what waits in one batch."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

from PIL import Image
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from editjudge.core import images

MAX_BODY = 128 * 2**20  # bytes of a request
BODY_SECONDS = 120.0  # for a request's body: who sends it more slowly holds a place no longer
MAX_DECODED = 2**30  # bytes of images that are decoded at a time, but for those of a single request
GATHERING = 0.005  # seconds in which a batch gathers what is asked
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


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
    has hung up (499)."""
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


class Batcher(Generic[Asked, Answer]):
    """Gathers what is asked and has it answered in batches, one after the other, in a thread of their own."""

    def __init__(
        self,
        answer: Callable[[Sequence[Asked]], Sequence[Answer | Rejected]],
        batch_size: int,
        most_waiting: int,
        gathering: float = GATHERING,
    ) -> None:
        self.answer, self.batch_size, self.gathering = answer, batch_size, gathering
        self.waiting: asyncio.Queue[tuple[Asked, Request, asyncio.Future[Answer | Rejected]]]
        self.waiting = asyncio.Queue(most_waiting)
        self.thread = ThreadPoolExecutor(1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers within the block."""
        task = asyncio.create_task(self._run())
        yield
        task.cancel()
        self.thread.shutdown()

    async def ask(self, asked: Asked, request: Request) -> Answer:
        """Raises Rejected where too many wait, and where it is the answer."""
        if self.waiting.full():
            raise Rejected(429, f"{self.waiting.maxsize} requests are waiting")
        future: asyncio.Future[Answer | Rejected] = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait((asked, request, future))
        answer = await future
        if isinstance(answer, Rejected):
            raise answer
        return answer

    async def _run(self) -> None:
        """Answers until it is cancelled. What goes wrong in a batch is the answer to its requests, and to no others."""
        while True:
            gathered = [await self.waiting.get()]
            if self.waiting.qsize() + 1 < self.batch_size:
                await asyncio.sleep(self.gathering)
            while len(gathered) < self.batch_size and not self.waiting.empty():
                gathered.append(self.waiting.get_nowait())
            batch = []
            for asked, request, future in gathered:
                if not future.done() and await request.is_disconnected():
                    future.set_result(Rejected(499, "the client has hung up"))
                if not future.done():
                    batch.append((asked, future))
            if not batch:
                continue
            run = asyncio.get_running_loop().run_in_executor
            done = run(self.thread, self.answer, [asked for asked, _ in batch])
            await asyncio.wait([done])
            error = done.exception()
            for number, (_, future) in enumerate(batch):
                if future.done():  # whose asker was cancelled
                    continue
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(done.result()[number])
            # An error's traceback holds the frames that raised it, and these the model, which may be let go of.
            del asked, request, future, gathered, batch, done, error
