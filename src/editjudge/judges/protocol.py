"""What judges are asked and answer: two verbs, and how the answers in both orders of a pair become one verdict.

A **judge** compares: which of two edits is better (`compare`). A **scorer** gives one edit a number (`score`). A
**rater** gives one edit scores in words, by a rubric. Each of them is a `Judge` here: a scorer or a rater compares by
its scores, and a judge whose prompt only compares refuses to score."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from editjudge.core.errors import UserError
from editjudge.core.files import work
from editjudge.core.records import Image
from editjudge.core.winner import OTHER_SIDE, Winner, ahead
from editjudge.engine.resume import RecordCache
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.endpoint.spending import Account, Usage, total

DECIMALS = 4  # of probabilities in records
DIGITS = 9  # of a difference of scores: 3.2 - 2.8 shall be 0.4
Rule: TypeAlias = Literal["agreement", "probability"]
Dimension: TypeAlias = Literal["visual_consistency", "instruction_following", "visual_quality", "overall"]
CONSISTENCY: Dimension = "visual_consistency"


@dataclass(frozen=True)
class Context:
    """What a judge by measures needs to know of a pair beside its images.

    boxes, masks: the record's own, see `core.masks.of_rows`. setting: the models, the same for all."""

    recipe: Recipe
    boxes: tuple[tuple[int, int, int, int], ...]
    setting: SlotSetting = field(default=SlotSetting(), hash=False)
    masks: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Question:
    """One pair to compare: the images encoded (PNG, JPEG or WebP). context: for judges by measures alone. task: chooses
    the question where a task has its own. truth, captions, more: as of an `Edit`."""

    key: str
    instruction: str
    source: Image
    a: Image
    b: Image
    context: Context | None = field(default=None, kw_only=True)
    task: str = field(default="", kw_only=True)
    truth: Image | None = field(default=None, kw_only=True)
    captions: tuple[str, str] | None = field(default=None, kw_only=True)
    more: Mapping[str, Image] = field(default_factory=dict, hash=False, kw_only=True)

    @property
    def images(self) -> dict[str, Image]:
        """By name, the source first."""
        return {"source": self.source, "a": self.a, "b": self.b, **self.more}

    @property
    def edits(self) -> "list[Edit]":
        """Both edits, each to be scored by itself."""
        more: Any = {"task": self.task, "key": self.key, "more": self.more}
        both = (self.a, self.b)
        return [Edit(self.instruction, self.source, each, self.truth, self.captions, **more) for each in both]


@dataclass(frozen=True)
class Edit:
    """One edit to score: the images encoded (PNG, JPEG or WebP).

    truth: the edit as it should be; captions: of the source and of the wanted edit. Few data have them, and only the
    baselines of scorers.features look at them. task: a task or a rubric's type; only raters, who have a rubric for each
    type, use it. key: names the edit in answers. more, texts: by name, what else is shown, and what a suite's case
    tells. `source_2` and so on are more pictures that it was made from: chat models see them, all others refuse."""

    instruction: str
    source: Image
    edited: Image
    truth: Image | None = None
    captions: tuple[str, str] | None = None
    task: str = ""
    key: str = ""
    more: Mapping[str, Image] = field(default_factory=dict, hash=False)
    texts: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def images(self) -> dict[str, Image]:
        return {"source": self.source, "edited": self.edited, **self.more}


@dataclass(frozen=True)
class Score:
    """A scorer's or rater's scores of an edit; higher is better.

    overall: the dimensions aggregated as the scorer's setting says, in its own unit.
    dimensions: by name, in the scorer's own unit.
    std: the standard deviation of each dimension, in the same unit; empty if the scorer has none.
    overall_std: that of `overall`; None if unknown.
    calibrated: 0..1, the share of the edits of its own training data that score lower; None if unknown.
    said: a rater's replies."""

    overall: float
    dimensions: Mapping[str, float]
    std: Mapping[str, float] = field(default_factory=dict)
    overall_std: float | None = None
    calibrated: float | None = None
    said: str | None = None


def several(asked: "Edit | Question") -> str | None:
    """Why who takes one source does not look at it: it was made from more than one."""
    count = 1 + sum(name.startswith("source_") for name in asked.more)
    return f"{count} source images: a scorer takes one" if count > 1 else None


@dataclass(frozen=True)
class Unscored:
    """An edit without a score, and why; said: the replies, if any came. It is never 0."""

    reason: str
    said: str | None = None


