"""A judge that runs a Qwen3-VL checkpoint in this process, on the CPU or a GPU, through transformers."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm
from transformers import Qwen3VLForConditionalGeneration, Qwen3VLProcessor

from editjudge.core import images
from editjudge.core.winner import SIDES
from editjudge.endpoints.spending import Usage
from editjudge.judges.protocol import Asked, Form, Said, Tokens
from editjudge.judges.request import shown
from editjudge.judges.styles import STYLES
from editjudge.qwen.chat_model import Chat, ChatModel, Reply, decode
from editjudge.qwen.prompt import completion


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
        form: Form = STYLES["decision"],
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.chat_model, self.batch_size, self.form = ChatModel(model, processor), batch_size, form
        self.temperature, self.seed = temperature, seed
        a, b = (processor.tokenizer(completion(side))["input_ids"] for side in SIDES)
        self.sides = next((x, y) for x, y in zip(a, b, strict=False) if x != y)

    def compare_many(self, questions: Sequence[Asked], passes: Sequence[int] | None = None) -> list[Any]:
        """One answer a question, in the same order: a Verdict, or what else the form gives.

        A question with a broken image gets none, and the reason, and the others are answered. passes: 0, 1, ... for a
        question that is asked several times; another draw each, where there is a temperature.
        """
        replies = self.ask_many(questions, passes or [0] * len(questions))
        return [self.form.answer(question, said) for question, said in zip(questions, replies, strict=True)]

    def ask_many(self, questions: Sequence[Asked], passes: Sequence[int]) -> list[Said | str]:
        """The replies as they come, or the words that say why a question could not be asked; with a progress bar."""
        replies: list[Said | str] = []
        with tqdm(total=len(questions), desc="judge", unit="question", file=sys.stderr) as bar:
            for start in range(0, len(questions), self.batch_size):
                batch = slice(start, start + self.batch_size)
                replies += self._batch(questions[batch], passes[batch])
                bar.update(len(replies) - bar.n)
        return replies

    def _batch(self, questions: Sequence[Asked], passes: Sequence[int]) -> list[Said | str]:
        wrong: dict[bytes, str] = {}
        pixels: dict[bytes, np.ndarray] = {}
        asked_with = [shown(self.form, question) for question in questions]
        for data in {data for images_of in asked_with for data in images_of.values()}:
            try:
                pixels[data] = decode(data)
            except images.ImageError as error:
                wrong[data] = str(error)
        faults = [
            [f"{name}: {wrong[data]}" for name, data in images_of.items() if data in wrong] for images_of in asked_with
        ]
        asked = zip(questions, passes, faults, strict=True)
        chats = [self._chat(question, number) for question, number, broken in asked if not broken]
        replies = iter(self.chat_model.reply(chats, pixels, self.sides))
        return [broken[0] if broken else self._said(next(replies)) for broken in faults]

    def _chat(self, question: Asked, number: int) -> Chat:
        text = self.chat_model.render(self.form.messages(question.instruction))
        return Chat(
            text,
            tuple(shown(self.form, question).values()),
            self.form.max_new_tokens,
            self.temperature,
            seed=self.seed + number,
        )

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
