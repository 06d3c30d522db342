"""How fast an endpoint is asked: `python -m pytest benchmarks/test_asking.py -s`, not in `make test`.

The server is the tests' own, in a process beside, on loopback; it needs about as much of a core as the client. Three
ideals stand beside the figure, none of which has any work to do itself: `plain`, in which failures cost nothing;
`slots`, in which a failed try holds its place in flight as long as it took (a hang, the timeout) and all places are
always busy; and `schedule`, the same with the waits between tries and the way out of the last questions, as a
simulation of this very run. The last questions' hangs and waits leave places empty, so the pace until 95 % had an
answer stands beside `slots`. At 50 ms the ideal pace of 1,280 questions a second is about what one core can do; so the
bound holds where a tenth of the tries fail, which the client is for, and the pace without failures is printed.
"""

import asyncio
import heapq
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from editjudge.engine import resume
from editjudge.engine.resume import RecordCache
from editjudge.judges import asking
from editjudge.judges.styles import style
from editjudge.models.chat.asking import ChatAsking, ChatTask, EndpointModel
from editjudge.models.chat.settings import EndpointSetting
from editjudge.models.endpoint.spending import Account
from tests.helpers.chat_client import chat_server, questions, setting

PAIRS, IN_FLIGHT = 1_000, 64
GOAL, SHARE = 0.85, 0.95


class Clock(resume.RecordCache):
    """A cache that knows when each answer came."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.times: list[float] = []

    def put(self, key: str, meta: dict[str, Any], data: bytes | None = None) -> None:
        super().put(key, meta, data)
        self.times.append(time.monotonic())


def schedule(fates: list[list[str | None]], delay: float, timeout: float) -> float:
    """Seconds that the run takes if nothing takes time but the tries and the mean waits between them."""
    new, now, free = deque((fate, 0) for fate in fates), 0.0, IN_FLIGHT
    events: list[tuple[float, int, int, list[str | None], int]] = []  # when, 0 a try ends or 1 a wait ends, ...
    while new or events:
        while new and free:
            fate, tried = new.popleft()
            free -= 1
            end = now + (timeout if fate[tried] == "hang" else delay)
            heapq.heappush(events, (end, 0, id(fate), fate, tried))
        now, kind, _, fate, tried = heapq.heappop(events)
        if kind == 1:
            new.appendleft((fate, tried + 1))
            continue
        free += 1
        if fate[tried] is not None:
            mean = 0.25 * 2**tried
            wait = 0.2 + 0.1 * mean if fate[tried] == "429" else mean
            heapq.heappush(events, (now + wait, 1, id(fate), fate, tried))
    return now


@pytest.mark.parametrize(
    ("delay", "failures", "timeout"), [(0.05, 0.0, 0.5), (0.05, 0.1, 0.5), (0.05, 0.1, 1.0), (0.5, 0.1, 2.0)]
)
def test_two_thousand_questions(tmp_path: Path, delay: float, failures: float, timeout: float) -> None:
    with chat_server(delay=delay, failures=failures) as server:
        how = setting(server.url, timeout=timeout, max_in_flight=IN_FLIGHT, tries=8)
        account = asking.open_accounts({"gpt": how})["gpt"]
        with Clock(tmp_path / "c") as cache:
            answers = asking.ask(how, questions(PAIRS), {}, cache, account)
        fates = list(server.log()["fates"].values())
    took, most = account.seconds, account.seconds - (cache.times[-1] - cache.times[int(SHARE * len(cache.times))])
    assert all(order.winner or order.reason for each in answers for order in (each.forward, each.backward))
    tries = [kind for each in fates for kind in each]
    held = sum(timeout if kind == "hang" else delay for kind in tries)
    ideals = {
        "plain": 2 * PAIRS * delay / IN_FLIGHT,
        "slots": held / IN_FLIGHT,
        "schedule": schedule(fates, delay, timeout),
    }
    print(f"\n{delay:g} s a reply, {failures:.0%} fail, timeout {timeout:g} s: {len(tries)} tries, ", end="")
    print(f"{took:.2f} s, ", end="")
    print(f"{2 * PAIRS / took:.0f} questions/s, {account.failures.total()} failed; ", end="")
    print(", ".join(f"{ideal / took:.0%} of {name} ({ideal:.2f} s)" for name, ideal in ideals.items()), end="")
    print(f"; until {SHARE:.0%} had an answer, {SHARE * held / IN_FLIGHT / most:.0%} of slots")
    assert not failures or ideals["schedule"] / took >= GOAL


def test_what_a_call_costs_beside_the_openai_client(tmp_path: Path) -> None:
    calls = 400
    with chat_server(delay=0.0, bodies=True) as server, RecordCache(tmp_path / "c") as store:
        plain = EndpointSetting(base_url=server.url, model="m")
        start = time.process_time()
        model = EndpointModel(ChatAsking(plain, style("pvc"), store, Account()), server.url, None)
        model.answer_all([ChatTask(question.key, question) for question in questions(calls)])
        ours = time.process_time() - start
        client = openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)
        body = json.loads(server.log()["bodies"][0])
        start = time.process_time()
        asyncio.run(in_flight(lambda: client.chat.completions.create(**body), calls))
        theirs = time.process_time() - start
    print(f"\nCPU a call: ours, with reading the verdict and its confidence {ours / calls * 1e3:.2f} ms; ", end="")
    print(f"the openai client alone {theirs / calls * 1e3:.2f} ms")
    assert ours < theirs


async def in_flight(call: Callable[[], Awaitable[object]], calls: int) -> None:
    """So many calls, IN_FLIGHT at a time."""
    numbers = iter(range(calls))

    async def work() -> None:
        for _ in numbers:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(work())
