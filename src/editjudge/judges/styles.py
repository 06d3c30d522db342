"""The ways in which a judge is asked for a comparison: its chat, how much it may write, how its reply is read."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from editjudge.core.winner import SIDES, WINNERS, Winner
from editjudge.endpoints.replies import read_object
from editjudge.judges import logprobs
from editjudge.judges.protocol import Question, Said, Verdict
from editjudge.qwen import prompt

Dimension: TypeAlias = Literal["visual_consistency", "instruction_following", "visual_quality"]

TASK = """You see a source image and two edits of it, Image A and Image B, made by two editing models from one \
instruction. Decide which of the two edits is better in one respect only, described below the images.
"""
CRITERIA: dict[Dimension, str] = {
    "visual_consistency": """The respect is visual consistency: how faithfully an edit keeps everything of the source \
that the instruction does not ask to change.
To be kept, wherever the instruction leaves it alone: the identity of people, animals and objects (face, body, hair, \
clothing); structure, shape, pose, size and position; colours, light and contrast; texture, material and sharpness; \
the background and everything in it; text and symbols, letter by letter; framing, perspective and geometry.
Not a fault: the change that the instruction asks for and what follows from it by necessity, such as the shadow or \
reflection of an added object, or the background uncovered by a removed one. If it asks for a new style, light, \
background or viewpoint, that may change, and the content has to stay recognisably the same.
How well the instruction was carried out and how beautiful an edit is do not count. Look for what was changed, moved, \
lost or added without being asked for; weigh it by how much of the image and how important a thing it concerns.""",
    "instruction_following": """The respect is instruction following: how exactly and completely an edit does what the \
instruction asks.
Check each thing it asks for: the right object or region, the right kind of change, number, colour, place, size and \
wording. Doing nothing, doing half, doing it to the wrong thing and doing more than was asked are faults, each as far \
as it misses what the instruction means.
How natural or beautiful an edit looks, and small unasked changes elsewhere, do not count.""",
    "visual_quality": """The respect is visual quality: how good an edit looks as an image.
Check that it is natural (light, shadow, perspective, proportion, and how changed parts sit in the rest) and free of \
artefacts: distorted faces, hands or bodies, broken shapes, seams, halos, blur, noise, garbled text, watermarks. Where \
the source is a drawing, or the instruction asks for another style, natural means true to that style.
How well the instruction was carried out and how much of the source was kept do not count.""",
}
FAIRNESS = """The two are in arbitrary order: the place of an image says nothing about it. Answer Tie only if you can \
find no difference between the two in this respect."""
_WINNERS = '"winner": "Image A" or "Image B" or "Tie"'
_REASON = '"reason": "what you saw in each edit, in one to three sentences"'
ANSWERS = {
    "decision": f"Decide at once. Answer with one JSON object and nothing else:\n{{{_WINNERS}}}",
    "reason_first": "Compare both edits with the source, then decide. Answer with one JSON object and nothing else, "
    f"the reason first:\n{{{_REASON}, {_WINNERS}}}",
    "reason_last": "Decide, then justify the decision. Answer with one JSON object and nothing else, the decision "
    f"first:\n{{{_WINNERS}, {_REASON}}}",
}
MAX_NEW_TOKENS = {"decision": 24, "reason_first": 512, "reason_last": 512}

REASONED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"winner": {"enum": list(WINNERS)}, "reason": {"type": "string"}},
    "required": ["winner", "reason"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Style:
    """One way of asking for a comparison (see protocol.Form).

    read: the winner in a reply's text, or None with the reason why there is none.
    """

    messages: Callable[[str], list[dict]]
    read: Callable[[str], tuple[Winner | None, str | None]]
    max_new_tokens: int
    images: tuple[str, ...] = ("source", "a", "b")

    def answer(self, question: Question, said: Said | str) -> Verdict:
        """The verdict in a reply, with the confidence in its tokens."""
        if isinstance(said, str):
            return Verdict(question.key, None, None, "", said)
        winner, reason = self.read(said.text)
        p_a = logprobs.p_a(said.tokens) if winner in SIDES else None
        return Verdict(question.key, winner, p_a, said.text, reason, said.usage)


def style(name: str, dimension: Dimension) -> Style:
    """The style `decision`, `reason_first` or `reason_last` for one dimension of the arena; KeyError for another.

    The decision on visual consistency is asked in the words that judges are trained with, everything else in words for
    large general models.
    """
    if (name, dimension) == ("decision", "visual_consistency"):
        return Style(prompt.messages, read_decision, MAX_NEW_TOKENS[name])
    question = f"{CRITERIA[dimension]}\n{FAIRNESS}\n{ANSWERS[name]}"
    schema = prompt.REPLY_SCHEMA if name == "decision" else REASONED_SCHEMA
    messages, read = partial(_messages, question=question), partial(_winner, schema=schema)
    return Style(messages, read, MAX_NEW_TOKENS[name])


def plain(instruction: str) -> str:
    """The line that gives the instruction, with its special tokens made harmless as the trained judge's prompt does."""
    text: str = prompt.messages(instruction)[0]["content"][0]["text"]
    return text


def _messages(instruction: str, question: str) -> list[dict]:
    """The names stand before the images, as general models expect them; the question follows the images."""
    content: list[dict] = [{"type": "text", "text": TASK + plain(instruction)}]
    for name in ("Source", "Image A", "Image B"):
        content += [{"type": "text", "text": f"{name}:"}, {"type": "image"}]
    return [{"role": "user", "content": [*content, {"type": "text", "text": question}]}]


def read_decision(text: str) -> tuple[Winner | None, str | None]:
    return _winner(text, prompt.REPLY_SCHEMA)


def _winner(text: str, schema: dict[str, Any]) -> tuple[Winner | None, str | None]:
    """The winner in a reply (`read_object` says what is read); its reason, if it has one, decides nothing."""
    reply, reason = read_object(text, schema, "winner", "|".join(WINNERS))
    return (None, reason) if reply is None else (reply["winner"], None)


STYLES: dict[str, Style] = {name: style(name, "visual_consistency") for name in ANSWERS}
