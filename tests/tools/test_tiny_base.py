"""The tiny base is a Qwen3-VL like any other, small, and the same each time; what it learns from, and that it does."""

import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from cases import each_row
from tiny_base import INSTRUCTIONS, SIZES
from transformers import Qwen3VLProcessor

from editjudge.core import images
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.core.winner import WINNERS
from editjudge.judges.styles import completion, style
from editjudge.models.chat.checkpoint import load_processor
from editjudge.sources.builtin import photos
from tools.tiny_base import looks, pretrain, samples, tiny


def test_same_seed_same_bytes(tmp_path: Path):
    for name in ("one", "two"):
        torch.rand(3)  # moves the global state, which must not matter
        tokens = tiny.tokenizer(["Remove the cup"])
        settings = tiny.TinySettings(text_layers=1, vision_layers=2, seed=3)
        tiny.save(tiny.model(tokens, settings), tiny.processor(tokens), tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_default_size_is_small(tmp_path: Path):
    tokens = tiny.tokenizer()
    tiny.save(tiny.model(tokens, tiny.TinySettings()), tiny.processor(tokens), tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size < 5_000_000


def test_tokenizer_writes_anything_and_tells_the_winners_apart():
    tokens = tiny.tokenizer()
    for text in ("Ändere das Bild → 夜 🌙", "a\n\tb  c", *map(completion, WINNERS)):
        assert tokens.decode(tokens(text)["input_ids"]) == text
    a, b = (tokens(completion(side))["input_ids"] for side in ("Image A", "Image B"))
    assert sum(x != y for x, y in zip(a, b, strict=True)) == 1


@pytest.mark.parametrize(("size", "patches"), [(96, 36), (128, 64)])
def test_images_come_to_the_asked_size(size: int, patches: int):
    processor = tiny.processor(tiny.tokenizer(), size)
    image = np.zeros((3 * size, 3 * size, 3), dtype=np.uint8)
    text = processor.apply_chat_template(style("pvc").messages("x"), tokenize=False, add_generation_prompt=True)
    inputs = processor(images=[[image] * 3], text=[text], return_tensors="pt")
    assert inputs["pixel_values"].shape == (3 * patches, 2 * 3 * 16 * 16)
    tokens = tiny.tokenizer()
    net = tiny.model(tokens, tiny.TinySettings(image_size=size, text_layers=1))
    with torch.no_grad():
        assert torch.isfinite(net(**inputs).logits).all()


def test_image_size_must_fit_the_patches():
    with pytest.raises(ParamsError, match="image_size must be a multiple of 32"):
        read("sizes", tiny.TinySettings, {"image_size": 100})


def test_load_processor(base_dir: Path):
    processor = load_processor(base_dir)
    assert isinstance(processor, Qwen3VLProcessor)
    assert processor.image_processor.size["longest_edge"] == 64 * 96
    text = processor.apply_chat_template(style("pvc").messages("x"), tokenize=False, add_generation_prompt=True)
    assert text.count("<|vision_start|><|image_pad|><|vision_end|>") == 3
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")


@each_row("file, content", ("processor_config.json", "[" * 100_000))
def test_a_missing_or_broken_processor_is_named(file: str, content: str, base_dir: Path, tmp_path: Path):
    shutil.copytree(base_dir, tmp_path / "broken", ignore=shutil.ignore_patterns("*.safetensors"))
    (tmp_path / "broken" / file).write_text(content)
    for folder in (tmp_path / "broken", tmp_path):
        with pytest.raises(FileError, match=f"{folder.name} has no processor that can be used"):
            load_processor(folder)


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
        processor.apply_chat_template(style("pvc").messages(text), tokenize=False, add_generation_prompt=True)
        + completion(pretrain.SIDES[side])
        + "<|im_end|>\n"
        for text, side in zip(instructions, winner, strict=True)
    ]
    how = {"padding": True, "padding_side": "right", "return_tensors": "pt"}
    expected = processor(images=[list(row) for row in images], text=texts, **how)
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


GREY = np.full((64, 96, 3), 120, np.uint8)
NOISE = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)


def sample(a: np.ndarray, b: np.ndarray, source: np.ndarray = GREY) -> np.ndarray:
    return np.stack([source, a, b])


