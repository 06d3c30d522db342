"""What an endpoint is sent for a question, and how its reply becomes an answer.

Kept answers depend on this module and on those it imports from here, and on no other code: a change of how calls are
made asks nothing again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from editjudge.endpoints.spending import Usage
from editjudge.judges import logprobs
from editjudge.judges.protocol import PointQuestion, Question, Score, Verdict
from editjudge.judges.settings import ChatSetting
from editjudge.judges.styles import STYLES, Style
from editjudge.judges.viescore import POINTWISE, PointStyle

CODE = (
    "editjudge.judges.chat",
    "editjudge.judges.logprobs",
    "editjudge.endpoints.pictures",
    "editjudge.qwen.prompt",
    "editjudge.endpoints.replies",
    "editjudge.judges.styles",
    "editjudge.judges.viescore",
)
WARMTH = 0.7  # least temperature where a question is asked again
AGAIN = 1_000_003  # between the seeds of the replies to one question
Answer: TypeAlias = Verdict | Score
Tokens: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Form:
    """One way of asking, of comparisons or of single edits.

    shown: the images of a question by name, in the order of the chat's placeholders. answer: what a reply with these
    tokens, at this cost, says to the question with this key. nothing: the answer that a question without one gets.
    """

    version: str
    max_new_tokens: int
    messages: Callable[[str], list[dict]]
    shown: Callable[[Any], dict[str, bytes]]
    answer: Callable[[str, str, Tokens, Usage | None], Answer]
    nothing: Callable[[str, str], Answer]


def form(prompt: str) -> Form:
    """The form of the prompt that `judges.<name>.prompt` names; KeyError for an unknown one."""
    return scoring(POINTWISE[prompt]) if prompt in POINTWISE else comparing(STYLES[prompt])


def comparing(style: Style) -> Form:
    """Comparisons in this style: of `Question`s, answered by `Verdict`s."""

    def shown(question: Question) -> dict[str, bytes]:
        return {"source": question.source, "a": question.a, "b": question.b}

    def answer(key: str, text: str, tokens: Tokens, usage: Usage | None) -> Verdict:
        winner, reason = style.read(text)
        p_a = logprobs.p_a(tokens) if winner in ("Image A", "Image B") else None
        return Verdict(key, winner, p_a, text, reason, usage)

    def nothing(key: str, reason: str) -> Verdict:
        return Verdict(key, None, None, "", reason)

    return Form(style.version, style.max_new_tokens, style.messages, shown, answer, nothing)


def scoring(style: PointStyle) -> Form:
    """Scores of single edits in this style: of `PointQuestion`s, answered by `Score`s."""

    def shown(question: PointQuestion) -> dict[str, bytes]:
        both = {"source": question.source, "edited": question.edited}
        return {name: both[name] for name in style.images}

    def answer(key: str, text: str, tokens: Tokens, usage: Usage | None) -> Score:
        parts, value, reason = style.read(text)
        return Score(key, value, parts or (), text, reason, usage)

    def nothing(key: str, reason: str) -> Score:
        return Score(key, None, (), "", reason)

    return Form(style.version, style.max_new_tokens, style.messages, shown, answer, nothing)


def options(setting: ChatSetting, number: int, replies: int) -> dict[str, Any]:
    """What a request says beside its chat, in pass `number`, after `replies` replies that could not be read.

    Only sampling takes a seed. A question that is asked again is sampled: greedy decoding would say the same words.
    """
    temperature = setting.temperature if replies == 0 else max(setting.temperature, WARMTH)
    tokens = setting.max_new_tokens or form(setting.prompt).max_new_tokens
    chosen: dict[str, Any] = {"model": setting.model, "temperature": temperature, "max_tokens": tokens}
    if temperature > 0:
        chosen["seed"] = setting.seed + number + AGAIN * replies
    if setting.logprobs:
        chosen |= {"logprobs": True, "top_logprobs": setting.logprobs}
    return chosen


def write_body(chosen: Mapping[str, Any], chat: Sequence[Mapping[str, Any]], urls: Sequence[bytes]) -> bytes:
    """The JSON of a chat completion request. urls: of the chat's images, in order; they hold nothing to be escaped.

    They are put between the written rest as they are: to escape megabytes of base64 anew for each call takes longer
    than all else. Raises ValueError where the chat has more or fewer images.
    """
    images = iter(urls)
    turns = [
        b'{"role":%s,"content":[%s]}'
        % (_json(turn["role"]), b",".join(_part(part, images) for part in turn["content"]))
        for turn in chat
    ]
    if next(images, None) is not None:
        raise ValueError(f"the chat has fewer than {len(urls)} images")
    return _json(dict(chosen))[:-1] + b',"messages":[' + b",".join(turns) + b"]}"


def _part(part: Mapping[str, Any], images: Iterator[bytes]) -> bytes:
    if part["type"] == "text":
        return _json({"type": "text", "text": part["text"]})
    url = next(images, None)
    if url is None:
        raise ValueError("the chat has more images than were given")
    return b'{"type":"image_url","image_url":{"url":"' + url + b'"}}'


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
