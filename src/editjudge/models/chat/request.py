"""A request to a chat model: its sampling, the name of its record, which depends on the request alone, and its body."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from editjudge.engine import resume
from editjudge.models.chat.forms import ChatForm, ChatQuestion, RawReply
from editjudge.models.chat.settings import ChatModelSetting, HttpSetting
from editjudge.models.endpoint.spending import total

WARMTH = 0.7  # least temperature where a question is asked again
AGAIN = 1_000_003  # between the seeds of the replies to one question


@dataclass(frozen=True)
class ChatTask:
    """One answer that is wanted, in pass `number`. name: of the first reply's record; said: unusable replies so far."""

    name: str
    question: ChatQuestion
    number: int = 0
    said: tuple[RawReply, ...] = ()


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


def record_name(setting: ChatModelSetting, form: ChatForm, task: ChatTask) -> str:
    tried = len(task.said)
    return resume.fingerprint(task.name, sampling(setting, form, task.number, tried)) if tried else task.name


def shown(form: ChatForm, question: ChatQuestion) -> dict[str, bytes]:
    """The images that the question is asked with, by name, in the order of the chat's placeholders."""
    return {name: bytes(question.images[name]) for name in form.images}


def read(form: ChatForm, task: ChatTask) -> Any:
    """What the task's last reply says, at the cost of all of them; None before the first."""
    if not task.said:
        return None
    usage = total([said.usage for said in task.said])
    return form.answer(task.question, replace(task.said[-1], usage=usage))


def answered(answer: Any) -> bool:
    """Whether there is a verdict, a score or whatever is asked for: every answer has a `reason`, None where it has."""
    return answer is not None and answer.reason is None


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
