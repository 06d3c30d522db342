"""A judge that runs a Qwen3-VL checkpoint in this process, on the CPU or a GPU, through transformers."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from transformers import Qwen3VLForConditionalGeneration, Qwen3VLProcessor

from editjudge.core import images
from editjudge.core.winner import SIDES
from editjudge.judges.prompt import completion
from editjudge.judges.protocol import Asked, Form, Said, Tokens
from editjudge.judges.styles import TRAINED, style
from editjudge.models.chat.chat_model import Chat, ChatModel, Reply, decode
from editjudge.models.chat.request import shown
from editjudge.models.endpoint.spending import Usage
from editjudge.vision.loading import NoMemory, within_memory

PVC = style(TRAINED)


class TransformersJudge:
    """Answers questions in the form `form`, in batches.

    temperature: above 0 replies are drawn, with random numbers that depend on the seed, the question's content and the
    pass, not on the batch.
    """

    def __init__(
        self,
        model: Qwen3VLForConditionalGeneration,
        processor: Qwen3VLProcessor,
        batch_size: int = 16,
        form: Form = PVC,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.chat_model, self.batch_size, self.form = ChatModel(model, processor), batch_size, form
        self.temperature, self.seed = temperature, seed
        a, b = (processor.tokenizer(completion(side))["input_ids"] for side in SIDES)
        self.sides = next((x, y) for x, y in zip(a, b, strict=False) if x != y)

    def ask_many(self, questions: Sequence[Asked], passes: Sequence[int]) -> list[Said | str]:
        """The replies as they come, or the words that say why a question could not be asked.

        Out of memory: half the batch, from then on; a question that does not fit by itself could not be asked.
        """
        replies: list[Said | str] = []
        while len(replies) < len(questions):
            try:
                replies += within_memory(self, partial(self._batch, questions, passes, len(replies)))
            except NoMemory as error:
                replies.append(str(error))
        return replies

    def _batch(self, questions: Sequence[Asked], passes: Sequence[int], start: int) -> list[Said | str]:
        """The replies to as many as go through the model together, from `start` on."""
        batch = slice(start, start + self.batch_size)
        questions, passes = questions[batch], passes[batch]
        pixels: dict[bytes, np.ndarray] = {}
        faults = [self._fault(question, pixels) for question in questions]
        asked = zip(questions, passes, faults, strict=True)
        chats = [self._chat(question, number) for question, number, fault in asked if fault is None]
        replies = iter(self.chat_model.reply(chats, pixels, self.sides))
        return [fault or self._said(next(replies)) for fault in faults]

    def _fault(self, question: Asked, pixels: dict[bytes, np.ndarray]) -> str | None:
        """Which of the question's images cannot be used, and why; those that can are decoded into `pixels`."""
        for name, data in shown(self.form, question).items():
            try:
                pixels[data] = pixels[data] if data in pixels else decode(data)
            except images.ImageError as error:
                return f"{name}: {error}"
        return None

    def _chat(self, question: Asked, number: int) -> Chat:
        text = self.chat_model.render(self.form.messages(question.instruction))
        seen, seed = tuple(shown(self.form, question).values()), self.seed + number
        return Chat(text, seen, self.form.max_new_tokens, self.temperature, seed=seed)

    def _said(self, reply: Reply) -> Said:
        """No seconds in the usage: the same question shall give the same record, and a batch has no time for each."""
        usage = Usage(1, reply.tokens_in, reply.tokens_out, len(self.form.images))
        return Said(reply.text, self._tokens(reply), usage)

    def _tokens(self, reply: Reply) -> Tokens:
        """The reply's tokens; where one is written that tells "Image A" from "Image B", with those two's probabilities.

        These are the model's own, at temperature 1. A winner that is written in other tokens has no confidence.
        """
        tokens = []
        for token, watched in zip(reply.tokens, reply.watched.tolist(), strict=True):
            pair = zip(self.sides, watched, strict=True) if token in self.sides else ()
            top = [self._token(side) | {"logprob": logprob} for side, logprob in pair]
            tokens.append(self._token(token) | ({"top_logprobs": top} if top else {}))
        return tokens

    def _token(self, token: int) -> dict[str, Any]:
        piece = self.chat_model.piece(token)
        return {"token": piece.decode(errors="replace"), "bytes": list(piece)}
