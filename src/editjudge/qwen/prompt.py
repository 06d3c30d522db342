"""What a judge that is trained here is asked, and what it answers.

The judge sees the source image, two edits of it (A and B) and the edit instruction, and answers with one JSON
object that holds only the decision. The prompt is part of a trained judge: change its text only together with
new weights.
"""

import re

from editjudge.core.winner import WINNERS, Winner

INSTRUCTION = "Instruction: {instruction}\n"
QUESTION = """Which edit better preserves the rest of the source? \
Answer in JSON: {"winner": "Image A"}, {"winner": "Image B"} or {"winner": "Tie"}."""

REPLY_SCHEMA = {
    "type": "object",
    "properties": {"winner": {"enum": list(WINNERS)}},
    "required": ["winner"],
    "additionalProperties": False,
}

_SPECIAL_TOKEN = re.compile(r"<\|([^|<>]*)\|>")


def messages(instruction: str) -> list[dict]:
    """The chat of one question: a user turn with three image placeholders, in the order source, A, B.

    Each image's name stands behind it, where a causal model has seen the image; and the instruction before them, so
    that it may be of any length without moving images and question apart.

    Markers such as `<|image_pad|>` in the instruction lose their bars: no instruction can add images or turns.
    """
    plain = _SPECIAL_TOKEN.sub(r"<\1>", instruction).strip()
    content = [
        {"type": "text", "text": INSTRUCTION.format(instruction=plain)},
        {"type": "image"},
        {"type": "text", "text": "Source."},
        {"type": "image"},
        {"type": "text", "text": "Image A."},
        {"type": "image"},
        {"type": "text", "text": f"Image B.\n{QUESTION}"},
    ]
    return [{"role": "user", "content": content}]


def completion(winner: Winner) -> str:
    """The exact reply that a judge is trained to give for `winner`; ValueError for any other word."""
    if winner not in WINNERS:
        raise ValueError(f"winner must be one of {WINNERS}, not {winner!r}")
    return f'{{"winner": "{winner}"}}'
