"""Judges that ask models: chat models, raters and scorers. `judges.opening` opens them by their names."""

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from editjudge.core import code, hub, params
from editjudge.core.errors import FileError, UserError
from editjudge.core.settings import known, read
from editjudge.engine.progress import progress
from editjudge.engine.resume import file_hash, fingerprint
from editjudge.engine.workers import Failure, Workers, devices_of, workers_for
from editjudge.judges import protocol, rubrics
from editjudge.judges.protocol import CONSISTENCY, BothOrders, Dimension, Edit, Judge, Question, Rating, Score, Unscored
from editjudge.judges.scorers import features
from editjudge.judges.settings import (
    ChatJudgeSetting,
    CheckpointSetting,
    FeatureSetting,
    RaterSetting,
    ScorerEntry,
    ScorerSetting,
)
from editjudge.judges.styles import own_task, style
from editjudge.models.chat import models
from editjudge.models.endpoint.spending import Account
from editjudge.vision.folders import OUT_OF_MEMORY

CHUNK = 128  # edits of a scorer between writes to the store
CHECKPOINT = "editjudge.judges.scorers.checkpoint"  # loads torch
NO_MATTER = ("batch_size", "device")  # to what a scorer says, but for the last digits


class ChatJudge(Judge):
    """An entry of `judges` with a model. Its replies are kept by request: another rule or margin asks nothing again.

    form: the prompt (or the rubrics of a rater); outline: what it asks, if it asks about single edits."""

    def __init__(self, where: str, setting: ChatJudgeSetting | RaterSetting, store: Path | None = None) -> None:
        """Checks the model's folder or key; nothing is loaded. ParamsError. FileError: a published model's words."""
        self.setting, self.model_setting = setting, models.at_hand(where, setting.model)
        self.form = setting.rubrics if isinstance(setting, RaterSetting) else setting.asked(self.model_setting)
        rates = isinstance(setting, RaterSetting) or self.form in rubrics.RATERS
        self.outline = rubrics.outline(self.form) if rates else None
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
        if self.form in rubrics.SCALES:
            return rubrics.ASPECTS
        return self.outline.names if self.outline else ()

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """See `Judge.compare`. By scores each edit is scored once, however many pairs it is in; its score of this
        dimension counts, or the overall one where it has none."""
        setting = self.setting
        assert isinstance(setting, ChatJudgeSetting)
        if self.outline:
            scores = self._scores([edit for question in questions for edit in question.edits], dimension)
            return protocol.compare_by_scores(questions, scores, setting.score_margin)
        both = protocol.in_both_orders(questions)
        asked = partial(style, self.form, dimension)
        answers = by_kind([*map(own_task, both)], both, lambda task, of: self.model.answers(asked(task), of))
        return protocol.combine_all([*map(protocol.majority, answers)], setting.rule, setting.tie_margin)

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """The overall score, and what it was made of: by VIEScore 0..10; by a rubric the dimensions as rated, 1..5, and
        their mean, where no dimension counts for more than adherence. Over several passes the mean of each.

        UserError: the prompt compares. Unscored: a task without a rubric of these dimensions, or unreadable replies."""
        if not self.outline:
            raise UserError(f"{self.where} compares two edits: its prompt {self.form} scores none")
        return self._scores(edits, "overall")

    def _scores(self, edits: Sequence[Edit], dimension: Dimension) -> list[Score | Unscored]:
        about: tuple[Dimension, ...] = rubrics.ASPECTS if dimension == "overall" else (dimension,)
        asked, kinds = dict[str, rubrics.Questions](), [self._kind(edit) for edit in edits]
        for kind in dict.fromkeys(kinds):
            with suppress(FileError):
                found = rubrics.questions(self.form, kind, dict(zip(about, about, strict=True)))
                asked |= {kind: found} if found.overall else {}
        places = [n for n, kind in enumerate(kinds) if kind in asked]
        scores: list[Score | Unscored] = [Unscored(f"no rubric of {edit.task or 'no task'}") for edit in edits]
        for n, runs in zip(places, self._rate(asked, [edits[n] for n in places]), strict=True):
            scores[n] = score = asked[kinds[n]].score(runs)
            if isinstance(score, Score) and dimension in score.dimensions:
                scores[n] = replace(score, overall=score.dimensions[dimension])
        return scores

    def _rate(self, asked: Mapping[str, rubrics.Questions], edits: Sequence[Edit]) -> list[list[Rating]]:
        return by_kind([*map(self._kind, edits)], edits, lambda kind, of: asked[kind].rate(self.model.answers, of))

    def _kind(self, edit: Edit) -> str:
        """The type of the edit, where the questions may depend on it."""
        return "" if self.form in rubrics.SCALES else rubrics.type_of(edit.task)