@dataclass(frozen=True)
class Verdict:
    """A judge's answer to the question `key`.

    winner: None when there is no verdict (a broken image, a reply that cannot be read); then `reason` says why.
    p_a: probability in 0..1 that A wins, ties apart; None if the judge gives none for this reply.
    reply: the judge's words as they came; empty if it was not asked.
    usage: what the answer cost; None if unknown."""

    key: str
    winner: Winner | None = None
    p_a: float | None = None
    reply: str = ""
    reason: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True)
class Rating:
    """A model's scores of one edit. scores: by dimension, of a rubric whole numbers (and `flag`, 0 or 1), of VIEScore
    0..10; None if there are none, and `reason` says why. reply: as it came, or empty. asked: as in RawReply."""

    key: str
    scores: Mapping[str, float] | None
    reply: str
    reason: str | None
    usage: Usage | None = None
    asked: str | None = None


@dataclass(frozen=True)
class BothOrders:
    """The answers to a question as asked, and with A and B exchanged, and the verdict over the two.

    scores: A's and B's, of a judge that compares by scores; None if there is none."""

    forward: Verdict
    backward: Verdict
    combined: Verdict
    scores: tuple[float | None, float | None] = (None, None)

    def columns(self) -> dict[str, Any]:
        """As records hold it: all winners and probabilities in the forward order, rounded to DECIMALS."""
        back = mirrored(self.backward)
        return {
            "forward": self.forward.winner,
            "backward": back.winner,
            "winner": self.combined.winner,
            "p_a": rounded(self.combined.p_a),
            "p_a_forward": rounded(self.forward.p_a),
            "p_a_backward": rounded(back.p_a),
            "reason": self.combined.reason,
        }

    def score_columns(self) -> dict[str, float | None]:
        """The scores as records hold them, rounded to DIGITS: two closer than 1e-4 are not the same."""
        sides = zip(("score_a", "score_b"), self.scores, strict=True)
        return {side: None if score is None else round(score, DIGITS) for side, score in sides}


class Scorer(Protocol):
    """Whatever scores single edits. dimensions: the names of what it scores, in their order."""

    @property
    def dimensions(self) -> tuple[str, ...]: ...
    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """One answer for each edit, in their order. A broken image or too little memory gives Unscored."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A scorer that does without its model what it can do of an edit, and of a batch: in any thread, ahead of `score`,
    which takes what comes of it in place of the other. batch_size: edits that go through the model at once."""

    batch_size: int

    def prepare(self, edit: Edit) -> Edit: ...
    def together(self, edits: Sequence[Edit]) -> Sequence[Edit]: ...


