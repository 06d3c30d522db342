"""The embedded server: a checkpoint behind the OpenAI-compatible chat API, on the CPU or a GPU, through transformers.

`python -m editjudge.models.serve.server --model DIR --port P`; `serving.served` starts and stops it. Requests that come
together are answered in one batch, which shares what they have in common (see chat_model). It fetches nothing.
"""

import argparse
import re
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from editjudge.core import images
from editjudge.engine.batching import Batcher
from editjudge.engine.limits import MAX_DECODED, Rejected, Room, decoded_size, read_body, rejected
from editjudge.models.chat.chat_model import Chat, ChatModel, Reply, decode, load
from editjudge.models.chat.checkpoint import DTYPES
from editjudge.models.serve.chat_request import Body, ChatRequest, read_request

MAX_WAITING = 1024  # requests; more are sent away


@dataclass(frozen=True)
class ServerLimits:
    """batch_size: requests answered together. max_model_len: tokens of a chat and its reply. images: a request."""

    batch_size: int
    max_model_len: int
    images: int


class Prepared(NamedTuple):
    """A chat with its decoded images."""

    chat: Chat
    pixels: Mapping[bytes, np.ndarray]


class Server:
    """The endpoints. name: what requests call the model."""

    def __init__(self, model: ChatModel, name: str, limits: ServerLimits) -> None:
        self.model, self.name, self.limits = model, name, limits
        special = [token.content for token in model.processor.tokenizer.added_tokens_decoder.values() if token.special]
        self.special = re.compile("|".join(map(re.escape, special)))
        longest = cast(Any, model.model.config.text_config).max_position_embeddings
        self.max_model_len = min(limits.max_model_len, longest)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
            ],
            exception_handlers=dict.fromkeys((Rejected, HTTPException, Exception), refusal),
            lifespan=self.lifespan,
        )

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.room = Room(MAX_DECODED)
        self.batcher: Batcher[Prepared, Reply] = Batcher(self.answer, self.limits.batch_size, MAX_WAITING)
        async with self.batcher.running():
            yield

    async def health(self, request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> JSONResponse:
        card = {"id": self.name, "object": "model", "created": 0, "owned_by": "editjudge"}
        return JSONResponse({"object": "list", "data": [card]})

    async def complete(self, request: Request) -> JSONResponse:
        wanted = await run_in_threadpool(read_request, await read_body(request), self.limits.images)
        if wanted.given.model != self.name:
            message = f"the model {wanted.given.model!r:.200} does not exist; served is {self.name!r}"
            raise Rejected(404, message, "model", "model_not_found")
        async with self.room.of(decoded_size(wanted.images)):
            asked = await run_in_threadpool(self.prepare, wanted)
            reply = await self.batcher.ask(asked, request)
        return JSONResponse(self.completion(wanted.given, reply))

    def prepare(self, wanted: ChatRequest) -> Prepared:
        """The chat as the checkpoint's template renders it. Rejected (400): an image that cannot be shown."""
        text = self.model.render([self.plain(message) for message in wanted.messages])
        if text.count(self.model.processor.image_token) != len(wanted.images):
            raise Rejected(400, "the checkpoint's chat template does not show all images of these messages", "messages")
        given = wanted.given
        seed = secrets.randbits(64) if given.seed is None else given.seed % 2**64
        new_tokens = given.max_completion_tokens or given.max_tokens
        chat = Chat(text, wanted.images, new_tokens, given.temperature, given.top_p, seed)
        try:
            return Prepared(chat, {data: decode(data) for data in set(wanted.images)})
        except images.ImageError as error:
            raise Rejected(400, f"an image cannot be used: {error}", "messages") from None

    def plain(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message with the special tokens in its texts broken up: no text can add images or turns."""

        def broken_up(part: dict[str, Any]) -> dict[str, Any]:
            return {n: self.special.sub(lambda token: f"{token[0][0]} {token[0][1:]}", v) for n, v in part.items()}

        return {"role": message["role"], "content": list(map(broken_up, message["content"]))}

    def answer(self, batch: Sequence[Prepared]) -> list[Reply | Rejected]:
        """The replies; too long chats are refused, and the others answered."""
        refusals = [self.refused(asked) for asked in batch]
        fitting = [asked for asked, refused in zip(batch, refusals, strict=True) if refused is None]
        pixels = {data: image for asked in fitting for data, image in asked.pixels.items()}
        replies = iter(self.model.reply([asked.chat for asked in fitting], pixels))
        return [refused or next(replies) for refused in refusals]

    def refused(self, asked: Prepared) -> Rejected | None:
        length, new = self.model.length(asked.chat, asked.pixels), asked.chat.max_new_tokens
        if length + new <= self.max_model_len:
            return None
        message = f"{length} tokens in the messages and {new} for the reply are more than {self.max_model_len}"
        return Rejected(400, message, "messages", "context_length_exceeded")

    def completion(self, given: Body, reply: Reply) -> dict[str, Any]:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": reply.text},
            "finish_reason": "stop" if reply.finished else "length",
            "logprobs": {"content": self.logprobs(reply, given.top_logprobs or 0)} if given.logprobs else None,
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

    def logprobs(self, reply: Reply, top: int) -> list[dict[str, Any]]:
        """The reply's tokens with their natural log-probabilities, and those of the `top` likeliest at each place."""
        places = zip(reply.tokens, reply.logprobs.tolist(), reply.top_ids.tolist(), reply.top.tolist(), strict=True)
        return [
            self.token(token, logprob)
            | {"top_logprobs": [self.token(*each) for each in zip(ids[:top], likeliest[:top], strict=True)]}
            for token, logprob, ids, likeliest in places
        ]

    def token(self, token: int, logprob: float) -> dict[str, Any]:
        """A token may hold part of a character, which only its bytes can say."""
        text = self.model.processor.tokenizer.decode([token])
        return {"token": text, "logprob": logprob, "bytes": list(self.model.piece(token))}


async def refusal(request: Request, error: Exception) -> JSONResponse:
    """OpenAI's form of an error."""
    told = rejected(error)
    kind = {429: "rate_limit_error", 500: "server_error"}.get(told.status, "invalid_request_error")
    body = {"message": told.message, "type": kind, "param": told.param, "code": told.code}
    return JSONResponse({"error": body}, told.status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder of a checkpoint")
    parser.add_argument("--adapter", help="folder of a LoRA adapter of it")
    parser.add_argument("--name", help="what requests call the model; its folder if left out")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-model-len", type=int, default=48_000)
    parser.add_argument("--images", type=int, default=3, help="most images of a request")
    given = parser.parse_args()
    limits = ServerLimits(given.batch_size, given.max_model_len, given.images)
    server = Server(load(given.model, given.dtype, given.adapter), given.name or given.model, limits)
    uvicorn.run(server.app(), host=given.host, port=given.port, access_log=False, timeout_graceful_shutdown=5)


if __name__ == "__main__":
    main()
