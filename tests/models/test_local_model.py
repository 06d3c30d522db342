"""Questions through a tiny checkpoint: batches, probabilities, broken images."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny_base import compare

from editjudge.core.errors import FileError
from editjudge.judges.prompt import completion, messages
from editjudge.judges.protocol import Edit, Question, swapped
from editjudge.judges.rubrics import Rubric, pointwise
from editjudge.judges.styles import Style, style
from editjudge.models.chat.checkpoint import load_model, load_processor
from editjudge.models.chat.local_model import LocalModel

SHORT = replace(style("pvc"), max_new_tokens=12)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def judge(base_dir: Path) -> LocalModel:
    """Trained on nothing: its replies are noise."""
    return LocalModel(load_model(base_dir), load_processor(base_dir), SHORT, 2)


@pytest.fixture(scope="module")
def questions(png: Callable[..., bytes]) -> list[Question]:
    texts = ["Remove the cup", "Make the whole picture look like a rainy night in the city, with lamps"]
    return [Question(f"q{i}", texts[i % 2], png(3 * i), png(3 * i + 1), png(3 * i + 2)) for i in range(5)]


class Scripted:
    """Forces a judge's model to say each row's reply: a logits processor for `generate`."""

    def __init__(self, judge: LocalModel, replies: list[str]) -> None:
        tokenizer = judge.chat_model.processor.tokenizer
        self.ids = [[*tokenizer(reply)["input_ids"], tokenizer.eos_token_id] for reply in replies]
        self.step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        forced = torch.full_like(scores, -torch.inf)
        for row, ids in enumerate(self.ids):
            forced[row, ids[min(self.step, len(ids) - 1)]] = 0.0
        self.step += 1
        return forced


def say(judge: LocalModel, replies: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the model says these replies, whatever it would say: row by row of a batch of this size."""
    plain = judge.chat_model.model.generate

    def forced(**inputs):
        return plain(**inputs | {"logits_processor": [*inputs["logits_processor"], Scripted(judge, replies)]})

    monkeypatch.setattr(judge.chat_model.model, "generate", forced)
    monkeypatch.setattr(judge, "batch_size", len(replies))


def test_out_of_memory_halves_the_batch_and_leaves_what_does_not_fit_by_itself_unasked(
    judge: LocalModel, questions: list[Question], monkeypatch: pytest.MonkeyPatch
):
    """The model has memory for two chats at a time, and for none of the fourth question."""
    plain, batches = judge.chat_model.reply, list[int]()
    wanted = judge.ask_many(questions, [0] * 5)

    def scarce(chats, *rest):
        if len(chats) > 2 or any(questions[3].source in chat.images for chat in chats):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        batches.append(len(chats))
        return plain(chats, *rest)

    monkeypatch.setattr(judge.chat_model, "reply", scarce)
    monkeypatch.setattr(judge, "batch_size", 8)
    replies = judge.ask_many(questions, [0] * 5)
    assert (judge.batch_size, batches) == (1, [2, 1, 1])
    assert replies[3] == "out of memory, even for one at a time"
    others = [n for n in range(5) if n != 3]
    assert [replies[n].text for n in others] == [wanted[n].text for n in others]


def test_replies_and_probabilities(judge: LocalModel, questions: list[Question], monkeypatch: pytest.MonkeyPatch):
    replies = [completion("Image A"), completion("Image B"), completion("Tie"), "I cannot"]
    say(judge, replies, monkeypatch)
    verdicts = compare(judge, questions[:4])
    assert [v.winner for v in verdicts] == ["Image A", "Image B", "Tie", None]
    assert [v.reply for v in verdicts] == replies
    assert [v.p_a is None for v in verdicts] == [False, False, True, True]
    assert verdicts[0].p_a == pytest.approx(probability(judge, questions[0], completion("Image A")), abs=1e-5)
    assert verdicts[1].p_a == pytest.approx(probability(judge, questions[1], completion("Image A")), abs=1e-5)


def test_a_probability_is_read_where_the_winner_is_written_and_nowhere_else(
    judge: LocalModel, questions: list[Question], monkeypatch: pytest.MonkeyPatch
):
    """None where two places name a winner, or where other tokens do."""
    replies = [
        '{"reason": "Image B lost \u00e9clat", "winner": "Image A"}',
        '{"winner": "Image B", "reason": "Image A is dim"}',
        '{"reason": "winner: Image B at first", "winner": "Image A"}',
        '{"winner": "Image  A"}',
    ]
    monkeypatch.setattr(
        Style, "read", lambda _, text: ("Image B" if '"winner": "Image B"' in text else "Image A", None)
    )
    monkeypatch.setattr(judge, "form", replace(style("pvc"), max_new_tokens=80))
    say(judge, replies, monkeypatch)
    first, last, *others = compare(judge, questions[:4])
    assert (first.winner, last.winner) == ("Image A", "Image B")
    assert first.p_a == pytest.approx(probability(judge, questions[0], replies[0]), abs=1e-5)
    other = replies[1][: replies[1].index("B")] + "A"
    assert last.p_a == pytest.approx(probability(judge, questions[1], other + '"}'), abs=1e-5)
    assert [(v.winner, v.p_a) for v in others] == [("Image A", None)] * 2


