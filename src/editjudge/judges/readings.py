"""Scores in a model's words, read as a person reads them and no further: what is unclear has no number.

The public scripts take any line that ends in a number for a score, an average too, leave out dimensions that are
missing, and cannot read `Score: 3 (Acceptable)`."""

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from editjudge.core import params
from editjudge.models.endpoint import replies

NOT_APPLICABLE = "N/A"
DEEPEST = 8  # objects in each other; what lies deeper holds no scores
YES_NO = {"yes": 1, "no": 0}
ALSO: dict[str, str] = params.load(Path(__file__).parent / "tables/readings.yaml")
WHO = {"name", "dimension", "criterion", "aspect"}  # keys of an object that say what its score is of
MARKS = r"[\s*_`\"'\[\]$⭐]{0,9}"  # of Markdown, JSON and TeX, around a name and a number
SAID = r"(?:i give|(?:score|rating|评分|得分|分数)(?:\s+of|\s+is|\s?[:=])?)"
WORD = r"[^\W\d][^\d\n:()|]{0,30}\("  # Good (4)
COLON = r"(?:[:=|\u2013\u2014]|-(?=\s)|\bis\b|为|是)"
BETWEEN = rf"{MARKS}(?:score|rating)?{MARKS}(?:\([^()\n]{{0,60}}\))?{MARKS}COLON{MARKS}(?:{SAID}|{WORD})?{MARKS}"
UNIT = r"(?:\s?/\s?MOST\b|\s?out of MOST\b|\s?(?:points?|stars?)\b|\s?分)?\)?"
VALUE = rf"(-?\d+(?:\.\d+)?|yes\b|no\b){MARKS}{UNIT}{MARKS}"
START = r"^[^\w\n]{0,20}(?:\d[.)][^\w\n]{0,9})?"
END = r"[.,;|}]?\s{0,9}(?:[-\u2013\u2014|(](?!\s*\d).*)?$"
STATED = rf"(?<!\w)(?:NAMES){BETWEEN.replace('COLON', COLON)}{VALUE}"
LINE = rf"{START}{STATED}{END}"
BARE = rf"{START}(?:NAMES){BETWEEN.replace('COLON', COLON + '?')}{VALUE}{END}"
HEADED = (
    rf"{START}(?:NAMES)\W{{0,9}}\n(?:(?!.*(?:OTHERS|WHOLE))[^\n]{{1,300}}\n){{0,3}}?\W{{0,9}}{SAID}{MARKS}{VALUE}{END}"
)
SENTENCE = rf"{STATED}(?=$|[\n}}]|\.(?!\d)|[;,)|(](?!\s*\d)|\s(?:and )?(?:the )?OTHERS)"
WHOLE = "overall|average|total|mean"  # headings whose number is no dimension's
KINDS = (LINE, BARE, HEADED, SENTENCE)
ALONE = rf"\W{{0,20}}{VALUE}\.?\W{{0,20}}"


def body_of(reply: str) -> str | None:
    """A reply in plain lines: a JSON object's `key: number`, a table's likewise, without thinking, tags and entities;
    None where it ends before its thinking does."""
    body = reply.rpartition(replies.END_OF_THINKING)[2]
    if replies.THINKING in body:
        return None
    found, end = replies.first_object(body, body.find("{"))
    if isinstance(found, dict):
        body = "\n".join([body[: body.find("{")], *_lines(found), body[end:]])
    body = re.sub(r"</?[a-zA-Z]\w{0,20}\s?/?>", "\n", html.unescape(body))
    return "\n".join(map(_row, unicodedata.normalize("NFKC", body).split("\n")))


def _lines(value: Any, name: str = "", depth: int = 0) -> Iterator[str]:
    """The numbers and texts of an object as lines, down to DEEPEST; the one called score is that of what it lies in."""
    if depth > DEEPEST:
        return
    if isinstance(value, dict):
        whose = next((each for key, each in value.items() if key.lower() in WHO and isinstance(each, str)), name)
        for key, each in value.items():
            own = whose if whose and key.lower() in ("score", "rating", "value") else key
            yield from _lines(each, own, depth + 1)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for each in value:
            yield from _lines(each, name, depth + 1)
    else:
        yield f"{name}: {value}"


def _row(line: str) -> str:
    """A table's row with one number in a cell of its own, as a name and a number; any other line as it is."""
    cells = [cell.strip(" \t*_`") for cell in line.strip().strip("|").split("|")]
    numbers = [cell for cell in cells[1:] if re.fullmatch(rf"\d+(?:\.\d+)?{UNIT}".replace("MOST", "5"), cell)]
    return f"{cells[0]}: {numbers[0]}" if line.strip().startswith("|") and len(numbers) == 1 else line


def said(body: str, key: str, names: tuple[str, ...], others: tuple[str, ...] = (), most: int = 5) -> set[str]:
    """The numbers (or yes, no) that a reply's `body_of` states of a dimension, as texts: those on lines of a name and a
    number; where there are none, those below headings, or else in sentences. The dimension `score` needs no name where
    its number is all there is.

    key: of the dimension, see ALSO. names: its own. others: those of all dimensions, which end what is said of it.
    most: of the scale, as in 4/5."""
    for pattern in _patterns(key, names, others, most):
        if found := {match[1].lower() for match in pattern.finditer(body)}:
            return found
    alone = re.fullmatch(ALONE.replace("MOST", str(most)), body) if "score" in (key, *names) else None
    return {alone[1]} if alone else set()


