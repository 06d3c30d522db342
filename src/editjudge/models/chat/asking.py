"""Questions to a chat model: what is wanted, the names of records, what is kept and read of a reply; and an
OpenAI-compatible endpoint (vLLM, OpenAI, Gemini, ...) that is asked many at a time."""

import asyncio
import functools
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tqdm import tqdm

from editjudge.core import images
from editjudge.engine import progress
from editjudge.engine.resume import RecordCache, fingerprint
from editjudge.models.chat.forms import ChatForm, ChatQuestion, RawReply, essential
from editjudge.models.chat.settings import ChatModelSetting, EndpointSetting, HttpSetting
from editjudge.models.endpoint import client
from editjudge.models.endpoint.client import CallFailed, Completion, Connection, Endpoint, EndpointError, Refused
from editjudge.models.endpoint.pictures import DataUrls, PixelLimits
from editjudge.models.endpoint.spending import Account, Usage, total

WARMTH = 0.7  # least temperature where a question is asked again
AGAIN = 1_000_003  # between the seeds of the replies to one question
WAITING = 4  # questions under way for each place in flight: one that waits before its next try holds no place
DOWN = 100  # questions in a row without an answer after which no more are asked
# Options that an endpoint may refuse, and what to send in their place. Models that think know one temperature alone.
REFUSABLE = {"logprobs": None, "top_logprobs": None, "seed": None, "max_tokens": "max_completion_tokens"}
REFUSABLE |= {"temperature": None}
STRUCTURE = "response_format"  # another: a server that takes none, or not this schema, may refuse without naming it


@dataclass(frozen=True)
class ChatTask:
    """One answer that is wanted, in pass `number`. name: of the first reply's record; said: the replies so far, all but
    the last unreadable. answer: in the last reply, at the cost of all; or the reason why there is none; None: not yet.
    """

    name: str
    question: ChatQuestion
    number: int = 0
    said: tuple[RawReply, ...] = ()
    answer: Any = None


def sampling(setting: ChatModelSetting, form: ChatForm, number: int, tried: int = 0) -> dict[str, Any]:
    """What a request says beside model and chat, in pass `number`, after `tried` replies that could not be read.

    Only sampling takes a seed. A question that is asked again is sampled: greedy decoding would say the same words."""
    temperature = setting.temperature if tried == 0 else max(setting.temperature, WARMTH)
    limit = setting.max_new_tokens or form.max_new_tokens
    chosen: dict[str, Any] = {"temperature": temperature, "max_tokens": limit}
    if temperature > 0:
        chosen["seed"] = setting.seed + number + AGAIN * tried
        chosen |= {"top_p": setting.top_p} if setting.top_p < 1 else {}
        chosen |= {"top_k": setting.top_k} if setting.top_k else {}
    if isinstance(setting, HttpSetting):
        if form.schema:
            wanted = {"name": "reply", "strict": True, "schema": form.schema}
            chosen["response_format"] = {"type": "json_schema", "json_schema": wanted}
        if setting.logprobs:
            chosen |= {"logprobs": True, "top_logprobs": setting.logprobs}
    if isinstance(setting, EndpointSetting) and setting.reasoning_effort != "default":
        chosen["reasoning_effort"] = setting.reasoning_effort
    return chosen