def test_cells_are_means_of_what_their_pixels_have_and_of_how_far_they_are_from_the_sources() -> None:
    edit = GREY.copy()
    edit[:32, 32:64] = (200, 60, 60)
    cells, _ = looks.look(sample(edit, GREY))
    assert cells.shape == (3, 6, looks.SEEN + looks.COMPARED)
    grey, red = (images.to_lab(np.full((1, 1, 3), colour, np.uint8))[0, 0] for colour in ((120,) * 3, (200, 60, 60)))
    beside = [0, 3, 5]  # those to the right and below see the red one's edge in their contrast
    np.testing.assert_allclose(cells[1, 1, :3], (red - (50, 0, 0)) / (25, 20, 20), rtol=1e-4)
    np.testing.assert_allclose(cells[1, 1, looks.SEEN], np.log(np.linalg.norm(red - grey) + 0.5), rtol=1e-4)
    np.testing.assert_allclose(cells[1, 1, looks.SEEN + 1 : -1], (red - grey) / 8, rtol=1e-3)
    np.testing.assert_allclose(cells[1][beside], cells[0][beside], atol=1e-5)
    np.testing.assert_allclose(cells[2], cells[0], atol=1e-5)


def halved(half: str) -> np.ndarray:
    place = {"left": np.s_[:, :48], "right": np.s_[:, 48:], "upper": np.s_[:32], "lower": np.s_[32:]}[half]
    edit = GREY.copy()
    edit[place] = 200
    return edit


SURE = {
    **{f"changed more in the {half} half": (halved(half), halved(other), GREY)
       for half, other in (("left", "right"), ("right", "left"), ("upper", "lower"), ("lower", "upper"))},
    "is brighter": (GREY + 60, GREY, GREY),
    "is redder": (GREY + np.uint8([60, 0, 0]), GREY, GREY),
    "is yellower": (GREY, GREY + np.uint8([0, 0, 90]), GREY),
    "is sharper": (NOISE, cv2.GaussianBlur(NOISE, (0, 0), 2), NOISE),
}  # fmt: skip


@pytest.mark.parametrize("n", range(len(looks.WORDS)))
def test_a_question_names_the_edit_that_has_more_and_its_opposite_the_other(n: int) -> None:
    a, b, source = SURE[looks.WORDS[n][0]]
    for sides, first in (((a, b), 0), ((b, a), 1)):
        contrasts = looks.look(sample(*sides, source))[1]
        only = np.where(np.arange(len(contrasts)) == n, contrasts, 0)
        rng = np.random.default_rng(1)
        asked = [question for _ in range(40) if (question := looks.ask(only, rng, "zorf")).number < 16]
        expected = {(looks.QUESTIONS[2 * n], first), (looks.QUESTIONS[2 * n + 1], 1 - first)}
        assert {(question.text, question.winner) for question in asked} == expected


def test_words_of_no_meaning_are_answered_by_chance_and_the_judges_question_is_never_asked() -> None:
    rng = np.random.default_rng(0)
    asked = [looks.ask(rng.normal(0, 1, len(looks.WORDS)), rng, "zorf") for _ in range(2000)]
    unknown = [question.winner for question in asked if question.number == len(looks.QUESTIONS)]
    assert 0.1 < len(unknown) / 2000 < 0.2
    assert 0.4 < np.mean(unknown) < 0.6
    assert not any(word in text for text in looks.QUESTIONS for word in ("preserve", "better", "rest", "source"))


def test_base_samples_name_the_side_with_less_damage() -> None:
    rng = np.random.default_rng(0)
    pixels, winners, words = samples.make_batch(sorted(photos.BASE), (64, 96), 0.0, rng, 20)
    assert pixels.shape == (20, 3, 64, 96, 3)
    for (source, *sides), winner in zip(pixels, winners, strict=True):
        assert np.array_equal(sides[winner], source)
        assert not np.array_equal(sides[1 - winner], source)
    assert all(words)


def test_a_pool_turns_samples_without_losing_their_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "CHUNK", 30)
    monkeypatch.setattr(samples.workers, "spread", lambda part, jobs, _: [*map(part, jobs)])  # in this process
    pool = samples.Pool(sorted(photos.BASE), 64, 150, seed=0)
    for done in (0.0, 1.0):
        pixels, winners, _ = pool.draw(np.random.default_rng(1), 30, done)
        same = [(side == source).all() for source, *sides in pixels for side in sides]
        if done == 0.0:
            assert [bool(s) for s in same] == [bool(w == k) for w in winners for k in (0, 1)]
        assert 0 < winners.mean() < 1
