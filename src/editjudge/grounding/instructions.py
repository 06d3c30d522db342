"""A small grammar of English edit instructions: what they name, for records without labels and runs without a parser.

It knows the common ways of saying each kind of edit and says nothing about the others; an LLM behind an endpoint reads
any instruction."""

import re
from dataclasses import dataclass
from pathlib import Path

from editjudge.core import params
from editjudge.measures.names import ATTRIBUTES


@dataclass(frozen=True)
class Named:
    """What an instruction names.

    source, edited: the objects that are to be found in the source and in the edited image, in a few words each; the
    same ones unless it replaces some by others. attributes: of measures.names, those of a person that it changes."""

    source: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


STRAIGHT = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})  # curly quotes
MAIN = {"kept_objects": "the main object", "kept_person": "the main person"}  # whom an instruction means by no name
MAIN |= {"changed_person": "the main person", "moved_person": "the main person"}
_TABLE = params.load(Path(__file__).with_name("grammar.yaml"))
_PARTS: dict[str, str] = {}
for _name, _part in _TABLE["parts"].items():
    _PARTS[_name] = _part % _PARTS
GRAMMAR: dict[str, list[str]] = {name: [each % _PARTS for each in own] for name, own in _TABLE["grammar"].items()}
WORDS: dict[str, str] = _TABLE["attributes"]
REPLACING = ("replaced_objects", "edited_text")  # prompts whose edits have other objects in the edited image
CHANGED_BY = {"changed_person": (), "moved_person": ("body_pose_shape",)}  # attributes that such an edit always changes


def named(instruction: str, parser: str) -> Named | None:
    """What an instruction names, for what the parser's prompt asks; None where the grammar does not know it."""
    text = " ".join(instruction.translate(STRAIGHT).split())
    attributes = changed(text, parser)
    for pattern in GRAMMAR.get(parser, ()):
        found = re.search(rf"\b{pattern}", text, re.IGNORECASE)
        if found is None or (parser != "edited_text" and any(map(_pointed, found.groups()))):
            continue
        groups = {name: _labels(words) for name, words in found.groupdict().items() if words}
        if all(groups.values()):
            old, new = groups.get("old", ()), groups.get("new", ())
            return Named(*((old, new) if parser in REPLACING else (old or new, old or new)), attributes)
    return Named((MAIN[parser],), (MAIN[parser],), attributes) if parser in MAIN else None


def changed(instruction: str, parser: str) -> tuple[str, ...]:
    """Of measures.names, those that an instruction about a person changes; for other prompts none."""
    if parser not in CHANGED_BY:
        return ()
    said = {name for name, words in WORDS.items() if re.search(words, instruction, re.IGNORECASE)}
    return tuple(name for name in ATTRIBUTES if name in said | set(CHANGED_BY[parser]))


def _pointed(words: str | None) -> bool:
    """Whether words only point at what was said before, or name nothing yet."""
    pattern = rf"(?:it|this|that|them|these|those|him|me|us|so|everything)\b|(?:{_PARTS['article']}|one)$"
    return bool(re.match(pattern, words or "", re.IGNORECASE))


def _labels(words: str) -> tuple[str, ...]:
    """A phrase without its article, the things of an enumeration apart."""
    parts = re.split(r"\s+and\s+(?=(?:the|a|an)\s)", words.strip(" .,'\""))
    plain = (re.sub(rf"^(?:{_PARTS['article']})\s+", "", part.strip(), flags=re.IGNORECASE) for part in parts)
    return tuple(dict.fromkeys(label for label in plain if label))