@cache
def _patterns(key: str, names: tuple[str, ...], others: tuple[str, ...], most: int) -> list[re.Pattern[str]]:
    own = "|".join([*map(_name, names), *([ALSO[key]] if key in ALSO else [])])
    rest = f"(?:{'|'.join(map(_name, others)) or '(?!)'})"
    kinds = [kind.replace("MOST", str(most)).replace("WHOLE", WHOLE) for kind in KINDS]
    made = (kind.replace("NAMES", own).replace("OTHERS", rest) for kind in kinds)
    return [re.compile(each, re.IGNORECASE | re.MULTILINE) for each in made]


def _name(name: str) -> str:
    """A name with `and` for &, _ for a space, and, of long ones, without the last word."""
    words = ["(?:&|and)" if word == "&" else re.escape(word) for word in name.split()]
    last = rf"(?:[\s_-]+{words[-1]})?" if len(words) > 3 else rf"[\s_-]+{words[-1]}"
    return r"[\s_-]+".join(words[:-1]) + last if len(words) > 1 else words[0]


def below(body: str, names: tuple[str, ...], name: str) -> set[str]:
    """The scores `## Score: N` below a dimension's name, up to another of `names` and before the summary, as texts."""
    every = "|".join(map(re.escape, names))
    _, *rest = re.split(rf"(?m)^[#*\s]*(?:\d+\.)?[*\s]*({every})\b.*$", body.partition("# Summary")[0])
    own = "".join(text for each, text in zip(rest[::2], rest[1::2], strict=True) if each == name)
    return set(re.findall(rf"## Score:[\s*\[]*(\d+(?:\.\d+)?|{NOT_APPLICABLE})", own))


def number(of: set[str], least: int, most: int, whole: bool) -> tuple[float | None, str | None]:
    """The one number among `of`, in least..most, or None with the reason why there is none.

    whole: only a whole number is one."""
    if not of:
        return None, "no clear number"
    if of & {*YES_NO, NOT_APPLICABLE} or len(values := {float(word) for word in of}) > 1:
        return None, f"{' and '.join(sorted(of))}"
    value = values.pop()
    if whole > value.is_integer() or not least <= value <= most:
        return None, f"{value:g} is no {'whole ' if whole else ''}number in {least}..{most}"
    return int(value) if whole else value, None


def listed(reply: str, count: int, least: int, most: int) -> tuple[list[float] | None, str | None]:
    """`count` numbers in least..most: of the list called score in a JSON object, or of the one list that a reply
    without an object ends in; or None with the reason why there are none.

    They may be texts ("8", "8/10" on a scale of 10), and a single one may stand without brackets; a wrong count, range
    or kind is refused, not mended."""
    body = reply.rpartition(replies.END_OF_THINKING)[2]
    if replies.THINKING in body.partition("{")[0]:
        return None, replies.CUT_THINKING
    bare = re.findall(r"\[[^\[\]]*\]", body)
    if "{" not in body and len(bare) == 1 and body.rstrip(replies.CLOSING).endswith(bare[0]):
        body = f'{{"score": {bare[0]}}}'
    part = rf"""["']?[0-9]{{1,2}}(?:\.[0-9]{{1,9}})?(?:/{most})?["']?"""
    numbers, one = r"\s*,\s*".join([part] * count), "?" if count == 1 else ""
    found, reason = replies.read_object(body, {"type": "object"}, "score", rf"\[{one}\s*{numbers}\s*\]{one}")
    if found is None:
        return None, reason
    lists = [*_called_score(found)]
    if len(lists) != 1:
        return None, f"{len(lists)} values are called score: {body[: replies.QUOTED]!r}"
    parts = [_part(each, most) for each in (lists[0] if isinstance(lists[0], list) else [lists[0]])]
    if len(parts) != count or (isinstance(lists[0], list) < (count > 1)):
        return None, f"{count} numbers are expected, not {str(lists[0])[: replies.QUOTED]}"
    values = [each for each in parts if each is not None and least <= each <= most]
    if len(values) < count:
        return None, f"no number in {least}..{most}: {str(lists[0])[: replies.QUOTED]}"
    return values, None


def _called_score(value: Any, depth: int = 0) -> Iterator[Any]:
    for key, each in value.items() if isinstance(value, dict) and depth < DEEPEST else ():
        if key.lower() in ("score", "scores"):
            yield each
        else:
            yield from _called_score(each, depth + 1)


def _part(part: Any, most: int) -> float | None:
    if isinstance(part, str):
        text = re.fullmatch(rf"\s*([0-9]{{1,2}}(?:\.[0-9]{{1,9}})?)\s*(?:/\s*{most}\s*)?", part)
        return float(text[1]) if text else None
    return float(part) if isinstance(part, int | float) and not isinstance(part, bool) else None
