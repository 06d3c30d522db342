"""A model behind an OpenAI-compatible endpoint (vLLM, OpenAI, Gemini, ...), asked many questions at a time.

Judges are asked so, and so are the models that find where an edit is (grounding/), each in a form of its own.
"""

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from tqdm import tqdm

from editjudge.core import images
from editjudge.endpoints.client import CallFailed, Endpoint, EndpointError, Line, Refused, Reply
from editjudge.endpoints.pictures import Limits, Pictures
from editjudge.endpoints.spending import Account, Usage
from editjudge.judges.chat import Tokens, form, options, write_body
from editjudge.judges.majority import majority, mean_score
from editjudge.judges.protocol import PointQuestion, Question, Score, Verdict
from editjudge.judges.settings import ChatSetting

WAITING = 4  # questions under way for each place in flight: one that waits before its next try holds no place
DOWN = 100  # questions in a row without an answer after which no more are asked
# Options that an endpoint may refuse, and what to send in their place. Not the temperature, which decides the replies.
REFUSABLE = {"logprobs": None, "top_logprobs": None, "seed": None, "max_tokens": "max_completion_tokens"}


class Asked(Protocol):
    """A question: `key` names it, `instruction` is what the chat is written from."""

    @property
    def key(self) -> str: ...
    @property
    def instruction(self) -> str: ...


class Answer(Protocol):
    """What a reply says; reason: why it says nothing that can be used."""

    @property
    def reason(self) -> str | None: ...
    @property
    def usage(self) -> Usage | None: ...


class Asking(Protocol):
    """A form of asking, such as chat.Form; what its parts are is said there."""

    @property
    def messages(self) -> Callable[[str], list[dict]]: ...
    @property
    def shown(self) -> Callable[[Any], dict[str, bytes]]: ...
    @property
    def answer(self) -> Callable[[str, str, Tokens, Usage | None], Any]: ...
    @property
    def nothing(self) -> Callable[[str, str], Any]: ...


@dataclass(frozen=True)
class Task:
    """One answer that is wanted: to a question, in one pass, under the name of its record.

    answer: the last reply that was read, if it could not be used; replies: how many there have been.
    """

    name: str
    question: Asked
    number: int = 0
    answer: Any = None
    replies: int = 0


Keep: TypeAlias = Callable[[Task], None]
"""Gets each task as soon as it has a reply, usable or not, in the thread that asks."""


def answered(answer: Answer | None) -> bool:
    """Whether there is a verdict or a score."""
    return answer is not None and answer.reason is None


class EndpointJudge:
    """Compares edits or scores them, as the setting's prompt says, or asks in the form `asking`; many at once.

    A reply that the prompt's reader cannot read is asked for again, with sampling, up to `reply_tries` replies and as
    long as the budget surely allows. A question that the endpoint does not answer, or that the budget leaves unasked,
    has no verdict and a reason, and is counted in the account. EndpointError where the endpoint refuses
    the key or the model.
    """

    def __init__(
        self,
        setting: ChatSetting,
        base_url: str,
        key: str | None = None,
        account: Account | None = None,
        asking: Asking | None = None,
    ) -> None:
        self.setting = setting
        self.form: Asking = form(setting.prompt) if asking is None else asking
        self.account = Account("judge", setting.price, setting.budget) if account is None else account
        self.line = Line(
            base_url,
            key,
            setting.max_in_flight,
            setting.per_minute,
            setting.timeout,
            setting.connect_timeout,
            setting.tries,
        )

    def compare_many(self, questions: Sequence[Question]) -> list[Verdict]:
        """One verdict a question, in the same order: over all passes, see `majority`. For prompts that compare."""
        verdicts = [answer for answer in self._all_passes(questions) if isinstance(answer, Verdict)]
        return [majority(each) for each in grouped(verdicts, self.setting.passes)]

    def score_many(self, questions: Sequence[PointQuestion]) -> list[Score]:
        """One score a question, in the same order: the mean over all passes. For pointwise prompts."""
        scores = [answer for answer in self._all_passes(questions) if isinstance(answer, Score)]
        return [mean_score(each) for each in grouped(scores, self.setting.passes)]

    def _all_passes(self, questions: Sequence[Asked]) -> list[Any]:
        passes, before = range(self.setting.passes), len(self.account.used)
        return self.answer_all([Task(f"{before + n}.{p}", q, p) for n, q in enumerate(questions) for p in passes])

    def answer_all(self, tasks: Sequence[Task], keep: Keep = lambda task: None) -> list[Any]:
        """The answers to the tasks, in their order. Nothing is done for a task before its turn has come."""
        start = time.monotonic()
        try:
            return asyncio.run(self._answer_all(tasks, keep))
        finally:
            self.account.seconds += time.monotonic() - start

    async def _answer_all(self, tasks: Sequence[Task], keep: Keep) -> list[Any]:
        answers: dict[int, Any] = {}
        refused: BaseException | None = None
        waiting = iter(enumerate(tasks))
        with tqdm(total=len(tasks), desc=self.account.judge, unit="question", mininterval=1.0, file=sys.stderr) as bar:
            async with Endpoint(self.line, self.account.retries) as endpoint:
                run = Run(self, endpoint, keep, bar)
                try:
                    async with asyncio.TaskGroup() as group:
                        for _ in range(min(len(tasks), WAITING * self.setting.max_in_flight)):
                            group.create_task(run.work(waiting, answers))
                except* EndpointError as errors:
                    refused = errors.exceptions[0]
        if refused is not None:
            raise refused
        return [answers[n] for n in range(len(tasks))]


