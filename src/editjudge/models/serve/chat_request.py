"""Requests of the OpenAI-compatible chat API, as the embedded server takes them: what it does not know it refuses."""

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field, Strict, ValidationError

from editjudge.engine.limits import Rejected, invalid
from editjudge.models.chat.chat_model import TOP

DEFAULT_NEW_TOKENS = 512
MOST_PARTS = 256  # messages of a request, and parts of a message
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Tokens: TypeAlias = Annotated[int, Field(ge=1)]


class TextPart(BaseModel, extra="forbid"):
    type: Literal["text"]
    text: str


class Address(BaseModel, extra="forbid"):
    url: str
    detail: str = "auto"


class ImagePart(BaseModel, extra="forbid"):
    type: Literal["image_url"]
    image_url: Address


Part: TypeAlias = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(BaseModel, extra="forbid"):
    role: Literal["system", "user", "assistant"]
    content: str | Annotated[list[Part], Field(max_length=MOST_PARTS, fail_fast=True)]


class ResponseFormat(BaseModel, extra="forbid"):
    type: Literal["text"]


class Body(BaseModel, extra="forbid"):
    """The fields of a request that are known; whole numbers may be written as floats."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_PARTS, fail_fast=True)]
    temperature: Annotated[Number, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[Number, Field(gt=0, le=1)] = 1.0
    seed: int | None = None
    max_tokens: Tokens = DEFAULT_NEW_TOKENS
    max_completion_tokens: Tokens | None = None
    logprobs: Annotated[bool, Strict()] = False
    top_logprobs: Annotated[int, Field(ge=0, le=TOP)] | None = None
    n: Annotated[int, Field(ge=1, le=1)] = 1
    stream: Literal[False] = False
    response_format: ResponseFormat | None = None
    user: str | None = None


@dataclass(frozen=True)
class ChatRequest:
    """A chat to be completed. messages: as a chat template takes them, with `{"type": "image"}` in the places of the
    images, which are given encoded.
    """

    given: Body
    messages: list[dict[str, Any]]
    images: tuple[bytes, ...]


def read_request(body: bytes, most_images: int) -> ChatRequest:
    """Reads the JSON of a request; Rejected names what is wrong with it. Images come as data URLs."""
    try:
        given = Body.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error) from None
    if given.top_logprobs is not None and not given.logprobs:
        raise Rejected(400, "top_logprobs needs logprobs", "top_logprobs")
    encoded: list[bytes] = []
    messages = [_message(message, encoded) for message in given.messages]
    if len(encoded) > most_images:
        raise Rejected(400, f"{len(encoded)} images, more than the limit of {most_images}", "messages")
    return ChatRequest(given, messages, tuple(encoded))


def _message(message: Message, encoded: list[bytes]) -> dict[str, Any]:
    """The message with its images taken out to `encoded`."""
    given, content = message.content, []
    for part in [TextPart(type="text", text=given)] if isinstance(given, str) else given:
        if isinstance(part, ImagePart):
            encoded.append(_image(part.image_url.url))
            content.append({"type": "image"})
        else:
            content.append(part.model_dump())
    return {"role": message.role, "content": content}


def _image(url: str) -> bytes:
    head, _, data = url.partition(",")
    if not head.startswith("data:image/") or not head.endswith(";base64"):
        raise Rejected(400, "images must be data:image/...;base64 URLs; nothing is fetched", "messages")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Rejected(400, f"an image is not base64: {error}", "messages") from None
