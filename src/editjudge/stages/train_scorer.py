"""Stage train_scorer: training of a scorer or a rater on its data (trl; LoRA or all parameters; several processes by
params). `training.runs` says how it goes on after it was killed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

import cv2
import numpy as np

from editjudge.core import images, params, records
from editjudge.core.errors import FileError
from editjudge.core.records import Image
from editjudge.core.settings import known, section
from editjudge.engine.workers import spread
from editjudge.judges import rubrics
from editjudge.judges.asking import open_rater
from editjudge.judges.protocol import Edit, Rating, Unscored
from editjudge.models.chat.models import LOCAL
from editjudge.statistics import agreement
from editjudge.training import runs
from editjudge.training.samples import Sample, Trained, stored_images
from editjudge.training.settings import SingleEdits, TrainRaterSetting, TrainScorerSetting

if TYPE_CHECKING:
    from editjudge.training.lesson import Lesson

Rows = list[records.Row]
Signs: TypeAlias = Sequence[float]
# Beside what a scorer is worth: both know no words, and the third hears the wrong ones.
BASELINES = ("pixel_difference", "unchanged_pixels", "other_instruction")
NEAR = 1  # points that a rating may be away from what is known, and agree with it (arXiv 2505.20275)
SIDES = {"source": "source_sha256", "edit_a": "sha256_a", "edit_b": "sha256_b"}


def job(name: str) -> runs.TrainingJob:
    setting, out = section(params.load(), f"train_scorer.{name}", SingleEdits), Path("models/scorers", name)
    samples: Callable[[Rows], Sequence[Sample]]
    if isinstance(setting, TrainRaterSetting):
        samples, report = partial(ratings_of, setting=setting), partial(report_of_rater, setting, out)
    else:
        samples, report = partial(samples_of, setting=setting), partial(report_of_scorer, setting, out)
    return runs.TrainingJob(
        stage="train_scorer",
        name=name,
        setting=setting,
        table=Path(f"data/scorer_data/{setting.data}.parquet"),
        contract="scorer_data",
        images=lambda row: {side: (row[side], row[sha256]) for side, sha256 in SIDES.items() if row[side]},
        samples=samples,
        lesson=partial(lesson_of, setting),
        out=out,
        report=report,
        rows_are="rows",
        plots=f"train_scorer/{name}_",
        ahead=LOCAL if isinstance(setting, TrainRaterSetting) else "",
    )


def lesson_of(setting: TrainScorerSetting | TrainRaterSetting) -> "Lesson":
    from editjudge.training.rater import RaterLesson
    from editjudge.training.scorer import ScorerLesson

    return RaterLesson(setting) if isinstance(setting, TrainRaterSetting) else ScorerLesson(setting)


def samples_of(rows: Rows, setting: TrainScorerSetting) -> list[Sample]:
    """Rows of scorer_data as the trainer takes them. FileError: no row has a score of one of the dimensions."""
    samples, seen = [], set[str]()
    for row in rows:
        scores: list[float] = []
        for side in "ab":
            given = {each["dimension"]: each["score"] for each in row[f"scores_{side}"]}
            seen |= set(given)
            overall = row[f"overall_{side}"]
            scores += [given.get(dimension, math.nan) for dimension in setting.dimensions]
            scores += [math.nan if overall is None else overall]
        edits = {"a": row["edit_a"], "b": row["edit_b"] or ""}
        samples.append(Sample(**common(row), **edits, scores=tuple(scores), winner=row["winner"] or ""))
    if seen and (missing := sorted(set(setting.dimensions) - seen)):
        near = known(missing[0], sorted(seen))
        raise FileError(f"train_scorer: the data has no score of {', '.join(missing)}; {near}")
    return samples


def common(row: records.Row) -> dict[str, Any]:
    return {name: row[name] for name in ("key", "prompt", "part", "instruction", "source")}


def ratings_of(rows: Rows, setting: TrainRaterSetting) -> list[Sample]:
    """Single edits of scorer_data whose scores are all known, as whole numbers of their rubric. FileError: a score
    outside of the rubric's range, and no such row."""
    samples = []
    for row in rows:
        type_ = rubrics.type_of(row["task"])
        rubric, given = rubrics.load(setting.rubrics, type_), {s["dimension"]: s["score"] for s in row["scores_a"]}
        if row["edit_b"] or not set(rubric.dimensions) <= set(given):
            continue
        scores = tuple(math.floor(given[name] + 0.5) for name in rubric.dimensions)
        if not all(rubric.least <= score <= rubric.most for score in scores):
            raise FileError(f"train_scorer: {row['key']}: scores {given} are not in {rubric.least}..{rubric.most}")
        samples.append(Sample(**common(row), type=type_, a=row["edit_a"], scores=scores, rubrics=setting.rubrics))
    if not samples:
        lacking = "no single edit with a score of each of the rubric's dimensions"
        raise FileError(f"train_scorer: {setting.data} has {lacking}")
    return samples


