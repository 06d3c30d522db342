"""A model behind an OpenAI-compatible endpoint (vLLM, OpenAI, Gemini, ...), asked many questions at a time."""

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tqdm import tqdm

from editjudge.core import images
from editjudge.engine import progress
from editjudge.models.chat.forms import RawReply
from editjudge.models.chat.logprobs import essential
from editjudge.models.chat.request import ChatAsking, ChatTask, images_of, sampling, write_body
from editjudge.models.chat.settings import EndpointSetting, HttpSetting
from editjudge.models.endpoint.client import (
    CallAnswer,
    CallFailed,
    Completion,
    Connection,
    Endpoint,
    EndpointError,
    Refused,
    read_completion,
)
from editjudge.models.endpoint.pictures import DataUrls, PixelLimits
from editjudge.models.endpoint.spending import Usage

WAITING = 4  # questions under way for each place in flight: one that waits before its next try holds no place
DOWN = 100  # questions in a row without an answer after which no more are asked
# Options that an endpoint may refuse, and what to send in their place. Not the temperature, which decides the replies.
REFUSABLE = {"logprobs": None, "top_logprobs": None, "seed": None, "max_tokens": "max_completion_tokens"}
STRUCTURE = "response_format"  # another: a server that takes none, or not this schema, may refuse without naming it


class EndpointModel:
    """One run of questions to an endpoint; what its workers share.

    A reply that the form cannot read is asked for again, with sampling, up to `reply_tries` replies and as long as the
    budget surely allows. A question that the endpoint does not answer, or that the budget leaves unasked, has no answer
    and a reason, and is counted in the account. EndpointError where the endpoint refuses the key or the model.
    """

    def __init__(self, asking: ChatAsking, base_url: str, key: str | None) -> None:
        assert isinstance(asking.setting, HttpSetting)
        self.asking, self.setting, self.form, self.account = asking, asking.setting, asking.form, asking.account
        how = self.setting
        reached = (how.max_in_flight, how.per_minute, how.timeout, how.connect_timeout, how.tries)
        self.endpoint = Endpoint(Connection(base_url, key, *reached), self.account.retries)
        self.urls = DataUrls(PixelLimits(how.min_pixels, how.max_pixels))
        self.under_way = 0
        self.one_done = asyncio.Event()
        self.failed_in_a_row = 0
        self.structured = False  # whether a reply in the form of the schema has come

    def answer_all(self, tasks: Sequence[ChatTask]) -> list[ChatTask]:
        """The tasks with their answers, in their order. Nothing is done for a task before its turn has come."""
        start = time.monotonic()
        try:
            return asyncio.run(self._answer_all(tasks))
        finally:
            self.account.seconds += time.monotonic() - start

    async def _answer_all(self, tasks: Sequence[ChatTask]) -> list[ChatTask]:
        done: dict[int, ChatTask] = {}
        refused: BaseException | None = None
        waiting = iter(enumerate(tasks))
        with progress.bar(len(tasks), self.account.judge, "question") as bar:
            async with self.endpoint:
                try:
                    async with asyncio.TaskGroup() as group:
                        for _ in range(min(len(tasks), WAITING * self.setting.max_in_flight)):
                            group.create_task(self._work(waiting, done, bar))
                except* EndpointError as errors:
                    refused = errors.exceptions[0]
        if refused is not None:
            raise refused
        return [done[n] for n in range(len(tasks))]

    async def _work(self, waiting: Iterator[tuple[int, ChatTask]], done: dict[int, ChatTask], bar: tqdm) -> None:
        for n, task in waiting:
            if not await self._room():
                done[n] = self.asking.unasked(task)
            elif self.failed_in_a_row >= DOWN:
                why = f"not asked: the {DOWN} questions before had no answer"
                done[n] = self.asking.failed(task, "not asked", why)
            else:
                self.under_way += 1
                done[n] = await self._answer(task)
                self.under_way -= 1
                self.one_done.set()
            if self.account.failures:
                bar.set_postfix(failed=self.account.failures.total(), refresh=False)
            bar.update()

    async def _room(self) -> bool:
        """Whether the budget allows one question more; waits for those under way where that depends on their cost."""
        while self.account.left() <= self.under_way:
            if not self.under_way:
                return False
            self.one_done.clear()
            await self.one_done.wait()
        return True

    async def _answer(self, task: ChatTask) -> ChatTask:
        """The task with a readable answer; or with the last unreadable one; or with none, and the reason."""
        while self.asking.wants(task):
            # The budget must be enough for one reply more to each question under way, this one included.
            if task.said and self.account.affordable() < self.under_way:
                break
            try:
                came = await self._ask(task)
            except images.ImageError as error:
                return self.asking.failed(task, "image", str(error))
            except CallFailed as failure:
                self.account.requests += failure.requests
                # A refused question says nothing about the others once one has been answered.
                self.failed_in_a_row += not (isinstance(failure, Refused) and self.account.used)
                return self.asking.failed(task, failure.kind, failure.reason)
            self.failed_in_a_row = 0
            self.account.requests += came.requests
            task = self.asking.taken(task, self._reply(came))
        self.account.asked += 1
        return task

    async def _ask(self, task: ChatTask) -> CallAnswer[Completion]:
        """The reply to the task's next request, without the options that the endpoint has been found to refuse.

        An endpoint refuses an option if it answers the same request without it; other errors may name it by chance.
        """
        left_out, refused = set(self.account.left_out), 0
        while True:
            chosen = {"model": self.setting.model}
            chosen |= sampling(self.setting, self.form, task.number, len(task.said))
            for name in left_out & set(chosen):
                value, instead = chosen.pop(name), REFUSABLE.get(name)
                chosen |= {} if instead is None else {instead: value}
            try:
                came = await self.endpoint.post("chat/completions", partial(self._body, task, chosen), read_completion)
            except Refused as refusal:
                if not self.account.used and refusal.everyones():
                    raise EndpointError(refusal.reason) from None
                named = {name for name in REFUSABLE if name in chosen and re.search(rf"\b{name}\b", refusal.text)}
                named = named or (set() if self.structured else {STRUCTURE} & set(chosen))
                if not named:
                    refusal.requests += refused
                    raise
                left_out |= named
                refused += refusal.requests
            else:
                self.account.left_out |= left_out
                self.structured |= STRUCTURE in chosen
                return replace(came, requests=came.requests + refused)

    async def _body(self, task: ChatTask, chosen: Mapping[str, Any]) -> bytes:
        urls = []
        for name, data in images_of(self.form, task.question).items():
            try:
                urls.append(await self.urls.url(data))
            except images.ImageError as error:
                raise images.ImageError(f"{name}: {error}") from None
        return write_body(chosen, self.form.messages(task.question.instruction), urls)

    def _reply(self, came: CallAnswer[Completion]) -> RawReply:
        reply, usage = came.value, None
        if reply.tokens_in is not None and reply.tokens_out is not None:
            usage = Usage(came.requests, reply.tokens_in, reply.tokens_out, len(self.form.images), came.seconds)
        asked = datetime.now(UTC).date().isoformat() if isinstance(self.setting, EndpointSetting) else None
        return RawReply(reply.text, essential(reply.tokens), usage, asked)
