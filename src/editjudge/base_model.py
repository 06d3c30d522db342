"""Stage base_model: the tiny Qwen3-VL that stands for the judge's base where no published weights are at hand.

Trained in full, on samples from photos that no other stage uses. Its output is committed, so that a clean clone does
not train it; on a GPU the stage uses it.
"""

import shutil
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from editjudge import params, records
from editjudge.judges import pretrain, tiny
from editjudge.probe import base_samples, photos

OUT = Path("models/base")


def build(setting: dict, instructions: list[str]) -> tuple[Qwen3VLForConditionalGeneration, PreTrainedTokenizerFast]:
    """The untrained model and its tokenizer, which is learnt from the samples' instructions."""
    sizes = tiny.TinySettings(**setting["sizes"])
    tokens = tiny.tokenizer(sorted(set(instructions)), sizes.vocab_size)
    return tiny.model(tokens, sizes), tokens


def main() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    setting = params.leaf(params.load(), "base_model")
    side, seed = setting["sizes"]["image_size"], setting["sizes"]["seed"]
    samples = base_samples.Pool(sorted(photos.BASE), side, setting["pool"], seed)
    unseen = base_samples.Pool(sorted(photos.TRAIN), side, setting["training"]["eval_samples"], seed + 1, easiest=1.0)
    net, tokens = build(setting, [text for part in samples.parts for text in part[2]])
    torch.nn.Module.to(net, "cuda" if torch.cuda.is_available() else "cpu")
    training = pretrain.PretrainSettings(**setting["training"])
    history = pretrain.pretrain(net, tokens, samples.draw, unseen.draw, training)
    shutil.rmtree(OUT, ignore_errors=True)
    tiny.save(net.float(), tiny.processor(tokens, side), OUT, torch.bfloat16)
    records.write_csv(Path("plots/base_model.csv"), history)
    parameters = sum(weight.numel() for weight in net.parameters())
    report = {"loss": history[-1]["loss"], "held_out_accuracy": history[-1]["accuracy"], "parameters": [parameters]}
    records.write_json(Path("metrics/base_model.json"), report)


if __name__ == "__main__":
    main()
