"""What a chat model is asked and how its replies are read: the two protocols, and a plain form for other rooms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from editjudge.core.records import Image
from editjudge.models.endpoint.spending import Usage

Tokens: TypeAlias = Sequence[Mapping[str, Any]]
"""A reply's tokens in the form of `choices[0].logprobs.content` of a chat completion."""


@dataclass(frozen=True)
class RawReply:
    """A model's reply before it is read. This is what the record store keeps.

    tokens: as far as a confidence is read from them; empty where the model gave none. usage: what the reply cost; None
    if unknown. asked: the day (UTC, ISO 8601) on which an endpoint replied; None for a model on this machine.
    """

    text: str
    tokens: Tokens = ()
    usage: Usage | None = None
    asked: str | None = None


class ChatQuestion(Protocol):
    """Anything a chat model is asked. key: names it; instruction: what the chat is written from; images: by name."""

    @property
    def key(self) -> str: ...
    @property
    def instruction(self) -> str: ...
    @property
    def images(self) -> Mapping[str, Image]: ...


class ChatForm(Protocol):
    """How questions of one kind are put to a chat model, and how its replies are read.

    images: names of the question's images, in the order of the chat's `{"type": "image"}` placeholders.
    messages: the chat for an instruction. max_new_tokens: limit of a reply. schema: JSON Schema of the reply's object.
    watched: two replies whose probabilities are wanted where they first differ in a token; or none.
    """

    @property
    def images(self) -> tuple[str, ...]: ...
    @property
    def messages(self) -> Callable[[str], list[dict]]: ...
    @property
    def max_new_tokens(self) -> int: ...
    @property
    def schema(self) -> dict[str, Any]: ...
    @property
    def watched(self) -> tuple[str, ...]: ...
    def answer(self, question: Any, reply: RawReply | str) -> Any:
        """The answer in a reply, with its cost; a text instead of a reply is the reason why there is no answer.

        Every answer has `key`, `usage` and `reason`, which is None where the reply could be read.
        """
        ...


@dataclass(frozen=True)
class Inquiry:
    """One question to a model that is no judge, such as a parser of instructions or a captioner.

    key: of the record. instruction: the text of the turn, after the images (none or one). read: returns the value in a
    reply, or None and the reason.
    """

    key: str
    instruction: str
    images: Mapping[str, Image]
    read: Callable[[str], tuple[Any, str | None]]


@dataclass(frozen=True)
class Finding:
    """The answer to an inquiry. value: None if there is none, with `reason`; reply: empty if no reply came."""

    key: str
    value: Any
    reply: str
    reason: str | None
    usage: Usage | None = None


@dataclass(frozen=True)
class InquiryForm:
    """How inquiries are put to a model (a ChatForm): the image, if there is one, and the text."""

    images: tuple[str, ...]
    max_new_tokens: int
    schema: dict[str, Any]
    watched: tuple[str, ...] = ()

    def messages(self, instruction: str) -> list[dict]:
        image = [{"type": "image"} for _ in self.images]
        return [{"role": "user", "content": [*image, {"type": "text", "text": instruction}]}]

    def answer(self, inquiry: Inquiry, reply: RawReply | str) -> Finding:
        if isinstance(reply, str):
            return Finding(inquiry.key, None, "", reply)
        value, reason = inquiry.read(reply.text)
        return Finding(inquiry.key, value, reply.text, reason, reply.usage)
