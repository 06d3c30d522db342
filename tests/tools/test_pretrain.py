"""The training loop's batches equal the processor's, and its model learns to look."""

from dataclasses import replace

import numpy as np
import torch
from tiny_base import INSTRUCTIONS, SIZES

from editjudge.judges.prompt import completion, messages
from tools.tiny_base import looks, pretrain, tiny

SIZE = SIZES.image_size
TOKENS = tiny.tokenizer(INSTRUCTIONS)


def make_batch(rng: np.random.Generator, count: int, done: float = 0.0) -> pretrain.Samples:
    """The winner is the source, the loser is nearly black."""
    images = rng.integers(0, 256, (count, 3, SIZE, SIZE, 3), dtype=np.uint8)
    winner = rng.integers(0, 2, count)
    for row, side in enumerate(winner):
        images[row, 1 + side] = images[row, 0]
        images[row, 2 - side] = images[row, 0] // 8
    return images, winner, [INSTRUCTIONS[i] for i in rng.integers(0, 3, count)]


def test_a_batch_is_what_the_processor_makes():
    net, processor = tiny.model(TOKENS, SIZES), tiny.processor(TOKENS, SIZE)
    images, winner, instructions = make_batch(np.random.default_rng(0), 4)
    batch = pretrain.examination(net, TOKENS, (images, winner, instructions))
    texts = [
        processor.apply_chat_template(messages(text), tokenize=False, add_generation_prompt=True)
        + completion(pretrain.SIDES[side])
        + "<|im_end|>\n"
        for text, side in zip(instructions, winner, strict=True)
    ]
    expected = processor(
        images=[list(row) for row in images], text=texts, padding=True, padding_side="right", return_tensors="pt"
    )
    assert torch.equal(batch.input_ids, expected["input_ids"])
    assert torch.equal(batch.attention_mask, expected["attention_mask"])
    assert torch.equal(batch.image_grid_thw, expected["image_grid_thw"])
    torch.testing.assert_close(batch.pixel_values, expected["pixel_values"], rtol=0, atol=1e-6)
    mask = batch.attention_mask.bool()
    with torch.no_grad():
        torch.testing.assert_close(pretrain.forward(net, batch).logits[mask], net(**expected).logits[mask])


def test_the_loss_is_on_the_reply_only():
    net = tiny.model(TOKENS, SIZES)
    batch = pretrain.examination(net, TOKENS, make_batch(np.random.default_rng(1), 3))
    for labels, side in zip(batch.labels, batch.winner.tolist(), strict=True):
        assert TOKENS.decode(labels[labels >= 0]) == completion(pretrain.SIDES[side]) + "<|im_end|>\n"
    decided = batch.input_ids[torch.arange(3), batch.decision]
    assert torch.equal(decided, batch.sides[batch.winner])


def test_a_lesson_asks_what_can_be_seen_and_not_the_judges_question():
    net, rng = tiny.model(TOKENS, SIZES), np.random.default_rng(2)
    images, winner, instructions = make_batch(rng, 16)
    batch = pretrain.lesson(net, TOKENS, (images, winner, instructions), rng)
    for row, image in enumerate(images):
        cells, contrasts = looks.look(image)
        np.testing.assert_array_equal(batch.cells[row], cells)
        np.testing.assert_array_equal(batch.contrasts[row], contrasts)
    texts = [TOKENS.decode(ids) for ids in batch.input_ids]
    for text, number in zip(texts, batch.question.tolist(), strict=True):
        assert "preserves" not in text
        assert number == len(looks.QUESTIONS) or looks.QUESTIONS[number] in text
    of_brightness = looks.WORDS.index(("is brighter", "is darker")) * 2
    for number, side, truth in zip(batch.question.tolist(), batch.winner.tolist(), winner.tolist(), strict=True):
        if number in (of_brightness, of_brightness + 1):  # the loser is nearly black
            assert side == (truth if number == of_brightness else 1 - truth)


def test_it_learns_to_look():
    settings = pretrain.PretrainSettings(steps=60, batch_size=8, learning_rate=3e-3, eval_every=30, eval_samples=16)
    net = tiny.model(TOKENS, replace(SIZES, seed=1))
    history = pretrain.pretrain(net, TOKENS, make_batch, make_batch, settings)
    assert [row["step"] for row in history] == [30, 60]
    assert history[1]["loss"] < history[0]["loss"] / 2
    assert history[1]["cells"] < 0.7 * history[0]["cells"]
    assert all(0 <= row[name] <= 1 for row in history for name in ("accuracy", "untaught"))
