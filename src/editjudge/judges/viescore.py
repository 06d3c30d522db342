"""Scores of single edits in the manner of VIEScore, from large general models.

Protocol: M. Ku et al., VIEScore, arXiv 2312.14867: two numbers in 0..10 for semantic consistency (the instruction
followed, no over-editing; source and edit shown) and two for perceptual quality (naturalness, absence of artefacts;
the edit alone shown); the smaller number of each counts, and the overall score is the root of their product.
GEdit-Bench (Step1X-Edit, arXiv 2504.17761) uses it so for edits; EditScore (arXiv 2509.23909) asks for numbers in 0..25
and divides them by 2.5. The words here are our own, and so is the aspect of visual consistency.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from editjudge.core.winner import Winner
from editjudge.endpoints.replies import read_object
from editjudge.judges.protocol import PointQuestion, Said, Score
from editjudge.judges.styles import Dimension, plain

Scale: TypeAlias = Literal[10, 25]
DIGITS = 9  # of a difference of scores: 3.2 - 2.8 shall be 0.4

# What the two numbers of each aspect say: the name, and what its lowest and its highest value mean.
ASPECTS: dict[Dimension, tuple[tuple[str, str, str], tuple[str, str, str]]] = {
    "instruction_following": (
        (
            "how well the edit does what the instruction asks",
            "nothing of it was done",
            "all of it was done, exactly as asked",
        ),
        (
            "how little was edited beyond the instruction",
            "the scene is another one than the source's",
            "only what the instruction needs was changed",
        ),
    ),
    "visual_quality": (
        (
            "how natural the image looks (light, shadow, perspective, distance, proportion)",
            "nothing about it looks natural",
            "it looks natural throughout",
        ),
        (
            "how free it is of artefacts (distortion, blurred faces, unusual body parts, seams, scratches, watermarks, "
            "parts that do not sit in the rest)",
            "they are over most of the image",
            "there are none",
        ),
    ),
    "visual_consistency": (
        (
            "how well the edit keeps the things of the source that the instruction leaves alone: who and what is "
            "there, identity, structure, pose, position, geometry, text",
            "they are other things, or gone",
            "all of them are there, the same",
        ),
        (
            "how well the edit keeps the look of the source that the instruction leaves alone: background, colours, "
            "light, texture, sharpness, framing",
            "it looks like another picture",
            "it looks exactly alike",
        ),
    ),
}
FAITHFUL = """The change that the instruction asks for is no fault, nor is what follows from it by necessity, such as \
the shadow of an added object. The two images may be identical, where the editing failed."""


@dataclass(frozen=True)
class PointStyle:
    """One way of asking for the score of a single edit (see protocol.Form).

    read: of a reply's text the two numbers in the prompt's own scale and the score in 0..10, or None and None with the
    reason why there are none.
    """

    images: tuple[str, ...]
    messages: Callable[[str], list[dict]]
    read: Callable[[str], tuple[tuple[float, ...] | None, float | None, str | None]]
    max_new_tokens: int = 512

    def answer(self, question: PointQuestion, said: Said | str) -> Score:
        """The score in a reply."""
        if isinstance(said, str):
            return Score(question.key, None, (), "", said)
        parts, value, reason = self.read(said.text)
        return Score(question.key, value, parts or (), said.text, reason, said.usage)


def pointwise(scale: Scale, aspect: Dimension) -> PointStyle:
    """Asks for an aspect by two numbers in 0..scale, higher is better; the score is the smaller one, in 0..10.

    instruction_following is VIEScore's semantic consistency, visual_quality its perceptual quality, which is asked
    without source and instruction. KeyError for another aspect.
    """
    images = ("edited",) if aspect == "visual_quality" else ("source", "edited")
    question = _question(scale, aspect)
    messages = partial(_messages, question=question, told=len(images) == 2)
    return PointStyle(images, messages, partial(_read, scale=scale))


def _question(scale: Scale, aspect: Dimension) -> str:
    first, second = (f"{name}: 0 means that {low}, {scale} that {high}." for name, low, high in ASPECTS[aspect])
    fairness = "" if aspect == "visual_quality" else f"{FAITHFUL}\n"
    return f"""{fairness}Give two scores from 0 to {scale}, the higher the better:
1. {first}
2. {second}
Use the whole range. Answer with one JSON object and nothing else, with a short reasoning:
{{"score": [first, second], "reasoning": "..."}}"""


def _messages(instruction: str, question: str, told: bool) -> list[dict]:
    """The chat about source and edit, or with nothing told about the edit alone."""
    texts = ["You rate an image that an editing model made.\nImage:"]
    if told:
        task = "You rate the edit of an image that an editing model made from an instruction."
        texts = [f"{task}\n{plain(instruction)}Source:", "Edit:"]
    content = [part for text in texts for part in ({"type": "text", "text": text}, {"type": "image"})]
    return [{"role": "user", "content": [*content, {"type": "text", "text": question}]}]


def _schema(scale: Scale) -> dict[str, Any]:
    number = {"type": "number", "minimum": 0, "maximum": scale}
    text = {"type": "string", "pattern": rf"^\s*[0-9]{{1,2}}(\.[0-9]{{1,9}})?\s*(/\s*{scale}\s*)?$"}
    score = {"type": "array", "items": {"anyOf": [number, text]}, "minItems": 2, "maxItems": 2}
    properties = {"score": score, "reasoning": {"type": ["string", "null"]}}
    return {"type": "object", "properties": properties, "required": ["score"], "additionalProperties": False}


def _read(text: str, scale: Scale) -> tuple[tuple[float, ...] | None, float | None, str | None]:
    """The numbers may be texts ("8", "8/10" on a scale of 10); a wrong count, range or kind is refused, not mended."""
    number = rf"""["']?[0-9]{{1,2}}(?:\.[0-9]{{1,9}})?(?:/{scale})?["']?"""
    reply, reason = read_object(text, _schema(scale), "score", rf"\[\s*{number}\s*,\s*{number}\s*\]")
    if reply is None:
        return None, None, reason
    parts = tuple(float(part.split("/")[0]) if isinstance(part, str) else float(part) for part in reply["score"])
    if max(parts) > scale:
        return None, None, f"a score lies outside 0..{scale}: {reply['score']}"
    return parts, min(parts) * 10 / scale, None


def winner_of(a: Score, b: Score, margin: float) -> tuple[Winner | None, str | None]:
    """The winner by two scores: the higher one, or Tie if they differ by `margin` (in 0..10) or less.

    None with the reason where either score is missing. Raises ValueError for a margin outside 0..10.
    """
    if not 0 <= margin <= 10:
        raise ValueError(f"margin must be in 0..10, not {margin}")
    if a.value is None or b.value is None:
        missing = [f"{name}: {score.reason}" for name, score in (("Image A", a), ("Image B", b)) if score.value is None]
        return None, "; ".join(missing)
    lead = round(a.value - b.value, DIGITS)
    if abs(lead) <= margin:
        return "Tie", None
    return ("Image A" if lead > 0 else "Image B"), None


SCALES: dict[str, Scale] = {"viescore_10": 10, "viescore_25": 25}
