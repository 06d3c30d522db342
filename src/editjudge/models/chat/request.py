"""Requests to a chat model: what is wanted, the names of records, what is kept and read of a reply, and their body."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from editjudge.engine.resume import RecordCache, fingerprint
from editjudge.models.chat.forms import ChatForm, ChatQuestion, RawReply
from editjudge.models.chat.settings import ChatModelSetting, HttpSetting
from editjudge.models.endpoint.spending import Account, Usage, total

WARMTH = 0.7  # least temperature where a question is asked again
AGAIN = 1_000_003  # between the seeds of the replies to one question


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

    @property
    def answered(self) -> bool:
        """Whether a reply could be read: every answer has a `reason`, which is None then."""
        return self.answer is not None and self.answer.reason is None


def sampling(setting: ChatModelSetting, form: ChatForm, number: int, tried: int = 0) -> dict[str, Any]:
    """What a request says beside model and chat, in pass `number`, after `tried` replies that could not be read.

    Only sampling takes a seed. A question that is asked again is sampled: greedy decoding would say the same words.
    """
    temperature = setting.temperature if tried == 0 else max(setting.temperature, WARMTH)
    chosen: dict[str, Any] = {"temperature": temperature, "max_tokens": form.max_new_tokens}
    if temperature > 0:
        chosen["seed"] = setting.seed + number + AGAIN * tried
    if isinstance(setting, HttpSetting):
        chosen["max_tokens"] = setting.max_new_tokens or form.max_new_tokens
        wanted = {"name": "reply", "strict": True, "schema": form.schema}
        chosen["response_format"] = {"type": "json_schema", "json_schema": wanted}
        if setting.logprobs:
            chosen |= {"logprobs": True, "top_logprobs": setting.logprobs}
    return chosen


def images_of(form: ChatForm, question: ChatQuestion) -> dict[str, bytes]:
    """The images that the question is asked with, by name, in the order of the chat's placeholders."""
    return {name: bytes(question.images[name]) for name in form.images}


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
        if task.said:
            self.account.use(task.name, task.answer.usage, task.answered)
        return task

    def wants(self, task: ChatTask) -> bool:
        """Whether one more reply is to be asked for."""
        return not task.answered and len(task.said) < self.setting.reply_tries

    def taken(self, task: ChatTask, reply: RawReply) -> ChatTask:
        """The task with a reply that has just come."""
        self.store.put(self._record(task), vars(reply) | {"usage": None if reply.usage is None else vars(reply.usage)})
        task = self._with(task, reply)
        self.account.use(task.name, task.answer.usage, task.answered)
        return task

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
        return replace(task, said=said, answer=self.form.answer(task.question, priced))


def write_body(chosen: Mapping[str, Any], chat: Sequence[Mapping[str, Any]], urls: Sequence[bytes]) -> bytes:
    """The JSON of a chat completion request. urls: of the chat's images, in order; they hold nothing to be escaped.

    They are put between the written rest as they are: to escape megabytes of base64 anew for each call takes longer
    than all else.
    """
    images = iter(urls)
    contents = [b",".join(_part(part, images) for part in turn["content"]) for turn in chat]
    roles = [_json(turn["role"]) for turn in chat]
    turns = [b'{"role":%s,"content":[%s]}' % turn for turn in zip(roles, contents, strict=True)]
    return _json(dict(chosen))[:-1] + b',"messages":[' + b",".join(turns) + b"]}"


def _part(part: Mapping[str, Any], images: Iterator[bytes]) -> bytes:
    if part["type"] == "text":
        return _json({"type": "text", "text": part["text"]})
    return b'{"type":"image_url","image_url":{"url":"' + next(images) + b'"}}'


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