@dataclass(frozen=True)
class ChatAsking:
    """Questions of one form to one model: each reply is kept in the store, read, and counted in the account."""

    setting: ChatModelSetting
    form: ChatForm
    store: RecordCache
    account: Account

    def tasks(self, questions: Sequence[ChatQuestion], model: list[Any]) -> list[ChatTask]:
        """Every question in every pass. model: what identifies it. Each image is hashed once."""
        digest = functools.cache(lambda image: fingerprint(bytes(image)))
        found = []
        for question in questions:
            shown = [digest(question.images[name]) for name in self.form.images]
            chat = [self.form.messages(question.instruction), shown]
            for number in range(self.setting.passes):
                name = fingerprint(model, chat, sampling(self.setting, self.form, number))
                found.append(ChatTask(name, question, number))
        return found

    def resumed(self, task: ChatTask) -> ChatTask:
        """The task with the replies that are kept, up to the first readable one."""
        while self.wants(task) and (record := self.store.meta(self._record(task))) is not None:
            usage = record["usage"]
            task = self._with(task, RawReply(**record | {"usage": None if usage is None else Usage(**usage)}))
        return task

    def wants(self, task: ChatTask) -> bool:
        """Whether one more reply is to be asked for: none could be read (every answer has a `reason`, None if so)."""
        unread = task.answer is None or task.answer.reason is not None
        return unread and len(task.said) < self.setting.reply_tries

    def taken(self, task: ChatTask, reply: RawReply) -> ChatTask:
        """The task with a reply that has just come."""
        self.store.put(self._record(task), vars(reply) | {"usage": None if reply.usage is None else vars(reply.usage)})
        return self._with(task, reply)

    def failed(self, task: ChatTask, kind: str, reason: str) -> ChatTask:
        """The task without an answer."""
        self.account.failures[kind] += 1
        return replace(task, answer=self.form.answer(task.question, reason))

    def unasked(self, task: ChatTask) -> ChatTask:
        """The task with the unreadable answer that was kept, or with none, as the budget is spent."""
        if task.said:
            self.account.reused += 1
            return task
        self.account.unasked += 1
        return replace(task, answer=self.form.answer(task.question, self.account.closed()))

    def _record(self, task: ChatTask) -> str:
        tried = len(task.said)
        return fingerprint(task.name, sampling(self.setting, self.form, task.number, tried)) if tried else task.name

    def _with(self, task: ChatTask, reply: RawReply) -> ChatTask:
        said = (*task.said, reply)
        priced = replace(reply, usage=total([each.usage for each in said]))
        answer = self.form.answer(task.question, priced)
        self.account.use(task.name, answer.usage, answer.reason is None)
        return replace(task, said=said, answer=answer)