class Rater(ChatJudge):
    """The rater that `raters.<name>` describes: a model that scores single edits in words, by the rubric of each type.
    ParamsError."""

    def __init__(self, where: str, given: Any, store: Path | None = None) -> None:
        self.own = read(where, RaterSetting, given)
        super().__init__(where, self.own, store)

    def rate(self, edits: Iterable[Edit]) -> list[list[Rating]]:
        """The ratings of each edit, in their order, one a run: its scores by name (`Questions.names`). FileError: a
        type without a rubric."""
        edits = list(edits)
        kinds = dict.fromkeys(map(self._kind, edits))
        return self._rate({kind: rubrics.questions(self.form, kind) for kind in kinds}, edits)

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """By the overall scores, whatever the dimension."""
        scores = self.score([edit for question in questions for edit in question.edits])
        return protocol.compare_by_scores(questions, scores, 0.0)


def by_kind(
    kinds: Sequence[str], asked: Sequence[Any], ask: Callable[[str, list[Any]], list[list[Any]]]
) -> list[list[Any]]:
    """The answers in the order of what is asked, where those of a kind are asked together."""
    found: dict[int, list[Any]] = {}
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
        self.entry = (f"scorers.{setting.scorer}", given)
        check_scorer(*self.entry)
        super().__init__(where, Account(where.rpartition(".")[2]), store)
        self.setting = setting

    @functools.cached_property
    def _workers(self) -> Workers:
        where = places(*self.entry)
        return self._started.enter_context(workers_for(partial(_scoring, *self.entry), where, len(where)))

    @functools.cached_property
    def _identity(self) -> list[Any]:
        return identity(*self.entry)

    @property
    def identity(self) -> str:
        return fingerprint(self._identity)

    @property
    def dimensions(self) -> tuple[str, ...]:
        return dimensions_of(*self.entry)

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """Verdicts about a dimension: by the score of that name, if the scorer has one, else by that of the setting's
        dimension, else by its overall score."""
        scores = self.score([edit for question in questions for edit in question.edits])
        counted = [each if isinstance(each, Unscored) else self._counted(each, dimension) for each in scores]
        return protocol.compare_by_scores(questions, counted, self.setting.score_margin)

    def _counted(self, score: Score, dimension: Dimension) -> Score:
        """The score with that of the dimension as the overall one."""
        own = self.setting.dimension
        if own is not None and own not in score.dimensions:
            where = f"the judge of the scorer {self.setting.scorer}: its dimension {own!r}"
            raise params.ParamsError(f"{where} is none; {known(own, list(score.dimensions))}")
        value = score.overall if own is None else score.dimensions[own]
        told = ", ".join(f"{name} {each:.6f}" for name, each in score.dimensions.items())
        value = score.dimensions.get(dimension, value)
        return replace(score, overall=value, said=f"overall {score.overall:.6f}, {told}")

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """The scores of the edits, kept ones included; equal edits are scored once. What has no score is not kept."""
        digest = functools.cache(lambda image: fingerprint(bytes(image)))
        names = [
            fingerprint(self._identity, each.instruction, digest(each.source), digest(each.edited)) for each in edits
        ]
        different: dict[str, Edit] = {}
        for name, edit in zip(names, edits, strict=True):
            different.setdefault(name, edit)
        kept = {name: self.store.meta(name) for name in different}
        found: dict[str, Score | Unscored] = {name: Score(**meta) for name, meta in kept.items() if meta is not None}
        self.account.reused += len(found)
        found |= self._new({name: edit for name, edit in different.items() if name not in found})
        for name, score in found.items():
            if isinstance(score, Score):
                self.account.use(name, None, read=True)
        return [found[name] for name in names]

    def _new(self, missing: Mapping[str, Edit]) -> dict[str, Score | Unscored]:
        began, found = time.monotonic(), dict[str, Score | Unscored]()
        names = list(missing)
        chunks = [names[first : first + CHUNK] for first in range(0, len(names), CHUNK)]
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
                self.account.failures["memory" if score.reason == OUT_OF_MEMORY else "image"] += 1
            else:
                self.store.put(name, asdict(score))
                self.account.asked += 1


