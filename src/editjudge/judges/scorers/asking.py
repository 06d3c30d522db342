"""How a scorer is asked: a chat of source, edit and question whose reply holds the added token."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from transformers import Qwen3VLProcessor

from editjudge.core.prompts import Prompt
from editjudge.judges.scorers.prompts import CRITERIA, TOKEN, ScorerPrompt
from editjudge.judges.styles import told

IGNORED = -100


@dataclass(frozen=True)
class Looks:
    """The questions that are asked of an edit: one for each dimension, or one for all of them.

    prompts: by question, for each look its turn. token: as the tokenizer has it.
    """

    prompts: tuple[tuple[Prompt, ...], ...]
    replies: tuple[str, ...]
    dimensions: int

    @property
    def each(self) -> int:
        """How often an edit is looked at."""
        return len(self.prompts[0])

    def states(self, found: torch.Tensor) -> torch.Tensor:
        """(n, D, hidden): the state of each dimension, from those of all looks at n edits, (n * each, hidden)."""
        states = found.unflatten(0, (-1, self.each))
        return states if self.each == self.dimensions else states.expand(-1, self.dimensions, -1)


def looks(prompt: ScorerPrompt, dimensions: Sequence[str], token: str) -> Looks:
    """How a prompt asks about these dimensions. FileError: one of them has no criteria."""
    asked = [told(dimension)["criteria"] for dimension in dimensions] if prompt.of_each else [""]
    turns = [
        [Prompt(version=1, source="-", user=q.replace(CRITERIA, each)) for each in asked] for q in prompt.questions
    ]
    replies = tuple(reply.replace(TOKEN, token) for reply in prompt.replies)
    return Looks(tuple(map(tuple, turns)), replies, len(dimensions))


def form_of(key: str, number: int) -> int:
    """Which of so many forms a record is shown in: by its key; without one in the first."""
    return 0 if not key else int.from_bytes(sha256(key.encode()).digest()[8:16]) % number


def text_of(processor: Qwen3VLProcessor, prompt: Prompt, instruction: str, reply: str) -> str:
    """The chat up to and with the reply, without its end."""
    chat = processor.apply_chat_template(prompt.messages(instruction), tokenize=False, add_generation_prompt=True)
    return str(chat) + reply


def begun(reply: str, token: str) -> str:
    """A reply up to its token: what follows says nothing to what stands before it."""
    return re.split(f"(?<={re.escape(token)})", reply)[0]


def batch(
    processor: Qwen3VLProcessor, texts: Sequence[str], images: Sequence[Sequence[np.ndarray]]
) -> dict[str, torch.Tensor]:
    """What the model takes: chats padded on their left, and the images (H, W, 3) uint8 of each."""
    given: Mapping[str, Any] = processor(
        images=[list(shown) for shown in images],
        text=list(texts),
        padding=True,
        padding_side="left",
        add_special_tokens=False,
        input_data_format="channels_last",
        return_tensors="pt",
    )
    return dict(given)


def reply_labels(processor: Qwen3VLProcessor, ids: torch.Tensor, replies: Sequence[str], token: int) -> torch.Tensor:
    """(n, L): the reply's tokens as labels, IGNORED elsewhere. The added token is none: nothing writes it."""
    labels = torch.full_like(ids, IGNORED)
    for row, reply in enumerate(replies):
        length = len(processor.tokenizer(reply, add_special_tokens=False)["input_ids"])
        labels[row, -length:] = ids[row, -length:]
    return labels.masked_fill(ids == token, IGNORED)
