"""What a scorer is asked: the files of judges/prompts/scorers."""

from itertools import product
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core import prompts
from editjudge.core.errors import FileError
from editjudge.core.settings import FORBID, Positive, Text, read
from editjudge.judges.styles import CRITERIA

TOKEN = "{token}"


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ScorerPrompt:
    """A file of judges/prompts/scorers. questions: turns, as `Prompt.user`; with {criteria}, each dimension has its
    own. replies: what is answered, {token} once in each, or in the question. Which ones a record is trained with, its
    key decides."""

    version: Positive
    source: Text
    questions: Annotated[tuple[Text, ...], Field(min_length=1)]
    replies: Annotated[tuple[str, ...], Field(min_length=1)]

    @property
    def of_each(self) -> bool:
        """Whether each dimension is asked about by itself."""
        return CRITERIA in self.questions[0]

    @classmethod
    def load(cls, name: str) -> "ScorerPrompt":
        """The prompt in judges/prompts/scorers/<name>.yaml. FileError, ParamsError: there is none, or it is none; words
        in it are somebody's, whose file is missing."""
        file = f"judges/prompts/scorers/{name}.yaml"
        prompt = read(file, cls, prompts.read_file(file))
        prompt.check(file)
        return prompt

    def check(self, file: str, token: str = TOKEN) -> None:
        """FileError: no token in question or reply, images in another order, or criteria in some questions only."""
        for question, reply in product(self.questions, self.replies):
            if (question + reply).count(token) != 1:
                raise FileError(f"{file}: replies: {reply!r} must have {token} once, or its question")
        for question in self.questions:
            if prompts.Prompt(version=1, source="-", user=question).images != ("source", "edited"):
                raise FileError(
                    f"{file}: questions: each must show {{source}} and then {{edited}}, on lines of their own"
                )
            if (CRITERIA in question) != self.of_each:
                raise FileError(f"{file}: questions: all or none have {CRITERIA}")
