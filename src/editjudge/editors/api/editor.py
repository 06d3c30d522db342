"""An editing model behind the API of a provider (`editjudge.editors.api.forms`), asked for many edits at a time."""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from editjudge.core import images, scans
from editjudge.core.downloads import DownloadLimits, Downloads
from editjudge.core.tables import RowError
from editjudge.editors import protocol
from editjudge.editors.api import form
from editjudge.editors.protocol import SIDE_ENOUGH, Edited, EditFailed, Keep, Outcome, Request, Requests
from editjudge.editors.settings import ApiSetting
from editjudge.models.endpoint.client import TOO_LARGE, Body, CallFailed, Connection, Endpoint, EndpointError, Refused

WAITING = 4  # edits under way for each place in flight: one that waits before its next try holds no place
DOWN = 20  # edits in a row that the endpoint did not answer, after which no more are asked for
SEEDS = 2**31  # providers take seeds of 31 bits
SLIP = 1e-9  # of sums of money, in images
BASE64, FRAME = 4 / 3, 65_536  # what an answer takes for each byte of its image, and beside it
BROKEN = "wrong_output"  # kind of an answer that is no image that can be used: it has been paid for, and is kept
OF_THE_IMAGE = ("image too large", "not an image")  # reasons of the downloader that are not the network's
OF_THE_LINE = ("per_minute", "timeout", "tries")