def grouped(answers: Sequence[Any], size: int) -> list[Any]:
    """Runs of `size` answers."""
    return [answers[start : start + size] for start in range(0, len(answers), size)]


class Run:
    """One run of a judge over tasks: what its workers share."""

    def __init__(self, judge: EndpointJudge, endpoint: Endpoint, keep: Keep, bar: tqdm) -> None:
        self.setting, self.form, self.account = judge.setting, judge.form, judge.account
        self.endpoint, self.keep, self.bar = endpoint, keep, bar
        self.pictures = Pictures(Limits(self.setting.min_pixels, self.setting.max_pixels))
        self.under_way = 0
        self.one_done = asyncio.Event()
        self.failed_in_a_row = 0

    async def work(self, waiting: Iterator[tuple[int, Task]], answers: dict[int, Any]) -> None:
        """Answers tasks until there are none left."""
        for n, task in waiting:
            if not await self._room():
                answers[n] = self._unasked(task)
            elif self.failed_in_a_row >= DOWN:
                answers[n] = self._failed(task, "not asked", f"not asked: the {DOWN} questions before had no answer")
            else:
                self.under_way += 1
                answers[n] = await self._answer(task)
                self.under_way -= 1
                self.one_done.set()
            self.bar.update()

    async def _room(self) -> bool:
        """Whether the budget allows one question more; waits for those under way where that depends on their cost."""
        while self.account.left() <= self.under_way:
            if not self.under_way:
                return False
            self.one_done.clear()
            await self.one_done.wait()
        return True

    def _unasked(self, task: Task) -> Any:
        """The unreadable answer that was kept, or none."""
        if task.answer is not None:
            self.account.reused += 1
            return task.answer
        self.account.unasked += 1
        return self.form.nothing(task.question.key, self.account.closed())

    def _failed(self, task: Task, kind: str, reason: str) -> Any:
        self.account.failures[kind] += 1
        self.bar.set_postfix(failed=self.account.failures.total(), refresh=False)
        return self.form.nothing(task.question.key, reason)

    async def _answer(self, task: Task) -> Any:
        """A readable answer; or the last unreadable one; or none, with the reason."""
        answer = task.answer
        while answer is None or (not answered(answer) and task.replies < self.setting.reply_tries):
            # The budget must be enough for one reply more to each question under way, this one included.
            if answer is not None and self.account.affordable() < self.under_way:
                break
            try:
                reply = await self._reply(task)
            except images.ImageError as error:
                return self._failed(task, "image", str(error))
            except CallFailed as failure:
                self.account.requests += failure.requests
                # A refused question says nothing about the others once one has been answered.
                self.failed_in_a_row += not (isinstance(failure, Refused) and self.account.used)
                return self._failed(task, failure.kind, failure.reason)
            self.failed_in_a_row = 0
            self.account.requests += reply.requests
            answer = self._read(task, reply)
            task = replace(task, answer=answer, replies=task.replies + 1)
            self.account.use(task.name, answer.usage, answered(answer))
            self.keep(task)
        self.account.asked += 1
        return answer

    async def _reply(self, task: Task) -> Reply:
        """The reply to the task's next request, without the options that the endpoint has been found to refuse.

        An endpoint refuses an option if it answers the same request without it; other errors may name it by chance.
        """
        left_out, refused = set(self.account.left_out), 0
        while True:
            wanted = options(self.setting, task.number, task.replies)
            for name in left_out & set(wanted):
                value, instead = wanted.pop(name), REFUSABLE[name]
                wanted |= {} if instead is None else {instead: value}
            try:
                reply = await self.endpoint.complete(partial(self._body, task, wanted))
            except Refused as refusal:
                if not self.account.used and refusal.everyones():
                    raise EndpointError(refusal.reason) from None
                named = {name for name in REFUSABLE if name in wanted and re.search(rf"\b{name}\b", refusal.text)}
                if not named:
                    refusal.requests += refused
                    raise
                left_out |= named
                refused += refusal.requests
            else:
                self.account.left_out |= left_out
                return replace(reply, requests=reply.requests + refused)

    async def _body(self, task: Task, wanted: Mapping[str, Any]) -> bytes:
        urls = []
        for name, data in self.form.shown(task.question).items():
            try:
                urls.append(await self.pictures.url(data))
            except images.ImageError as error:
                raise images.ImageError(f"{name}: {error}") from None
        return write_body(wanted, self.form.messages(task.question.instruction), urls)

    def _read(self, task: Task, reply: Reply) -> Any:
        """What the reply says. Its cost includes that of the task's earlier replies."""
        usage = None
        if reply.tokens_in is not None and reply.tokens_out is not None:
            shown = len(self.form.shown(task.question))
            usage = Usage(reply.requests, reply.tokens_in, reply.tokens_out, shown, reply.seconds)
        if usage is not None and task.answer is not None:
            usage = None if task.answer.usage is None else task.answer.usage + usage
        return self.form.answer(task.question.key, reply.text, reply.tokens, usage)
