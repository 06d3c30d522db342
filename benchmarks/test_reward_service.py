"""The reward service under load: `python -m pytest benchmarks/test_reward_service.py -s`, not in `make test`.

2,000 requests of one edit each, 64 in flight, every 20th with a broken image, to a process beside. The scorer is the
trained tiny one of the graph, on one thread of the CPU. Beside the service's rate stands the model's own, in batches of
the same size and one by one, that of a service whose batches have one edit, and that of single requests, one in flight.
Other work on the machine takes from all of them: edits a second of the service's own processor time stand beside, and
of its busiest thread's. On two free cores as many edits a second come through as that thread allows, and no more than
both cores do of all threads' work. A request that comes alone goes from thread to thread, and waits for others to be
batched with (GATHERING): together that is its time.
Bounds, by processor time: TIMES the rate of batches of one, GOAL of the model's own rate in batches, and on two free
cores FREE times single requests. None is lost, none answered 0, the values are those of this process.
"""

import asyncio
import base64
import io
import math
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np
import psutil
import torch
from PIL import Image

from editjudge.core import images
from editjudge.judges.protocol import Edit, Score
from editjudge.judges.scorers.checkpoint import CheckpointScorer
from editjudge.models.serve import launch
from editjudge.rewards.reward_settings import RewardSetting
from editjudge.rewards.rewards import RewardService, run

FOLDER = Path(__file__).parents[1] / "models/scorers/editreward"
REQUESTS, IN_FLIGHT, BATCH, SIDE = 2_000, 64, 32, 128
TIMES, GOAL, FREE, GATHERING = 1.9, 0.7, 3.8, 0.005


def scorer() -> CheckpointScorer:
    torch.set_num_threads(1)
    return CheckpointScorer.load(FOLDER, batch_size=BATCH)


def edits() -> list[Edit]:
    """Photographs of smooth noise, each with an edit; every 20th edit is cut off."""
    rng = np.random.default_rng(0)
    photos = []
    for _ in range(40):
        noise = np.stack([images.smooth_noise(SIDE, SIDE, 6, rng) for _ in range(3)], -1)
        buffer = io.BytesIO()
        Image.fromarray((noise * 40 + 128).clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=95)
        photos.append(buffer.getvalue())
    made = [Edit("Make it night", photos[n % 40], photos[(n * 7 + n // 40) % 40]) for n in range(REQUESTS)]
    return [Edit(e.instruction, e.source, bytes(e.edited)[:99]) if n % 20 == 0 else e for n, e in enumerate(made)]


def serve(port: int, batch_size: int) -> None:
    how = RewardSetting(port=port, batch_size=batch_size, gathering=GATHERING, allow_pickle=True)
    run(RewardService([scorer], "tiny", how), port)


@dataclass(frozen=True)
class Service:
    """A service in a process of its own."""

    url: str
    process: psutil.Process

    def used(self) -> dict[int, float]:
        """Seconds of each thread's processor time so far."""
        return {each.id: each.user_time + each.system_time for each in self.process.threads()}


@contextmanager
def served(batch_size: int) -> Iterator[Service]:
    port = launch.free_port("127.0.0.1", 0)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port, batch_size))
    process.start()
    try:
        while not launch.healthy(f"http://127.0.0.1:{port}/health"):
            assert process.is_alive()
            time.sleep(0.1)
        yield Service(f"http://127.0.0.1:{port}/score", psutil.Process(process.pid))
    finally:
        process.terminate()  # SIGTERM: it ends by itself
        process.join(60)


def body(edit: Edit) -> dict:
    source, edited = (base64.b64encode(bytes(each)).decode() for each in (edit.source, edit.edited))
    return {"edits": [{"instruction": edit.instruction, "source": source, "edited": edited}]}


async def ask_all(url: str, asked: list[Edit], in_flight: int) -> tuple[list[dict], list[float], float]:
    """The results, the seconds of each request, and those of all."""
    seconds, places = [0.0] * len(asked), asyncio.Semaphore(in_flight)
    async with httpx2.AsyncClient(timeout=600, limits=httpx2.Limits(max_connections=in_flight)) as client:

        async def ask(number: int) -> dict:
            async with places:
                start = time.monotonic()
                reply = await client.post(url, json=body(asked[number]))
                seconds[number] = time.monotonic() - start
            assert reply.status_code == 200, reply.text
            return reply.json()["results"][0]

        start = time.monotonic()
        results = await asyncio.gather(*map(ask, range(len(asked))))
    return results, seconds, time.monotonic() - start


def own_rate(own: CheckpointScorer, asked: list[Edit], batch_size: int) -> tuple[float, ...]:
    """Edits a second, and a second of processor time, without a service."""
    start, used = time.monotonic(), time.process_time()
    for first in range(0, len(asked), batch_size):
        own.score(asked[first : first + batch_size])
    return len(asked) / (time.monotonic() - start), len(asked) / (time.process_time() - used)


def rate(service: Service, asked: list[Edit], in_flight: int) -> tuple[float, ...]:
    """Edits a second, a second of processor time, and one of the busiest thread's."""
    before = service.used()
    whole = asyncio.run(ask_all(service.url, asked, in_flight))[2]
    used = [seconds - before.get(thread, 0.0) for thread, seconds in service.used().items()]
    return len(asked) / whole, len(asked) / sum(used), len(asked) / max(used)


def test_two_thousand_requests() -> None:
    asked, own = edits(), scorer()
    with served(1) as one, served(BATCH) as many:
        for service in (one, many):
            rate(service, asked[:64], IN_FLIGHT)
        own.score(asked[:BATCH])
        rates = {
            "own": own_rate(own, asked[:320], BATCH),
            "own, one by one": own_rate(own, asked[:128], 1),
            "service": rate(many, asked[:640], IN_FLIGHT),
            "service, batches of one": rate(one, asked[:256], IN_FLIGHT),
            "service, one in flight": rate(many, asked[:128], 1),
        }
        results, seconds, whole = asyncio.run(ask_all(many.url, asked, IN_FLIGHT))
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    print()
    for name, (wall, used, *busiest) in rates.items():
        most = f", {busiest[0]:.0f} of its busiest thread's" if busiest else ""
        print(f"{name}: {wall:.0f} edits a second, {used:.0f} a second of processor time{most}")
    print(f"{REQUESTS} requests, {IN_FLIGHT} in flight: {REQUESTS / whole:.0f} a second")
    print(f"p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    single = rates["service"][0] / rates["service, one in flight"][0]
    times, share = rates["service"][1] / rates["service, batches of one"][1], rates["service"][1] / rates["own"][1]
    both = min(rates["service"][2], 2 * rates["service"][1])
    free = both * (1 / rates["service, one in flight"][1] + GATHERING)
    print(f"{single:.1f} times single requests, {free:.1f} times on two free cores")
    print(f"by processor time {times:.1f} times batches of one, {share:.2f} of own")
    check(results, asked, own)
    assert times >= TIMES
    assert share >= GOAL
    assert free >= FREE


def check(results: list[dict], asked: list[Edit], own: CheckpointScorer) -> None:
    assert len(results) == len(asked)
    assert [n for n, each in enumerate(results) if each["overall"] is None] == list(range(0, REQUESTS, 20))
    assert all(each["reason"] for each in results[::20])
    assert all(each["overall"] != 0 for each in results)
    for n in range(1, REQUESTS, 97):
        score = own.score([asked[n]])[0]
        if isinstance(score, Score):
            assert math.isclose(results[n]["overall"], score.overall, abs_tol=1e-4)
