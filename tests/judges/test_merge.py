"""A merged checkpoint answers as the base with its adapter does, and appears whole or not at all."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import get_peft_model
from tiny_base import INSTRUCTIONS, SIZES
from transformers import Qwen3VLForConditionalGeneration

from editjudge import images
from editjudge.judges import tiny
from editjudge.judges.checkpoint import load_model
from editjudge.judges.merge import load_adapted, merge_adapter
from editjudge.judges.processor import load_processor
from editjudge.judges.prompt import messages
from editjudge.judges.protocol import Question
from editjudge.judges.sft import TrainSettings, lora, save_adapter
from editjudge.judges.styles import STYLES
from editjudge.judges.transformers_judge import TransformersJudge


@pytest.fixture(scope="module")
def adapter_dir(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter with random weights, far from zero."""
    torch.manual_seed(0)
    model = get_peft_model(load_model(base_dir), lora(TrainSettings(rank=4, alpha=8)))
    for name, weight in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.2)
    folder = tmp_path_factory.mktemp("adapter")
    save_adapter(model, folder, {})
    return folder


def logits(model: Qwen3VLForConditionalGeneration, base_dir: Path, png: Callable[..., bytes]) -> torch.Tensor:
    processor = load_processor(base_dir)
    text = processor.apply_chat_template(messages("x"), tokenize=False, add_generation_prompt=True)
    shown = [images.decode(png(seed)) for seed in range(3)]
    with torch.no_grad():
        return model(**processor(images=[shown], text=[text], return_tensors="pt")).logits


def test_merged_equals_adapted(base_dir: Path, adapter_dir: Path, tmp_path: Path, png: Callable[..., bytes]):
    out = tmp_path / "new" / "merged"
    merge_adapter(base_dir, adapter_dir, out)
    adapted = logits(load_adapted(base_dir, adapter_dir), base_dir, png)
    torch.testing.assert_close(logits(load_model(out), out, png), adapted, rtol=1e-4, atol=1e-4)
    assert (adapted - logits(load_model(base_dir), base_dir, png)).abs().max() > 0.1
    assert [path.name for path in out.parent.iterdir()] == ["merged"]
    judge = TransformersJudge(load_model(out), load_processor(out), style=replace(STYLES["decision"], max_new_tokens=2))
    assert len(judge.compare_many([Question("k", "x", png(0), png(1), png(2))])) == 1


def test_the_base_comes_through_unchanged_in_form(base_dir: Path, adapter_dir: Path, tmp_path: Path):
    merge_adapter(base_dir, adapter_dir, tmp_path / "merged", "bfloat16")
    names = {path.name for path in (tmp_path / "merged").iterdir()}
    assert names == {path.name for path in base_dir.iterdir()}
    assert (tmp_path / "merged" / "tokenizer.json").read_bytes() == (base_dir / "tokenizer.json").read_bytes()
    half = (tmp_path / "merged" / "model.safetensors").stat().st_size
    assert half < 0.6 * (base_dir / "model.safetensors").stat().st_size


def test_an_existing_result_is_replaced(base_dir: Path, adapter_dir: Path, tmp_path: Path):
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "stale.safetensors").touch()
    merge_adapter(base_dir, adapter_dir, tmp_path / "merged")
    assert not (tmp_path / "merged" / "stale.safetensors").exists()


def test_pickled_adapters_are_refused(base_dir: Path, adapter_dir: Path, tmp_path: Path):
    shutil.copy(adapter_dir / "adapter_config.json", tmp_path)
    torch.save({}, tmp_path / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match="safetensors only"):
        merge_adapter(base_dir, tmp_path, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("change", [{"hidden_size": 96}, {"text_layers": 1}, {"text_layers": 3}])
def test_an_adapter_of_another_base(adapter_dir: Path, tmp_path: Path, change: dict[str, int]):
    tokens = tiny.tokenizer(INSTRUCTIONS)
    sizes = tiny.TinySettings(**{**vars(SIZES), **change})
    tiny.save(tiny.model(tokens, sizes), tiny.processor(tokens, 64), tmp_path / "other")
    with pytest.raises((RuntimeError, ValueError), match=r"size mismatch|does not fit"):
        merge_adapter(tmp_path / "other", adapter_dir, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
