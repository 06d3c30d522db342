"""The prompts of scorers, which are read without torch."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.errors import FileError
from editjudge.core.lined_yaml import read_lined
from editjudge.core.prompts import PACKAGE, Prompt
from editjudge.core.settings import FORBID, Positive, Text, read

TOKEN = "{token}"
CRITERIA = "{criteria}"
IMAGES = ("source", "edited")
Texts = Annotated[tuple[Text, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class ScorerPrompt:
    """A file of judges/prompts/scorers. questions: turns, as `Prompt.user`; with {criteria}, each dimension has its
    own.

    replies: what is answered, {token} once in each. Which ones a record is trained with, its key decides.
    """

    version: Positive
    source: Text
    questions: Texts
    replies: Texts

    @property
    def of_each(self) -> bool:
        """Whether each dimension is asked about by itself."""
        return CRITERIA in self.questions[0]


def load_prompt(name: str) -> ScorerPrompt:
    """The prompt in judges/prompts/scorers/<name>.yaml.

    FileError, ParamsError: there is none, or it is no prompt of a scorer.
    """
    file = f"judges/prompts/scorers/{name}.yaml"
    prompt = read(file, ScorerPrompt, read_lined(PACKAGE / file, {}).value)
    check(prompt, file)
    return prompt


def check(prompt: ScorerPrompt, file: str, token: str = TOKEN) -> None:
    """FileError: a reply without the token, images in another order, or criteria in some questions only."""
    for reply in prompt.replies:
        if reply.count(token) != 1:
            raise FileError(f"{file}: replies: {reply!r} must have {token} once")
    for question in prompt.questions:
        if Prompt(version=1, source="-", user=question).images != IMAGES:
            raise FileError(f"{file}: questions: each must show {{source}} and then {{edited}}, on lines of their own")
        if (CRITERIA in question) != prompt.of_each:
            raise FileError(f"{file}: questions: all or none have {CRITERIA}")
