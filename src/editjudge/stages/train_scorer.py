"""Stage train_scorer: training of a scorer on its data (trl; LoRA or all parameters; several processes by params).

All images are decoded once before the training starts; they stay in the files that the data names. As in train_judge,
work/train_scorer holds a folder a training, and one that was killed goes on from there.
"""

import json
import math
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.core import hub, params, records
from editjudge.core.errors import FileError
from editjudge.core.files import work
from editjudge.core.settings import known
from editjudge.engine.workers import import_ahead
from editjudge.judges import rubrics
from editjudge.judges.rubrics import type_of
from editjudge.models.chat.models import LOCAL
from editjudge.statistics import agreement, comparison
from editjudge.training import runs
from editjudge.training.pictures import Pictures, faulty
from editjudge.training.runs import ENVIRONMENT
from editjudge.training.settings import TrainRaterSetting, TrainScorerSetting, read_training

if TYPE_CHECKING:
    from datasets import Dataset

    from editjudge.training.rater import Sample as RatedSample
    from editjudge.training.scorer import Answers, Sample
    from editjudge.training.trainer import Trained

TRAINED = "trained.json"
SIDES = {"source": "source_sha256", "edit_a": "sha256_a", "edit_b": "sha256_b"}
MODULE = f"{__package__}.train_scorer"  # __name__ where it is not run


def read_setting(values: dict[str, Any], name: str) -> TrainScorerSetting | TrainRaterSetting:
    every = params.leaf(values, "train_scorer")
    if name not in every:
        raise params.ParamsError(f"train_scorer has no {name}; {known(name, every)}")
    return read_training(f"train_scorer.{name}", every[name])


def data_of(setting: TrainScorerSetting | TrainRaterSetting) -> Path:
    return Path(f"data/scorer_data/{setting.data}.parquet")


def prepare(rows: list[records.Row], run: Path, name: str, skip_failed: bool) -> None:
    """Lists the rows left out in the training's folder. FileError: there are some, and skip_failed is not set."""
    named = {
        row["key"]: {side: (row[side], row[sha256]) for side, sha256 in SIDES.items() if row[side]} for row in rows
    }
    runs.list_skipped(run, partial(faulty, named, "the scorer's data"), f"train_scorer.{name}", skip_failed)


def samples_of(rows: list[records.Row], skipped: Sequence[dict[str, str]], dimensions: Sequence[str]) -> list["Sample"]:
    """Rows of scorer_data as the trainer takes them, without those to be skipped. FileError: a dimension is unknown."""
    from editjudge.training.scorer import NOWHERE, Sample

    left_out, seen = {row["key"] for row in skipped}, set[str]()
    samples = []
    for row in rows:
        scores: list[float] = []
        for side in "ab":
            given = {each["dimension"]: each["score"] for each in row[f"scores_{side}"]}
            seen |= set(given)
            whole = row[f"overall_{side}"]
            scores += [given.get(dimension, NOWHERE) for dimension in dimensions]
            scores += [NOWHERE if whole is None else whole]
        if row["key"] not in left_out:
            given = {name: row[name] for name in ("key", "prompt", "part", "instruction", "source")}
            edits = {"a": row["edit_a"], "b": row["edit_b"] or ""}
            samples.append(Sample(**given, **edits, scores=tuple(scores), winner=row["winner"] or ""))
    if seen and (missing := sorted(set(dimensions) - seen)):
        near = known(missing[0], sorted(seen))
        raise FileError(f"train_scorer: the data has no score of {', '.join(missing)}; {near}")
    return samples


