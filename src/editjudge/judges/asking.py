"""Judges that ask models: chat models, raters and scorers. `judges.opening` opens them by their names."""

import functools
import re
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from editjudge.core import code, hub, params
from editjudge.core.errors import FileError, UserError
from editjudge.core.records import in_groups
from editjudge.core.settings import known, read
from editjudge.engine import local
from editjudge.engine.progress import progress
from editjudge.engine.resume import file_hash, fingerprint
from editjudge.engine.workers import Failure, Workers, devices_of, workers_for
from editjudge.judges import protocol, rubrics
from editjudge.judges.protocol import CONSISTENCY, BothOrders, Dimension, Edit, Judge, Question, Score, Unscored
from editjudge.judges.scorers import features
from editjudge.judges.settings import ChatJudgeSetting, FeatureSetting, RaterSetting, ScorerEntry, ScorerSetting
from editjudge.judges.styles import own_task, style
from editjudge.models.chat import models
from editjudge.models.endpoint.spending import Account
from editjudge.vision import folders

MOST_SAID = 2_000  # characters of what is kept of each order, the last ones
BARE = re.compile(r"</?think>|```(json)?|\{\s*.?winner.?\s*:\s*.[\w ]*.\s*\}")  # says nothing but a verdict
CHUNK = 128  # edits of a scorer between writes to the store
CHECKPOINT = "editjudge.judges.scorers.checkpoint"  # loads torch
NO_MATTER = ("batch_size", "device")  # to what a scorer says, but for the last digits
ALIKE: Mapping[str, Dimension] = {aspect: aspect for aspect in rubrics.ASPECTS}  # VIEScore's scores by their own names
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class ChatJudge(Judge):
    """An entry of `judges` with a model. Its replies are kept by request: another rule or margin asks nothing again.

    form: the prompt (or the rubrics of a rater); outline: what it asks, if it asks about single edits."""

    def __init__(self, where: str, setting: ChatJudgeSetting | RaterSetting, store: Path | None = None) -> None:
        """Checks the model's folder or key; nothing is loaded. ParamsError. FileError: a published model's words."""
        self.setting, self.model_setting = setting, models.at_hand(where, setting.model)
        self.form = setting.asked(where, self.model_setting)
        self.score_margin = setting.score_margin if isinstance(setting, ChatJudgeSetting) else 0.0
        rates = isinstance(setting, RaterSetting) or self.form in rubrics.RATERS
        self.outline = rubrics.questions(self.form, aspects=ALIKE) if rates else None
        _ = self.outline or style(self.form)  # whose words are missed here, before anything is asked
        super().__init__(where, models.open_account(where, self.model_setting), store)

    def __enter__(self) -> Self:
        super().__enter__()
        self.model = self._started.enter_context(models.Model(self.model_setting, self.store, self.account))
        return self

    @property
    def identity(self) -> str:
        """The model's name: in a folder with its weights' hash, behind an endpoint its name there."""
        return models.name_of(self.model_setting)

    @property
    def dimensions(self) -> tuple[str, ...]:
        return self.outline.names if self.outline else ()

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """See `Judge.compare`. By scores each edit is scored once, however many pairs it is in; its score of this
        dimension counts, or the overall one where it has none. Published words that ask about other dimensions alone
        give no verdict about this one."""
        if self.outline:
            scores = self._scores([edit for question in questions for edit in question.edits], dimension)
            return protocol.compare_by_scores(questions, scores, self.score_margin, dimension)
        assert isinstance(self.setting, ChatJudgeSetting)
        both, own = protocol.in_both_orders(questions), style(self.form, dimension).dimensions
        if own and dimension not in own:
            why = f"{self.form} asks about {' and '.join(own)}, not about {dimension}"
            verdicts = [protocol.Verdict(question.key, reason=why) for question in both]
        else:
            kinds = [(own_task(question), *question.more) for question in both]
            verdicts = by_kind(kinds, both, partial(self._verdicts, dimension))
        return protocol.combine_all(verdicts, self.setting.rule, self.setting.tie_margin)

    def _verdicts(self, dimension: Dimension, kind: Sequence[str], of: Sequence[Question]) -> list[protocol.Verdict]:
        """kind: their task, and the names of what else is shown."""
        words = style(self.form, dimension, kind[0])
        if lacking := sorted(name for name in {*words.images} - {*kind[1:]} if name.startswith("source_")):
            why = f"{self.form} shows {lacking[0]}: there is none"
            return [protocol.Verdict(question.key, reason=why) for question in of]
        if asked := words.showing(kind[1:]):
            return [*map(protocol.majority, self.model.answers(asked, of))]
        return [protocol.Verdict(question.key, reason=protocol.several(question)) for question in of]

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """The overall score, and what it was made of: by VIEScore 0..10; by a rubric the dimensions as rated, 1..5, and
        their mean, where no dimension counts for more than adherence. Over several passes the mean of each.

        UserError: the prompt compares. Unscored: a task without a rubric of these dimensions, or unreadable replies."""
        if not self.outline:
            raise UserError(f"{self.where} compares two edits: its prompt {self.form} scores none")
        return self._scores(edits, "overall")

    def said(self, answer: BothOrders) -> str | None:
        """See `Judge.said`: the replies as they came, but for characters that cannot be printed."""
        told = list[str]()
        for order, verdict in (("A shown first", answer.forward), ("B shown first, as Image A", answer.backward)):
            words = "".join(each if each.isprintable() or each == "\n" else " " for each in BARE.sub("", verdict.reply))
            told += [f"{order}: {words.strip()[-MOST_SAID:]}"] if words.strip() else []
        return "\n\n".join(told[:1] if self.outline else told) or None  # by scores both orders have the same replies

    def rate(self, edits: Sequence[Edit]) -> list[list[protocol.Rating]]:
        """The ratings of each edit, in their order, one a run: its scores by name (`Questions.names`). FileError: a
        type without a rubric."""
        alike = [(self._kind(edit), (*edit.more, *edit.texts)) for edit in edits]
        asked = {kind: rubrics.questions(self.form, kind) for kind in dict.fromkeys(kind for kind, _ in alike)}
        return by_kind(alike, edits, lambda of, these: asked[of[0]].rate(self.model.answers, these))

    def _scores(self, edits: Sequence[Edit], dimension: Dimension) -> list[Score | Unscored]:
        about: Mapping[str, Dimension] = ALIKE if dimension == "overall" else {dimension: dimension}

        def scored(kind: Sequence[str], of: Sequence[Edit]) -> list[Score | Unscored]:
            asked = None
            with suppress(FileError):
                asked = rubrics.questions(self.form, kind[0], about)
            if asked is None or not asked.overall:
                return [Unscored(f"no rubric of {edit.task or 'no task'}") for edit in of]
            if not all(call.showing(kind[1:]) for call in asked.calls.values()):
                return [Unscored(str(protocol.several(edit))) for edit in of]
            return [asked.score(runs) for runs in asked.rate(self.model.answers, of)]

        return by_kind([(self._kind(edit), *edit.more) for edit in edits], edits, scored)

    def _kind(self, edit: Edit) -> str:
        """The type of the edit, where the questions may depend on it."""
        return "" if self.form in rubrics.SCALES else rubrics.type_of(edit.task)


