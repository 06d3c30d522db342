"""What a server takes and holds at a time, how it refuses the rest, and answers what waits in one batch."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

from PIL import Image
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from editjudge.core import images

MAX_BODY = 128 * 2**20  # bytes of a request
BODY_SECONDS = 120.0  # for a request's body: who sends it more slowly holds a place no longer
MAX_DECODED = 2**30  # bytes of images that are decoded at a time, but for those of a single request
GATHERING = 0.005  # seconds in which a batch gathers what is asked
BUSY = 0.001  # seconds after which a batch that waits to be full is looked at again, at least
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
    """Gathers what is asked and has it answered in batches, each by the first of the copies that is free.

    answers: of each copy, which has one batch at a time, in a thread of its own. ready: makes of what was asked what a
    copy is given; a batch that is full is made ready, in a thread beside, while all copies are busy."""

    def __init__(
        self,
        answers: Sequence[Callable[[Any], Sequence[Answer | Rejected]]],
        batch_size: int,
        most_waiting: int,
        gathering: float = GATHERING,
        ready: Callable[[list[Asked]], Any] | None = None,
    ) -> None:
        self.answers, self.batch_size, self.gathering, self.ready = answers, batch_size, gathering, ready
        self.waiting: asyncio.Queue[tuple[Asked, Request, asyncio.Future[Answer | Rejected]]]
        self.waiting, self.free = asyncio.Queue(most_waiting), asyncio.Queue[int]()
        self.threads, self.beside = [ThreadPoolExecutor(1) for _ in answers], ThreadPoolExecutor(1)
        self.batches: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers within the block."""
        for copy in range(len(self.answers)):
            self.free.put_nowait(copy)
        gathering = asyncio.create_task(self._gather())
        yield
        for task in (gathering, *self.batches):
            task.cancel()
        for thread in (*self.threads, self.beside):
            thread.shutdown()

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

    async def _gather(self) -> None:
        """Begins batches until it is cancelled. While all copies are busy, one waits to be full."""
        places = asyncio.Semaphore(len(self.answers) + (self.ready is not None))

        def ended(task: asyncio.Task[None]) -> None:
            self.batches.discard(task)
            places.release()

        while True:
            await places.acquire()
            gathered = [await self.waiting.get()]
            if self.waiting.qsize() + 1 < self.batch_size:
                await asyncio.sleep(self.gathering)
            while len(gathered) < self.batch_size:
                if not self.waiting.empty():
                    gathered.append(self.waiting.get_nowait())
                elif len(self.batches) < len(self.answers):
                    break
                else:
                    await asyncio.sleep(max(self.gathering, BUSY))
            self.batches.add(task := asyncio.create_task(self._answer(gathered)))
            task.add_done_callback(ended)
            del gathered, task

    async def _answer(self, gathered: Sequence[tuple[Asked, Request, asyncio.Future[Answer | Rejected]]]) -> None:
        """What goes wrong in a batch is the answer to its requests, and to no others."""
        batch = []
        for asked, request, future in gathered:
            if not future.done() and await request.is_disconnected():
                future.set_result(Rejected(499, "the client has hung up"))
            if not future.done():
                batch.append((asked, future))
        if not batch:
            return
        run = asyncio.get_running_loop().run_in_executor
        done: asyncio.Future[Any] = run(self.beside, self.ready or list, [asked for asked, _ in batch])
        await asyncio.wait([done])
        if done.exception() is None:
            copy = await self.free.get()
            done = run(self.threads[copy], self.answers[copy], done.result())
            await asyncio.wait([done])
            self.free.put_nowait(copy)
        error = done.exception()
        if error is None and len(done.result()) != len(batch):
            error = RuntimeError(f"{len(done.result())} answers to a batch of {len(batch)}")
        for number, (_, future) in enumerate(batch):
            if future.done():  # whose asker was cancelled
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result()[number])