def open_scorer(where: str, given: Any, device: str = "auto") -> protocol.Scorer:
    """The scorer that `where` (scorers.<name>) describes, its model loaded. device: that of an entry whose own is auto.
    ParamsError, FileError."""
    setting = read(where, ScorerEntry, given)
    own = setting.device if setting.device != "auto" else device
    if isinstance(setting, FeatureSetting):
        return features.FeatureScorer(where, replace(setting, device=own))
    from editjudge.judges.scorers.checkpoint import CheckpointScorer

    folder = hub.find("scorers.model", setting.model)
    return CheckpointScorer.load(folder, setting.dtype, setting.batch_size, own)


def places(where: str, given: Any) -> list[str]:
    """Where workers with the scorer run: on its own device or, for auto, on each GPU; one of them on the CPU."""
    setting = read(where, ScorerEntry, given)
    built_in = isinstance(setting, FeatureSetting) and setting.model == features.EMBEDDED
    return ["cpu"] if built_in else devices_of(f"{where}.device", setting.device)


def dimensions_of(where: str, given: Any) -> tuple[str, ...]:
    """The names of what the scorer scores. FileError: its folder holds none."""
    setting = read(where, ScorerEntry, given)
    if isinstance(setting, FeatureSetting):
        return (setting.kind,)
    from editjudge.judges.scorers.checkpoint import read_description

    return read_description(hub.find(f"{where}.model", setting.model)).dimensions


def _scoring(where: str, given: Any, device: str) -> Callable[[Sequence[Edit]], list[Score | Unscored]]:
    """In a worker: the scores of a chunk of edits."""
    return open_scorer(where, given, device).score


def check_scorer(where: str, given: Any) -> None:
    """ParamsError: a setting is wrong, or there is no such model, before anything is loaded."""
    setting = read(where, ScorerEntry, given)
    folder = _folder_of(where, setting)
    if isinstance(setting, CheckpointSetting) and not (folder and (folder / "scorer.json").is_file()):
        raise params.ParamsError(f"{where}.model: no scorer in {setting.model}: `dvc repro train_scorer` makes one")


def identity(where: str, given: Any) -> list[Any]:
    """What decides a scorer's answers: its setting, code and weights."""
    setting = read(where, ScorerEntry, given)
    matters = {name: value for name, value in asdict(setting).items() if name not in NO_MATTER}
    folder = _folder_of(where, setting)
    files = sorted(file for file in folder.rglob("*") if file.is_file()) if folder else []
    version = code.identity(features.__name__ if isinstance(setting, FeatureSetting) else CHECKPOINT)
    return [matters, version, [[file.name, file_hash(file)] for file in files]]


def _folder_of(where: str, setting: CheckpointSetting | FeatureSetting) -> Path | None:
    """The folder of the model, checked; None for the built-in one. ParamsError."""
    if isinstance(setting, FeatureSetting):
        return features.folder_of(where, setting)
    return hub.find(f"{where}.model", setting.model)
