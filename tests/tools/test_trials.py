"""The small forms of tools/trials.

fuzz: a mutant of a file, reply or request ends in a value or a named error. simulations: intervals of every quick kind
hold the truth as often as they say. power: what no fsync has kept is lost.
accelerator: it runs from end to end on a CPU, and counts FLOPs as torch does."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import training_pairs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peft import get_peft_model
from safetensors.torch import load_file
from torch.utils.flop_counter import FlopCounterMode

from editjudge.core import images
from editjudge.engine.resume import RecordCache
from editjudge.judges.styles import style
from editjudge.models.chat.checkpoint import load_model, load_processor
from editjudge.training.lesson import lora
from editjudge.training.samples import SIDES
from tools import plan
from tools.trials import accelerator, fuzz, hostile, power, rates, simulations
from tools.trials.random_base import SHAPES

ROOT = Path(__file__).parents[2]

# What once got through, or nearly: each is tried again.
KEPT = {
    "download": [
        b"HTTP/1.1 503 B\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 -2359\r\n\r\n",
        b"HTTP/1.1 302 F\r\nLocation: http://127.0.0.2:PORT/\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    ],
    "path": [b"../secret.png", b"out.png", b"up/secret.png", b"loop.png", b"a\nb", b"\x00", b"a" * 5000, b"\xff", b""],
    "chat": [
        b'{"model": "judge", "' + b"x" * 30_000 + b'": 1}',
        b'{"model": "' + b"x" * 200_000 + b'", "messages": [{"role": "user", "content": ""}]}',
        b"[" * 100_000,
        b'{"model": "\\ud800"}',
        b'{"seed": 1e999}',
    ],
    "reward": [b"[" * 100_000, b'{"edits": ' + b"9" * 5000 + b"}", b'{"edits": []}', b'{"requests": [{}]}'],
    "recipe": [b"[" * 30_000],
}


@pytest.mark.parametrize("name", fuzz.CLASSES)
def test_mutants_are_read_or_refused_by_name(name: str) -> None:
    count, kept = 30 if name == "download" else 60, KEPT.get(name, [])
    ended = fuzz.tried(name, count, kept)
    assert set(ended) <= {"value", "named"}
    assert ended.total() == count + len(kept)
    assert ended["named"] or name in ("JSONL", "CSV", "path"), "whose rows are refused one by one"


NAMES = st.sampled_from(["..", ".", "/", "\\", "up", "in", "image.png", "secret.png", "out.png", "~"])
PARTS = st.one_of(st.text(), NAMES)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PARTS, max_size=6), st.sampled_from(["", "/", "\x00", "\n"]))
def test_no_name_leads_out_of_its_folder(tmp_path: Path, parts: list[str], between: str) -> None:
    file = tmp_path / "name"
    file.write_bytes(between.join(parts).encode(errors="surrogatepass"))
    hostile.inside(file)
    assert {path.name for path in tmp_path.iterdir()} == {"name", "images", "secret.png"}


SLOW = ("Spearman", "threshold", "mean over tasks", "alpha, nominal", "alpha, ordinal")


@pytest.mark.parametrize("kind", [kind for kind in simulations.KINDS if kind not in SLOW])
@pytest.mark.parametrize(("photos", "rows"), [(4, 15), (64, 1)])
def test_intervals_hold_the_truth(kind: str, photos: int, rows: int) -> None:
    """Of 200, 0.95 less and more three standard errors."""
    assert 0.9 <= simulations.held(kind, photos, rows, 200) <= 1.0


def test_ties_make_no_interval_too_wide() -> None:
    """Of 1000; with a tie taken for half a win and half a loss it was 0.977."""
    assert 0.92 <= simulations.held("win rate with ties", 64, 1, 1000) <= 0.97


@pytest.mark.parametrize("kind", ["accuracy", "win rate"])
def test_intervals_of_shares_learn_how_alike_the_rows_of_a_photo_are(kind: str) -> None:
    assert 0.92 <= simulations.alike_held(kind, 64, 16, 0.5, 500) <= 0.975


def test_a_threshold_of_64_answers_is_no_step() -> None:
    """Drawn answers that a curve of shape 15 fits better than the true one, by more than the interval's bound."""
    assert simulations.threshold(64, 1, np.random.default_rng([97, 64, 1])) == 1


