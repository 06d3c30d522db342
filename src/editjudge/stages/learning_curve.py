"""Stage learning_curve: what the judge learns from parts of the training pairs, measured on `benchmarks.probe_easy`.

The judge is trained on several shares of the training pairs. A share is of the prompts, chosen by the hash of their
names, so that a smaller share is part of a larger one; the number of steps is reduced alike, to at least one. Share 0
is the base. With `swapped` the winners are exchanged: the judge must then be worse than chance. Each training is the
stage train_judge in a temporary folder. `learning_curve` of params.yaml names the curves; it is empty unless asked for.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from editjudge.benchmarks.preferences import forms
from editjudge.core import hub, params, records
from editjudge.core.errors import UserError
from editjudge.core.keys import place
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.core.winner import OTHER_SIDE
from editjudge.judges import opening
from editjudge.judges.protocol import Question
from editjudge.models.weights.merge import merge_adapter
from editjudge.statistics import clustered
from editjudge.training.settings import CurveSetting, MergeSetting, TrainJudgeSetting

PAIRS = Path("data/train_pairs.parquet")
JUDGE = "pvc_judge"


def part_of(pairs: Sequence[records.Row], share: float, swapped: bool) -> list[records.Row]:
    """The pairs of about this share of the prompts, their winners exchanged if `swapped`."""
    prompts = sorted({pair["prompt"] for pair in pairs}, key=lambda prompt: place(f"part:{prompt}"))
    kept = set(prompts[: round(share * len(prompts))])
    chosen = [pair for pair in pairs if pair["prompt"] in kept]
    return [pair | {"winner": OTHER_SIDE[pair["winner"]]} for pair in chosen] if swapped else chosen


def train(values: dict[str, Any], pairs: list[records.Row], share: float, folder: Path) -> Path:
    """Trains on the pairs in `folder`, and returns the merged judge. UserError: the training failed."""
    setting = section(values, "train_judge", TrainJudgeSetting)
    steps = {"max_steps": max(1, round(share * setting.max_steps))} if setting.max_steps > 0 else {}
    for name in ("data", "models"):
        (folder / name).mkdir(parents=True)
    for name in ("data/pools", "data/candidates", "data/code", "configs"):
        (folder / name).symlink_to(Path(name).resolve())
    base = hub.find("train_judge.base", setting.base)
    records.write(folder / PAIRS, pairs, "train_pairs")
    changed = values | {"train_judge": values["train_judge"] | steps | {"base": str(base.resolve())}}
    (folder / "params.yaml").write_text(yaml.safe_dump(changed))
    source = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "editjudge.stages.train_judge"]
    if subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": source}).returncode:
        raise UserError("the training failed")
    dtype = section(values, "merge_judge", MergeSetting).dtype
    merge_adapter(base, folder / "models/adapter", folder / "models/judge", dtype)
    return folder / "models/judge"


def right_answers(values: dict[str, Any], model: Path, folder: Path) -> tuple[list[bool], list[str]]:
    """Whether the judge is right on each pair of the benchmark, and the photo of each."""
    every = forms.load("probe_easy", params.leaf(values, "benchmarks.probe_easy"))
    items = [item for item in every if item.failed is None]
    prompt = section(values, "train_judge", TrainJudgeSetting).prompt  # which the untrained base knows nothing of
    how = params.leaf(values, f"judges.{JUDGE}") | {"model": str(model), "prompt": prompt}
    with opening.open_judge(f"judges.{JUDGE}", how, folder / "answers.sqlite") as judge:
        answers = judge.compare([Question(i.key, i.instruction, i.source, i.a, i.b, task=i.task) for i in items])
    pairs = zip(items, answers, strict=True)
    return [answer.combined.winner == item.verdict for item, answer in pairs], [str(item.cluster) for item in items]


def rows(values: dict[str, Any], shares: Sequence[float], swapped: bool) -> list[records.Row]:
    """For each share: pairs, accuracy, and its gain over the base, with 95 % intervals over photos."""
    every = records.read(PAIRS, "train_pairs")
    found = []
    with tempfile.TemporaryDirectory() as root:
        base = hub.find("train_judge.base", params.leaf(values, "train_judge.base"))
        untrained, photos = right_answers(values, base, Path(root))
        for share in shares:
            folder, pairs = Path(root) / f"{share:g}", part_of(every, share, swapped)
            right, gain = untrained, clustered.Estimate(0.0, 0.0, 0.0, 0)
            if pairs:
                right, _ = right_answers(values, train(values, pairs, share, folder), folder)
                gained = [a - b for a, b in zip(right, untrained, strict=True)]
                gain = clustered.mean(gained, photos).within(-1, 1)
            accuracy = clustered.share(right, photos)
            row = {"pairs": len(pairs), "accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high}
            found.append(row | {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high})
            print(*(f"{name} {value}" for name, value in found[-1].items()), flush=True)
    return found


def run(name: str) -> None:
    values = params.load()
    setting = section(values, f"learning_curve.{name}", CurveSetting)
    records.write_csv(Path(f"plots/learning_curve/{name}.csv"), rows(values, setting.shares, setting.swapped))


if __name__ == "__main__":
    stage(__doc__, run, "name")