def ratings_of(
    rows: Sequence[records.Row], skipped: Sequence[dict[str, str]], setting: TrainRaterSetting
) -> list["RatedSample"]:
    """Single edits of scorer_data whose scores are all known, as whole numbers of their rubric. FileError: a score
    outside of the rubric's range, and no such row."""
    from editjudge.training.rater import Sample

    left_out, samples = {row["key"] for row in skipped}, []
    for row in rows:
        type_ = type_of(row["task"])
        rubric, given = rubrics.load(setting.rubrics, type_), {s["dimension"]: s["score"] for s in row["scores_a"]}
        if row["edit_b"] or row["key"] in left_out or not set(rubric.dimensions) <= set(given):
            continue
        scores = tuple(math.floor(given[name] + 0.5) for name in rubric.dimensions)
        if not all(rubric.least <= score <= rubric.most for score in scores):
            raise FileError(f"train_scorer: {row['key']}: scores {given} are not in {rubric.least}..{rubric.most}")
        names = {name: row[name] for name in ("key", "prompt", "part", "instruction", "source")}
        samples.append(Sample(**names, type=type_, a=row["edit_a"], scores=scores, rubrics=setting.rubrics))
    if not samples:
        raise FileError(
            f"train_scorer: {setting.data} has no single edit with a score of each of the rubric's dimensions"
        )
    return samples


def train(setting: TrainScorerSetting | TrainRaterSetting, name: str, run: Path) -> None:
    """One process of the training: all train, the first one writes the results."""
    if isinstance(setting, TrainRaterSetting):
        train_rater(setting, name, run)
    else:
        train_scorer(setting, name, run)


def train_rater(setting: TrainRaterSetting, name: str, run: Path) -> None:
    from editjudge.engine import launch
    from editjudge.training import rater

    device = runs.repeatable()
    samples = ratings_of(records.read(data_of(setting), "scorer_data"), runs.skipped_of(run), setting)
    fetch = Pictures(each for sample in samples for each in (sample.source, sample.a))
    with launch.alone(run) if launch.first() else nullcontext():
        base = hub.checkpoint(f"train_scorer.{name}.base", setting.base)
        out, live = Path("models/scorers", name), drawing(name)
        made = rater.train_rater(base, samples, fetch, out, setting, run / "checkpoints", device, live)
        if launch.first():
            drawing(name)(made.history)
            records.write_json(run / TRAINED, vars(made))


def train_scorer(setting: TrainScorerSetting, name: str, run: Path) -> None:
    from editjudge.engine import launch
    from editjudge.training import data, scorer

    device = runs.repeatable()
    skipped = runs.skipped_of(run)
    rows = records.read(data_of(setting), "scorer_data")
    samples = samples_of(rows, skipped, setting.dimensions)
    fetch = Pictures(each for sample in samples for each in (sample.source, sample.a, sample.b) if each)
    with launch.alone(run) if launch.first() else nullcontext():
        table = data.dataset(samples)
        base = hub.checkpoint(f"train_scorer.{name}.base", setting.base)
        out, live = Path("models/scorers", name), drawing(name)
        made = scorer.train_scorer(base, table, fetch, out, setting, run / "checkpoints", device, live)
        if launch.first():
            clusters = {row["prompt"]: row["origin"] or row["prompt"] for row in rows}
            write(name, *made, setting, hub.name_of(base) or setting.base, skipped, clusters)


def drawing(name: str) -> Any:
    """What draws the plots as they are so far."""
    return partial(runs.draw, f"train_scorer/{name}_")


def write(
    name: str, trained: "Trained", tested: "Dataset", answers: tuple["Answers", "Answers"],
    setting: TrainScorerSetting, base: str, skipped: list[dict[str, str]], clusters: dict[str, str],
) -> None:  # fmt: skip
    """The plots, the metrics, and the figures of this run alone."""
    drawing(name)(trained.history)
    found = report(trained, tested, answers, setting, base, skipped, clusters)
    write_metrics(name, found, trained)


def write_metrics(name: str, found: dict[str, Any], trained: "Trained") -> None:
    records.write_details(Path(f"metrics/train_scorer/{name}.json"), found)
    runs.write_figures(f"train_scorer_{name}", trained)


def report(
    trained: "Trained", tested: "Dataset", answers: tuple["Answers", "Answers"], setting: TrainScorerSetting,
    base: str, skipped: list[dict[str, str]], clusters: dict[str, str],
) -> dict[str, Any]:  # fmt: skip
    """The last training loss, and how often the scorer agrees with what is known of each test pair.

    agreement: a dimension at a time, and of the edits as a whole: test of the trained scorer, test_untrained of its
    base with an untrained head, each with a 95 % interval over photos; gain: the first less the second on the same
    pairs. None where nothing of it was tested.
    """
    agreement = [figures(name, n, tested, answers, setting, clusters) for n, name in enumerate(named(setting))]
    return runs.report(trained, base, skipped, "rows") | {"agreement": agreement}


