"""The ways in which a judge can be asked: what it is told, how much it may write, and how its reply is read."""

from collections.abc import Callable
from dataclasses import dataclass

from editjudge.judges import prompt
from editjudge.judges.prompt import Winner


@dataclass(frozen=True)
class Style:
    """One way of asking for a comparison.

    messages: the chat of a question for its instruction; its `{"type": "image"}` placeholders stand for source, A and
    B, in this order. read: the winner in a reply, or None with the reason why there is none. version changes with
    the text. max_new_tokens: how much a reply may take.
    """

    version: str
    messages: Callable[[str], list[dict]]
    read: Callable[[str], tuple[Winner | None, str | None]]
    max_new_tokens: int


STYLES: dict[str, Style] = {
    "decision": Style(prompt.PROMPT_VERSION, prompt.messages, prompt.parse_reply, 24),
}
