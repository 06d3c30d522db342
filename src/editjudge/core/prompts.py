"""What models are asked: YAML files, one for each way of asking, with its texts, version and source.

They lie in the room that asks them: judges/prompts (comparisons of two edits; scores, rubrics and scorers of one;
dimensions: what judges are told of each), grounding/parsers and grounders, photos/prompts, sources/builtin. A stage
runs again when the content of a file that it uses changes (`core.code`).

The question of a published model has its authors' words, which are theirs to give. Its file here has the layout alone:
`words` names files of theirs, and `{NAME:PLACE}` stands for a text in one, see `text_in`. `replace` then puts our marks
in the place of theirs, one after the other."""

import ast
import itertools
import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field
from pydantic.dataclasses import dataclass

from editjudge.core.errors import FileError
from editjudge.core.files import sha256
from editjudge.core.params import read_lined
from editjudge.core.settings import FORBID, Positive, Text, known, read

PACKAGE = Path(__file__).parents[1]
# Beside weights: what a judge was trained to be asked, and the folder of a rater's rubrics. They come with the weights,
# from strangers too: such a file may fetch no words, and has no pattern that is searched for in replies.
RECORDED, RECORDED_RUBRICS = "judge_prompt.yaml", "rater_rubrics"
NOT_RECORDED = ("words", "replace", "sides")
FIELDS = ("instruction", "criteria", "first", "second", "scale", "names", "coordinates")
# What reading a stranger's file raises: it is not there, nests too deep, or has something else in the place.
NO_TEXT = (OSError, SyntaxError, ValueError, RecursionError, MemoryError, yaml.YAMLError, LookupError, TypeError)
_IMAGE = re.compile(r"\n?\{(source|a|b|edited)\}\n?")
_EXACT = re.compile(r"\{((?:source|truth)(?:_\d)?|a|b|edited)\}")
_MARK = re.compile(r"\{type\}|\{(\w+):((?:[\w.]|\{type\})*)(\}?)")
_FIELD = re.compile(r"\{(\w+)\}")
_SPECIAL_TOKEN = re.compile(r"<\|([^|<>]*)\|>")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Words:
    """A file of somebody's words. url: where it is to be had; sha256: of the one that is meant."""

    file: Text
    url: Text
    sha256: Text | None = None


@dataclass(frozen=True, kw_only=True, config=FORBID)
class Prompt:
    """A way of asking. source: where its words come from. reply: fields of the reply's object, in order.

    max_new_tokens: that a reply may take.

    user: the turn. `{source}`, `{a}`, `{b}` and `{edited}`, each on a line of its own, stand for images; FIELDS in
    braces stand for what is known when it is asked. Of a list each text is a part of its own, to the letter, and
    `{source_2}`, `{truth}`, `{truth_2}` and so on stand for more images of a case."""

    version: Positive
    source: Text
    user: Text | tuple[str, ...]
    system: str = ""
    reply: tuple[Text, ...] = ()
    max_new_tokens: Annotated[Positive, Field(le=65536)] = 512

    @classmethod
    def load(cls, name: str, **texts: str) -> Self:
        """The prompt in a file, named from the package on, with these fields filled. Raises FileError, ParamsError."""
        prompt = read(name, cls, read_file(name))
        if isinstance(prompt.user, tuple):
            return prompt
        for field in _FIELD.findall(_IMAGE.sub("", prompt.user)):
            if field not in FIELDS:
                raise FileError(f"{name}: user: unknown field {{{field}}}; {known(field, FIELDS)}")
        user = prompt.user
        for field, text in texts.items():  # one after the other: a text may have the fields that follow
            user = user.replace(f"{{{field}}}", text)
        return replace(prompt, user=user)

    @cached_property
    def images(self) -> tuple[str, ...]:
        """The names of its images, in order."""
        return tuple(part for n, part in self._parts if n % 2)

    @cached_property
    def _parts(self) -> list[tuple[int, str]]:
        """Texts, and at odd numbers images' names, in order."""
        texts, mark = ((self.user,), _IMAGE) if isinstance(self.user, str) else (self.user, _EXACT)
        return [(n, part) for text in texts for n, part in enumerate(mark.split(text)) if part]

    def text(self, instruction: str, turn: str = "", **texts: str) -> str:
        """The turn, or a part of it, with its fields filled."""
        known = {"instruction": plain(instruction), **texts}
        return _FIELD.sub(lambda field: known.get(field[1], field[0]), turn or "".join(self.user))

    def messages(self, instruction: str, **texts: str) -> list[dict[str, Any]]:
        """The chat, with `{"type": "image"}` in the places of images."""
        content = list[dict[str, str]]()
        for n, part in self._parts:
            own = {"type": "image"} if n % 2 else {"type": "text", "text": self.text(instruction, part, **texts)}
            content.append(own)
        system = [{"role": "system", "content": [{"type": "text", "text": self.system}]}] if self.system else []
        return [*system, {"role": "user", "content": content}]


