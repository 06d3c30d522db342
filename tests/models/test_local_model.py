"""Chats and questions through a tiny checkpoint: batches, in which what chats share is computed once and the replies
are those of each chat alone; probabilities, broken images."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import png
from PIL import Image
from scipy import stats
from tiny_base import adapted, compare
from training_pairs import setting

from editjudge.core import images
from editjudge.core.errors import FileError
from editjudge.judges.protocol import Edit, Question, swapped
from editjudge.judges.rubrics import Rubric, pointwise
from editjudge.judges.styles import Style, completion, style
from editjudge.models.chat.checkpoint import load_model
from editjudge.models.chat.local_model import TOP, Chat, ChatModel, Chooser, load
from editjudge.models.families.qwen_vl import KEPT_IMAGES
from editjudge.models.weights.merge import merge_adapter
from editjudge.training.lesson import lora, processor_of

LONG = "Make the whole picture look like a rainy night in the city, with lamps"


@pytest.fixture(scope="module")
def model(base_dir: Path) -> ChatModel:
    """Trained on nothing: its replies are noise."""
    return load(base_dir)


@pytest.fixture(scope="module")
def shown() -> dict[bytes, np.ndarray]:
    """Four images of different sizes, and of different numbers of tokens."""
    encoded = [png(0, 64, 64), png(1, 40, 120), png(2, 150, 50), png(3, 90, 70)]
    return {data: images.decode(data) for data in encoded}


@pytest.fixture(scope="module")
def chat(model: ChatModel, shown: dict[bytes, np.ndarray]) -> Callable[..., Chat]:
    """chat("text", 0, 1, 2): a question about three of the images."""

    def make(instruction: str, *which: int) -> Chat:
        return Chat(model.render(style("pvc").messages(instruction)), tuple(list(shown)[n] for n in which), 6)

    return make


def plain(model: ChatModel, chat: Chat, shown: dict[bytes, np.ndarray]) -> tuple[list[int], torch.Tensor]:
    """New tokens and their log-probabilities (T, V), by the processor and generate alone."""
    inputs = model.processor(images=[[shown[i] for i in chat.images]], text=[chat.text], return_tensors="pt")
    out = model.model.generate(
        **inputs, max_new_tokens=chat.max_new_tokens, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    return out.sequences[0, inputs["input_ids"].shape[1] :].tolist(), torch.cat(out.logits).log_softmax(1)


def test_an_adapter_judges_as_the_merged_judge_does(base_dir, model, chat, shown, tmp_path) -> None:
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


def test_replies_are_those_of_plain_generation(model, chat, shown) -> None:
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


def test_chats_of_other_numbers_of_images_and_other_limits_stand_in_one_batch(model, chat, shown) -> None:
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


def test_each_image_is_encoded_once_and_each_beginning_read_once(base_dir, chat, shown) -> None:
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


def test_the_memory_of_images_is_bounded(model: ChatModel, chat: Callable[..., Chat]) -> None:
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


SHORT = replace(style("pvc"), max_new_tokens=12)


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    texts = ["Remove the cup", LONG]
    return [Question(f"q{i}", texts[i % 2], *(png(3 * i + n) for n in range(3))) for i in range(5)]


class Scripted:
    """Forces a judge's model to say each row's reply: a logits processor for `generate`."""

    def __init__(self, model: ChatModel, replies: list[str]) -> None:
        tokenizer = model.processor.tokenizer
        self.ids = [[*tokenizer(reply)["input_ids"], tokenizer.eos_token_id] for reply in replies]
        self.step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        forced = torch.full_like(scores, -torch.inf)
        for row, ids in enumerate(self.ids):
            forced[row, ids[min(self.step, len(ids) - 1)]] = 0.0
        self.step += 1
        return forced


def say(model: ChatModel, replies: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the model says these replies to a batch of this size, row by row, whatever it would say."""
    plain = model.model.generate

    def forced(**inputs):
        return plain(**inputs | {"logits_processor": [*inputs["logits_processor"], Scripted(model, replies)]})

    monkeypatch.setattr(model.model, "generate", forced)


def test_out_of_memory_halves_the_batch_and_leaves_what_does_not_fit_by_itself_unasked(model, questions, monkeypatch):
    """The model has memory for two chats at a time, and for none of the fourth question."""
    plain, batches = model.reply, list[int]()
    wanted = [verdict.reply for verdict in compare(model, SHORT, questions, 2)]

    def scarce(chats, *rest):
        if len(chats) > 2 or any(questions[3].source in chat.images for chat in chats):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        batches.append(len(chats))
        return plain(chats, *rest)

    monkeypatch.setattr(model, "reply", scarce)
    verdicts = compare(model, SHORT, questions, 8)
    assert batches == [2, 1, 1]
    assert verdicts[3].reason == "out of memory, even for one at a time"
    others = [n for n in range(5) if n != 3]
    assert [verdicts[n].reply for n in others] == [wanted[n] for n in others]


def test_replies_and_probabilities(model: ChatModel, questions: list[Question], monkeypatch: pytest.MonkeyPatch):
    replies = [completion("Image A"), completion("Image B"), completion("Tie"), "I cannot"]
    say(model, replies, monkeypatch)
    verdicts = compare(model, SHORT, questions[:4])
    assert [v.winner for v in verdicts] == ["Image A", "Image B", "Tie", None]
    assert [v.reply for v in verdicts] == replies
    written = [len(model.processor.tokenizer(reply)["input_ids"]) + 1 for reply in replies]
    assert [v.usage.tokens_out for v in verdicts] == written, "with the token that ends the turn"
    assert [v.p_a is None for v in verdicts] == [False, False, True, True]
    assert verdicts[0].p_a == pytest.approx(probability(model, questions[0], completion("Image A")), abs=1e-5)
    assert verdicts[1].p_a == pytest.approx(probability(model, questions[1], completion("Image A")), abs=1e-5)


