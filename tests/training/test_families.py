"""A model is what transformers can load: each family is asked, trained, merged, served and made a scorer alike."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import lessons
import numpy as np
import pytest
import tiny_families
import torch
from peft import PeftModel
from pixel_scorer import Served

from editjudge.core import images
from editjudge.core.errors import FileError
from editjudge.judges.prompt import messages
from editjudge.judges.protocol import Edit, Score
from editjudge.judges.scorers.checkpoint import CheckpointScorer
from editjudge.models.chat.checkpoint import bound, load_model, load_processor
from editjudge.models.chat.local_model import Chat, ChatModel, Reply, load
from editjudge.models.families import qwen_vl
from editjudge.models.families.whole import WholeChats
from editjudge.models.serve import server
from editjudge.models.weights.merge import merge_adapter
from editjudge.training import trainer
from editjudge.training.samples import Sample

BRIEF = {"max_steps": 1, "held_out_share": 0.0, "min_pixels": 0, "max_pixels": 0}


@pytest.fixture(scope="module", params=tiny_families.FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_families.save(request.param, tmp_path_factory.mktemp("families") / request.param)


def replies(model: ChatModel, pictures: dict[str, bytes], alone: bool = False) -> list[Reply]:
    """To a question in both orders, one over another source, and one without images."""
    asked = [("Remove the cup", "012"), ("Remove the cup", "021"), ("Make the whole picture look old", "312"), ("", "")]
    why = [{"role": "user", "content": [{"type": "text", "text": "Why"}]}]
    chats = [
        Chat(model.render(messages(words) if words else why), tuple(pictures[name] for name in shown), 5)
        for words, shown in asked
    ]
    pixels = {image: images.decode(image) for chat in chats for image in chat.images}
    assert [model.chats.length(chat, pixels) for chat in chats] == [r.tokens_in for r in model.reply(chats, pixels)]
    return [model.reply([chat], pixels)[0] for chat in chats] if alone else model.reply(chats, pixels)


def assert_same(some: list[Reply], others: list[Reply]) -> None:
    for one, other in zip(some, others, strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


def test_chats_in_a_batch_are_answered_as_alone_and_as_whole(family: Path, pictures: dict[str, bytes]) -> None:
    model = load(family)
    found = replies(model, pictures)
    assert_same(found, replies(model, pictures, alone=True))
    assert abs(found[0].logprobs - found[1].logprobs).max() > 1e-3, "the order of the edits is seen"
    for reply in found:
        assert b"".join(map(model.piece, reply.tokens)).decode(errors="replace") == model.processor.decode(reply.tokens)
    assert isinstance(model.chats, qwen_vl.SharedBeginnings) == (family.name in qwen_vl.KINDS)
    model.chats = WholeChats(model.model, model.processor)
    assert_same(found, replies(model, pictures))


def test_a_judge_is_trained_merged_and_served(
    family: Path, pairs: list[Sample], pictures: dict[str, bytes], tmp_path: Path
) -> None:
    """Only the language model is adapted; merged, it is what peft merges, and it answers as base and adapter do."""
    made = trainer.train(lessons.judge(**BRIEF), pairs, family, pictures.__getitem__, tmp_path / "lora", tmp_path / "c")
    assert made.steps == 1
    adapted = PeftModel.from_pretrained(load_model(family), str(tmp_path / "lora"))
    with torch.no_grad():  # one step moves too little to be seen
        names = [name for name, _ in adapted.named_parameters() if "lora_" in name]
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(name))))
    assert names
    assert all(".language_model." in name for name in names)
    adapted.save_pretrained(str(tmp_path / "lora"))
    answers = replies(load(family, adapter=tmp_path / "lora"), pictures)
    merge_adapter(family, tmp_path / "lora", tmp_path / "merged")
    expected = copy.deepcopy(adapted).merge_and_unload().state_dict()
    for name, weight in load_model(tmp_path / "merged").state_dict().items():
        torch.testing.assert_close(weight, expected[name], atol=1e-4, rtol=0)
    merged = load(tmp_path / "merged")
    assert_same(answers, replies(merged, pictures))
    asked = {"model": "judge", "messages": [{"role": "user", "content": "Why"}], "max_tokens": 5, "temperature": 0}
    with Served(server.Server(merged, "judge", 4, 4096, 3).app()) as running:
        said = httpx2.post(f"{running.url}/v1/chat/completions", json=asked, timeout=60).json()
    assert said["choices"][0]["message"]["content"] == answers[3].text


def test_a_scorer_of_any_family(family: Path, scored: list[Sample], pictures: dict[str, bytes], tmp_path: Path) -> None:
    """What was trained scores the same when it is loaded, as a plain checkpoint of the family with a head."""
    lesson = lessons.scorer(**BRIEF)
    made = trainer.train(lesson, scored, family, pictures.__getitem__, tmp_path / "scorer", tmp_path / "c")
    kept = json.loads((tmp_path / "scorer/config.json").read_text())["architectures"]
    assert kept == [type(load_model(tmp_path / "scorer")).__name__]
    edits = [Edit(row.instruction, pictures[row.source], pictures[row.a]) for row in scored[8:]]
    found = CheckpointScorer.load(tmp_path / "scorer", batch_size=3).score(edits)
    answers = torch.tensor(made.answers[1])
    for score, answer in zip(found, answers, strict=True):
        assert isinstance(score, Score)
        assert [*score.dimensions.values()] == pytest.approx(answer[:2].tolist(), abs=1e-4)


def test_bounds_on_pixels(family: Path, png: Callable[..., bytes]) -> None:
    """They are obeyed, or refused where a processor shows all images at one size."""
    shown = images.decode(png(0, 200, 140))
    text = "x" + load_processor(family).apply_chat_template(messages("x"), tokenize=False)

    def tokens(least: int, most: int) -> int:
        processor = bound(load_processor(family), least, most)
        return int(processor(text=[text], images=[[shown] * 3], return_tensors="pt")["input_ids"].shape[1])

    if family.name == "gemma3":
        with pytest.raises(FileError, match="shows all images at one size"):
            tokens(0, 4096)
        return
    assert tokens(0, 64 * 64) < tokens(0, 160 * 160)
    if family.name != "internvl":  # which takes the number of tiles that fits the image best
        assert tokens(256 * 256, 512 * 512) > tokens(0, 160 * 160)