def read_file(name: str, type_: str | None = "") -> dict[str, Any]:
    """What a prompt's file says, with the texts of the files that its `words` names; `{type}` stands for the edit's.
    type_: None leaves texts that depend on it as they are written, for who looks at all else.

    FileError, with where to get it: a file of words is missing, or not the one that is meant; it has no such text; the
    type is wanted and empty; or a file beside weights says what only a user may."""
    said, path = read_lined(PACKAGE / name).value, Path(name)
    if {path.name, path.parent.name} & {RECORDED, RECORDED_RUBRICS} and (strange := said.keys() & NOT_RECORDED):
        raise FileError(f"{name} lies beside weights: it may not have {', '.join(sorted(strange))}")
    words = read(f"{name}.words", Mapping[Text, Words], said.pop("words", {}))
    marks = read(f"{name}.replace", Mapping[Text, str], said.pop("replace", {}))
    for each in words.values():
        if not (file := Path(each.file)).is_file() or each.sha256 not in (None, sha256(file)):
            get = f"curl --create-dirs -o {shlex.quote(each.file)} {shlex.quote(each.url)}"
            raise FileError(f"{name}: {file}: not there, or another: its words are not ours to give: {get}")

    def put(mark: re.Match[str]) -> str:
        if "{type}" in mark[0] and not type_:
            if type_ is None:
                return mark[0]
            raise FileError(f"{name}: what is asked depends on the type of the edit, and none is given")
        own, place, end = mark.groups()
        if own is None or not (words and (end or own in words)):  # the type itself; a brace in words of one's own
            return mark[0].replace("{type}", str(type_))
        if own not in words or not (place and end):
            raise FileError(f"{name}: {mark[0]} names no text; `words` has {', '.join(words)}")
        text = text_in(Path(words[own].file), place.replace("{type}", str(type_)))
        for each, by in marks.items():
            text = text.replace(each, by)
        return text

    return {key: _changed(value, partial(_MARK.sub, put)) for key, value in said.items()}


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every text in it, at any depth, changed."""
    if isinstance(value, dict):
        return {key: _changed(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_changed(each, change) for each in value]
    return change(value) if isinstance(value, str) else value


def text_in(file: Path, place: str) -> str:
    """A text in somebody's file: what a variable of Python code is set to (the code is not run; of an f-string with
    `{NAME}`), or the first f-string with the field of that name; or at a place in JSON or YAML, `key.0.key`, of YAML
    without the last end of line. FileError."""
    try:
        if file.suffix == ".py":
            code = ast.parse(file.read_text())
            named = (e.value for e in code.body if isinstance(e, ast.Assign) and ast.unparse(e.targets[0]) == place)
            shown = (e for e in ast.walk(code) if isinstance(e, ast.JoinedStr) and f"{{{place}}}" in _text(e))
            return _text(next(itertools.chain(named, shown)))
        found, end = (
            (json.loads(file.read_text()), "") if file.suffix == ".json" else (yaml.safe_load(file.read_text()), "\n")
        )
        for key in place.split("."):
            found = found[int(key) if isinstance(found, list) else key]
        return _a_text(found).removesuffix(end)
    except (*NO_TEXT, StopIteration) as error:
        raise FileError(f"{file} has no text {place} ({type(error).__name__})") from None


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return f"{{{ast.unparse(node.value)}}}" if isinstance(node, ast.FormattedValue) else _a_text(ast.literal_eval(node))


def _a_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} is no text")
    return value


def plain(instruction: str) -> str:
    """An instruction whose markers such as `<|image_pad|>` have lost their bars: none can add images or turns."""
    return _SPECIAL_TOKEN.sub(r"<\1>", instruction).strip()


def names(*folder: str) -> list[str]:
    """The prompts in a folder of the package, given as one path or in parts."""
    return sorted(file.stem for file in PACKAGE.joinpath(*folder).glob("*.yaml"))
