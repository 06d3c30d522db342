"""The reward service: a scorer or a judge behind HTTP, for the trainers of editing models.

Edits that wait at the same time are scored in one batch, by the first copy of the scorer that is free, in a thread of
its own; a judge compares all edits of a group at once. reward_forms has the requests."""

import asyncio
import base64
import binascii
import gc
import hmac
import json
import math
import pickle
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import repeat
from typing import Any, get_args

import orjson
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from editjudge.core.params import ParamsError
from editjudge.engine import serving
from editjudge.engine.serving import Batcher, Rejected
from editjudge.engine.workers import engine
from editjudge.judges.protocol import BothOrders, Dimension, Edit, Judge, Preparing, Score, Scorer, Unscored, several
from editjudge.rewards import groups, plain_pickle
from editjudge.rewards.reward_forms import FORMS, Reward, RewardForm, Served, form_of
from editjudge.rewards.reward_settings import RewardSetting

WIN_RATE = "win_rate"
SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # bounds of the histogram


class Metrics:
    """What Prometheus is told; names begin with editjudge_reward_."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry, "namespace": "editjudge_reward"}
        self.requests = Counter("requests", "Requests that are answered.", ("form", "status"), **own)
        self.edits = Counter("edits", "Edits that are answered.", ("form", "result"), **own)
        self.batches = Counter("batches", "Batches that the scorer has had.", **own)
        self.batch_edits = Counter("batch_edits", "Edits in these batches, or of a judge comparisons.", **own)
        self.seconds = Histogram("seconds", "Seconds of a request.", buckets=SECONDS, **own)
        self.pending = 0
        waiting = Gauge("pending", "Edits, or of a judge comparisons, that are not answered yet.", **own)
        waiting.set_function(lambda: self.pending)


class RewardService:
    """The endpoints. opened: what opens each copy of the scorer, or the judge. name: what it is called. ParamsError:
    the setting does not fit it."""

    def __init__(self, opened: Sequence[Callable[[], Scorer]], name: str, how: RewardSetting) -> None:
        self.scorers: list[Any] = [each() for each in opened]
        self.opened, self.how, self.key, self.limit = opened, how, how.key, how.most_megabytes * 2**20
        self.served, self.metrics, self.asleep = Served(name, how.folder), Metrics(), False
        own = self.scorers[0].dimensions
        self.compares = isinstance(self.scorers[0], Judge) and not own
        self.rewards = (WIN_RATE, *get_args(Dimension)) if self.compares else ("overall", "calibrated", WIN_RATE, *own)
        if how.reward not in self.rewards:
            raise ParamsError(f"reward_service.reward is {how.reward!r}; {name} has {', '.join(self.rewards)}")

    def app(self) -> Starlette:
        paths = {form.path: name for name, form in reversed(FORMS.items())}  # of a path's forms the first one
        return Starlette(
            routes=[
                *(Route(path, self.health) for path in ("/health", "/ping", "/rewards")),
                Route("/metrics", self.tell),
                Route("/is_sleeping", self.tell_sleep),
                Route("/sleep", partial(self.turn, True), methods=["POST"]),
                Route("/wake_up", partial(self.turn, False), methods=["POST"]),
                *(Route(path, partial(self.reply_to, name), methods=["POST"]) for path, name in paths.items()),
            ],
            exception_handlers=dict.fromkeys((Rejected, HTTPException, Exception), refusal),
            lifespan=self.lifespan,
        )

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.room, self.preparing = serving.Room(serving.MAX_DECODED), ThreadPoolExecutor(engine().cpus())
        self.turning, ask = asyncio.Lock(), self.compare if self.compares else self.score
        answers = [partial(ask, copy) for copy in range(len(self.scorers))]
        ready = self.together if isinstance(self.scorers[0], Preparing) else None
        most = min(self.how.batch_size, self.scorers[0].batch_size) if ready else self.how.batch_size
        self.batcher = Batcher[Any, Any](answers, most, 0, self.how.gathering, ready)
        async with self.batcher.running():
            await self.of_each(self.open)
            yield
            await self.of_each(self.let_go)

    async def of_each(self, act: Callable[[int], None]) -> None:
        """In the thread of each copy: the store of a judge's answers is of one thread."""
        for copy, thread in enumerate(self.batcher.threads):
            await asyncio.get_running_loop().run_in_executor(thread, act, copy)

    async def health(self, request: Request) -> JSONResponse:
        """In the form that UniRL reads: the scorer's name, and the names of the values it gives."""
        return JSONResponse({"status": "ok", "rewards": {self.served.name: list(self.rewards)}})

    async def tell(self, request: Request) -> PlainTextResponse:
        self.admit(request)
        return PlainTextResponse(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def tell_sleep(self, request: Request) -> JSONResponse:
        self.admit(request)
        return JSONResponse({"is_sleeping": self.asleep})

    async def turn(self, to_sleep: bool, request: Request) -> Response:
        """Lets go of the scorer once all that was asked is answered, or opens it again; named as vLLM's."""
        self.admit(request)
        async with self.turning:
            if to_sleep or self.asleep:  # asleep already: what a failed wake-up has opened is let go of
                self.asleep = True
                while self.metrics.pending:
                    await asyncio.sleep(0.01)
                await self.of_each(self.let_go if to_sleep else self.open)
                self.asleep = to_sleep
        return Response()

    def open(self, copy: int) -> None:
        self.scorers[copy] = self.scorers[copy] or self.opened[copy]()
        if isinstance(self.scorers[copy], Judge):
            self.scorers[copy].__enter__()

    def let_go(self, copy: int) -> None:
        """The weights' memory is free, a GPU's too."""
        if isinstance(self.scorers[copy], Judge):
            self.scorers[copy].__exit__(None, None, None)
        self.scorers[copy] = None
        gc.collect()
        if torch := sys.modules.get("torch"):
            torch.cuda.empty_cache()

    async def reply_to(self, name: str, request: Request) -> Response:
        """name: of the form that has the request's path."""
        start, status, form, place = time.monotonic(), 500, name, PendingEdits(self.metrics, self.how.most_waiting)
        request.state.form = FORMS[name]
        try:
            await self.enter(request, place)
            values = await self.body(request, FORMS[name])
            form = form_of(name, values)
            reply = await self.answer(values, form, request, place)
            status = 200
            return reply
        except Rejected as error:
            status = error.status
            raise
        finally:
            place.leave()
            self.metrics.requests.labels(form, status).inc()
            self.metrics.seconds.observe(time.monotonic() - start)

    async def enter(self, request: Request, place: "PendingEdits") -> None:
        """Checks the key and takes a place before the body is read. A refused request's body is read and dropped."""
        try:
            self.admit(request)
            if self.asleep:
                raise Rejected(503, f"{self.served.name} sleeps until it is asked to wake up")
            place.take(1)
        except Rejected:
            size = 0
            with suppress(ClientDisconnect, TimeoutError):
                async with asyncio.timeout(serving.BODY_SECONDS):
                    async for chunk in request.stream():  # a client that still sends does not read the refusal
                        if (size := size + len(chunk)) > self.limit:
                            break
            raise

    def admit(self, request: Request) -> None:
        """Rejected (401): the key is neither the bearer's token nor the password of the address."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":
            try:
                given = base64.b64decode(given).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                given = ""
        if self.key is not None and not hmac.compare_digest(given.encode(), self.key.encode()):
            raise Rejected(401, "a key is needed: `Authorization: Bearer KEY`, or http://any:KEY@host:port")

    async def body(self, request: Request, form: type[RewardForm]) -> Any:
        """The plain values of the body."""
        body = await serving.read_body(request, self.limit)
        if form.pickled and not self.how.allow_pickle:
            raise Rejected(403, f"{form.path} takes pickles, which are switched off: start with --allow-pickle")
        try:
            return await run_in_threadpool(plain_pickle.loads if form.pickled else orjson.loads, body)
        except orjson.JSONDecodeError as error:
            raise Rejected(400, f"the body is not JSON: {error}") from None
        except plain_pickle.PickleError as error:
            raise Rejected(400, f"the pickle: {error}") from None

    async def answer(self, values: Any, name: str, request: Request, place: "PendingEdits") -> Response:
        try:
            asked = await run_in_threadpool(FORMS[name].model_validate, values)
        except ValidationError as error:
            raise serving.invalid(error) from None
        edits = await run_in_threadpool(asked.edits, self.served)
        count = sum(math.comb(len(group), 2) for group in groups.groups(edits)) if self.compares else 0
        place.take(max(len(edits) - 1, count - 1, 0), "comparisons" if self.compares else "edits")
        pairs = groups.pairs(edits) if self.compares else []
        shown = [() if isinstance(each, Unscored) else [*map(bytes, each.images.values())] for each in edits]
        sizes = await run_in_threadpool(lambda: [*map(serving.decoded_size, shown)])
        if self.compares:
            async with self.room.of(sum(sizes)):
                said = await self.batcher.ask([(edits[a], edits[b]) for a, b in pairs], request) if pairs else []
            answers = groups.by_verdicts(edits, dict(zip(pairs, said, strict=True)))
        else:
            answers = await asyncio.gather(*map(self.one, edits, sizes, repeat(request)))
        rewards = [self.reward(each) for each in answers]
        if self.how.reward == WIN_RATE and name != "score" and not self.compares:
            rewards = groups.by_scores(edits, rewards)
        for each in rewards:
            self.metrics.edits.labels(name, "scored" if math.isfinite(each.reward) else "unscored").inc()
        reply = asked.reply(rewards, self.served)
        if asked.pickled:
            return Response(pickle.dumps(reply), media_type="application/octet-stream")
        return Response(json.dumps(reply), media_type="application/json")  # Flow-Factory's has NaN

    async def one(self, edit: Edit | Unscored, decoded: int, request: Request) -> Score | Unscored:
        """decoded: bytes that its images will take."""
        if isinstance(edit, Unscored):
            return edit
        if not isinstance(self.scorers[0], Judge) and (why := several(edit)):
            return Unscored(why)
        async with self.room.of(decoded):
            if isinstance(self.scorers[0], Preparing):  # while the model is busy with others
                edit = await asyncio.get_running_loop().run_in_executor(self.preparing, self.scorers[0].prepare, edit)
            return await self.batcher.ask(edit, request)

    def together(self, edits: list[Edit]) -> Sequence[Edit]:
        return self.scorers[0].together(edits)

    def score(self, copy: int, edits: Sequence[Edit]) -> list[Score | Unscored]:
        self.metrics.batches.inc()
        self.metrics.batch_edits.inc(len(edits))
        found: list[Score | Unscored] = self.scorers[copy].score(edits)
        self.forget(copy)
        return found

    def compare(self, copy: int, asked: Sequence[Sequence[tuple[Edit, Edit]]]) -> list[list[BothOrders]]:
        """The verdicts on each request's pairs; all are asked about at once, each in both orders."""
        questions = groups.questions(pair for each in asked for pair in each)
        self.metrics.batches.inc()
        self.metrics.batch_edits.inc(len(questions))
        about = () if self.how.reward == WIN_RATE else (self.how.reward,)
        found = iter(self.scorers[copy].compare(questions, *about))
        self.forget(copy)
        return [[next(found) for _ in each] for each in asked]

    def forget(self, copy: int) -> None:
        if isinstance(self.scorers[copy], Judge):
            self.scorers[copy].account.forget()

    def reward(self, answer: Score | Unscored) -> Reward:
        """The answer, if its numbers are finite, with the reward that params.yaml chooses."""
        if isinstance(answer, Unscored):
            return Reward(answer, math.nan)
        values = {"overall": answer.overall, "calibrated": answer.calibrated} | dict(answer.dimensions)
        # Of a scorer until the others of its group are known.
        values |= dict.fromkeys(self.rewards if self.compares else [WIN_RATE], answer.overall)
        numbers = (*values.values(), *answer.std.values(), answer.overall_std)
        if not all(math.isfinite(each) for each in numbers if each is not None):
            return Reward(Unscored("the scorer's numbers are not finite"), math.nan)
        if (value := values[self.how.reward]) is None:
            return Reward(Unscored(f"the scorer has no value {self.how.reward}"), math.nan)
        return Reward(answer, float(value))


class PendingEdits:
    """Edits of a request that are not answered yet, counted in the metrics as pending."""

    def __init__(self, metrics: Metrics, most: int) -> None:
        self.metrics, self.most, self.taken = metrics, most, 0

    def take(self, count: int, what: str = "edits") -> None:
        """Rejected: 400 where it can never have so many, 503 where too many wait."""
        if self.taken + count > self.most:
            raise Rejected(400, f"{self.taken + count} {what} in a request, more than the limit of {self.most}")
        if self.metrics.pending + count > self.most:
            raise Rejected(503, f"{self.metrics.pending} {what} are waiting: ask again later")
        self.metrics.pending += count
        self.taken += count

    def leave(self) -> None:
        self.metrics.pending -= self.taken


async def refusal(request: Request, error: Exception) -> Response:
    """One line that says why, in the words of the request's form. Who sends pickles comes back after a 503 alone."""
    told, form = serving.rejected(error), getattr(request.state, "form", RewardForm)
    status = 503 if form.pickled and told.status == 408 else told.status
    kind = "application/octet-stream" if form.pickled else "application/json"
    reason = " ".join(told.message.encode(errors="replace").decode().split())
    return Response(form.refusal(reason), status, {"Retry-After": "1"} if status == 503 else None, kind)


def run(service: RewardService, port: int) -> None:
    """Serves until SIGTERM or Ctrl-C. Requests that came before it are still answered."""
    host, stop = service.how.host, service.how.stop_seconds
    print(f"http://{host}:{port} serves {service.served.name}", flush=True)
    uvicorn.run(service.app(), host=host, port=port, log_level="warning", timeout_graceful_shutdown=stop)
