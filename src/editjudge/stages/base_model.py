"""Stage base_model: the tiny Qwen3-VL that stands for the judge's base where no published weights are at hand.

Trained in full, on samples from photos that no other stage uses. Its output is committed, so that a clean clone does
not train it; on a GPU the stage uses it.
"""

import shutil
from pathlib import Path

import torch

from editjudge.core import params, records
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.probe import base_samples, looks
from editjudge.qwen import tiny
from editjudge.sources.builtin import photos
from editjudge.training import pretrain
from editjudge.training.settings import BaseModelSetting

OUT = Path("models/tiny_base")


def run() -> None:
    torch.use_deterministic_algorithms(not torch.cuda.is_available(), warn_only=True)
    setting = section(params.load(), "base_model", BaseModelSetting)
    sizes = setting.sizes
    samples = base_samples.Pool(sorted(photos.BASE), sizes.image_size, setting.pool, sizes.seed)
    unseen = base_samples.Pool(sorted(photos.TRAIN), sizes.image_size, setting.pool // 10, sizes.seed + 1, easiest=0.8)
    tokens = tiny.tokenizer(
        sorted({text for part in samples.parts for text in part[2]} | set(looks.QUESTIONS)), sizes.vocab_size
    )
    net = tiny.model(tokens, sizes)
    torch.nn.Module.to(net, "cuda" if torch.cuda.is_available() else "cpu")
    history = pretrain.pretrain(net, tokens, samples.draw, unseen.draw, setting.training)
    shutil.rmtree(OUT, ignore_errors=True)
    tiny.save(net, tiny.processor(tokens, sizes.image_size), OUT, torch.bfloat16)
    records.write_csv(Path("plots/base_model.csv"), history)
    parameters = sum(weight.numel() for weight in net.parameters())
    last = {
        "loss": history[-1]["loss"],
        "held_out_accuracy": history[-1]["accuracy"],
        "untaught_accuracy": history[-1]["untaught"],
        "parameters": [parameters],
    }
    records.write_details(Path("metrics/base_model.json"), last)


if __name__ == "__main__":
    stage(__doc__, run)