class Judge(ABC):
    """An entry of `judges`, `scorers` or `raters`, opened by `judges.opening.open_judge`.

    It keeps its answers in a store of its own in work/, so that none is asked for twice. Use it as a context manager:
    models and servers start with the first question that has no kept answer, and end with the block. where: its place
    in params.yaml, such as judges.pvc_judge, which also names its store. account: what the answers cost."""

    def __init__(self, where: str, account: Account, store: Path | None = None) -> None:
        self.where, self.account = where, account
        self._file = store or work("judge", f"{where.removeprefix('judges.')}.sqlite")
        self._started = ExitStack()

    def __enter__(self) -> Self:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self.store = self._started.enter_context(RecordCache(self._file, paid=True))
        return self

    def __exit__(self, *error: Any) -> None:
        self._started.__exit__(*error)

    @property
    @abstractmethod
    def identity(self) -> str:
        """What decides its answers."""

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Empty for a judge that only compares."""
        return ()

    @abstractmethod
    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """One answer for each pair, each asked in both orders. A pair that cannot be judged has no winner but a reason.

        EndpointError: an endpoint refuses the key or the model. ServingError: a server does not start."""

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """As `Scorer.score`. UserError: it only compares."""
        raise UserError(f"{self.where} compares two edits, and scores none")

    def said(self, answer: BothOrders) -> str | None:
        """What a model wrote beside its verdicts: why. None of bare verdicts, and of a judge without words."""
        return None


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DECIMALS)


def swapped(question: Question) -> Question:
    """The same question, key included, with A and B exchanged."""
    return replace(question, a=question.b, b=question.a)


def mirrored(verdict: Verdict) -> Verdict:
    """A verdict on the swapped question, in the terms of the question: winner and p_a change sides."""
    winner = None if verdict.winner is None else OTHER_SIDE[verdict.winner]
    return replace(verdict, winner=winner, p_a=None if verdict.p_a is None else 1.0 - verdict.p_a)


def in_both_orders(questions: Sequence[Question]) -> list[Question]:
    """Each question and, beside it, so that a batch decodes its images once, the same swapped."""
    return [order for question in questions for order in (question, swapped(question))]


def combine_all(verdicts: Sequence[Verdict], rule: Rule, tie_margin: float = 0.0) -> list[BothOrders]:
    """The verdicts on what `in_both_orders` gave, as pairs; `combine` says how two become one."""
    pairs = zip(verdicts[::2], verdicts[1::2], strict=True)
    return [BothOrders(first, second, combine(first, second, rule, tie_margin)) for first, second in pairs]


def combine(forward: Verdict, backward: Verdict, rule: Rule, tie_margin: float = 0.0) -> Verdict:
    """The verdict over both orders, in the forward order; `backward` answers the swapped question, in its own terms.

    Either without a winner: no winner, and a reason that names the order. Otherwise
    - "agreement": the side that both name (a Tie that both name included), else Tie;
    - "probability": with p the mean of forward.p_a and 1 - backward.p_a: Tie if p is 0.5 or |p - 0.5| < tie_margin,
      else the side that p favours. Where one of the two has no p_a, "agreement".
    p_a is that mean under both rules, None where one is missing. tie_margin: 0..0.5.
    ValueError: the keys differ."""
    if forward.key != backward.key:
        raise ValueError(f"verdicts on different questions: {forward.key} and {backward.key}")
    back = mirrored(backward)
    p_a = None if forward.p_a is None or back.p_a is None else (forward.p_a + back.p_a) / 2
    orders = {"forward": forward, "backward": back}
    missing = [f"{order} order: {verdict.reason}" for order, verdict in orders.items() if verdict.winner is None]
    winner: Winner | None = forward.winner if forward.winner == back.winner else "Tie"
    if missing:
        winner = None
    elif rule == "probability" and p_a is not None:
        winner = ahead(0.0 if abs(p_a - 0.5) < tie_margin else p_a - 0.5)
    reply, usage = f"{forward.reply}\n{backward.reply}", total([forward.usage, backward.usage])
    return Verdict(forward.key, winner, p_a, reply, "; ".join(missing) or None, usage)


def compare_by_scores(
    questions: Sequence[Question], scores: Sequence[Score | Unscored], margin: float, dimension: Dimension
) -> list[BothOrders]:
    """Comparisons by the scores of the dimension, or by the overall ones where it has none, the same in both orders.
    scores: A's and B's of each question in turn."""
    found = []
    counted = [
        each if isinstance(each, Unscored) else replace(each, overall=each.dimensions.get(dimension, each.overall))
        for each in scores
    ]
    for question, a, b in zip(questions, counted[::2], counted[1::2], strict=True):
        winner, reason = winner_of(a, b, margin)
        verdict = Verdict(question.key, winner, None, f"{a.said or ''}\n{b.said or ''}", reason)
        values = [None if isinstance(each, Unscored) else each.overall for each in (a, b)]
        found.append(BothOrders(verdict, mirrored(verdict), verdict, (values[0], values[1])))
    return found


def winner_of(a: Score | Unscored, b: Score | Unscored, margin: float) -> tuple[Winner | None, str | None]:
    """The side with the higher score, or Tie up to `margin` apart; or the reason why a score is missing."""
    if isinstance(a, Score) and isinstance(b, Score):
        lead = round(a.overall - b.overall, DIGITS)
        return ahead(0.0 if abs(lead) <= margin else lead), None
    sides = (("Image A", a), ("Image B", b))
    return None, "; ".join(f"{name}: {side.reason}" for name, side in sides if isinstance(side, Unscored))


def majority(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict over the passes of one question; those without a winner have no vote.

    The verdict with the most votes, which need not be half of them; a Tie if several have as many. p_a is the mean of
    the passes' p_a where all votes have one, else the share of the votes, a Tie being half a vote for each. Without any
    vote: no winner, and each pass's reason. A single pass is given back as it is."""
    if len(verdicts) == 1:
        return verdicts[0]
    votes = [verdict.winner for verdict in verdicts if verdict.winner is not None]
    key, replies, usage = verdicts[0].key, "\n".join(v.reply for v in verdicts), total([v.usage for v in verdicts])
    if not votes:
        return Verdict(key, None, None, replies, reasons_of(verdicts), usage)
    count = Counter(votes)
    known = [verdict.p_a for verdict in verdicts if verdict.winner is not None and verdict.p_a is not None]
    share = (count["Image A"] + count["Tie"] / 2) / len(votes)
    p_a = fmean(known) if len(known) == len(votes) else share
    most: list[Winner] = [winner for winner, number in count.items() if number == max(count.values())]
    return Verdict(key, most[0] if len(most) == 1 else "Tie", p_a, replies, None, usage)


def reasons_of(passes: Sequence[Verdict | Rating]) -> str:
    return "; ".join(f"pass {n}: {each.reason}" for n, each in enumerate(passes, 1))
