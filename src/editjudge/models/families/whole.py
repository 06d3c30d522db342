"""Chats as every vision-language model of transformers takes them: whole, each with all of its images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np


@dataclass(frozen=True)
class Chat:
    """A chat to reply to: its text as the chat template renders it, with an image token for each image (encoded bytes).

    temperature: 0 takes the likeliest token each time; above 0 tokens are drawn, of the `top_k` likeliest (0: of all)
    from the smallest set that has `top_p` of their probability, with random numbers that depend on `seed` (at least 0)
    and the chat, not on the batch."""

    text: str
    images: tuple[bytes, ...]
    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    top_k: int = 0

    def random(self) -> np.random.Generator:
        """The chat's own random numbers: with one seed, other chats draw others."""
        return np.random.default_rng([self.seed, crc32(self.text.encode()), *map(crc32, self.images)])


class WholeChats:
    """What `generate` takes of chats, by the model's own processor."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor

    def inputs(self, chats: Sequence[Chat], pixels: Mapping[bytes, np.ndarray]) -> dict[str, Any]:
        """Of N chats with equally many images, padded on their left: at least input_ids and attention_mask, (N, L).

        pixels: the images as RGB, uint8, (H, W, 3)."""
        shown = [[pixels[image] for image in chat.images] for chat in chats]
        given = self.processor(
            text=[chat.text for chat in chats],
            images=shown if shown[0] else None,
            padding=True,
            padding_side="left",
            add_special_tokens=False,  # the template has written them
            input_data_format="channels_last",
            return_tensors="pt",
        )
        return dict(given.to(self.model.device))

    def length(self, chat: Chat, pixels: Mapping[bytes, np.ndarray]) -> int:
        """How many tokens the chat has, images included."""
        return int(WholeChats.inputs(self, [chat], pixels)["input_ids"].shape[1])
