"""Requests of the OpenAI-compatible chat API, as the embedded server takes them: what it does not know it refuses."""

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from editjudge.qwen.chat_model import TOP

DEFAULT_NEW_TOKENS = 512
DATA_URL = "data:image/"
_SURROGATE = re.compile("[\ud800-\udfff]")


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": required | optional,
        "required": list(required),
        "additionalProperties": False,
    }


_STRING, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 1}
_PART = {
    "anyOf": [
        _object({"type": {"const": "text"}, "text": _STRING}),
        _object({"type": {"const": "image_url"}, "image_url": _object({"url": _STRING}, detail=_STRING)}),
    ]
}
_MESSAGE = _object(
    {
        "role": {"enum": ["system", "user", "assistant"]},
        "content": {"anyOf": [_STRING, {"type": "array", "items": _PART}]},
    }
)
REQUEST = _object(
    {"model": _STRING, "messages": {"type": "array", "items": _MESSAGE, "minItems": 1}},
    temperature={"type": "number", "minimum": 0, "maximum": 2},
    top_p={"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    seed={"type": "integer"},
    max_tokens=_COUNT,
    max_completion_tokens=_COUNT,
    logprobs={"type": "boolean"},
    top_logprobs={"type": "integer", "minimum": 0, "maximum": TOP},
    n={"const": 1},
    stream={"const": False},
    response_format=_object({"type": {"const": "text"}}),
    user=_STRING,
)


class Rejected(Exception):
    """A request that is not answered: its HTTP status, the words, and the parameter and code of OpenAI's error form."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code


@dataclass(frozen=True)
class ChatRequest:
    """A chat to be completed.

    messages: as a chat template takes them, text parts and `{"type": "image"}` placeholders; images: the encoded images
    that these stand for. seed: None where the client leaves it open. top_logprobs: None where no probabilities are
    wanted.
    """

    model: str
    messages: list[dict[str, Any]]
    images: tuple[bytes, ...]
    max_new_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    top_logprobs: int | None


def read_request(body: bytes, most_images: int) -> ChatRequest:
    """The request in a body. Rejected (400): no JSON, unknown or wrong fields, images that are not in data: URLs."""
    given = {name: value for name, value in _json(body).items() if value is not None}
    error = best_match(Draft202012Validator(REQUEST).iter_errors(given))
    if error is not None:
        raise Rejected(400, f"{error.json_path}: {error.message[:500]}", str(next(iter(error.path), "")) or None)
    if "top_logprobs" in given and not given.get("logprobs"):
        raise Rejected(400, "top_logprobs needs logprobs", "top_logprobs")
    encoded: list[bytes] = []
    messages = [_message(message, encoded) for message in given["messages"]]
    new_tokens = given.get("max_completion_tokens", given.get("max_tokens", DEFAULT_NEW_TOKENS))
    if len(encoded) > most_images:
        raise Rejected(400, f"{len(encoded)} images, more than the limit of {most_images}", "messages")
    return ChatRequest(
        given["model"],
        messages,
        tuple(encoded),
        int(new_tokens),  # 24.0 is whole, too
        float(given.get("temperature", 1.0)),
        float(given.get("top_p", 1.0)),
        int(given["seed"]) if "seed" in given else None,
        int(given.get("top_logprobs", 0)) if given.get("logprobs") else None,
    )


def _json(body: bytes) -> dict[str, Any]:
    def no_number(word: str) -> NoReturn:
        raise ValueError(f"{word} is no number")

    try:
        given = json.loads(body, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise Rejected(400, f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Rejected(400, "the body is not a JSON object")
    return given


def _message(message: dict[str, Any], encoded: list[bytes]) -> dict[str, Any]:
    """The message with its images taken out to `encoded`."""
    given, content = message["content"], []
    parts: list[dict[str, Any]] = [{"type": "text", "text": given}] if isinstance(given, str) else given
    for part in parts:
        if part["type"] == "image_url":
            encoded.append(_image(part["image_url"]["url"]))
            content.append({"type": "image"})
        elif _SURROGATE.search(part["text"]):
            raise Rejected(400, "a text holds half of a surrogate pair, which is no character", "messages")
        else:
            content.append(part)
    return {"role": message["role"], "content": content}


def _image(url: str) -> bytes:
    head, _, data = url.partition(",")
    if not head.startswith(DATA_URL) or not head.endswith(";base64"):
        raise Rejected(400, "images must be data:image/...;base64 URLs; nothing is fetched", "messages")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Rejected(400, f"an image is not base64: {error}", "messages") from None
