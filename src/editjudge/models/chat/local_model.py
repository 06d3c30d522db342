"""A Qwen3-VL checkpoint in this process, on the CPU or a GPU, through transformers."""

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, Literal

import numpy as np
import torch
from transformers import Qwen3VLForConditionalGeneration, Qwen3VLProcessor

from editjudge.core import images
from editjudge.models.chat.chat_model import Chat, ChatModel, Reply, decode, load
from editjudge.models.chat.forms import ChatForm, ChatQuestion, RawReply, Tokens
from editjudge.models.chat.request import ChatTask, images_of, sampling
from editjudge.models.chat.settings import TransformersSetting
from editjudge.models.endpoint.spending import Usage
from editjudge.vision.loading import NoMemory, within_memory


class LocalModel:
    """Answers questions in the form `form`, in batches.

    temperature: above 0 replies are drawn, with random numbers that depend on the seed, the question's content and the
    pass, not on the batch.
    """

    def __init__(
        self,
        model: Qwen3VLForConditionalGeneration,
        processor: Qwen3VLProcessor,
        form: ChatForm,
        batch_size: int = 16,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.chat_model, self.batch_size, self.form = ChatModel(model, processor), batch_size, form
        self.temperature, self.seed = temperature, seed
        replies = [processor.tokenizer(reply)["input_ids"] for reply in form.watched]
        self.watched: tuple[int, ...] = next((each for each in zip(*replies, strict=False) if len(set(each)) > 1), ())

    def ask_many(self, questions: Sequence[ChatQuestion], passes: Sequence[int]) -> list[RawReply | str]:
        """The replies as they come, or the words that say why a question could not be asked.

        Out of memory: half the batch, from then on; a question that does not fit by itself could not be asked.
        """
        replies: list[RawReply | str] = []
        while len(replies) < len(questions):
            try:
                replies += within_memory(self, partial(self._batch, questions, passes, len(replies)))
            except NoMemory as error:
                replies.append(str(error))
        return replies

    def _batch(self, questions: Sequence[ChatQuestion], passes: Sequence[int], start: int) -> list[RawReply | str]:
        """The replies to as many as go through the model together, from `start` on."""
        batch = slice(start, start + self.batch_size)
        questions, passes = questions[batch], passes[batch]
        pixels: dict[bytes, np.ndarray] = {}
        faults = [self._fault(question, pixels) for question in questions]
        asked = zip(questions, passes, faults, strict=True)
        chats = [self._chat(question, number) for question, number, fault in asked if fault is None]
        replies = iter(self.chat_model.reply(chats, pixels, self.watched))
        return [fault or self._said(next(replies)) for fault in faults]

    def _fault(self, question: ChatQuestion, pixels: dict[bytes, np.ndarray]) -> str | None:
        """Which of the question's images cannot be used, and why; those that can are decoded into `pixels`."""
        for name, data in images_of(self.form, question).items():
            try:
                pixels[data] = pixels[data] if data in pixels else decode(data)
            except images.ImageError as error:
                return f"{name}: {error}"
        return None

    def _chat(self, question: ChatQuestion, number: int) -> Chat:
        text = self.chat_model.render(self.form.messages(question.instruction))
        seen, seed = tuple(images_of(self.form, question).values()), self.seed + number
        return Chat(text, seen, self.form.max_new_tokens, self.temperature, seed=seed)

    def _said(self, reply: Reply) -> RawReply:
        """No seconds in the usage: the same question shall give the same record, and a batch has no time for each."""
        usage = Usage(1, reply.tokens_in, reply.tokens_out, len(self.form.images))
        return RawReply(reply.text, self._tokens(reply), usage)

    def _tokens(self, reply: Reply) -> Tokens:
        """The reply's tokens, if the form watches any; a watched token that was written, with the probabilities of all
        watched ones, the model's own at temperature 1.
        """
        tokens: list[dict[str, Any]] = []
        if not self.watched:
            return tokens
        for token, watched in zip(reply.tokens, reply.watched.tolist(), strict=True):
            likely = zip(self.watched, watched, strict=True) if token in self.watched else ()
            top = [self._token(each) | {"logprob": logprob} for each, logprob in likely]
            tokens.append(self._token(token) | ({"top_logprobs": top} if top else {}))
        return tokens

    def _token(self, token: int) -> dict[str, Any]:
        piece = self.chat_model.piece(token)
        return {"token": piece.decode(errors="replace"), "bytes": list(piece)}


def replies(
    setting: TransformersSetting, form: ChatForm, tasks: Sequence[ChatTask], device: str
) -> list[RawReply | str]:
    """The first replies to tasks, or the next ones to those that have some, by the setting's model on the device."""
    if setting.workers != 1:
        torch.set_num_threads(1)
    bounds = setting.min_pixels, setting.max_pixels
    loaded = _loaded(setting.model, setting.dtype, setting.lora, device, *bounds)
    found: list[RawReply | str] = []
    for tried, group in groupby(tasks, key=lambda task: len(task.said)):
        same, sampled = list(group), sampling(setting, form, 0, tried)
        how = (sampled["temperature"], sampled.get("seed", setting.seed))
        model = LocalModel(loaded.model, loaded.processor, form, setting.batch_size, *how)
        found += model.ask_many([task.question for task in same], [task.number for task in same])
    return found


@lru_cache(maxsize=1)
def _loaded(
    model: str, dtype: Literal["float32", "bfloat16"], adapter: str | None, device: str, least: int, most: int
) -> ChatModel:
    """The model, which shows images at `least` to `most` pixels; 0: as its processor has it."""
    loaded = load(model, dtype, adapter, device)
    images = loaded.processor.image_processor
    longest = most or images.size["longest_edge"]
    shortest = min(least or images.size["shortest_edge"], longest)
    images.size = type(images.size)(shortest_edge=shortest, longest_edge=longest)
    return loaded
