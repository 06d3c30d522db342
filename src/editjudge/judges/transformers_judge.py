"""A judge that runs a Qwen3-VL checkpoint in this process, on the CPU or a GPU, through transformers."""

import sys
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from tqdm import tqdm
from transformers import GenerationConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor

from editjudge import images
from editjudge.judges.prompt import completion, messages, parse_reply
from editjudge.judges.protocol import Question, Verdict

LONGEST_ASPECT = 200


class TransformersJudge:
    """Answers questions in batches, by greedy decoding."""

    def __init__(
        self,
        model: Qwen3VLForConditionalGeneration,
        processor: Qwen3VLProcessor,
        batch_size: int = 16,
        max_new_tokens: int = 24,
    ) -> None:
        self.model, self.processor, self.batch_size = model, processor, batch_size
        self.generation = GenerationConfig(
            max_new_tokens=max_new_tokens,
            do_sample=False,
            repetition_penalty=1.0,
            eos_token_id=model.generation_config.eos_token_id,
            pad_token_id=processor.tokenizer.pad_token_id,
            return_dict_in_generate=True,
            output_logits=True,
        )
        a, b = (processor.tokenizer(completion(side))["input_ids"] for side in ("Image A", "Image B"))
        differ = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
        self.prefix, self.sides = a[:differ], [a[differ], b[differ]]

    def compare_many(self, questions: Sequence[Question]) -> list[Verdict]:
        """One verdict a question, in the same order.

        A question with a broken image gets winner None and the reason, and the others are answered. p_a is read
        where the replies "Image A" and "Image B" first differ: the softmax over the two tokens that stand there.
        It is None when the reply has not begun as both of them do (a Tie, or words of the model's own).
        """
        verdicts: list[Verdict] = []
        with tqdm(total=len(questions), desc="judge", unit="question", file=sys.stderr) as bar:
            for start in range(0, len(questions), self.batch_size):
                batch = questions[start : start + self.batch_size]
                verdicts += self._compare(batch)
                bar.update(len(batch))
        return verdicts

    def _compare(self, questions: Sequence[Question]) -> list[Verdict]:
        decoded = decode_all({data for q in questions for data in (q.source, q.a, q.b)})
        faults = [fault(question, decoded) for question in questions]
        sound = [q for q, found in zip(questions, faults, strict=True) if found is None]
        answers = iter(self._ask(sound, decoded) if sound else [])
        return [
            next(answers) if found is None else Verdict(q.key, None, None, "", found)
            for q, found in zip(questions, faults, strict=True)
        ]

    @torch.inference_mode()
    def _ask(self, questions: Sequence[Question], decoded: dict[bytes, np.ndarray | str]) -> list[Verdict]:
        inputs = self.processor(
            images=[[decoded[data] for data in (q.source, q.a, q.b)] for q in questions],
            text=[self._prompt(q.instruction) for q in questions],
            padding=True,
            padding_side="left",
            input_data_format="channels_last",
            return_tensors="pt",
        ).to(self.model.device)
        model = cast(Any, self.model)  # the annotations of generate do not admit this class
        output = model.generate(**inputs, generation_config=self.generation)
        new = output.sequences[:, inputs["input_ids"].shape[1] :].cpu()
        replies = self.processor.batch_decode(new, skip_special_tokens=True)
        rows = zip(questions, replies, self._p_a(new, output.logits), strict=True)
        return [verdict(question.key, reply, p_a) for question, reply, p_a in rows]

    def _prompt(self, instruction: str) -> str:
        return self.processor.apply_chat_template(messages(instruction), tokenize=False, add_generation_prompt=True)

    def _p_a(self, new: torch.Tensor, logits: tuple[torch.Tensor, ...]) -> list[float | None]:
        """For each row of new tokens (n, T) and the T logits (n, vocabulary) they were taken from."""
        differ = len(self.prefix)
        if len(logits) <= differ:
            return [None] * len(new)
        p_a = logits[differ][:, self.sides].float().softmax(dim=1)[:, 0].tolist()
        return [p if row[:differ] == self.prefix else None for row, p in zip(new.tolist(), p_a, strict=True)]


def verdict(key: str, reply: str, p_a: float | None) -> Verdict:
    """The verdict that a reply gives; p_a only beside a winner."""
    winner, reason = parse_reply(reply)
    return Verdict(key, winner, None if winner is None else p_a, reply, reason)


def decode_all(encoded: set[bytes]) -> dict[bytes, np.ndarray | str]:
    """Each image once, as uint8 (H, W, 3) in RGB, or the words that say what is wrong with it."""
    decoded: dict[bytes, np.ndarray | str] = {}
    for data in encoded:
        try:
            decoded[data] = images.decode(data)
        except images.ImageError as error:
            decoded[data] = str(error)
    return decoded


def fault(question: Question, decoded: dict[bytes, np.ndarray | str]) -> str | None:
    """What keeps a question from being asked, with the image's name; None if nothing does."""
    for name, data in (("source", question.source), ("a", question.a), ("b", question.b)):
        image = decoded[data]
        if isinstance(image, str):
            return f"{name}: {image}"
        height, width = image.shape[:2]
        if max(height, width) > LONGEST_ASPECT * min(height, width):
            return f"{name}: {width} x {height} pixels is too long and thin"
    return None
