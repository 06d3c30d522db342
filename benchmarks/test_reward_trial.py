"""The reward service under attack: `python -m pytest benchmarks/test_reward_trial.py -s`, not in `make test`.

10,000 requests of one edit each (`--requests`) in all seven forms, 32 in flight, and a hostile one for every 20 of them
(tests/helpers/reward_trial.py), of up to 10 MB, to a process with the trained tiny scorer. None is lost, none answered
0, the service does not die, and its memory stays below LIMIT above what it had before.
"""

import math
import threading
import time

import psutil
import pytest
from reward_trial import EVERY, trial
from test_reward_service import edits, scorer, served

from editjudge.judges.protocol import Score

LIMIT = 1.5 * 2**30


def test_ten_thousand_requests_and_five_in_a_hundred_hostile(request: pytest.FixtureRequest) -> None:
    count, some = request.config.getoption("requests"), [edit for n, edit in enumerate(edits()) if n % EVERY]
    asked, own, most, done = [some[n % len(some)] for n in range(count)], scorer(), [0], threading.Event()
    with served(32) as service:
        process = psutil.Process(service.process.pid)
        before, start = process.memory_info().rss, time.monotonic()

        def watch() -> None:
            while not done.wait(0.05):
                most[0] = max(most[0], process.memory_info().rss)

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            found = trial(service.url.removesuffix("/score"), "tiny", asked, 10_000_000, 32)
        finally:
            done.set()
            watching.join()
        assert process.is_running()
    print(f"\n{count} requests and {found.statuses.total()} hostile ones in {time.monotonic() - start:.0f} s")
    print(f"{before / 2**20:.0f} MiB before, at most {most[0] / 2**20:.0f} MiB; {dict(sorted(found.statuses.items()))}")
    lost = [answer for answer in found.answers if not isinstance(answer, Score)]
    assert lost == []
    assert all(answer.overall for answer in found.answers)
    assert most[0] - before < LIMIT
    assert {status // 100 for _, status in found.statuses} <= {0, 2, 4}
    for n in range(0, count, max(1, count // 50)):
        [score] = own.score([asked[n]])
        assert math.isclose(found.answers[n].overall, score.overall, abs_tol=1e-4)
