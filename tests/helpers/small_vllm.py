"""vLLM's place on a CPU: `small_vllm.py serve MODEL --flag value ...`, as a stage starts the program `vllm`.

No tiny model has all forms of reply: what parsers, grounders, captioners and writers are asked is answered as
grounding_server does, and told in a line of the log. All else goes to the embedded server of the same checkpoint,
which starts with the first such question. The log's first line says what vLLM would start: so many copies, each on so
many of the GPUs that it sees (by SEEN)."""

import functools
import hashlib
import json
import os
import sys
from contextlib import ExitStack
from typing import Any

import aiohttp
import grounding_server
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from editjudge.models.chat.settings import LocalSetting
from editjudge.models.serve.launch import Running, Serving, running

MARKS = {"grounder": '"bbox_2d"', "captioner": '"caption"', "writer": '"instruction"'}
NOT_TOLD = ("host", "port", "served-model-name", "tensor-parallel-size", "data-parallel-size")
NOT_TOLD += ("gpu-memory-utilization", "generation-config", "max-num-seqs")  # what the embedded server has not


def role_of(text: str, sees: bool) -> str | None:
    """Whose question this is; None: a judge's or a rater's, who have the models that see images to themselves."""
    found = [role for role, mark in MARKS.items() if mark in text]
    return found[0] if found else None if sees else "parser"


class Vllm:
    """The endpoints, of the words behind `serve`. Every flag has a value."""

    def __init__(self, model: str, *words: str) -> None:
        flags: dict[str, Any] = {name[2:]: word for name, word in zip(words[::2], words[1::2], strict=True)}
        self.host, self.port = flags["host"], int(flags["port"])
        # A model of words alone has no limit on images; a checkpoint shows them at sizes of its own, or told ones.
        self.sees = flags.pop("limit-mm-per-prompt", None) is not None
        size = json.loads(flags.pop("mm-processor-kwargs", "{}")).get("size", {})
        self.how = Serving(engine="transformers", port=0, max_model_len=int(flags.pop("max-model-len")))
        self.checkpoint = LocalSetting(
            model=model,
            dtype=flags.pop("dtype"),
            min_pixels=size.get("shortest_edge", 0),
            max_pixels=size.get("longest_edge", 0),
        )
        assert set(flags) == set(NOT_TOLD), "a flag that nobody here knows"
        placed = {"copies": int(flags["data-parallel-size"]), "each": int(flags["tensor-parallel-size"])}
        print(json.dumps(placed | {"sees": os.environ.get("SEEN")}), flush=True)
        self.opened = ExitStack()

    @functools.cached_property
    def embedded(self) -> Running:
        return self.opened.enter_context(running(self.checkpoint, self.how))

    async def chat(self, request: Request) -> Response:
        body = await request.body()
        turns = json.loads(body)["messages"]
        parts = [part for turn in turns if not isinstance(turn["content"], str) for part in turn["content"]]
        role = role_of("".join(part.get("text", "") for part in parts), self.sees)
        if role is None:
            url, forever = f"{self.embedded.url}/chat/completions", aiohttp.ClientTimeout(None)
            async with aiohttp.ClientSession(timeout=forever) as session, session.post(url, data=body) as reply:
                return Response(await reply.read(), reply.status, media_type="application/json")
        found = await grounding_server.chat(request)
        name = hashlib.sha256(json.dumps(turns).encode()).hexdigest()
        told = {"role": role, "asked": f"{self.port} {name}", "status": found.status_code}
        print(json.dumps(told), flush=True)
        return found

    async def health(self, _request: Request) -> Response:
        return JSONResponse({})


if __name__ == "__main__":
    assert sys.argv[1] == "serve"
    grounding_server.settings |= {"anywhere": True, "changes": []}
    vllm = Vllm(*sys.argv[2:])
    routes = [Route("/v1/chat/completions", vllm.chat, methods=["POST"]), Route("/health", vllm.health)]
    with vllm.opened:
        uvicorn.run(Starlette(routes=routes), host=vllm.host, port=vllm.port, access_log=False, log_level="warning")