def open_rater(where: str, given: Any, store: Path | None = None) -> ChatJudge:
    """The rater that `raters.<name>` describes: a model that scores single edits in words, by the rubric of each type.
    ParamsError."""
    return ChatJudge(where, read(where, RaterSetting, given), store)


def by_kind(kinds: Sequence[K], asked: Sequence[Any], ask: Callable[[K, list[Any]], list[T]]) -> list[T]:
    """The answers in the order of what is asked, where those of a kind are asked together."""
    found: dict[int, T] = {}
    for kind in dict.fromkeys(kinds):
        these = [n for n, each in enumerate(kinds) if each == kind]
        found |= zip(these, ask(kind, [asked[n] for n in these]), strict=True)
    return [found[n] for n in range(len(asked))]


class ScorerJudge(Judge):
    """A scorer of params.yaml, which workers load, one on each GPU, for the first edit without kept scores. Each edit
    is scored by itself, once for all of its pairs, and its scores are kept.

    where: of the judge, or of the scorer itself. given: the scorer's entry, read from params.yaml if left out."""

    def __init__(self, where: str, setting: ScorerSetting, store: Path | None = None, given: Any = None) -> None:
        """ParamsError: there is no such scorer or model, or a setting is wrong."""
        if given is None:
            scorers: Mapping[str, Any] = params.load().get("scorers") or {}
            if setting.scorer not in scorers:
                raise params.ParamsError(f"scorers has no {setting.scorer!r}; {known(setting.scorer, scorers)}")
            given = scorers[setting.scorer]
        self.place = f"scorers.{setting.scorer}"
        self.entry = read(self.place, ScorerEntry, given)
        self.folder = folder_of(self.place, self.entry)
        super().__init__(where, Account(where.rpartition(".")[2]), store)
        self.setting = setting

    @functools.cached_property
    def _workers(self) -> Workers:
        where = places(self.place, self.entry)
        return self._started.enter_context(workers_for(partial(_scoring, self.place, self.entry), where, len(where)))

    @functools.cached_property
    def _identity(self) -> list[Any]:
        """What decides its answers: setting, code and weights."""
        matters = {name: value for name, value in asdict(self.entry).items() if name not in NO_MATTER}
        files = sorted(file for file in self.folder.rglob("*") if file.is_file()) if self.folder else []
        version = code.identity(features.__name__ if isinstance(self.entry, FeatureSetting) else CHECKPOINT)
        return [matters, version, [[file.name, file_hash(file)] for file in files]]

    @property
    def identity(self) -> str:
        return fingerprint(self._identity)

    @property
    def dimensions(self) -> tuple[str, ...]:
        if isinstance(self.entry, FeatureSetting):
            return (self.entry.kind,)
        from editjudge.judges.scorers.checkpoint import read_description

        return read_description(cast(Path, self.folder)).dimensions

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """Verdicts about a dimension: by the score of that name, if the scorer has one, else by that of the setting's
        dimension, else by its overall score."""
        scores = self.score([edit for question in questions for edit in question.edits])
        counted = [each if isinstance(each, Unscored) else self._counted(each) for each in scores]
        return protocol.compare_by_scores(questions, counted, self.setting.score_margin, dimension)

    def _counted(self, score: Score) -> Score:
        """The score with that of the setting's dimension as the overall one."""
        own = self.setting.dimension
        if own is not None and own not in score.dimensions:
            where = f"the judge of the scorer {self.setting.scorer}: its dimension {own!r}"
            raise params.ParamsError(f"{where} is none; {known(own, list(score.dimensions))}")
        value = score.overall if own is None else score.dimensions[own]
        told = ", ".join(f"{name} {each:.6f}" for name, each in score.dimensions.items())
        return replace(score, overall=value, said=f"overall {score.overall:.6f}, {told}")

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """The scores of the edits, kept ones included; equal edits are scored once. What has no score is not kept."""
        digest = functools.cache(lambda image: fingerprint(bytes(image)))
        names = []
        for edit in edits:
            shown = digest(edit.source), digest(edit.edited), *([digest(edit.truth)] if edit.truth else [])
            names.append(fingerprint(self._identity, edit.instruction, *shown, *(edit.captions or ()), *edit.more))
        different = dict(zip(names, edits, strict=True))
        kept = {name: self.store.meta(name) for name in different}
        found: dict[str, Score | Unscored] = {name: Score(**meta) for name, meta in kept.items() if meta is not None}
        self.account.reused += len(found)
        found |= {name: Unscored(why) for name, edit in different.items() if (why := protocol.several(edit))}
        found |= self._new({name: edit for name, edit in different.items() if name not in found})
        for name, score in found.items():
            if isinstance(score, Score):
                self.account.use(name, None, read=True)
        return [found[name] for name in names]

    def _new(self, missing: Mapping[str, Edit]) -> dict[str, Score | Unscored]:
        began, found = time.monotonic(), dict[str, Score | Unscored]()
        chunks = list(in_groups(missing, CHUNK))
        answers = self._workers.in_order([missing[name] for name in chunk] for chunk in chunks)
        shown = progress(answers, len(chunks), f"{self.account.judge}, by {CHUNK} edits")
        for chunk, scores in zip(chunks, shown, strict=True):
            if isinstance(scores, Failure):
                if scores.kind == "exception":
                    raise scores.raised()
                scores = [Unscored(scores.reason)] * len(chunk)
                self.account.failures["memory"] += len(chunk)
            else:
                self._keep(chunk, scores)
            found |= zip(chunk, scores, strict=True)
        self.account.seconds += time.monotonic() - began
        return found

    def _keep(self, names: Sequence[str], scores: Sequence[Score | Unscored]) -> None:
        for name, score in zip(names, scores, strict=True):
            if isinstance(score, Unscored):
                self.account.failures["memory" if score.reason == folders.OUT_OF_MEMORY else "image"] += 1
            else:
                self.store.put(name, asdict(score))
                self.account.asked += 1