def rate_tests(setting: TrainRaterSetting, name: str, run: Path, base: Path) -> None:
    """The metrics of a trained rater: what it and its base say of the rows that test it, asked as raters are."""
    from editjudge.benchmarks import raters_tested
    from editjudge.training.trainer import Trained

    rows, skipped = records.read(data_of(setting), "scorer_data"), runs.skipped_of(run)
    tested = [sample for sample in ratings_of(rows, skipped, setting) if sample.part == "test"]
    trained = Trained(**json.loads((run / TRAINED).read_text()))
    trained = replace(trained, rows=(trained.rows[0], trained.rows[1], len(tested)))
    fetch = Pictures(each for sample in tested for each in (sample.source, sample.a))
    said = [raters_tested.rated(setting, tested, fetch, model) for model in (base, Path("models/scorers", name))]
    truths = {row["key"]: (row["rule"], row["origin"] or row["prompt"]) for row in rows}
    unread = dict(zip(("unscored_untrained", "unscored"), map(raters_tested.unread, said), strict=True))
    near = raters_tested.near(tested, said, truths)
    found = runs.report(trained, hub.name_of(base) or setting.base, skipped, "rows", **unread)
    write_metrics(name, found | {"agreement": near}, trained)


def named(setting: TrainScorerSetting) -> list[str]:
    return [*setting.dimensions, "overall"]


def figures(
    name: str, number: int, tested: "Dataset", answers: tuple["Answers", "Answers"], setting: TrainScorerSetting,
    clusters: dict[str, str],
) -> dict[str, Any]:  # fmt: skip
    """How often the scorers name the better side of the test pairs in one respect; ties of the truth do not count."""
    from editjudge.judges.scorers.heads import aggregate
    from editjudge.training.scorer import Targets

    found: dict[str, Any] = {"dimension": name, **dict.fromkeys(("test", "test_untrained", "gain"))}
    if not len(tested):
        return found
    sign = Targets.of(list(tested)).sign[:, number].tolist()
    pairs = [n for n, each in enumerate(sign) if each and not math.isnan(each)]
    if not pairs:
        return found
    right = []
    for said in answers:
        overall = aggregate(said.means, None, setting.aggregation)[0]
        means = overall if number == len(setting.dimensions) else said.means[..., number]
        right.append([(means[n, 0] - means[n, 1]).sign().item() == sign[n] for n in pairs])
    photos = [clusters[tested[n]["prompt"]] for n in pairs]
    untrained, now = right
    return found | {
        "test": agreement.share(now, photos),
        "test_untrained": agreement.share(untrained, photos),
        "gain": comparison.paired_difference(now, untrained, photos),
    }


def train_alone_or_launch(name: str) -> None:
    """Prepares the training and carries it out, here or in processes of its own."""
    values = params.load()
    setting = read_setting(values, name)
    rows, base = records.read(data_of(setting), "scorer_data"), hub.checkpoint("train_scorer.base", setting.base)
    os.environ.update(ENVIRONMENT)  # from here on nothing is fetched
    if isinstance(setting, TrainRaterSetting):
        import_ahead(LOCAL)  # for the tests, beside the training
    start = runs.started(setting.launch)
    files = [data_of(setting), *sorted(file for file in base.rglob("*") if file.is_file())]
    processes = start.nodes * start.processes
    setting.shares(processes)
    given = params.leaf(values, "train_scorer")[name]
    run = work("train_scorer", f"{name}-{runs.fingerprint(given, processes, files, MODULE)}")
    runs.carry_out(
        setting,
        run,
        ["-m", MODULE, "--name", name],
        lambda: prepare(rows, run, name, setting.skip_failed),
        lambda: train(setting, name, run),
        lambda: rate_tests(setting, name, run, base) if isinstance(setting, TrainRaterSetting) else None,
    )


def work_on(name: str, run: Path) -> None:
    """Is one of the training's processes."""
    train(read_setting(params.load(), name), name, run)


def main() -> None:
    runs.main("train_scorer", __doc__, train_alone_or_launch, work_on, "name")


if __name__ == "__main__":
    main()
