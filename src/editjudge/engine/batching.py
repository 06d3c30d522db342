"""Requests that wait at the same time are answered in one batch."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from starlette.requests import Request

from editjudge.engine.limits import Rejected

GATHERING = 0.005  # seconds in which a batch gathers what is asked
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


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

    async def run(self) -> None:
        """Answers until it is cancelled. What goes wrong in a batch is the answer to its requests, and to no others."""
        while True:
            gathered = [await self.waiting.get()]
            if self.waiting.qsize() + 1 < self.batch_size:
                await asyncio.sleep(self.gathering)
            while len(gathered) < self.batch_size and not self.waiting.empty():
                gathered.append(self.waiting.get_nowait())
            if batch := [each for each in gathered if not await gone(each[1], each[2])]:
                await self.answer_all(batch)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers within the block."""
        task = asyncio.create_task(self.run())
        yield
        task.cancel()
        self.thread.shutdown()

    async def answer_all(self, batch: Sequence[tuple[Asked, Request, asyncio.Future[Answer | Rejected]]]) -> None:
        done = asyncio.get_running_loop().run_in_executor(self.thread, self.answer, [asked for asked, _, _ in batch])
        await asyncio.wait([done])
        for number, (_, _, future) in enumerate(batch):
            if future.done():  # whose asker was cancelled
                continue
            if (error := done.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result()[number])


async def gone(request: Request, future: asyncio.Future) -> bool:
    """Whether the client has hung up; the request then ends here."""
    if future.done():
        return True
    if hung_up := await request.is_disconnected():
        future.set_result(Rejected(499, "the client has hung up"))
    return hung_up
