"""Stage train_judge: LoRA training of the judge on the training pairs (trl and peft; several processes and DeepSpeed by
params).

All images are decoded once before the training starts; they stay in the files of pools and candidates, and each process
reads from there what it shows. work/train_judge holds a folder a training, named by all that its result depends on:
which pairs are left out, and checkpoints. A training that was killed goes on from there; one that ended takes its
folder away.
"""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from editjudge.core import hub, params, records
from editjudge.core.files import work
from editjudge.core.settings import section
from editjudge.statistics import agreement, comparison
from editjudge.training import runs
from editjudge.training.pictures import Pictures, faulty, names_of, sums_of
from editjudge.training.runs import ENVIRONMENT
from editjudge.training.settings import TrainJudgeSetting

if TYPE_CHECKING:
    from editjudge.training.data import Sample
    from editjudge.training.lora import Trained

PAIRS, ADAPTER = Path("data/train_pairs.parquet"), Path("models/adapter")
draw = partial(runs.draw, "train_")
SIDES = ("source", "a", "b")
MODULE = f"{__package__}.train_judge"  # __name__ where it is not run


def read_setting(values: dict[str, Any]) -> TrainJudgeSetting:
    return section(values, "train_judge", TrainJudgeSetting)


def prepare(pairs: list[records.Row], run: Path, skip_failed: bool) -> None:
    """Lists the pairs left out in the training's folder. FileError: there are some, and skip_failed is not set."""
    named = {pair["key"]: dict(zip(SIDES, sums_of(pair).items(), strict=True)) for pair in pairs}
    runs.list_skipped(run, partial(faulty, named, "the training pairs"), "train_judge", skip_failed)


def samples_of(pairs: list[records.Row], skipped: list[dict[str, str]]) -> list["Sample"]:
    """Training pairs as the trainer takes them, without those to be skipped."""
    from editjudge.training.data import Sample

    left_out = {row["key"] for row in skipped}
    return [
        Sample(row["key"], row["prompt"], row["instruction"], *names_of(row), row["winner"])
        for row in pairs
        if row["key"] not in left_out
    ]


def train(setting: TrainJudgeSetting, run: Path) -> None:
    """One process of the training: all train, the first one writes the results."""
    from editjudge.engine import launch
    from editjudge.training import data, lora

    device = runs.repeatable()
    skipped = runs.skipped_of(run)
    samples = samples_of(records.read(PAIRS, "train_pairs"), skipped)
    fetch = Pictures(name for sample in samples for name in (sample.source, sample.a, sample.b))
    with launch.alone(run) if launch.first() else nullcontext():
        table = data.dataset(samples)
        base = hub.checkpoint("train_judge.base", setting.base)
        trained = lora.train_adapter(base, table, fetch, ADAPTER, setting, run / "checkpoints", device, draw)
        if launch.first():
            photos = photos_of({prompt for prompt, *_ in trained.tested})
            write(trained, hub.name_of(base) or setting.base, skipped, photos)


def photos_of(prompts: set[str]) -> dict[str, str]:
    """The photo behind each of the prompts, from the pools; the prompt itself where no pool says one."""
    found = {prompt: prompt for prompt in prompts}
    for pool in sorted(Path("data/pools").glob("*.parquet")):
        for row in pq.read_table(pool, columns=["key", "origin"]).to_pylist():
            if row["key"] in found and row["origin"]:
                found[row["key"]] = row["origin"]
    return found


def write(trained: "Trained", base: str, skipped: list[dict[str, str]], photos: Mapping[str, str]) -> None:
    """The plots, the metrics, and the figures of this run alone."""
    draw(trained.history)
    records.write_details(Path("metrics/train_judge.json"), report(trained, base, skipped, photos))
    runs.write_figures("train_judge", trained)


def report(trained: "Trained", base: str, skipped: list[dict[str, str]], photos: Mapping[str, str]) -> dict[str, Any]:
    """The last training loss, and what the adapter that was kept says on prompts that did not choose it.

    test: its accuracy, test_untrained: its base's, each with a 95 % interval over photos; gain: the first less the
    second on the same rows. None where nothing was tested.
    """
    figures: dict[str, Any] = dict.fromkeys(("test", "test_untrained", "gain"))
    if trained.tested:
        prompts, untrained, right = (list(column) for column in zip(*trained.tested, strict=True))
        clusters = [photos[prompt] for prompt in prompts]
        figures = {
            "test": agreement.share(right, clusters),
            "test_untrained": agreement.share(untrained, clusters),
            "gain": comparison.paired_difference(right, untrained, clusters),
        }
    return runs.report(trained, base, skipped, "pairs") | figures


def train_alone_or_launch() -> None:
    """Prepares the training and carries it out, here or in processes of its own."""
    values = params.load()
    setting, pairs = read_setting(values), records.read(PAIRS, "train_pairs")
    base = hub.checkpoint("train_judge.base", setting.base)
    os.environ.update(ENVIRONMENT)  # from here on nothing is fetched
    start = runs.started(setting.launch)
    files = [PAIRS, *sorted(file for file in base.rglob("*") if file.is_file())]
    processes = start.nodes * start.processes
    setting.shares(processes)
    run = work("train_judge", runs.fingerprint(params.leaf(values, "train_judge"), processes, files, MODULE))
    runs.carry_out(
        setting,
        run,
        ["-m", MODULE],
        lambda: prepare(pairs, run, setting.skip_failed),
        lambda: train(setting, run),
    )


def work_on(run: Path) -> None:
    """Is one of the training's processes."""
    train(read_setting(params.load()), run)


def main() -> None:
    runs.main("train_judge", __doc__, train_alone_or_launch, work_on)


if __name__ == "__main__":
    main()
