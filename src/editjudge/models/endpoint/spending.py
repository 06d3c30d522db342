"""What a judge's answers cost, and a budget that ends the asking.

`cost` counts the answers that a stage used, whoever asked for them and when: the same answers give the same figures.
`this_run` counts what one run did, which depends on what was kept before and on the weather of the network."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import Any

from pydantic.dataclasses import dataclass as settings_class

from editjudge.core.settings import FORBID, Amount, Count
from editjudge.engine.unfinished import Gap

MILLION = 1_000_000
SLIP = 1e-9  # of sums of money, in answers


@dataclass(frozen=True)
class Usage:
    """What answers cost: requests sent (failed ones too), tokens read and written, images sent, seconds of waiting."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    images: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(*map(sub, vars(self).values(), vars(other).values()))


def total(usages: Sequence[Usage | None]) -> Usage | None:
    """What all of them cost together; None where that of one is unknown."""
    known = [usage for usage in usages if usage is not None]
    return sum(known, Usage()) if len(known) == len(usages) else None


@settings_class(frozen=True, config=FORBID)
class Price:
    """Money, in any currency: per million tokens read (`input`) and written (`output`), and per image sent."""

    input: Amount = 0.0
    output: Amount = 0.0
    image: Amount = 0.0

    def of(self, usage: Usage) -> float:
        tokens = usage.tokens_in * self.input + usage.tokens_out * self.output
        return tokens / MILLION + usage.images * self.image


@settings_class(frozen=True, config=FORBID)
class Budget:
    """The most that the answers a stage uses may cost, those kept before included; 0: no limit.

    questions: one order of a pair, or one edit to be scored, in one pass. tokens: read and written.
    money: in the currency of the price."""

    questions: Count = 0
    tokens: Count = 0
    money: Amount = 0.0


@dataclass
class Account:
    """Of one judge, by its name, in one run of a stage.

    used: the cost of each answer that is used, by its name in the cache; None where the judge does not know it.
    asked, reused: answers that came in this run, and that had been kept. unread: answers among those used without a
    verdict in them. unasked: questions that the budget left unasked. failures: questions without an answer, by kind.
    retries: tries that were repeated, by kind. left_out: options that the endpoint refused."""

    judge: str = "judge"
    price: Price = field(default_factory=Price)
    budget: Budget = field(default_factory=Budget)
    used: dict[str, Usage | None] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    asked: int = 0
    reused: int = 0
    unasked: int = 0
    seconds: float = 0.0
    requests: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    left_out: set[str] = field(default_factory=set)
    _total: Usage = field(default_factory=Usage)
    _unknown: int = 0
    _most_tokens: int = 0
    _most_money: float = 0.0

    def use(self, name: str, usage: Usage | None, read: bool) -> None:
        """Counts an answer, once however often it is used; one that was read anew replaces what was known of it."""
        before = self.used.get(name, Usage())
        self._unknown += (usage is None) - (before is None)
        self._total += (usage or Usage()) - (before or Usage())
        if usage is not None:
            self._most_tokens = max(self._most_tokens, usage.tokens_in + usage.tokens_out)
            self._most_money = max(self._most_money, self.price.of(usage))
        self.used[name] = usage
        (self.unread.discard if read else self.unread.add)(name)

    def forget(self) -> None:
        """Lets go of the names of answers where no budget counts them, for who answers for days: the last one alone
        stays, since something has been answered."""
        if not any(vars(self.budget).values()):
            self.used = dict([*self.used.items()][-1:])
            self.unread &= self.used.keys()

    def left(self) -> int:
        """How many more questions the budget surely allows."""
        questions = self.budget.questions - len(self.used) if self.budget.questions else sys.maxsize
        return max(0, min(questions, self.affordable()))

    def affordable(self) -> int:
        """How many more replies the budgets of tokens and money allow, each as dear as the dearest answer so far.

        One as long as no cost is known; none where the endpoint does not say its tokens."""
        paid, budget = self._total, self.budget
        tokens = (budget.tokens, paid.tokens_in + paid.tokens_out, self._most_tokens)
        money = (budget.money, self.price.of(paid), self._most_money)
        rest = [(limit - used, most) for limit, used, most in (tokens, money) if limit]
        if rest and self._unknown:
            return 0
        return min((int(left / most + SLIP) if most else int(left > 0) for left, most in rest), default=sys.maxsize)

    def closed(self) -> str:
        """Why no more is asked."""
        why = "the endpoint does not say its tokens, so that no budget of tokens or money can be kept"
        if not (self._unknown and (self.budget.tokens or self.budget.money)):
            parts = [f"{most:g} {name}" for name, most in vars(self.budget).items() if most]
            why = f"one more question might go beyond {' or '.join(parts)}"
        return f"budget spent: {why}"

    def gap(self, where: str) -> Gap:
        """The questions without an answer that another run may bring; not those whose image cannot be used.

        where: the judge's key in params.yaml."""
        missing = self.failures + Counter(budget=self.unasked)  # without those that are 0
        del missing["image"]
        total = self.asked + self.reused + self.failures.total() + self.unasked
        return Gap(f"answers of {where}", missing, total, f"{where}.budget")

    def cost(self) -> dict[str, Any]:
        """Of the answers used. Sums are over those whose cost is known; None where none is, or without a price."""
        some = self._unknown < len(self.used)
        return {
            "answers": len(self.used),
            "unread": len(self.unread),
            "unasked": self.unasked,
            "unknown_cost": self._unknown,
            "tokens_in": self._total.tokens_in if some else None,
            "tokens_out": self._total.tokens_out if some else None,
            "images": self._total.images if some else None,
            "money": round(self.price.of(self._total), 6) if some and self.price != Price() else None,
        }

    def this_run(self) -> dict[str, Any]:
        """Of this run, for metrics/resume."""
        return {
            "asked": self.asked,
            "reused": self.reused,
            "unasked": self.unasked,
            "failed": self.failures.total(),
            "failures": dict(sorted(self.failures.items())),
            "requests": self.requests,
            "retries": dict(sorted(self.retries.items())),
            "options_refused": sorted(self.left_out),
            "seconds": round(self.seconds, 3),
        }


def cost_rows(accounts: Mapping[str, Account]) -> list[dict[str, Any]]:
    """A list, so that `dvc metrics show` leaves it out."""
    return [{"judge": judge, **account.cost()} for judge, account in accounts.items()]


def run_report(accounts: Mapping[str, Account]) -> dict[str, Any]:
    """metrics/resume/judge_<benchmark>.json: what each judge was asked in one machine's last run."""
    return {judge: account.this_run() for judge, account in accounts.items()}