def probability(judge: LocalModel, question: Question, reply: str) -> float:
    """p_a from one unpadded forward pass over the prompt and a reply up to its last " A": without generate or batch."""
    processor = judge.chat_model.processor
    text = processor.apply_chat_template(messages(question.instruction), tokenize=False, add_generation_prompt=True)
    shown = [Image.open(io.BytesIO(data)) for data in (question.source, question.a, question.b)]
    inputs = processor(images=[shown], text=[text + reply[: reply.rindex(" A")]], return_tensors="pt")
    with torch.no_grad():
        logits = judge.chat_model.model(**inputs).logits[0, -1]
    a, b = (processor.tokenizer(f" {side}")["input_ids"][0] for side in "AB")
    return torch.softmax(logits[[a, b]], 0)[0].item()


def test_a_broken_image_fails_alone(judge: LocalModel, png: Callable[..., bytes]):
    good = Question("good", "x", png(0), png(1), png(2))
    bad = [
        Question("text", "x", b"not an image", png(1), png(2)),
        Question("cut", "x", png(0), png(1)[:100], png(2)),
        Question("empty", "x", png(0), png(1), b""),
        Question("thin", "x", png(0), png(1), png(2, 1, 300)),
    ]
    verdicts = compare(judge, [bad[0], good, bad[1], bad[2], bad[3], swapped(good)])
    reasons = {v.key: v.reason for v in verdicts if v.reply == ""}
    assert [v.key for v in verdicts] == ["text", "good", "cut", "empty", "thin", "good"]
    for key, words in {"text": "source: ", "cut": "a: ", "empty": "b: ", "thin": "too long and thin"}.items():
        assert words in reasons[key]
    assert compare(judge, []) == []


def test_any_size_and_shape_of_image(judge: LocalModel, base_dir: Path, png: Callable[..., bytes]):
    """Height 3 looks like three colour channels to transformers, which would shuffle the image."""
    shapes = [(40, 3), (1, 1), (300, 200), (1, 3), (3, 40)]
    asked = [Question(str(shape), "x", png(0, *shape), png(1, *shape), png(2)) for shape in shapes]
    for model in (judge, LocalModel(load_model(base_dir, "bfloat16"), load_processor(base_dir), SHORT, 2)):
        verdicts = compare(model, asked)
        faults = [v.reason for v in verdicts if v.reason and v.reason.startswith(("source:", "a:", "b:"))]
        assert faults == [], "an untrained model says what it will, but every image is shown to it"
    _, height, width = judge.chat_model.chats.features[asked[-1].source].grid
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


def test_passes_draw_and_repeat(base_dir: Path, questions: list[Question]):
    def replies(asked: list[Question], passes: list[int], seed: int, batch_size: int) -> list[str]:
        judge = LocalModel(net, processor, SHORT, batch_size, 1.0, seed)
        return [verdict.reply for verdict in compare(judge, asked, passes)]

    net, processor = load_model(base_dir), load_processor(base_dir)
    asked = [questions[0], questions[0], swapped(questions[0]), questions[1]]
    first = replies(asked, [0, 1, 0, 0], 0, 16)
    assert len(set(first)) == 4, "other draws for each pass, order and question"
    assert replies(asked[1:3], [1, 0], 0, 2) == first[1:3], "whatever else is in the batch"
    assert replies([replace(asked[0], key="other")], [0], 0, 1) == first[:1]
    assert replies(asked, [0, 1, 0, 0], 1, 16) != first


def test_scores(base_dir: Path, png: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Rubric, "read", lambda _, text: ({"length": float(len(text))}, None))
    form = replace(pointwise(10, "visual_consistency"), max_new_tokens=4)
    scorer = LocalModel(load_model(base_dir), load_processor(base_dir), form, 2)
    asked = [Edit("x", png(0), png(1), key="good"), Edit("x", png(0), b"no image", key="bad")]
    good, bad = compare(scorer, asked)
    assert good.scores == {"length": len(good.reply)}
    assert (good.usage.requests, good.usage.tokens_out, good.usage.images) == (1, 4, 2)
    assert (bad.key, bad.scores, bad.usage) == ("bad", None, None)
    assert str(bad.reason).startswith("edited: ")
    scorer.form = replace(pointwise(10, "visual_quality"), max_new_tokens=4)
    assert compare(scorer, asked[:1])[0].usage.images == 1
