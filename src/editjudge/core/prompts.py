"""What models are asked: YAML files, one for each way of asking, with its texts, version and source.

They lie in the room that asks them: judges/prompts (comparisons of two edits; scores, rubrics and scorers of one;
dimensions: what judges are told of each), grounding/parsers and grounders, photos/prompts, sources/builtin. A stage
runs again when the content of a file that it uses changes (`core.code`)."""

import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic.dataclasses import dataclass

from editjudge.core.errors import FileError
from editjudge.core.params import read_lined
from editjudge.core.settings import FORBID, Positive, Text, known, read

PACKAGE = Path(__file__).parents[1]
RECORDED = "judge_prompt.yaml"  # beside the weights of a judge: what it was trained to be asked
FIELDS = ("instruction", "criteria", "first", "second", "scale", "names", "coordinates")
_IMAGE = re.compile(r"\n?\{(source|a|b|edited)\}\n?")
_FIELD = re.compile(r"\{(\w+)\}")
_SPECIAL_TOKEN = re.compile(r"<\|([^|<>]*)\|>")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Prompt:
    """A way of asking. source: where its words come from. reply: fields of the reply's object, in order.

    max_new_tokens: that a reply may take.

    user: the turn. `{source}`, `{a}`, `{b}` and `{edited}`, each on a line of its own, stand for images; FIELDS in
    braces stand for what is known when it is asked."""

    version: Positive
    source: Text
    user: Text
    system: str = ""
    reply: tuple[Text, ...] = ()
    max_new_tokens: Positive = 512

    @classmethod
    def load(cls, name: str, **texts: str) -> Self:
        """The prompt in a file, named from the package on, with these fields filled. Raises FileError, ParamsError."""
        prompt = read(name, cls, read_lined(PACKAGE / name, {}).value)
        for field in _FIELD.findall(_IMAGE.sub("", prompt.user)):
            if field not in FIELDS:
                raise FileError(f"{name}: user: unknown field {{{field}}}; {known(field, FIELDS)}")
        for field, text in texts.items():  # one after the other: a text may have the fields that follow
            prompt = replace(prompt, user=prompt.user.replace(f"{{{field}}}", text))
        return prompt

    @cached_property
    def images(self) -> tuple[str, ...]:
        """The names of its images, in order."""
        return tuple(_IMAGE.findall(self.user))

    def text(self, instruction: str, turn: str = "", **texts: str) -> str:
        """The turn, or a part of it, with its fields filled."""
        known = {"instruction": plain(instruction), **texts}
        return _FIELD.sub(lambda field: known.get(field[1], field[0]), turn or self.user)

    def messages(self, instruction: str, **texts: str) -> list[dict[str, Any]]:
        """The chat, with `{"type": "image"}` in the places of images."""
        content = list[dict[str, str]]()
        for n, part in enumerate(_IMAGE.split(self.user)):
            if n % 2:
                content.append({"type": "image"})
            elif part:
                content.append({"type": "text", "text": self.text(instruction, part, **texts)})
        system = [{"role": "system", "content": [{"type": "text", "text": self.system}]}] if self.system else []
        return [*system, {"role": "user", "content": content}]


def plain(instruction: str) -> str:
    """An instruction whose markers such as `<|image_pad|>` have lost their bars: none can add images or turns."""
    return _SPECIAL_TOKEN.sub(r"<\1>", instruction).strip()


def names(*folder: str) -> list[str]:
    """The prompts in a folder of the package, given as one path or in parts."""
    return sorted(file.stem for file in PACKAGE.joinpath(*folder).glob("*.yaml"))
