"""The embedded server: a checkpoint behind the OpenAI-compatible chat API, on the CPU or a GPU, through transformers.

`launch.running` starts and stops it, as a process whose one argument is JSON, see `main`. Requests that come together
are answered in one batch, which shares what they have in common (see local_model). It fetches nothing, and refuses what
it does not know."""

import base64
import json
import re
import secrets
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, TypeAlias, cast

import numpy as np
import uvicorn
from pydantic import BaseModel, BeforeValidator, Field, Strict, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from editjudge.core import images, scans
from editjudge.engine.serving import MAX_DECODED, Batcher, Rejected, Room, decoded_size, invalid, read_body, rejected
from editjudge.models.chat.checkpoint import bound
from editjudge.models.chat.local_model import TOP, Chat, ChatModel, Reply, decode, load

MAX_WAITING = 1024  # requests; more are sent away
MOST_PARTS = 256  # messages of a request, and parts of a message
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Tokens: TypeAlias = Annotated[int, Field(ge=1)]
Prepared: TypeAlias = tuple[Chat, Mapping[bytes, np.ndarray]]  # a chat with its decoded images


class TextPart(BaseModel, extra="forbid"):
    type: Literal["text"]
    text: str


def _encoded(url: Any) -> bytes:
    """The image in a data URL. Raises ValueError."""
    head, _, data = str(url).partition(",")
    if not head.startswith("data:image/") or not head.endswith(";base64"):
        raise ValueError("images must be data:image/...;base64 URLs; nothing is fetched")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise ValueError(f"an image is not base64: {error}") from None


class Address(BaseModel, extra="forbid"):
    url: Annotated[bytes, BeforeValidator(_encoded)]
    detail: str = "auto"


class ImagePart(BaseModel, extra="forbid"):
    type: Literal["image_url"]
    image_url: Address


Part: TypeAlias = Annotated[TextPart | ImagePart, Field(discriminator="type")]


def _parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class Message(BaseModel, extra="forbid"):
    role: Literal["system", "user", "assistant"]
    content: Annotated[list[Part], Field(max_length=MOST_PARTS, fail_fast=True), BeforeValidator(_parts)]


