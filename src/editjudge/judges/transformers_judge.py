"""A judge that runs a Qwen3-VL checkpoint in this process, on the CPU or a GPU, through transformers."""

import re
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import expit
from tqdm import tqdm
from transformers import Qwen3VLForConditionalGeneration, Qwen3VLProcessor

from editjudge.core import images
from editjudge.endpoints.spending import Usage
from editjudge.judges.protocol import PointQuestion, Question, Score, Verdict
from editjudge.judges.styles import STYLES, Style
from editjudge.judges.viescore import PointStyle
from editjudge.qwen.chat_model import Chat, ChatModel, Reply, decode
from editjudge.qwen.prompt import Winner, completion

SIDES = ("source", "a", "b")
_VERDICT = re.compile(r"""winner["']?\s*:\s*["']?Image (?=[AB]\b)""")


class TransformersJudge:
    """Compares two edits, in batches.

    temperature: above 0 replies are drawn, with random numbers that depend on the seed, the question's content and the
    pass, not on the batch.
    """

    def __init__(
        self,
        model: Qwen3VLForConditionalGeneration,
        processor: Qwen3VLProcessor,
        batch_size: int = 16,
        style: Style = STYLES["decision"],
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.chat_model, self.batch_size, self.style = ChatModel(model, processor), batch_size, style
        self.temperature, self.seed = temperature, seed
        a, b = (processor.tokenizer(completion(side))["input_ids"] for side in ("Image A", "Image B"))
        self.sides = next((x, y) for x, y in zip(a, b, strict=False) if x != y)

    def compare_many(self, questions: Sequence[Question], passes: Sequence[int] | None = None) -> list[Verdict]:
        """One verdict a question, in the same order.

        A question with a broken image gets winner None and the reason, and the others are answered. p_a is read where
        the reply names the winner: the model's probabilities (at temperature 1) of the two tokens that tell "Image A"
        from "Image B", as shares of their sum. It is None for a Tie and for a winner written in other tokens.

        passes: 0, 1, ... for a question that is asked several times; another draw each, where there is a temperature.
        """
        numbers = passes or [0] * len(questions)
        asked = [self._chat(question, number) for question, number in zip(questions, numbers, strict=True)]
        replies = replies_to(self.chat_model, asked, SIDES, self.batch_size, self.sides)
        return [self._verdict(question.key, reply) for question, reply in zip(questions, replies, strict=True)]

    def _chat(self, question: Question, number: int) -> Chat:
        text = self.chat_model.render(self.style.messages(question.instruction))
        shown = (question.source, question.a, question.b)
        return Chat(text, shown, self.style.max_new_tokens, self.temperature, seed=self.seed + number)

    def _verdict(self, key: str, reply: Reply | str) -> Verdict:
        if isinstance(reply, str):
            return Verdict(key, None, None, "", reply)
        winner, reason = self.style.read(reply.text)
        return Verdict(key, winner, self._p_a(reply, winner), reply.text, reason, usage(reply, len(SIDES)))

    def _p_a(self, reply: Reply, winner: Winner | None) -> float | None:
        found = [match.end() for match in _VERDICT.finditer(reply.text)]
        if len(found) != 1 or winner != f"Image {reply.text[found[0]]}":
            return None
        text = self.chat_model.processor.decode
        places = range(len(reply.tokens))
        place = bisect_right(places, found[0], key=lambda n: len(text(reply.tokens[: n + 1], skip_special_tokens=True)))
        if reply.tokens[place] != self.sides[winner == "Image B"]:
            return None
        a, b = reply.watched[place].tolist()
        return float(expit(a - b))


class TransformersScorer:
    """Scores single edits, in batches; temperature and seed as in TransformersJudge."""

    def __init__(
        self,
        model: Qwen3VLForConditionalGeneration,
        processor: Qwen3VLProcessor,
        style: PointStyle,
        batch_size: int = 16,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.chat_model, self.style, self.batch_size = ChatModel(model, processor), style, batch_size
        self.temperature, self.seed = temperature, seed

    def score_many(self, questions: Sequence[PointQuestion], passes: Sequence[int] | None = None) -> list[Score]:
        """One score a question, in the same order; one with a broken image gets value None and the reason.

        passes: as in TransformersJudge.compare_many.
        """
        numbers = passes or [0] * len(questions)
        asked = [self._chat(question, number) for question, number in zip(questions, numbers, strict=True)]
        replies = replies_to(self.chat_model, asked, self.style.images, self.batch_size)
        return [self._score(question.key, reply) for question, reply in zip(questions, replies, strict=True)]

    def _chat(self, question: PointQuestion, number: int) -> Chat:
        text = self.chat_model.render(self.style.messages(question.instruction))
        both = {"source": question.source, "edited": question.edited}
        shown = tuple(both[name] for name in self.style.images)
        return Chat(text, shown, self.style.max_new_tokens, self.temperature, seed=self.seed + number)

    def _score(self, key: str, reply: Reply | str) -> Score:
        if isinstance(reply, str):
            return Score(key, None, (), "", reply)
        parts, value, reason = self.style.read(reply.text)
        return Score(key, value, parts or (), reply.text, reason, usage(reply, len(self.style.images)))


def usage(reply: Reply, shown: int) -> Usage:
    """What a reply cost. No seconds: the same question shall give the same record, and a batch has no time for each."""
    return Usage(1, reply.tokens_in, reply.tokens_out, shown)


def replies_to(
    model: ChatModel, chats: Sequence[Chat], names: Sequence[str], batch_size: int, watch: Sequence[int] = ()
) -> list[Reply | str]:
    """The reply to each chat, or the words that say why it could not be asked; with a progress bar.

    names: what the images of every chat are called in those words.
    """
    replies: list[Reply | str] = []
    with tqdm(total=len(chats), desc="judge", unit="question", file=sys.stderr) as bar:
        for start in range(0, len(chats), batch_size):
            batch = chats[start : start + batch_size]
            decoded = decode_all({image for chat in batch for image in chat.images})
            faults = [fault(chat.images, names, decoded) for chat in batch]
            sound = [chat for chat, found in zip(batch, faults, strict=True) if found is None]
            pixels = {data: image for data, image in decoded.items() if not isinstance(image, str)}
            answers = iter(model.reply(sound, pixels, watch))
            replies += [next(answers) if found is None else found for found in faults]
            bar.update(len(batch))
    return replies


def decode_all(encoded: set[bytes]) -> dict[bytes, np.ndarray | str]:
    """Each image once, as uint8 (H, W, 3) in RGB, or the words that say what is wrong with it."""
    decoded: dict[bytes, np.ndarray | str] = {}
    for data in encoded:
        try:
            decoded[data] = decode(data)
        except images.ImageError as error:
            decoded[data] = str(error)
    return decoded


def fault(shown: Sequence[bytes], names: Sequence[str], decoded: Mapping[bytes, np.ndarray | str]) -> str | None:
    """What keeps a chat from being asked, with the image's name; None if nothing does."""
    found = (
        f"{name}: {decoded[data]}" for name, data in zip(names, shown, strict=True) if isinstance(decoded[data], str)
    )
    return next(found, None)
