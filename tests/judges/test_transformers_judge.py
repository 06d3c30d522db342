"""Questions through a tiny checkpoint: batches, probabilities, broken images."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from editjudge.judges.checkpoint import load_model
from editjudge.judges.processor import load_processor
from editjudge.judges.prompt import completion, messages
from editjudge.judges.protocol import Question, swapped
from editjudge.judges.transformers_judge import TransformersJudge


@pytest.fixture(scope="module")
def judge(base_dir: Path) -> TransformersJudge:
    """Trained on nothing: its replies are noise."""
    return TransformersJudge(load_model(base_dir), load_processor(base_dir), batch_size=2, max_new_tokens=12)


@pytest.fixture(scope="module")
def questions(png: Callable[..., bytes]) -> list[Question]:
    texts = ["Remove the cup", "Make the whole picture look like a rainy night in the city, with lamps"]
    return [Question(f"q{i}", texts[i % 2], png(3 * i), png(3 * i + 1), png(3 * i + 2)) for i in range(5)]


def test_noise_is_unparsed_with_a_reason(judge: TransformersJudge, questions: list[Question]):
    verdicts = judge.compare_many(questions)
    assert [v.key for v in verdicts] == ["q0", "q1", "q2", "q3", "q4"]
    assert all(v.winner is None and v.p_a is None and v.reason for v in verdicts)


class Scripted:
    """Forces a judge's model to say each row's reply: a logits processor for `generate`."""

    def __init__(self, judge: TransformersJudge, replies: list[str]) -> None:
        tokenizer = judge.processor.tokenizer
        self.ids = [[*tokenizer(reply)["input_ids"], tokenizer.eos_token_id] for reply in replies]
        self.step = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        forced = torch.full_like(scores, -torch.inf)
        for row, ids in enumerate(self.ids):
            forced[row, ids[min(self.step, len(ids) - 1)]] = 0.0
        self.step += 1
        return forced


def test_replies_and_probabilities(
    judge: TransformersJudge, questions: list[Question], monkeypatch: pytest.MonkeyPatch
):
    replies = [completion("Image A"), completion("Image B"), completion("Tie"), "I cannot"]
    plain = judge.model.generate
    monkeypatch.setattr(
        judge.model,
        "generate",
        lambda **inputs: plain(**inputs, logits_processor=[Scripted(judge, replies)]),
    )
    monkeypatch.setattr(judge, "batch_size", 4)
    verdicts = judge.compare_many(questions[:4])
    assert [v.winner for v in verdicts] == ["Image A", "Image B", "Tie", None]
    assert [v.reply for v in verdicts] == replies
    assert [v.p_a is None for v in verdicts] == [False, False, True, True]
    assert verdicts[0].p_a == pytest.approx(probability(judge, questions[0]), abs=1e-5)
    assert verdicts[1].p_a == pytest.approx(probability(judge, questions[1]), abs=1e-5)


def probability(judge: TransformersJudge, question: Question) -> float:
    """p_a from one unpadded forward pass over prompt and reply: independent of generate and of the batch."""
    tokenizer = judge.processor.tokenizer
    text = judge.processor.apply_chat_template(
        messages(question.instruction), tokenize=False, add_generation_prompt=True
    )
    shown = [Image.open(io.BytesIO(data)) for data in (question.source, question.a, question.b)]
    inputs = judge.processor(
        images=[shown], text=[text + completion("Image A").removesuffix(' A"}')], return_tensors="pt"
    )
    with torch.no_grad():
        logits = judge.model(**inputs).logits[0, -1]
    a, b = (tokenizer(f" {side}")["input_ids"][0] for side in "AB")
    return torch.softmax(logits[[a, b]], 0)[0].item()


def test_a_broken_image_fails_alone(judge: TransformersJudge, png: Callable[..., bytes]):
    good = Question("good", "x", png(0), png(1), png(2))
    bad = [
        Question("text", "x", b"not an image", png(1), png(2)),
        Question("cut", "x", png(0), png(1)[:100], png(2)),
        Question("empty", "x", png(0), png(1), b""),
        Question("thin", "x", png(0), png(1), png(2, 1, 300)),
    ]
    verdicts = judge.compare_many([bad[0], good, bad[1], bad[2], bad[3], swapped(good)])
    reasons = {v.key: v.reason for v in verdicts if v.reply == ""}
    assert [v.key for v in verdicts] == ["text", "good", "cut", "empty", "thin", "good"]
    assert set(reasons) >= {"text", "cut", "empty", "thin"}
    assert reasons["text"].startswith("source: ")
    assert reasons["cut"].startswith("a: ")
    assert reasons["empty"].startswith("b: ")
    assert "too long and thin" in reasons["thin"]
    assert judge.compare_many([]) == []


def test_any_size_and_shape_of_image(judge: TransformersJudge, png: Callable[..., bytes]):
    shapes = [(3, 40), (40, 3), (1, 1), (300, 200), (1, 3)]
    asked = [Question(str(shape), "x", png(0, *shape), png(1, *shape), png(2)) for shape in shapes]
    faults = [v.reason for v in judge.compare_many(asked) if v.reason and v.reason.startswith(("source:", "a:", "b:"))]
    assert faults == [], "an untrained model says what it will, but every image is shown to it"


def test_an_image_three_pixels_high_is_read_row_by_row(judge: TransformersJudge, png: Callable[..., bytes]):
    """Height 3 looks like three colour channels to transformers, which would shuffle the image."""
    data = png(0, 3, 9)
    grids = []
    plain = judge.model.generate
    judge.model.generate = lambda **inputs: grids.append(inputs["image_grid_thw"]) or plain(**inputs)
    try:
        judge.compare_many([Question("k", "x", data, data, data)])
    finally:
        del judge.model.generate
    assert (grids[0][:, 2] > grids[0][:, 1]).all()


def test_load_model_refuses_what_it_cannot_trust(base_dir: Path, tmp_path: Path):
    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).write_bytes((base_dir / name).read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match="dtype"):
        load_model(base_dir, dtype="float16")  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(TypeError, match="bert"):
        load_model(tmp_path)


def test_bfloat16(base_dir: Path, questions: list[Question]):
    judge = TransformersJudge(load_model(base_dir, "bfloat16"), load_processor(base_dir), max_new_tokens=2)
    assert len(judge.compare_many(questions[:2])) == 2
