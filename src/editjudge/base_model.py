"""Stage base_model: the tiny Qwen3-VL that stands for the judge's base where no published weights are at hand.

Trained in full, on samples from photos that no other stage uses. Its output is committed, so that a clean clone does
not train it; on a GPU the stage uses it.
"""

import json
import shutil
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from editjudge import params, records, resume
from editjudge.judges import pretrain, tiny
from editjudge.judges.transformers_judge import load_model, load_processor
from editjudge.probe import base_samples, photos

OUT, FIRST = Path("models/base"), Path("work/base_model")
CODE = ("editjudge.probe.base_samples", "editjudge.judges.pretrain", "editjudge.judges.tiny", "editjudge.judges.prompt")
History = list[dict[str, float]]


def train(
    net: Qwen3VLForConditionalGeneration,
    tokens: PreTrainedTokenizerFast,
    make: pretrain.MakeBatch,
    unseen: pretrain.MakeBatch,
    setting: dict,
) -> History:
    """One phase of the training, in place, on a GPU where there is one."""
    torch.nn.Module.to(net, "cuda" if torch.cuda.is_available() else "cpu")
    history = pretrain.pretrain(net, tokens, make, unseen, pretrain.PretrainSettings(**setting))
    torch.nn.Module.to(net, "cpu")
    return history


def first_phase(setting: dict, samples: base_samples.Pool, unseen: base_samples.Pool) -> tuple[Path, History]:
    """The model after the training on the samples' own instructions, kept in work/ in bfloat16, and its history."""
    sizes = tiny.TinySettings(**setting["sizes"])
    name = resume.fingerprint(setting["pool"], setting["sizes"], setting["training"], resume.code_version(CODE))
    folder, log = FIRST / name[:16], FIRST / f"{name[:16]}.json"
    if not log.is_file():
        tokens = tiny.tokenizer(sorted({text for part in samples.parts for text in part[2]}), sizes.vocab_size)
        net = tiny.model(tokens, sizes)
        history = train(net, tokens, samples.draw, unseen.draw, setting["training"])
        tiny.save(net, tiny.processor(tokens, sizes.image_size), folder, torch.bfloat16)
        records.write_json(log, history)
    return folder, json.loads(log.read_text())


def main() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    setting = params.leaf(params.load(), "base_model")
    side, seed = setting["sizes"]["image_size"], setting["sizes"]["seed"]
    samples = base_samples.Pool(sorted(photos.BASE), side, setting["pool"], seed)
    unseen = base_samples.Pool(sorted(photos.TRAIN), side, setting["training"]["eval_samples"], seed + 1, easiest=0.9)
    folder, history = first_phase(setting, samples, unseen)
    net, processor = load_model(folder), load_processor(folder)

    def reword(pool: base_samples.Pool) -> pretrain.MakeBatch:
        return lambda rng, count, _done: base_samples.reworded(pool.draw(rng, count, 1.0), rng)

    reworded = train(net, processor.tokenizer, reword(samples), reword(unseen), setting["rewording"])
    shutil.rmtree(OUT, ignore_errors=True)
    tiny.save(net, processor, OUT, torch.bfloat16)
    write_report(history, reworded, sum(weight.numel() for weight in net.parameters()))


def write_report(history: History, reworded: History, parameters: int) -> None:
    """The curve of both phases, and where it ended."""
    steps = history[-1]["step"]
    curve = history + [row | {"step": row["step"] + steps} for row in reworded]
    records.write_csv(Path("plots/base_model.csv"), curve)
    last = {"loss": curve[-1]["loss"], "held_out_accuracy": curve[-1]["accuracy"], "parameters": [parameters]}
    records.write_json(Path("metrics/base_model.json"), last)


if __name__ == "__main__":
    main()
