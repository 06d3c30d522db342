"""The accelerator's benchmark runs from end to end on a CPU at a tiny size, and counts FLOPs as torch does."""

import json
import os
from pathlib import Path
from types import ModuleType

import pytest
import torch
import training_pairs
from peft import get_peft_model
from torch.utils.flop_counter import FlopCounterMode

from editjudge.core import images
from editjudge.judges.prompt import messages
from editjudge.models.chat.checkpoint import load_model, load_processor
from editjudge.training.lesson import lora
from editjudge.training.samples import SIDES


@pytest.fixture
def accelerator() -> ModuleType:
    from tools.trials import accelerator

    return accelerator


def test_runs_at_a_tiny_size(
    accelerator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr(accelerator.random_base, "SHARD", 400_000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    words = ["--shape", "tiny", "--micro", "16", "--short", "1", "--long", "2", "--questions", "2", "--workers", "0"]
    words += ["--work", str(tmp_path / "work"), "--json", str(tmp_path / "new" / "out.json"), "--peak-tflops", "0.1"]
    accelerator.main(words)
    found = json.loads((tmp_path / "new" / "out.json").read_text())
    measured = found["measured"]
    assert measured["tokens a pair"] > 3 * 9
    if not found["unknown"]:  # the difference of two short runs on a busy machine may be below 0
        step = measured["training step of 16 pairs, s"]
        assert measured["training tokens a second"] == pytest.approx(16 * measured["tokens a pair"] / step)
    assert measured["judge questions a second, both orders"] > 0
    assert measured["peak memory in training, GB"] > 0.1
    assert set(found["needed, GB"]) == {"GPU, training", "GPU, judging", "host", "disk"}
    assert list((tmp_path / "work").iterdir()) == []
    assert "training tokens a second" in capsys.readouterr().out
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "6", "trl refuses several GPUs in one process"


def test_flops_are_those_that_torch_counts(accelerator: ModuleType, tmp_path: Path):
    """All tokens as the reply. Eager attention computes the whole square: four more halves, two forward, two back."""
    shape = accelerator.SHAPES["tiny"]
    accelerator.random_base.write(tmp_path / "base", shape)
    [pair], pictures = accelerator.samples(1, shape.pixels)
    processor = load_processor(tmp_path / "base")
    text = processor.apply_chat_template(messages(pair.instruction), tokenize=False, add_generation_prompt=True)
    shown = [images.decode(pictures[getattr(pair, name)]) for name in SIDES]
    inputs = processor(images=[shown], text=[text], return_tensors="pt")
    net = load_model(tmp_path / "base")
    net.set_attn_implementation("eager")
    model = get_peft_model(net, lora(training_pairs.setting(lora_rank=64, lora_alpha=128, lora_dropout=0.0))).train()
    net.gradient_checkpointing_enable({"use_reentrant": False})
    net.enable_input_require_grads()
    with FlopCounterMode(display=False) as counter:
        model(**inputs).logits.float().logsumexp(-1).sum().backward()
    tokens = inputs["input_ids"].shape[1]
    ours = accelerator.flops(shape, accelerator.Load(tokens, (36,) * 3, tokens))
    half = shape.layers * 2 * tokens**2 * shape.heads * shape.head_dim
    assert counter.get_total_flops() == pytest.approx(ours.hardware + 4 * half, rel=0.01)


def test_sizes_are_those_of_8b(accelerator: ModuleType, tmp_path: Path):
    shape = accelerator.SHAPES["8b"]
    weights = accelerator.random_base.sizes(accelerator.config_of(shape))
    assert sum(torch.Size(size).numel() for size in weights.values()) == 8_767_123_696
    assert weights["model.language_model.layers.35.mlp.down_proj.weight"] == (4096, 12288)
    assert {"model.visual.merger.linear_fc2.weight", "lm_head.weight"} < set(weights)
    needed = accelerator.needs(shape, micro=1, judge_batch=8)
    assert 18 < needed["GPU, judging"] < needed["GPU, training"] + 10 < 40
    files = accelerator.random_base.shards(weights)
    assert [sum(tensor.size for tensor in tensors.values()) <= 5e9 for tensors in files] == [True] * 4


def test_rates_and_what_is_not_known(accelerator: ModuleType):
    shape, load = accelerator.SHAPES["8b"], accelerator.Load(4000, (5120,) * 3, 10)
    rates = accelerator.rates(shape, load, 10.0, 989.0)
    assert rates["training tokens a second"] == 6400
    assert rates["TFLOP a second, model"] == pytest.approx(1.6 * rates["FLOPs of a pair, model, TFLOP"])
    assert 1.3 < rates["hardware FLOPs utilisation"] / rates["model FLOPs utilisation"] < 1.5
    assert accelerator.reasons(rates, 989.0) == []
    slower = accelerator.rates(shape, load, -0.1, None)
    assert slower["training tokens a second"] is None
    assert slower["model FLOPs utilisation"] is None
    assert len(accelerator.reasons(slower, None)) == 2


def test_wrong_options_and_unknown_devices(accelerator: ModuleType):
    for words in (["--micro", "3"], ["--short", "4", "--long", "4"]):
        with pytest.raises(SystemExit):
            accelerator.parse(words)
    assert accelerator.peak_of("NVIDIA H100 80GB HBM3") == accelerator.peak_of("NVIDIA H200") == 989.0
    assert accelerator.peak_of("NVIDIA L40S") == 362.0
    assert accelerator.peak_of("CPU") is None