def report_of_scorer(
    setting: TrainScorerSetting, model: Path, rows: Rows, trained: Trained, _base: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the scorer, its base with an untrained head, and each of BASELINES say of the test pairs (`told_apart`), and
    of every two single edits of one question."""
    import torch

    from editjudge.training import scorer

    samples = {sample.key: sample for sample in samples_of(rows, setting)}
    tested, places = in_pairs([samples[key] for key in trained.tested])
    told = dict[str, dict[str, Signs]]()
    for name, answers in zip(("test_untrained", "test"), trained.answers, strict=True) if tested else ():
        both = torch.stack([torch.tensor(answers)[places[:, side], :, side] for side in (0, 1)], 2)
        said = scorer.signs_of(both, setting.aggregation).tolist()
        told[name] = dict(zip([sample.key for sample in tested], said, strict=True))
    if tested:
        told |= by_pixels(setting, tested) | {BASELINES[2]: by_other_words(setting, model, tested)}
    signs = scorer.Targets.of([vars(sample) | {"filler": False} for sample in tested]).sign.tolist() if tested else []
    photos = {row["prompt"]: str(row["origin"] or row["prompt"]) for row in rows}
    truth = {sample.key: (sign, photos[sample.prompt]) for sample, sign in zip(tested, signs, strict=True)}
    return {"agreement": told_apart([*setting.dimensions, "overall"], truth, told)}, {}


def in_pairs(tested: Sequence[Sample]) -> tuple[list[Sample], np.ndarray]:
    """The pairs among them, then every two single edits of one prompt, source and instruction as a pair; and where the
    answers to A and B stand, (n, 2): a single edit is shown as both."""
    pairs, places = [sample for sample in tested if sample.b], [[n, n] for n, sample in enumerate(tested) if sample.b]
    asked: dict[tuple[str, str, str], list[int]] = {}
    for n, sample in enumerate(tested):
        if not sample.b:
            asked.setdefault((sample.prompt, sample.source, sample.instruction), []).append(n)
    for i, j in (both for own in asked.values() for both in combinations(own, 2)):
        a, b = tested[i], tested[j]
        half = len(a.scores) // 2
        pairs.append(replace(a, key=f"{a.key} {b.key}", b=b.a, scores=a.scores[:half] + b.scores[:half]))
        places.append([i, j])
    return pairs, np.array(places, int).reshape(-1, 2)


def told_apart(
    names: Sequence[str], known: Mapping[str, tuple[Signs, str]], told: Mapping[str, Mapping[str, Signs]]
) -> list[dict[str, Any]]:
    """How often the better side of a pair is named, a row a dimension and one of the whole; ties do not count.

    known: of each pair the better side in each of `names` (1: A, -1: B, nan: unknown), and its photo; told: what
    `test`, `test_untrained` and the BASELINES name, pixels more or less change, as is right more often here. A row:
    `agreement.against_base`; `baselines`, each with its share and `lead`, the scorer's less its own on the same pairs;
    and `above_baselines`, whether each lead's lower end is above 0 (None: not known)."""
    found = []
    for d, name in enumerate(names):
        pairs = {key: signs[d] for key, (signs, _) in known.items() if signs[d] and not math.isnan(signs[d])}
        base, now = ([told[who][key][d] == sign for key, sign in pairs.items()] for who in ("test_untrained", "test"))
        photos, others = [known[key][1] for key in pairs], list[dict[str, Any]]()
        for who in BASELINES if pairs else ():
            both = [[told[who][key][d] * turn == sign for key, sign in pairs.items()] for turn in (1, -1)]
            right = both[0] if who == BASELINES[2] else max(both, key=sum)
            lead = agreement.paired_difference(now, right, photos)
            others.append({"baseline": who, **agreement.share(right, photos), "lead": lead})
        lower = [each["lead"]["low"] for each in others]
        above = all(low > 0 for low in lower) if lower and None not in lower else None
        row = {"dimension": name} | agreement.against_base(base, now, photos)
        found.append(row | {"baselines": others, "above_baselines": above})
    return found


def by_pixels(setting: TrainScorerSetting, pairs: Sequence[Sample]) -> dict[str, dict[str, Signs]]:
    """The side with more of each of the first two of BASELINES, the same in every dimension."""
    shown = list(dict.fromkeys((pair.source, edit) for pair in pairs for edit in (pair.a, pair.b)))
    stored = stored_images(name for both in shown for name in both)
    looked = spread(change, [(stored[source], stored[edit]) for source, edit in shown], "changed pixels")
    of, count = dict(zip(shown, np.array(looked), strict=True)), len(setting.dimensions) + 1
    gaps = {pair.key: np.sign(of[pair.source, pair.a] - of[pair.source, pair.b]).tolist() for pair in pairs}
    return {name: {key: [gap[n]] * count for key, gap in gaps.items()} for n, name in enumerate(BASELINES[:2])}


def change(both: tuple[Image, Image]) -> tuple[float, float]:
    """In a worker: the mean absolute difference of the levels of source and edit, 0..255, and the share of pixels that
    are the same; an edit of another size is first resized to its source's."""
    source, edit = (images.decode(bytes(each)) for each in both)
    if source.shape != edit.shape:
        edit = cv2.resize(edit, source.shape[1::-1], interpolation=cv2.INTER_AREA)
    gap = cv2.absdiff(source, edit)
    return float(gap.mean()), float((gap == 0).all(-1).mean())


def by_other_words(setting: TrainScorerSetting, model: Path, pairs: Sequence[Sample]) -> dict[str, Signs]:
    """The sides that the trained scorer names where each instruction is the next other one, in the order of their words
    (itself, if there is no other). A pair with an unscored edit names none."""
    from editjudge.judges.scorers.checkpoint import CheckpointScorer

    words = sorted({pair.instruction for pair in pairs})
    other = dict(zip(words, words[1:] + words[:1], strict=True))
    asked = list(dict.fromkeys((other[p.instruction], p.source, edit) for p in pairs for edit in (p.a, p.b)))
    shown = stored_images(name for _, *names in asked for name in names)
    scorer = CheckpointScorer.load(model, "bfloat16" if setting.bf16 else "float32", setting.batch_size)
    answers = scorer.score([Edit(told, shown[source], shown[edit]) for told, source, edit in asked])
    unknown = [math.nan] * (len(setting.dimensions) + 1)
    values = [unknown if isinstance(s, Unscored) else [*s.dimensions.values(), s.overall] for s in answers]
    of = dict(zip(asked, np.array(values), strict=True))
    sides = ((p, *(of[other[p.instruction], p.source, edit] for edit in (p.a, p.b))) for p in pairs)
    return {pair.key: np.sign(a - b).tolist() for pair, a, b in sides}


def report_of_rater(
    setting: TrainRaterSetting, model: Path, rows: Rows, trained: Trained, base: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a trained rater and its base say of the rows that test it, asked as raters are."""
    by_key, samples = {row["key"]: row for row in rows}, ratings_of(rows, setting)
    tested = [sample for sample in samples if sample.part == "test"]
    learnt = [known_of(sample) for sample in samples if sample.part == "train"]
    images = stored_images(name for sample in tested for name in (sample.source, sample.a))
    edits = [Edit(s.instruction, bytes(images[s.source]), bytes(images[s.a]), task=s.type, key=s.key) for s in tested]
    how = {"backend": "transformers", "rubrics": setting.rubrics, "workers": 0, "batch_size": setting.batch_size}
    how |= {"min_pixels": setting.min_pixels, "max_pixels": setting.max_pixels}
    how |= {"dtype": "bfloat16" if setting.bf16 else "float32"}
    said = []
    for folder in (base, model):
        with open_rater("raters.train_scorer", how | {"model": str(folder)}) as rater:
            said.append([runs[0] for runs in rater.rate(edits)])
    truths = []
    for sample in tested:
        row = by_key[sample.key]
        truths.append((known_of(sample), row["rule"], str(row["origin"] or row["prompt"])))
    unscored = zip(("unscored_untrained", "unscored"), said, strict=True)
    more: dict[str, Any] = {name: sum(each.scores is None for each in its) for name, its in unscored}
    more["rows"] = dict(zip(("trained_on", "held_out", "tested"), (*trained.rows[:2], len(tested)), strict=True))
    return {"agreement": near(truths, said[0], said[1], learnt)}, more


def known_of(sample: Sample) -> dict[str, float]:
    """A rated edit's scores by dimension."""
    return dict(zip(rubrics.load(sample.rubrics, sample.type).dimensions, sample.scores, strict=True))


def near(
    known: Sequence[tuple[Mapping[str, float], str, str]],
    untrained: Sequence[Rating],
    trained: Sequence[Rating],
    learnt: Sequence[Mapping[str, float]],
) -> list[dict[str, Any]]:
    """How often ratings lie within a point of what is known, of each dimension and of the mean of all (`overall`), a
    source of truth at a time (`truth`), with 95 % intervals over photos. An edit without a rating counts as wrong.

    known: of each edit its scores by dimension, how they are known, and what photo it is of. untrained, trained: what
    the base and the trained rater say of each edit. test: of the trained rater; test_untrained: of its base; gain: the
    first less the second on the same rows; exact: how often the trained one hits what is known. constant, majority: how
    often the one number that is near, or is, the scores of most of `learnt`, those trained on, is near and is what is
    known; a rater below `constant` knows less than who says the same of every edit."""
    found = []
    for truth in sorted({how for _, how, _ in known}):
        own = [n for n, (_, how, _) in enumerate(known) if how == truth]
        photos, dimensions = [known[n][2] for n in own], list(known[own[0]][0])
        for dimension, wanted in [*((each, [each]) for each in dimensions), ("overall", dimensions)]:
            gaps = [[_gap(known[n][0], said[n], wanted) for n in own] for said in (untrained, trained)]
            before, now = ([gap <= NEAR for gap in each] for each in gaps)
            exact = agreement.share([gap == 0 for gap in gaps[1]], photos)
            row = {"dimension": dimension, "truth": truth, "exact": exact}
            means = [fmean(each[name] for name in wanted) for each in learnt]
            for name, most in (("constant", NEAR), ("majority", 0)) if learnt else ():
                one = most_near(means, most)
                right = [abs(one - fmean(known[n][0][each] for each in wanted)) <= most for n in own]
                row[name] = {"score": one} | agreement.share(right, photos)
            found.append(row | agreement.against_base(before, now, photos))
    return found


def most_near(scores: Sequence[float], most: float) -> float:
    """The score that lies within so many points of more of the scores than any other of them; of several the lowest."""
    return max(sorted({*scores}), key=lambda one: sum(abs(one - each) <= most for each in scores))


def _gap(known: Mapping[str, float], rating: Rating, wanted: Sequence[str]) -> float:
    """How far a rating is from what is known, in points, on average over dimensions; infinite without one."""
    if rating.scores is None:
        return math.inf
    return abs(sum(known[name] - rating.scores[name] for name in wanted)) / len(wanted)


if __name__ == "__main__":
    runs.main("train_scorer", __doc__, job, "name")
