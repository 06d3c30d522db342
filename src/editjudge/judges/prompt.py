"""What a judge that is trained here is asked, and what it answers."""

from editjudge.core.prompts import Prompt
from editjudge.core.winner import WINNERS, Winner

PROMPT = Prompt.load("judges/prompts/comparisons/pvc.yaml")
messages = PROMPT.messages


def completion(winner: Winner) -> str:
    """The exact reply that a judge is trained to give for `winner`; ValueError for any other word."""
    if winner not in WINNERS:
        raise ValueError(f"winner must be one of {WINNERS}, not {winner!r}")
    return f'{{"winner": "{winner}"}}'
