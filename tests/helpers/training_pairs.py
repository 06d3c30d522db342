"""Training pairs whose images stand in files of the pipeline's form."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.stages import train_judge
from editjudge.training.settings import TrainJudgeSetting

TASK = "subject_remove"


def setting(**changes: Any) -> TrainJudgeSetting:
    """The committed training, changed."""
    return replace(train_judge.read_setting(params.load(Path(__file__).parents[2] / "params.yaml")), **changes)


def pair(number: int) -> records.Row:
    """Which edit of prompt `number` is better: the good one is A where the number is even."""
    a, b = ("good", "bad") if number % 2 == 0 else ("bad", "good")
    return {
        "key": f"k{number}",
        "prompt": f"p{number}",
        "task": TASK,
        "instruction": "Remove the cup",
        "winner": "Image A" if a == "good" else "Image B",
        "model_a": a,
        "model_b": b,
        "tiers": "t",
        "margin": 1.0,
        "damage_a": None,
        "damage_b": None,
    }


def with_sums(row: records.Row, images: dict[tuple[str, str], bytes | None]) -> records.Row:
    """The pair with its images' sums; those that are not there have one too, as in a pool that has changed."""
    sides = {"source_sha256": "source", "sha256_a": row["model_a"], "sha256_b": row["model_b"]}
    data = {field: images.get((side, row["prompt"])) or b"" for field, side in sides.items()}
    return row | {field: hashlib.sha256(image).hexdigest() for field, image in data.items()}


def write(folder: Path, pairs: list[records.Row], images: dict[tuple[str, str], bytes | None]) -> None:
    """Writes data/train_pairs.parquet, and the pool and candidates with `images`: by ("source" or a model, prompt)."""
    data = folder / "data"
    pool = [
        {"key": prompt, "task": TASK, "instruction": "Remove the cup", "image": image}
        | {"edit": None, "origin": "a photo", "regions": []}
        for (model, prompt), image in images.items()
        if model == "source"
    ]
    records.write(data / f"pools/{TASK}.parquet", pool, "pools")
    for name in ("good", "bad"):
        rows = [
            {"key": prompt, "task": TASK, "model": name, "image": image, "damage": None}
            | {"status": "done" if image else "failed", "reason": None if image else "refused"}
            for (model, prompt), image in images.items()
            if model == name
        ]
        records.write(data / f"candidates/{name}/{TASK}.parquet", rows, "candidates")
    records.write(data / "train_pairs.parquet", [with_sums(pair, images) for pair in pairs], "train_pairs")
