"""Makes the tiny Qwen3-VL of models/tiny_base; `dvc repro` in this folder runs it (see README.md).

It is trained in full, on samples from photos that no stage of the graph uses, on a GPU where there is one. Reads
params.yaml; writes out/ (the checkpoint), history.csv (a row every `eval_every` steps) and metrics.json.
"""

from pathlib import Path

import editjudge.stages  # noqa: F401  (first: it makes arithmetic portable, before torch loads)

# isort: split
import torch

from editjudge.core import params, records
from editjudge.core.main import stage
from editjudge.core.settings import read
from editjudge.sources.builtin import photos
from tools.tiny_base import looks, pretrain, samples, tiny
from tools.tiny_base.settings import TinyBaseSetting

OUT = Path("out")


def run() -> None:
    torch.use_deterministic_algorithms(not torch.cuda.is_available(), warn_only=True)
    setting = read("params.yaml", TinyBaseSetting, params.load())
    sizes = setting.sizes
    train = samples.Pool(sorted(photos.BASE), sizes.image_size, setting.pool, sizes.seed)
    unseen = samples.Pool(sorted(photos.TRAIN), sizes.image_size, setting.pool // 10, sizes.seed + 1, easiest=0.8)
    texts = sorted({text for part in train.parts for text in part[2]} | set(looks.QUESTIONS))
    tokens = tiny.tokenizer(texts, sizes.vocab_size)
    net = tiny.model(tokens, sizes)
    torch.nn.Module.to(net, "cuda" if torch.cuda.is_available() else "cpu")
    history = pretrain.pretrain(net, tokens, train.draw, unseen.draw, setting.training)
    tiny.save(net, tiny.processor(tokens, sizes.image_size), OUT, torch.bfloat16)
    records.write_csv(Path("history.csv"), history)
    last = {
        "loss": history[-1]["loss"],
        "held_out_accuracy": history[-1]["accuracy"],
        "untaught_accuracy": history[-1]["untaught"],
        "parameters": sum(weight.numel() for weight in net.parameters()),
    }
    records.write_json(Path("metrics.json"), last)


if __name__ == "__main__":
    stage(__doc__, run)