class Body(BaseModel, extra="forbid"):
    """The fields of a request that are known; whole numbers may be written as floats."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_PARTS, fail_fast=True)]
    temperature: Annotated[Number, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[Number, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    seed: int | None = None
    max_tokens: Tokens = 512
    max_completion_tokens: Tokens | None = None
    logprobs: Annotated[bool, Strict()] = False
    top_logprobs: Annotated[int, Field(ge=0, le=TOP)] | None = None
    n: Annotated[int, Field(ge=1, le=1)] = 1
    stream: Literal[False] = False
    response_format: Annotated[dict[Literal["type"], Literal["text"]], Field(min_length=1)] | None = None
    user: str | None = None


def read_request(body: bytes, most_images: int) -> tuple[Body, tuple[bytes, ...]]:
    """The fields of a request in JSON; its images, encoded, in order. Rejected names what is wrong."""
    try:
        given = Body.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error) from None
    if given.top_logprobs is not None and not given.logprobs:
        raise Rejected(400, "top_logprobs needs logprobs", "top_logprobs")
    parts = [part for message in given.messages for part in message.content]
    encoded = tuple(part.image_url.url for part in parts if isinstance(part, ImagePart))
    if len(encoded) > most_images:
        raise Rejected(400, f"{len(encoded)} images, more than the limit of {most_images}", "messages")
    return given, encoded


class Server:
    """The endpoints. name: what requests call the model. batch_size: requests that are answered together.
    max_model_len: tokens of a chat and its reply. images: of a request, at most."""

    def __init__(self, model: ChatModel, name: str, batch_size: int, max_model_len: int, images: int) -> None:
        self.model, self.name, self.batch_size, self.images = model, name, batch_size, images
        special = [token.content for token in model.processor.tokenizer.added_tokens_decoder.values() if token.special]
        self.special = re.compile("|".join(map(re.escape, special)))
        longest = cast(Any, model.model.config.text_config).max_position_embeddings
        self.max_model_len = min(max_model_len, longest)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", lambda request: JSONResponse({"status": "ok"})),
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
            ],
            exception_handlers=dict.fromkeys((Rejected, HTTPException, Exception), refusal),
            lifespan=self.lifespan,
        )

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.room = Room(MAX_DECODED)
        self.batcher: Batcher[Prepared, Reply] = Batcher([self.answer], self.batch_size, MAX_WAITING)
        async with self.batcher.running():
            yield

    async def models(self, request: Request) -> JSONResponse:
        card = {"id": self.name, "object": "model", "created": 0, "owned_by": "editjudge"}
        return JSONResponse({"object": "list", "data": [card]})

    async def complete(self, request: Request) -> JSONResponse:
        given, encoded = await run_in_threadpool(read_request, await read_body(request), self.images)
        if given.model != self.name:
            message = f"the model {given.model!r:.200} does not exist; served is {self.name!r}"
            raise Rejected(404, message, "model", "model_not_found")
        async with self.room.of(decoded_size(encoded)):
            asked = await run_in_threadpool(self.prepare, given, encoded)
            reply = await self.batcher.ask(asked, request)
        return JSONResponse(self.completion(given, reply))

    def prepare(self, given: Body, encoded: tuple[bytes, ...]) -> Prepared:
        """The chat as the checkpoint's template renders it. Rejected (400): an image that cannot be shown."""
        turns = [{"role": turn.role, "content": list(map(self.plain, turn.content))} for turn in given.messages]
        text = self.model.render(turns)
        if text.count(self.model.processor.image_token) != len(encoded):
            raise Rejected(400, "the checkpoint's chat template does not show all images of these messages", "messages")
        seed = secrets.randbits(64) if given.seed is None else given.seed % 2**64
        new_tokens = given.max_completion_tokens or given.max_tokens
        chat = Chat(text, encoded, new_tokens, given.temperature, given.top_p, seed, given.top_k)
        if why := next(filter(None, map(scans.slow, encoded)), None):
            raise Rejected(400, f"an image cannot be used: {why}", "messages")
        try:
            return chat, {data: decode(data) for data in set(encoded)}
        except images.ImageError as error:
            raise Rejected(400, f"an image cannot be used: {error}", "messages") from None

    def plain(self, part: Part) -> dict[str, Any]:
        """The part as a chat template takes it, with the special tokens in its text broken up: no text can add images
        or turns."""
        if isinstance(part, ImagePart):
            return {"type": "image"}
        return {"type": "text", "text": self.special.sub(lambda token: f"{token[0][0]} {token[0][1:]}", part.text)}

    def answer(self, batch: Sequence[Prepared]) -> list[Reply | Rejected]:
        """The replies; too long chats are refused, and the others answered."""
        answers: list[Reply | Rejected | None] = []
        for chat, pixels in batch:
            length, new = self.model.chats.length(chat, pixels), chat.max_new_tokens
            message = f"{length} tokens in the messages and {new} for the reply are more than {self.max_model_len}"
            fits = length + new <= self.max_model_len
            answers.append(None if fits else Rejected(400, message, "messages", "context_length_exceeded"))
        fitting = [asked for asked, refused in zip(batch, answers, strict=True) if refused is None]
        shown = {data: image for _, pixels in fitting for data, image in pixels.items()}
        replies = iter(self.model.reply([chat for chat, _ in fitting], shown))
        return [refused or next(replies) for refused in answers]

    def completion(self, given: Body, reply: Reply) -> dict[str, Any]:
        """With the reply's tokens, their natural log-probabilities, and the likeliest ones at each place, if wanted."""
        places = zip(reply.tokens, reply.logprobs.tolist(), reply.top_ids.tolist(), reply.top.tolist(), strict=True)
        top = slice(given.top_logprobs or 0)
        logprobs = []
        for token, logprob, ids, likeliest in places if given.logprobs else ():
            likely = zip(ids[top], likeliest[top], strict=True)
            others = [self.model.token(each) | {"logprob": value} for each, value in likely]
            logprobs.append(self.model.token(token) | {"logprob": logprob, "top_logprobs": others})
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": reply.text},
            "finish_reason": "stop" if reply.finished else "length",
            "logprobs": {"content": logprobs} if given.logprobs else None,
        }
        tokens = {"prompt_tokens": reply.tokens_in, "completion_tokens": reply.tokens_out}
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": given.model,
            "choices": [choice],
            "usage": tokens | {"total_tokens": sum(tokens.values())},
        }


async def refusal(request: Request, error: Exception) -> JSONResponse:
    """OpenAI's form of an error."""
    told = rejected(error)
    kind = {429: "rate_limit_error", 500: "server_error"}.get(told.status, "invalid_request_error")
    body = {"message": told.message, "type": kind, "param": told.param, "code": told.code}
    return JSONResponse({"error": body}, told.status)


def main(how: Mapping[str, Any]) -> None:
    """Serves what `launch.command` tells: a checkpoint, in which sizes it is shown images, and where."""
    model = load(how["model"], how["dtype"], how["adapter"])
    bound(model.processor, how["min_pixels"], how["max_pixels"], thinking=how["thinking"])
    server = Server(model, how["adapter"] or how["model"], how["batch_size"], how["max_model_len"], how["images"])
    uvicorn.run(server.app(), host=how["host"], port=how["port"], access_log=False, timeout_graceful_shutdown=5)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