def test_a_probability_is_read_where_the_winner_is_written_and_nowhere_else(model, questions, monkeypatch):
    """None where two places name a winner, or where other tokens do."""
    replies = [
        '{"reason": "Image B lost \u00e9clat", "winner": "Image A"}',
        '{"winner": "Image B", "reason": "Image A is dim"}',
        '{"reason": "winner: Image B at first", "winner": "Image A"}',
        '{"winner": "Image  A"}',
    ]
    named = lambda _, text: ("Image B" if '"winner": "Image B"' in text else "Image A", None)  # noqa: E731
    monkeypatch.setattr(Style, "read", named)
    say(model, replies, monkeypatch)
    first, last, *others = compare(model, replace(SHORT, max_new_tokens=80), questions[:4])
    assert (first.winner, last.winner) == ("Image A", "Image B")
    assert first.p_a == pytest.approx(probability(model, questions[0], replies[0]), abs=1e-5)
    other = replies[1][: replies[1].index("B")] + "A"
    assert last.p_a == pytest.approx(probability(model, questions[1], other + '"}'), abs=1e-5)
    assert [(v.winner, v.p_a) for v in others] == [("Image A", None)] * 2


def probability(model: ChatModel, question: Question, reply: str) -> float:
    """p_a from one unpadded forward pass over the prompt and a reply up to its last " A": without generate or batch."""
    processor = model.processor
    text = model.render(style("pvc").messages(question.instruction))
    shown = [Image.open(io.BytesIO(data)) for data in (question.source, question.a, question.b)]
    inputs = processor(images=[shown], text=[text + reply[: reply.rindex(" A")]], return_tensors="pt")
    with torch.no_grad():
        logits = model.model(**inputs).logits[0, -1]
    a, b = (processor.tokenizer(f" {side}")["input_ids"][0] for side in "AB")
    return torch.softmax(logits[[a, b]], 0)[0].item()


def test_a_broken_image_and_a_chat_beyond_the_model_fail_alone(model: ChatModel):
    good = Question("good", "x", png(0), png(1), png(2))
    bad = [
        Question("text", "x", b"not an image", png(1), png(2)),
        Question("cut", "x", png(0), png(1)[:100], png(2)),
        Question("empty", "x", png(0), png(1), b""),
        Question("thin", "x", png(0), png(1), png(2, 1, 300)),
        Question("long", "make it red " * 50_000, png(0), png(1), png(2)),
    ]
    verdicts = compare(model, SHORT, [bad[0], good, *bad[1:], swapped(good)], 2)
    reasons = {v.key: v.reason for v in verdicts if v.reply == ""}
    assert [v.key for v in verdicts] == ["text", "good", "cut", "empty", "thin", "long", "good"]
    told = {"text": "source: ", "cut": "a: ", "empty": "b: ", "thin": "too long and thin", "long": "tokens of words"}
    for key, words in told.items():
        assert words in reasons[key]
    assert compare(model, SHORT, []) == []


def test_any_size_and_shape_of_image(model: ChatModel, base_dir: Path):
    """Height 3 looks like three colour channels to transformers, which would shuffle the image."""
    shapes = [(40, 3), (1, 1), (300, 200), (1, 3), (3, 40)]
    asked = [Question(str(shape), "x", png(0, *shape), png(1, *shape), png(2)) for shape in shapes]
    halved = load(base_dir, "bfloat16")
    assert {weight.dtype for weight in halved.model.parameters()} == {torch.bfloat16}
    for each in (halved, model):
        verdicts = compare(each, SHORT, asked, 2)
        faults = [v.reason for v in verdicts if v.reason and v.reason.startswith(("source:", "a:", "b:"))]
        assert faults == [], "an untrained model says what it will, but every image is shown to it"
    _, height, width = model.chats.features[asked[-1].source].grid
    assert width > height


def test_load_model_refuses_what_it_cannot_trust(base_dir: Path, tmp_path: Path):
    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((base_dir / name).read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(FileError, match="safetensors"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(FileError, match="bert"):
        load_model(tmp_path)


def test_passes_draw_and_repeat(model: ChatModel, questions: list[Question]):
    def replies(asked: list[Question], seeds: list[int], batch_size: int) -> list[str]:
        found = compare(model, SHORT, asked, batch_size, temperature=1.0, seeds=seeds)
        return [verdict.reply for verdict in found]

    asked = [questions[0], questions[0], swapped(questions[0]), questions[1]]
    first = replies(asked, [0, 1, 0, 0], 16)
    assert len(set(first)) == 4, "other draws for each pass, order and question"
    assert replies(asked[1:3], [1, 0], 2) == first[1:3], "whatever else is in the batch"
    assert replies([replace(asked[0], key="other")], [0], 1) == first[:1]
    assert replies(asked, [1, 2, 1, 1], 16) != first


def test_scores(model: ChatModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Rubric, "read", lambda _, text: ({"length": float(len(text))}, None))
    form = replace(pointwise(10, "visual_consistency"), max_new_tokens=4)
    asked = [Edit("x", png(0), png(1), key="good"), Edit("x", png(0), b"no image", key="bad")]
    good, bad = compare(model, form, asked)
    assert good.scores == {"length": len(good.reply)}
    assert (good.usage.requests, good.usage.tokens_out, good.usage.images) == (1, 4, 2)
    assert (bad.key, bad.scores, bad.usage) == ("bad", None, None)
    assert str(bad.reason).startswith("edited: ")
    form = replace(pointwise(10, "visual_quality"), max_new_tokens=4)
    assert compare(model, form, asked[:1])[0].usage.images == 1
