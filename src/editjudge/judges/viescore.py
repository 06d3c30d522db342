"""Scores of single edits in the manner of VIEScore, from large general models.

Protocol: M. Ku et al., VIEScore, arXiv 2312.14867: two numbers in 0..10 for semantic consistency (the instruction
followed, no over-editing; source and edit shown) and two for perceptual quality (naturalness, absence of artefacts;
the edit alone shown); the smaller number of each counts, and the overall score is the root of their product.
GEdit-Bench (Step1X-Edit, arXiv 2504.17761) uses it so for edits; EditScore (arXiv 2509.23909) asks for numbers in 0..25
and divides them by 2.5. The words are our own (judges/prompts/scores), and so is the aspect of visual consistency.
"""

import math
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from pydantic.dataclasses import dataclass

from editjudge.core import prompts
from editjudge.core.errors import FileError
from editjudge.core.settings import FORBID
from editjudge.core.winner import Winner
from editjudge.judges.protocol import PointQuestion, Said, Score
from editjudge.judges.styles import Dimension, told
from editjudge.models.endpoint.replies import read_object
from editjudge.models.endpoint.spending import total

Scale: TypeAlias = Literal[10, 25]
ASPECTS: tuple[Dimension, Dimension] = ("instruction_following", "visual_quality")  # of the overall score
SCALES: dict[str, Scale] = {"viescore_10": 10, "viescore_25": 25}
DIGITS = 9  # of a difference of scores: 3.2 - 2.8 shall be 0.4


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PointStyle(prompts.Prompt):
    """One way of asking for the score of a single edit (see protocol.Form), by two numbers in 0..scale."""

    scale: Scale = 10

    @property
    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "minimum": 0, "maximum": self.scale}
        text = {"type": "string", "pattern": rf"^\s*[0-9]{{1,2}}(\.[0-9]{{1,9}})?\s*(/\s*{self.scale}\s*)?$"}
        score = {"type": "array", "items": {"anyOf": [number, text]}, "minItems": 2, "maxItems": 2}
        properties = {"score": score, "reasoning": {"type": ["string", "null"]}}
        return {"type": "object", "properties": properties, "required": ["score"], "additionalProperties": False}

    def read(self, text: str) -> tuple[tuple[float, ...] | None, float | None, str | None]:
        """The two numbers in a reply and the score in 0..10, or None and None with the reason why there are none.

        The numbers may be texts ("8", "8/10" on a scale of 10); a wrong count, range or kind is refused, not mended.
        """
        number = rf"""["']?[0-9]{{1,2}}(?:\.[0-9]{{1,9}})?(?:/{self.scale})?["']?"""
        reply, reason = read_object(text, self.schema, "score", rf"\[\s*{number}\s*,\s*{number}\s*\]")
        if reply is None:
            return None, None, reason
        parts = tuple(float(part.split("/")[0]) if isinstance(part, str) else float(part) for part in reply["score"])
        if max(parts) > self.scale:
            return None, None, f"a score lies outside 0..{self.scale}: {reply['score']}"
        return parts, min(parts) * 10 / self.scale, None

    def answer(self, question: PointQuestion, said: Said | str) -> Score:
        if isinstance(said, str):
            return Score(question.key, None, (), "", said)
        parts, value, reason = self.read(said.text)
        return Score(question.key, value, parts or (), said.text, reason, said.usage, said.asked)


def pointwise(scale: Scale, aspect: Dimension) -> PointStyle:
    """Asks for an aspect by two numbers in 0..scale, higher is better; the score is the smaller one, in 0..10.

    instruction_following is VIEScore's semantic consistency, visual_quality its perceptual quality, which is asked
    without source and instruction. FileError for another aspect; the overall score has no prompt, but two aspects.
    """
    if aspect == "overall":
        raise FileError(f"no prompt scores an edit overall: it is asked about {' and '.join(ASPECTS)}")
    name = "viescore_alone" if aspect == "visual_quality" else "viescore"
    texts = {field: text for field, text in told(aspect).items() if field != "criteria"}
    prompt = PointStyle.load(f"judges/prompts/scores/{name}.yaml", **texts, scale=str(scale))
    return replace(prompt, scale=scale)


def overall(following: Score, quality: Score) -> Score:
    """VIEScore's overall score of one edit: the root of the product of its two aspects' scores, 0..10."""
    reply, usage = f"{following.reply}\n{quality.reply}", total([following.usage, quality.usage])
    if following.value is None or quality.value is None:
        reason = "; ".join(score.reason for score in (following, quality) if score.reason)
        return Score(following.key, None, (), reply, reason, usage)
    value, parts = math.sqrt(following.value * quality.value), (following.value, quality.value)
    return Score(following.key, value, parts, reply, None, usage)


def winner_of(a: Score, b: Score, margin: float) -> tuple[Winner | None, str | None]:
    """The side with the higher score, or Tie up to `margin` (0..10) apart; or the reason why a score is missing."""
    if a.value is None or b.value is None:
        missing = [f"{name}: {score.reason}" for name, score in (("Image A", a), ("Image B", b)) if score.value is None]
        return None, "; ".join(missing)
    lead = round(a.value - b.value, DIGITS)
    if abs(lead) <= margin:
        return "Tie", None
    return ("Image A" if lead > 0 else "Image B"), None