def copies_of(where: str, given: Any, copies: int) -> list[Callable[[], protocol.Scorer]]:
    """What opens so many copies of the scorer that `where` (scorers.<name>) describes, in this process, on this
    machine's GPUs that it may have in turn; 0: one on each. ParamsError, and FileError where its model is loaded."""
    setting = read(where, ScorerEntry, given)
    devices = places(where, setting)
    if setting.device == "auto" and devices != ["cpu"]:
        devices = [f"cuda:{n}" for n in range(local.gpus())] or ["cpu"]  # with Ray the others are other machines'
    return [partial(_opened, where, setting, devices[n % len(devices)]) for n in range(copies or len(devices))]


def _opened(where: str, setting: ScorerEntry, device: str) -> protocol.Scorer:
    """device: that of an entry whose own is auto."""
    own = setting.device if setting.device != "auto" else device
    if isinstance(setting, FeatureSetting):
        return features.FeatureScorer(where, replace(setting, device=own))
    from editjudge.judges.scorers.checkpoint import CheckpointScorer

    return CheckpointScorer.load(hub.find(f"{where}.model", setting.model), setting.dtype, setting.batch_size, own)


def _scoring(where: str, setting: ScorerEntry, device: str) -> Callable[[Sequence[Edit]], list[Score | Unscored]]:
    """In a worker: the scores of a chunk of edits."""
    return _opened(where, setting, device).score


def places(where: str, setting: ScorerEntry) -> list[str]:
    """Where workers with the scorer run: on its own device or, for auto, on each GPU; one of them on the CPU."""
    built_in = isinstance(setting, FeatureSetting) and setting.model == features.EMBEDDED
    return ["cpu"] if built_in else devices_of(f"{where}.device", setting.device)


def folder_of(where: str, setting: ScorerEntry) -> Path | None:
    """The folder of a scorer's model, checked before anything is loaded; None for the built-in one. ParamsError."""
    if isinstance(setting, FeatureSetting):
        kind = folders.DINO if setting.kind == "dino_i" else folders.CLIP_TOWERS
        return None if setting.model == features.EMBEDDED else folders.find(f"{where}.model", setting.model, kind)
    folder = hub.find(f"{where}.model", setting.model)
    if not (folder / "scorer.json").is_file():
        raise params.ParamsError(f"{where}.model: no scorer in {setting.model}: `dvc repro train_scorer` makes one")
    return folder
