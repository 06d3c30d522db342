"""Stage train_judge: LoRA training of the judge on the training pairs (trl and peft; DeepSpeed by a param)."""

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from editjudge import params, records
from editjudge.judges import sft

DEEPSPEED = ("none", "zero2")
PLOTS = {"train_loss": ("loss",), "train_eval": ("eval_loss", "eval_accuracy")}


def samples_of(pairs: list[records.Row]) -> list[sft.Sample]:
    """Training pairs as the trainer takes them."""
    return [
        sft.Sample(
            row["key"],
            row["prompt"],
            row["instruction"],
            row["source_image"],
            row["image_a"],
            row["image_b"],
            row["winner"],
        )
        for row in pairs
    ]


def settings_of(values: dict[str, Any]) -> sft.TrainSettings:
    """`train_judge` of params.yaml. Raises ParamsError for an unknown DeepSpeed setting."""
    setting = params.leaf(values, "train_judge")
    zero2 = params.choice(values, "train_judge.deepspeed", DEEPSPEED) == "zero2"
    return sft.TrainSettings(
        rank=setting["lora_rank"],
        alpha=setting["lora_alpha"],
        dropout=setting["lora_dropout"],
        learning_rate=setting["learning_rate"],
        weight_decay=setting["weight_decay"],
        warmup_share=setting["warmup_share"],
        epochs=setting["epochs"],
        max_steps=setting["max_steps"],
        batch_size=setting["batch_size"],
        accumulation=setting["accumulation"],
        bf16=setting["bf16"],
        gradient_checkpointing=setting["gradient_checkpointing"],
        deepspeed="zero2" if zero2 else None,
        device="cuda" if torch.cuda.is_available() else "cpu",
        held_out_share=setting["held_out_share"],
        eval_steps=setting["eval_every"],
        seed=setting["seed"],
    )


def report(history: list[sft.Row], pairs: int) -> dict[str, Any]:
    """The last training loss, and the evaluation on the held-out prompts whose adapter was kept."""
    losses = [row["loss"] for row in history if row["loss"] is not None]
    evaluated = [row for row in history if row["eval_loss"] is not None]
    kept = min(evaluated, key=lambda row: row["eval_loss"] or 0.0, default=None)
    return {
        "loss": losses[-1] if losses else None,
        "held_out_accuracy": kept["eval_accuracy"] if kept else None,
        "details": [
            {
                "pairs": pairs,
                "steps": history[-1]["step"],
                "untrained_accuracy": evaluated[0]["eval_accuracy"] if evaluated else None,
                "kept_step": kept["step"] if kept else None,
            }
        ],
    }


def main() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    settings = settings_of(params.load())
    pairs = records.read(Path("data/train_pairs.parquet"), "train_pairs")
    dataset = sft.dataset(samples_of(pairs))
    history = sft.train_adapter(Path("models/base"), dataset, Path("models/adapter"), settings, augment=sft.flips)
    for name, columns in PLOTS.items():  # two files: DVC draws a value that is missing as 0
        table = pd.DataFrame(history)[["step", *columns]].dropna()
        table.to_csv(f"plots/{name}.csv", index=False, float_format="%.6g")
    records.write_json(Path("metrics/train_judge.json"), report(history, len(pairs)))


if __name__ == "__main__":
    main()