class ApiEditor:
    """Edits through the endpoint of its setting, in one run; `name` is its entry's; urls: of copies that take turns in
    the place of its base_url. ParamsError where there is no key.

    Kinds of failures: refused (by the provider's policy), wrong_output, bad_source and several_sources will be the same
    another time. All others pass, and should be asked for again by another run: budget (not asked for: the run's budget
    is spent), timeout, connection, malformed, download, a status such as 429, and not_asked (the endpoint is down)."""

    def __init__(self, setting: ApiSetting, name: str, urls: Sequence[str] = ()) -> None:
        self.setting, self.name = setting, name
        self.form: form.Form = import_module(setting.module).FORM
        self.most_in_flight = setting.max_in_flight * max(1, len(urls))
        self.line = Connection(
            setting.base_url,
            setting.key(),
            self.most_in_flight,
            header=self.form.header,
            most_bytes=int(setting.megabytes * 1e6 * BASE64) + FRAME,
            copies=tuple(urls),
            **{field: getattr(setting, field) for field in OF_THE_LINE},
        )
        self.most = setting.budget.images or sys.maxsize  # requests that may be paid for
        if setting.budget.money:
            self.most = min(self.most, int(setting.budget.money / setting.price + SLIP))
        self.retries, self.outcomes = Counter[str](), Counter[str]()
        self.requests = self.spent = self.failed_in_a_row = 0
        self.seconds = 0.0
        self.answered = False
        self.closed: EndpointError | None = None

    def edit_many(self, requests: Requests, keep: Keep) -> None:
        """Gives `keep` each request's name and outcome, once, as soon as it is known; requests are taken one by one.

        EndpointError, after what was under way: the endpoint refuses the key or the model; the rest is not asked."""
        start = time.monotonic()
        try:
            asyncio.run(self._edit_many(requests, keep))
        finally:
            self.seconds += time.monotonic() - start
        if self.closed is not None:
            raise self.closed

    def report(self) -> dict[str, Any]:
        """Of the run, for metrics/resume. money: what was asked for, at the setting's price."""
        return {
            "outcomes": dict(sorted(self.outcomes.items())),
            "left": self.outcomes["budget"],
            "requests": self.requests,
            "retries": dict(sorted(self.retries.items())),
            "money": round(self.spent * self.setting.price, 6),
            "seconds": round(self.seconds, 3),
        }

    async def _edit_many(self, requests: Requests, keep: Keep) -> None:
        setting, most = self.setting, self.most_in_flight
        limits = DownloadLimits(most, setting.megabytes, setting.timeout, setting.tries, private_hosts=False)
        # Threads, not the engine: they decode and encode, in C, while this one waits for the endpoint.
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(most) as self.pool:
            own = _place(setting.base_url)[1:]  # images by address come from public hosts, and from the endpoint's own
            with closing(Downloads(Path(folder), limits, own=own)) as self.fetched:
                async with Endpoint(self.line, self.retries) as self.endpoint, asyncio.TaskGroup() as group:
                    for _ in range(WAITING * most):
                        group.create_task(self._work(requests, keep))

    async def _work(self, requests: Requests, keep: Keep) -> None:
        for name, request in requests:
            try:
                outcome = await self._edit(request)
            except EditFailed as failure:
                outcome = Outcome(None, kind=failure.kind, reason=str(failure))
            except EndpointError as error:  # those under way may still be answered, and have been paid for
                self.closed = error
                return
            self.outcomes[outcome.kind or "done"] += 1
            keep(name, outcome)

    async def _edit(self, request: Request) -> Outcome:
        """Raises EditFailed, and EndpointError where the endpoint's first answer says that no other can be."""
        if self.failed_in_a_row >= DOWN:
            raise EditFailed("not_asked", f"not asked: the {DOWN} edits before had no answer")
        protocol.check_count(request, self.setting.sources)
        self._check_budget()
        arguments = dict(getattr(self.setting, request.use))
        if self.setting.send_seed:
            arguments["seed"] = request.seed % SEEDS

        where = self.setting.image_field
        asked = form.Asked(request.sources, request.instruction, self.setting.model, arguments, where)

        async def write() -> Body:
            if self.closed is not None:
                raise self.closed
            body = self.form.write(asked)
            self._check_budget()
            self.requests, self.spent = self.requests + 1, self.spent + 1
            return body

        def failed(kind: str) -> None:  # its status where the try was answered by an error, which costs nothing
            self.spent -= kind.isdigit() and kind != "200"

        answer: bytes | str
        try:
            path = self.form.path(self.setting.model)
            answer, _, _ = await self.endpoint.post(path, write, self.form.read, failed)
        except CallFailed as failure:
            raise self._failure(failure) from None
        self.answered, self.failed_in_a_row = True, 0
        edited = await asyncio.get_running_loop().run_in_executor(self.pool, self._made, answer)
        outcome = protocol.attempt(lambda _: edited, replace(request, more=()))
        # Of another shape, it has been paid for: it is resized to the source where it is measured, as all edits are,
        # and metrics/candidates lists it. Of several sources it may have the shape of another, and shows the wrong one.
        other_shape = outcome.kind == "wrong_size" and not request.more
        kept = other_shape and max(edited.image.shape) >= SIDE_ENOUGH
        return Outcome(images.encode_png(edited.image), None) if kept else outcome

    def _check_budget(self) -> None:
        """Raises EditFailed where nothing is left. One that hung or was cut may have been worked on: it is paid."""
        if self.spent >= self.most:
            parts = [f"{most:g} {name}" for name, most in vars(self.setting.budget).items() if most]
            raise EditFailed("budget", f"not asked for: the run's budget of {' or '.join(parts)} is spent")

    def _failure(self, failure: CallFailed) -> EditFailed:
        if failure.kind == TOO_LARGE:
            return EditFailed(BROKEN, failure.reason)
        failed = form.refusal(failure) if isinstance(failure, Refused) else EditFailed(failure.kind, failure.reason)
        if failed.kind == "refused":
            self.answered, self.failed_in_a_row = True, 0
            return failed
        if isinstance(failure, Refused) and not self.answered and failure.everyones():
            raise EndpointError(failure.reason)
        self.failed_in_a_row += 1
        return failed

    def _made(self, sent: bytes | str) -> Edited:
        """The image of an answer, or at the address in it, in a thread of the pool. Raises EditFailed."""
        data = sent if isinstance(sent, bytes) else fetch(self.fetched, sent, self.setting.base_url)
        try:
            return Edited(scans.decode(data), None)
        except images.ImageError as error:
            raise EditFailed(BROKEN, f"the edited image: {error}") from error


def fetch(downloads: Downloads, url: str, base_url: str) -> bytes:
    """The image's bytes, by https or from the endpoint's own host. EditFailed, without the address: it may be a key."""
    try:
        place = _place(url)
    except ValueError:  # brackets without an address, or a port above 65535
        place = "", "", 0
    if place[0] != "https" and place != _place(base_url):
        raise EditFailed("download", "the image's address is neither https nor at the endpoint's own host")
    try:
        data = downloads.fetch(url)
    except RowError as error:
        kind = BROKEN if error.reason in OF_THE_IMAGE else "download"
        shown = f": {error.detail}" if "://" not in error.detail else ""
        raise EditFailed(kind, f"the image's address: {error.reason}{shown}") from None
    downloads.forget(url)
    return data


def _place(url: str) -> tuple[str, str, int]:
    """Scheme, host and port. Raises ValueError."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
