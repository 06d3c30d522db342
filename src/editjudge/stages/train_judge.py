"""Stage train_judge: LoRA training of the judge on the training pairs (trl and peft; several processes and DeepSpeed by
params). `training.runs` says how it goes on after it was killed."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.core import params, records
from editjudge.core.settings import section
from editjudge.statistics import agreement
from editjudge.training import runs
from editjudge.training.samples import SIDES, Sample, Trained, more_of, names_of, photos_of
from editjudge.training.settings import TrainJudgeSetting

if TYPE_CHECKING:
    from editjudge.training.lesson import Lesson

SUMS = ("source_sha256", "sha256_a", "sha256_b")  # of the images, as they were when they were annotated


def read_setting(values: dict[str, Any]) -> TrainJudgeSetting:
    return section(values, "train_judge", TrainJudgeSetting)


def job() -> runs.TrainingJob:
    setting = read_setting(params.load())
    return runs.TrainingJob(
        stage="train_judge",
        name="",
        setting=setting,
        table=Path("data/train_pairs.parquet"),
        contract="train_pairs",
        images=images_of,
        samples=samples_of,
        lesson=partial(lesson_of, setting),
        out=Path("models/adapter"),
        report=lambda pairs, trained, _base: (report(trained, photos_of(pairs)), {}),
        rows_are="pairs",
        plots="train_",
    )


def lesson_of(setting: TrainJudgeSetting) -> "Lesson":
    from editjudge.training.lesson import Lesson

    return Lesson(setting)


def images_of(pair: records.Row) -> dict[str, tuple[str, str]]:
    """The name and SHA-256 of each image of a pair, by side."""
    named = zip(names_of(pair), (pair[each] for each in SUMS), strict=True)
    return dict(zip(SIDES, named, strict=True)) | more_of(pair)


def samples_of(pairs: list[records.Row]) -> list[Sample]:
    """Training pairs as the trainer takes them."""
    made = []
    for row in pairs:
        more = tuple(name for name, _ in more_of(row).values())
        about = row["key"], row["prompt"], row["instruction"], *names_of(row), row["winner"]
        made.append(Sample(*about, type=row["task"], more=more))
    return made


def report(trained: Trained, photos: Mapping[str, str]) -> dict[str, Any]:
    """What the adapter that was kept says on prompts that did not choose it, see `agreement.against_base`. photos: by
    the pairs' keys."""
    untrained, right = ([answer == [1.0] for answer in answers] for answers in trained.answers or ([], []))
    return agreement.against_base(untrained, right, [photos[key] for key in trained.tested])


if __name__ == "__main__":
    runs.main("train_judge", __doc__, job)
