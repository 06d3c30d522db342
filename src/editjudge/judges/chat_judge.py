"""A judge that asks a chat model: which of two edits is better, or, with VIEScore's prompts, how good each one is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from editjudge.core.errors import UserError
from editjudge.judges import viescore
from editjudge.judges.majority import majority
from editjudge.judges.opened import Opened
from editjudge.judges.protocol import (
    CONSISTENCY,
    BothOrders,
    Dimension,
    Edit,
    Question,
    Score,
    Side,
    Unscored,
    combine_all,
    compare_by_scores,
    in_both_orders,
)
from editjudge.judges.rubrics import Rating
from editjudge.judges.settings import ChatJudgeSetting, RaterSetting
from editjudge.judges.styles import style
from editjudge.models.chat import models


class WithModel(Opened):
    """A judge or rater that has a chat model, which `setting.model` describes."""

    def __init__(self, where: str, setting: ChatJudgeSetting | RaterSetting, store: Path | None = None) -> None:
        """Checks the model's folder or key; nothing is loaded. ParamsError."""
        self.model_setting = models.at_hand(where, setting.model)
        super().__init__(where, models.open_account(where, self.model_setting), store)

    def __enter__(self) -> Self:
        super().__enter__()
        self.model = self._started.enter_context(models.Model(self.model_setting, self.store, self.account))
        return self

    @property
    def identity(self) -> str:
        """The model's name: in a folder with its weights' hash, behind an endpoint its name there."""
        return models.name_of(self.model_setting)


class ChatJudge(WithModel):
    """An entry of `judges` with a model. Its replies are kept by request: another rule or margin asks nothing again."""

    def __init__(self, where: str, setting: ChatJudgeSetting, store: Path | None = None) -> None:
        super().__init__(where, setting, store)
        self.setting = setting
        self.by_scores = setting.prompt in viescore.SCALES
        self.dimensions: tuple[str, ...] = viescore.ASPECTS if self.by_scores else ()

    def compare(self, questions: Sequence[Question], dimension: Dimension = CONSISTENCY) -> list[BothOrders]:
        """See `Judge.compare`. With VIEScore's prompts each edit is scored once, however many pairs it is in."""
        setting = self.setting
        if not self.by_scores:
            way = style(setting.prompt, dimension)
            verdicts = [majority(passes) for passes in self.model.answers(way, in_both_orders(questions))]
            return combine_all(verdicts, setting.rule, setting.tie_margin)
        ratings = self._rated([edit for question in questions for edit in question.edits], dimension)
        sides = [Side(viescore.value_of(each), each.reply, each.reason) for each in ratings]
        return compare_by_scores(questions, sides, setting.score_margin)

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """VIEScore's overall score, 0..10, and its two aspects. UserError: the prompt compares."""
        if not self.by_scores:
            raise UserError(f"{self.where} compares two edits: its prompt {self.setting.prompt} scores none")
        return [viescore.scored(rating) for rating in self._rated(edits, "overall")]

    def _rated(self, edits: Sequence[Edit], dimension: Dimension) -> list[Rating]:
        return viescore.rate(self.model.answers, self.setting.prompt, dimension, edits)
