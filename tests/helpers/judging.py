"""What a judge in this process says to questions."""

from collections.abc import Sequence
from typing import Any

from editjudge.models.chat.forms import ChatQuestion
from editjudge.models.chat.local_model import LocalModel


def compare(judge: LocalModel, questions: Sequence[ChatQuestion], passes: Sequence[int] | None = None) -> list[Any]:
    """One answer a question, in the same order: a Verdict, or what else the judge's form gives."""
    replies = judge.ask_many(questions, passes or [0] * len(questions))
    return list(map(judge.form.answer, questions, replies))
