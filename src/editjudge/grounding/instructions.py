"""A small grammar of English edit instructions: what they name, for records without labels and runs without a parser.

It knows the common ways of saying each kind of edit and says nothing about the others; an LLM behind an endpoint reads
any instruction."""

import re
from dataclasses import dataclass

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
_CHANGE = r"(?:change|alter|adjust|modify|set|switch|convert|transform|update|enhance)"
_LOOK = r"(?:colou?rs?|material|texture(?: details)?|size|shape|height|width|length|surface)"
_ARTICLE = "the|a|an|some|all|of"
_OWN = r"'s?"
_END = r"(?=\s*(?:[.,;:!]|$))"
_WORD = r"[\w'\-\"]+"
_THING = rf"(?P<old>{_WORD}(?:\s+{_WORD}){{0,14}}?)"
_NEW = rf"(?P<new>{_WORD}(?:\s+{_WORD}){{0,14}}?)"
_TO = r"(?:to|into|with|by|in|for|using|as|out of|from|so|until)"
_SIZED = r"(?:(?:much|slightly|a (?:bit|little)|twice as|far|more|less)\s+)*"
_LIKE = rf"(?:look|appear|out of|from|of {_WORD}{_END}|{_SIZED}{_WORD}{_END})"
_SIZE_VERB = r"(?:slightly\s+|greatly\s+)?(?:enlarge|shrink|elongate|lengthen|shorten|widen|narrow|thicken|scale|resize"
_SIZE_VERB += r"|increase|decrease|reduce|expand|extend|stretch)(?:\s+(?:up|down))?"
_AWAY = r"(?:remove|erase|delete|take|eliminate|get rid of|clear|cut out|wipe(?: out)?)(?:\s+(?:out|away))?"
_GONE = rf"(?:{_END}|\s+(?:from|out of|in|on|at|to|so|by|and(?!\s+(?:the|a|an)\b))\b|\s+(?:away|out){_END})"
_PUT = r"(?:add|put|place|insert|include|draw|paint|give|introduce|attach)"
_THERE = r"\s+(?:to|in|on|at|onto|into|next to|near|beside|behind|under|above|over|before|between|around|with|along"
_THERE += r"|flying|sitting|standing|coming|making|so|that)\b"
_SWAP = r"(?:replace|substitute|swap|exchange|change|turn|transform|convert|switch)"
_TAKE = r"(?:extract|cut out|isolate|separate|crop out|segment|take|lift|put|place)"
_APART = r"\s+(?:onto|from|and|out of|on|in|into|as|against|before|(?<!together )with|alone)\b"
_QUOTED = r"['\"][^'\"]+['\"]"
_TEXT = r"(?:(?:the\s+)?(?:text|words?|letters?|title|caption|sign|number|slogan)\s*(?:on the \w+\s*)?)?"
_DONE = rf"(?:\s+{_TO}\b|{_END})"
# Prompt of the parser: the ways of saying it, the first that fits being taken.
GRAMMAR: dict[str, tuple[str, ...]] = {
    "edited_objects": (
        rf"(?:{_CHANGE}|replace|{_SIZE_VERB}|double|halve)\s+(?:the\s+)?(?:\w+\s+){{0,2}}{_LOOK}\s+of\s+{_THING}{_DONE}",
        rf"(?:{_CHANGE}|replace|{_SIZE_VERB})\s+{_THING}{_OWN}\s+{_LOOK}\b",
        rf"(?:{_CHANGE}|replace)\s+{_THING}\s+(?:colou?r|material|texture|size)\s+{_TO}\b",
        rf"{_SIZE_VERB}\s+{_THING}{_DONE}",
        rf"(?:re-?colou?r|paint|dye|tint|colou?r|cover|coat)\s+{_THING}\s+{_TO}\b",
        rf"(?:craft|reshape|rebuild|sculpt|construct|build|carve|forge|weave)\s+{_THING}\s+(?:{_TO}|from|of)\b",
        rf"(?:turn|transform|convert)\s+{_THING}\s+(?:into|to)\b",
        rf"make\s+{_THING}\s+{_LIKE}",
    ),
    "removed_objects": (rf"{_AWAY}\s+{_THING}{_GONE}",),
    "added_objects": (rf"{_PUT}\s+(?:(?:{_ARTICLE})\s+)?{_NEW}(?:{_THERE}|{_END})",),
    "replaced_objects": (
        rf"{_SWAP}\s+{_THING}\s+(?:with|by|for|to|into)\s+{_NEW}(?:\s+(?:to|so|that|in|on|at|for)\b|{_END})",
    ),
    "kept_objects": (
        r"(?:change|replace|switch|set)\s+the\s+background\s+(?:behind|of|around)\s+"
        rf"{_THING}\s+(?:to|with|into|for)\b",
        rf"{_TAKE}\s+(?:the image of\s+)?{_THING}(?:{_APART}|{_END})",
    ),
    "kept_person": (rf"(?:{_TAKE}|show|let|have|make)\s+{_THING}(?:{_APART}|\s+(?:is|are|be|wears?|to)\b|{_END})",),
    "edited_text": (
        rf"(?:{_SWAP}|{_CHANGE})\s+{_TEXT}(?P<old>{_QUOTED})\s+(?:with|by|for|to|into)\s+(?P<new>{_QUOTED})",
        rf"{_AWAY}\s+{_TEXT}(?P<old>{_QUOTED})",
        rf"{_PUT}\s+{_TEXT}(?P<new>{_QUOTED})",
    ),
    "changed_person": (
        r"\b(?P<old>(?:the|a)\s+(?:\w+\s+)?(?:man|woman|girl|boy|person|child|lady|guy|bride|groom))\b",
    ),
    "moved_person": (
        rf"(?:{_CHANGE}|make)\s+the\s+(?:action|pose|gesture|posture|motion)\s+of\s+{_THING}(?:\s+{_TO}\b|{_END})",
        rf"(?:{_CHANGE}|make)\s+{_THING}{_OWN}\s+(?:action|pose|gesture|posture|motion)\b",
        rf"(?:make|have|let)\s+{_THING}\s+(?:appear|look|start|be|stand|sit|run|walk|jump|turn|raise|hold|{_WORD}ing)\b",
    ),
}
REPLACING = ("replaced_objects", "edited_text")  # prompts whose edits have other objects in the edited image
# Attribute: words that tell that it is to change.
WORDS: dict[str, str] = {
    "face_id": r"older|younger|\bage\b|gender|swap|child|elderly|into an?\b.*\b(?:man|woman|girl|boy|cat|robot)",
    "face_geometry": r"\bface\b|\bnose|\beyes?\b|\blips?\b|mouth|\bjaw|cheek|smil|laugh|frown|expression|\bsad\b|angry"
    r"|happy|surprised|crying?|\bhead\b|\bteeth|\bears?\b|\blook(?:s|ing)? (?:at|away|up|down)",
    "face_texture": r"skin|make-?up|wrinkle|freckle|beard|moustache|mustache|stubble|acne|blemish|\bspots?\b|tan\b"
    r"|blush|lipstick|pimple|\bscar",
    "hair": r"hair|bald|fringe|bangs|ponytail|braid|\bcurls?\b",
    "body_pose_shape": r"pos(?:e|ture)|gesture|action|motion|\barms?\b|\bhands?\b|\blegs?\b|stand|\bsit|run|walk|jump"
    r"|danc|figure|muscular|muscle|slim|slender|\bthin|\bfat\b|weight|pounds|taller|shorter|\babs\b|body|wav(?:e|ing)|rais",
    "body_appearance": r"cloth|dress|shirt|jacket|coat|suit|hat\b|glasses|earring|necklace|jewel|shoe|trouser|pants"
    r"|skirt|tattoo|scarf|outfit|uniform|tie\b|wear",
}
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
    pattern = rf"(?:it|this|that|them|these|those|him|me|us|so|everything)\b|(?:{_ARTICLE}|one)$"
    return bool(re.match(pattern, words or "", re.IGNORECASE))


def _labels(words: str) -> tuple[str, ...]:
    """A phrase without its article, the things of an enumeration apart."""
    parts = re.split(r"\s+and\s+(?=(?:the|a|an)\s)", words.strip(" .,'\""))
    plain = (re.sub(rf"^(?:{_ARTICLE})\s+", "", part.strip(), flags=re.IGNORECASE) for part in parts)
    return tuple(dict.fromkeys(label for label in plain if label))