@pytest.mark.parametrize("kind", ["accuracy", "difference of judges", "kappa"])
def test_rows_of_a_photo_taken_for_photos_do_not(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated photos differ: the same intervals over single questions miss the truth."""
    sums = simulations.clustered.sums
    alone = lambda values, clusters: sums(values, range(len(values)))  # noqa: E731
    monkeypatch.setattr(simulations.clustered, "sums", alone)
    assert simulations.held(kind, 4, 120, 100) < 0.9


def test_runs_at_a_tiny_size(tmp_path, monkeypatch, capsys):
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


@pytest.mark.nightly("tools/trials", "src/editjudge/training", "src/editjudge/engine", "src/editjudge/models")
def test_every_piece_gives_its_rate_at_a_tiny_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But trainings, see below; where vLLM is absent the embedded server is asked."""
    out, words = tmp_path / "rates.json", ["--shape", "tiny", "--questions", "7", "--workers", "0", "--steps", "1", "2"]
    words += ["--pieces", *(piece for piece in rates.PIECES if piece[:4] != "zero")]
    command = [sys.executable, "-m", "tools.trials.rates", *words, "--json", str(out)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}, check=True, capture_output=True)
    pieces = json.loads(out.read_text())["pieces"]
    assert pieces["served"]["questions a second, one order"] > 0
    assert (pieces["served"]["failed"], pieces["measures"]["failed"]) == (0, [])
    for name in rates.EDITORS:
        assert pieces["editors"][name]["image, s"] > pieces["editors"][name]["pass, s"] > 0
    assert pieces["embedding"]["images a second"] > 0
    measured = rates.for_plan(pieces, "a CPU")
    monkeypatch.setattr(plan, "RATES", plan.RATES | measured)
    for name in ("question", "embedding", "candidate"):
        assert plan.hours(name, 3600) == pytest.approx(measured[name]["seconds"]), "the plan tells hours by them"
    monkeypatch.setenv("PATH", "/nowhere")
    skipped = rates.served(SHAPES["tiny"], tmp_path, argparse.Namespace(shape="8b"))
    assert "run `make vllm`" in skipped["skipped"]


@pytest.mark.nightly("tools/trials", "src/editjudge/training", "src/editjudge/engine", "configs/deepspeed")
@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_two_processes_train_by_zero_and_save_the_float32_masters(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("DS_ACCELERATOR", "cpu"), ("OMP_NUM_THREADS", "1"), ("CUDA_VISIBLE_DEVICES", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    words = argparse.Namespace(processes=[2], micro=2, steps=(1, 2), workers=0)
    found = rates.zero(stage, SHAPES["tiny"], tmp_path, words)
    assert found["2 processes"]["memory, GB"] > 0.1
    weights = load_file(tmp_path / f"{stage}_2/0/adapter_1/adapter_model.safetensors").values()
    assert {each.dtype for each in weights} == {torch.float32}
    assert not all(torch.equal(each, each.bfloat16().float()) for each in weights), "not what bfloat16 can say"


def test_flops_are_those_that_torch_counts(tmp_path: Path):
    """All tokens as the reply. Eager attention computes the whole square: four more halves, two forward, two back."""
    shape = accelerator.SHAPES["tiny"]
    accelerator.random_base.write(tmp_path / "base", shape)
    [pair], pictures = accelerator.samples(1, shape.pixels)
    processor = load_processor(tmp_path / "base")
    chat = style("pvc").messages(pair.instruction)
    text = processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
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


def test_sizes_are_those_of_8b(tmp_path: Path):
    shape = accelerator.SHAPES["8b"]
    weights = accelerator.random_base.sizes(accelerator.config_of(shape))
    assert sum(torch.Size(size).numel() for size in weights.values()) == 8_767_123_696
    assert weights["model.language_model.layers.35.mlp.down_proj.weight"] == (4096, 12288)
    assert {"model.visual.merger.linear_fc2.weight", "lm_head.weight"} < set(weights)
    needed = accelerator.needs(shape, micro=1, judge_batch=8)
    assert 18 < needed["GPU, judging"] < needed["GPU, training"] + 10 < 40
    files = accelerator.random_base.shards(weights)
    assert [sum(tensor.size for tensor in tensors.values()) <= 5e9 for tensors in files] == [True] * 4


def test_rates_and_what_is_not_known():
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


def test_wrong_options_and_unknown_devices():
    for words in (["--micro", "3"], ["--short", "4", "--long", "4"]):
        with pytest.raises(SystemExit):
            accelerator.parse(words)
    assert accelerator.peak_of("NVIDIA H100 80GB HBM3") == accelerator.peak_of("NVIDIA H200") == 989.0
    assert accelerator.peak_of("NVIDIA L40S") == 362.0
    assert accelerator.peak_of("CPU") is None


WRITES = """
import os
from pathlib import Path
from editjudge.core import files
from editjudge.engine.resume import RecordCache
Path("lost").write_text("no fsync")
files.write_bytes(Path("new/kept"), b"1")
for paid in (True, False):
    with RecordCache(Path(f"{paid}.sqlite"), paid=paid) as cache:
        cache.put("a", {})
        if not paid:
            files.flush(Path())  # its name is there
        cache.put("b", {})
        if not paid:
            os._exit(0)
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler")
def test_a_power_cut_takes_what_no_fsync_has_kept(tmp_path: Path) -> None:
    """So that the trial would see a loss: of an answer that was not paid for, and of a file."""
    real, shadow = tmp_path / "real", tmp_path / "shadow"
    real.mkdir()
    shadow.mkdir()
    env = os.environ | {"LD_PRELOAD": str(power.shim(tmp_path)), "POWER_SHADOW": str(shadow)}
    subprocess.run([sys.executable, "-c", WRITES], cwd=real, env=env, check=True)
    power.Cut(real, shadow, None).folder(power.name_of(real), tmp_path / "after")
    found = {str(file.relative_to(tmp_path / "after")) for file in (tmp_path / "after").rglob("*") if file.is_file()}
    assert "new/kept" in found
    assert (tmp_path / "after/lost").read_bytes() == b"", "the name alone"
    kept = [[name for name, _ in RecordCache(tmp_path / f"after/{paid}.sqlite").all()] for paid in (True, False)]
    assert kept == [["a", "b"], []]
