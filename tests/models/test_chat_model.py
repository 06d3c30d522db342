"""Chats in batches: what they share is computed once, and the replies are those of each chat alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from tiny_base import adapted
from training_pairs import setting

from editjudge.core import images
from editjudge.judges.prompt import messages
from editjudge.models.chat.checkpoint import load_model
from editjudge.models.chat.local_model import TOP, Chat, ChatModel, Chooser, load
from editjudge.models.families.qwen_vl import KEPT_IMAGES
from editjudge.models.weights.merge import merge_adapter
from editjudge.training.lesson import lora, processor_of

LONG = "Make the whole picture look like a rainy night in the city, with lamps"


@pytest.fixture(scope="module")
def model(base_dir: Path) -> ChatModel:
    return load(base_dir)


@pytest.fixture(scope="module")
def shown(png: Callable[..., bytes]) -> dict[bytes, np.ndarray]:
    """Four images of different sizes, and of different numbers of tokens."""
    encoded = [png(0, 64, 64), png(1, 40, 120), png(2, 150, 50), png(3, 90, 70)]
    return {data: images.decode(data) for data in encoded}


@pytest.fixture(scope="module")
def chat(model: ChatModel, shown: dict[bytes, np.ndarray]) -> Callable[..., Chat]:
    """chat("text", 0, 1, 2): a question about three of the images."""

    def make(instruction: str, *which: int) -> Chat:
        return Chat(model.render(messages(instruction)), tuple(list(shown)[n] for n in which), 6)

    return make


def plain(model: ChatModel, chat: Chat, shown: dict[bytes, np.ndarray]) -> tuple[list[int], torch.Tensor]:
    """New tokens and their log-probabilities (T, V), by the processor and generate alone."""
    inputs = model.processor(images=[[shown[i] for i in chat.images]], text=[chat.text], return_tensors="pt")
    out = model.model.generate(
        **inputs, max_new_tokens=chat.max_new_tokens, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    return out.sequences[0, inputs["input_ids"].shape[1] :].tolist(), torch.cat(out.logits).log_softmax(1)


def test_an_adapter_judges_as_the_merged_judge_does(
    base_dir: Path, model: ChatModel, chat: Callable[..., Chat], shown: dict[bytes, np.ndarray], tmp_path: Path
) -> None:
    """To rounding, and in the sizes of images that it was trained with."""
    adapter, merged = tmp_path / "adapter", tmp_path / "merged"
    adapted(load_model(base_dir), adapter, lora(setting(lora_rank=4, lora_alpha=8)))
    bounds = setting(min_pixels=64 * 64, max_pixels=80 * 80)
    processor_of(base_dir, bounds).save_pretrained(adapter)
    merge_adapter(base_dir, adapter, merged)
    chats = [chat(*each) for each in (("cup", 0, 1, 2), (LONG, 3, 2, 1), ("cup", 3, 1, 0))]
    two = load(base_dir, adapter=adapter), load(merged)
    found, expected, plain = (each.reply(chats, shown) for each in (*two, model))
    assert [reply.tokens for reply in found] == [reply.tokens for reply in expected]
    assert [reply.tokens for reply in found] != [reply.tokens for reply in plain], "the adapter tells"
    assert sum(len(reply.tokens) for reply in found) >= 6
    for one, other in zip(found, expected, strict=True):
        assert np.allclose(one.logprobs, other.logprobs, atol=1e-4)
    assert two[0].processor.image_processor.size == two[1].processor.image_processor.size
    assert two[0].processor.image_processor.size.longest_edge == 80 * 80


def test_replies_are_those_of_plain_generation(
    model: ChatModel, chat: Callable[..., Chat], shown: dict[bytes, np.ndarray]
) -> None:
    """Both orders, sources and first edits in common, one question twice, texts and images of different lengths."""
    asked = [("cup", 0, 1, 2), ("cup", 0, 2, 1), (LONG, 3, 1, 2), (LONG, 3, 2, 1), ("cup", 0, 1, 3), ("cup", 0, 1, 2)]
    chats = [chat(*each) for each in asked]
    for one, reply in zip(chats, model.reply(chats, shown, watch=(5, 7)), strict=True):
        tokens, logprobs = plain(model, one, shown)
        assert list(reply.tokens) == tokens
        assert reply.tokens_in == model.chats.length(one, shown)
        assert np.allclose(reply.logprobs, logprobs[range(6), tokens], atol=2e-5)
        assert np.allclose(reply.watched, logprobs[:, [5, 7]], atol=2e-5)
        assert np.allclose(reply.top, logprobs.topk(TOP, dim=1).values, atol=2e-5)


def test_chats_of_other_numbers_of_images_and_other_limits_stand_in_one_batch(
    model: ChatModel, chat: Callable[..., Chat], shown: dict[bytes, np.ndarray]
) -> None:
    text = model.render([{"role": "user", "content": "Hello"}])
    two = model.render([{"role": "user", "content": [{"type": "image"}, {"type": "image"}]}])
    chats = [chat("cup", 0, 1, 2), Chat(text, (), 6), Chat(two, tuple(list(shown)[:2]), 6), Chat(text, (), 2)]
    replies = model.reply(chats, shown)
    assert [(len(reply.tokens), reply.tokens_out) for reply in replies] == [(6, 6)] * 3 + [(2, 2)]
    assert (replies[1].tokens[:2], replies[1].finished) == (replies[3].tokens, False)
    for one, reply in zip(chats, replies, strict=True):
        [alone] = ChatModel(model.model, model.processor).reply([one], shown)
        assert (reply.tokens, reply.tokens_in) == (alone.tokens, alone.tokens_in)
    with pytest.raises(ValueError, match="3 image tokens and 2 images"):
        model.reply([replace(chats[0], images=tuple(shown)[:2])], shown)


def test_each_image_is_encoded_once_and_each_beginning_read_once(
    base_dir: Path, chat: Callable[..., Chat], shown: dict[bytes, np.ndarray]
) -> None:
    model, encoded, read = load(base_dir), [], []
    net = model.model.model
    net.visual.register_forward_pre_hook(lambda _, a, k: encoded.append(len(k["grid_thw"])), with_kwargs=True)
    net.language_model.register_forward_pre_hook(
        lambda _, a, k: read.append(tuple(k["inputs_embeds"].shape[:2])), with_kwargs=True
    )
    first, second = (replace(chat("cup", *which), max_new_tokens=1) for which in ((0, 1, 2), (0, 2, 1)))
    upto = first.text.index("Source.") - len("<|vision_end|>")
    source = model.chats.length(Chat(first.text[:upto], first.images[:1], 1), shown)
    whole = model.chats.length(first, shown)
    model.reply([first, second], shown)
    assert encoded == [3]
    assert read == [(1, source), (2, whole - source)]
    model.reply([second, first], shown)
    assert encoded == [3], "known from the batch before"
    read.clear()
    pairs = [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)]
    model.reply([replace(chat("cup", 0, *pair), max_new_tokens=1) for pair in pairs], shown)
    assert [rows for rows, _ in read] == [1, 3, 6], "the first edit of all pairs once, too"


def test_the_memory_of_images_is_bounded(
    model: ChatModel, chat: Callable[..., Chat], png: Callable[..., bytes]
) -> None:
    many = {png(n): images.decode(png(n)) for n in range(KEPT_IMAGES + 2)}
    text = model.render([{"role": "user", "content": [{"type": "image"}]}])
    model.reply([Chat(text, (data,), 1) for data in many], many)
    assert list(model.chats.features) == list(many)[2:]
    first, _, second, *_ = many
    model.reply([Chat(text, (data,), 1) for data in (second, first)], many)
    assert list(model.chats.features) == [*list(many)[4:], second, first], "the one used last is kept longest"


def drawn(temperature: float, top_p: float, logits: torch.Tensor, top_k: int = 0, rows: int = 4000) -> np.ndarray:
    chats = [Chat("", (), 1, temperature, top_p, row, top_k) for row in range(rows)]
    scores = logits.repeat(rows, 1)
    forced = Chooser(chats, (), torch.device("cpu"))(torch.zeros(rows, 1), scores)
    return np.bincount(forced.argmax(dim=1).numpy(), minlength=len(logits))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_models_distribution(temperature: float) -> None:
    logits = torch.linspace(-1, 1.5, 24)[torch.randperm(24, generator=torch.Generator().manual_seed(0))]
    expected = (logits.double() / temperature).softmax(0).numpy() * 4000
    assert stats.chisquare(drawn(temperature, 1.0, logits), expected).pvalue > 0.01


def test_draws_keep_to_the_nucleus() -> None:
    probabilities = torch.tensor([0.05, 0.5, 0.15, 0.3] + [0.0] * 20).clamp(min=1e-9)
    counts = drawn(1.0, 0.7, probabilities.log())
    assert counts[[1, 3]].sum() == 4000
    assert stats.binomtest(int(counts[1]), 4000, 0.5 / 0.8).pvalue > 0.01
    assert drawn(1.0, 0.45, probabilities.log())[1] == 4000
    of_two = drawn(1.0, 1.0, probabilities.log(), 2)
    assert of_two[[1, 3]].sum() == 4000
    assert stats.binomtest(int(of_two[1]), 4000, 0.5 / 0.8).pvalue > 0.01
    assert drawn(1.0, 0.6, probabilities.log(), 2)[1] == 4000, "0.6 of what the two likeliest have"
    assert drawn(0.0, 1.0, probabilities.log())[1] == 4000
