"""The budget of one run of an API editor, kept request by request."""

import asyncio
import sys

from editjudge.editors.api.settings import ImageBudget
from editjudge.editors.request import EditFailed

SLIP = 1e-9  # of sums of money, in images


class Purse:
    """What may still be spent. A request is paid for when it is sent; one that is answered by an error costs nothing.

    One without an answer (a timeout, a cut connection) may have been worked on, and has been paid for.
    """

    def __init__(self, budget: ImageBudget, price: float) -> None:
        self.budget = budget
        self.spent = 0  # requests, those under way included
        self._under_way = 0
        self._most = budget.images or sys.maxsize
        if budget.money:
            self._most = min(self._most, int(budget.money / price + SLIP))
        self._changed = asyncio.Event()

    async def take(self) -> None:
        """Pays for a request. Waits while one under way may turn out free; raises EditFailed (budget) if none can."""
        while self.spent >= self._most:
            self.check()
            await self._changed.wait()
        self.spent += 1
        self._under_way += 1

    def check(self) -> None:
        """Raises EditFailed (budget) where nothing is left, and nothing under way may turn out free."""
        if self.spent >= self._most and not self._under_way:
            raise EditFailed("budget", f"not asked for: {self.closed()}")

    def done(self) -> None:
        self._under_way -= 1
        self._changed.set()
        self._changed = asyncio.Event()

    def failed(self, kind: str) -> None:
        """A request under way failed; `kind` is its status where it was answered by an error."""
        self.spent -= kind.isdigit() and kind != "200"
        self.done()

    def closed(self) -> str:
        parts = [f"{most:g} {name}" for name, most in vars(self.budget).items() if most]
        return f"the run's budget of {' or '.join(parts)} is spent"