class EndpointModel:
    """One run of questions to an endpoint; what its workers share.

    A reply that the form cannot read is asked for again, with sampling, up to `reply_tries` replies and as long as the
    budget surely allows. A question that the endpoint does not answer, or that the budget leaves unasked, has no answer
    and a reason, and is counted in the account. EndpointError where the endpoint refuses the key or the model.
    opened: whether the template of its chats begins replies with thinking; None: not known."""

    def __init__(self, asking: ChatAsking, base_url: str, key: str | None, opened: bool | None = None) -> None:
        assert isinstance(asking.setting, HttpSetting)
        self.asking, self.setting, self.form, self.account = asking, asking.setting, asking.form, asking.account
        how = self.setting
        reached = (how.max_in_flight, how.per_minute, how.timeout, how.tries)
        self.endpoint = Endpoint(Connection(base_url, key, *reached), self.account.retries)
        self.opened = opened
        own = isinstance(how, EndpointSetting)  # what is served resizes by itself
        self.urls = DataUrls(PixelLimits(how.min_pixels, how.max_pixels) if own else PixelLimits())
        self.under_way = 0
        self.one_done = asyncio.Event()
        self.failed_in_a_row = 0
        self.structured = False  # whether a reply in the form of the schema has come

    def answer_all(self, tasks: Sequence[ChatTask]) -> list[ChatTask]:
        """The tasks with their answers, in their order. Nothing is done for a task before its turn has come."""
        start = time.monotonic()
        try:
            return asyncio.run(self._answer_all(tasks))
        except BaseExceptionGroup as errors:
            refused = errors.subgroup(EndpointError)
            raise (errors if refused is None else refused.exceptions[0]) from None
        finally:
            self.account.seconds += time.monotonic() - start

    async def _answer_all(self, tasks: Sequence[ChatTask]) -> list[ChatTask]:
        done: dict[int, ChatTask] = {}
        waiting = iter(enumerate(tasks))
        with progress.bar(len(tasks), self.account.judge, "question") as bar:
            async with self.endpoint, asyncio.TaskGroup() as group:
                for _ in range(min(len(tasks), WAITING * self.setting.max_in_flight)):
                    group.create_task(self._work(waiting, done, bar))
        return [done[n] for n in range(len(tasks))]

    async def _work(self, waiting: Iterator[tuple[int, ChatTask]], done: dict[int, ChatTask], bar: tqdm) -> None:
        for n, task in waiting:
            # Where the budget's end depends on the cost of those under way, these are waited for.
            while (left := self.account.left()) <= self.under_way and self.under_way:
                self.one_done.clear()
                await self.one_done.wait()
            if left <= self.under_way:
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

    async def _answer(self, task: ChatTask) -> ChatTask:
        """The task with a readable answer; or with the last unreadable one; or with none, and the reason."""
        while self.asking.wants(task):
            # The budget must be enough for one reply more to each question under way, this one included.
            if task.said and self.account.affordable() < self.under_way:
                break
            try:
                reply, requests, seconds = await self._ask(task)
            except images.ImageError as error:
                return self.asking.failed(task, "image", str(error))
            except CallFailed as failure:
                self.account.requests += failure.requests
                # A refused question says nothing about the others once one has been answered.
                self.failed_in_a_row += not (isinstance(failure, Refused) and self.account.used)
                return self.asking.failed(task, failure.kind, failure.reason)
            self.failed_in_a_row = 0
            self.account.requests += requests
            usage = None
            if reply.tokens_in is not None and reply.tokens_out is not None:
                usage = Usage(requests, reply.tokens_in, reply.tokens_out, len(self.form.images), seconds)
            today = datetime.now(UTC).date().isoformat() if isinstance(self.setting, EndpointSetting) else None
            said = RawReply(reply.marked(self.opened), essential(reply.tokens), usage, today)
            task = self.asking.taken(task, said)
        self.account.asked += 1
        return task

    async def _ask(self, task: ChatTask) -> tuple[Completion, int, float]:
        """The reply to the task's next request, without the options that the endpoint has been found to refuse; with
        the requests and seconds that it took.

        An endpoint refuses an option if it answers the same request without it; other errors may name it by chance."""
        left_out, refused = set(self.account.left_out), 0
        while True:
            chosen = {"model": self.setting.model}
            chosen |= sampling(self.setting, self.form, task.number, len(task.said))
            for name in left_out & set(chosen):
                value, instead = chosen.pop(name), REFUSABLE.get(name)
                chosen |= {} if instead is None else {instead: value}
            try:
                body = functools.partial(self._body, task.question, chosen)
                reply, requests, seconds = await self.endpoint.post("chat/completions", body, client.read_completion)
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
                return reply, requests + refused, seconds

    async def _body(self, question: ChatQuestion, chosen: dict[str, Any]) -> bytes:
        """The JSON of a request. The images' URLs are put into it as they are: to escape megabytes of base64 anew for
        each call takes longer than all else. Raises ImageError."""
        urls = []
        for name in self.form.images:
            try:
                urls.append(await self.urls.url(bytes(question.images[name])))
            except images.ImageError as error:
                raise images.ImageError(f"{name}: {error}") from None
        shown, turns = iter(urls), []
        for turn in self.form.messages(question.instruction):
            parts = []
            for part in turn["content"]:
                text = part["type"] == "text" and _json({"type": "text", "text": part["text"]})
                parts.append(text or b'{"type":"image_url","image_url":{"url":"%s"}}' % next(shown))
            turns.append(b'{"role":%s,"content":[%s]}' % (_json(turn["role"]), b",".join(parts)))
        return _json(chosen)[:-1] + b',"messages":[' + b",".join(turns) + b"]}"


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
