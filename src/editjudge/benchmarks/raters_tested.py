"""What a trained rater and its base say of the rows that test them, and how often that is near what is known."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from editjudge.judges.protocol import Edit
from editjudge.judges.raters import Rater
from editjudge.judges.rubrics import Rating, load
from editjudge.statistics import agreement, comparison
from editjudge.training.data import Fetch
from editjudge.training.rater import Sample
from editjudge.training.settings import TrainRaterSetting

NEAR = 1  # points that a rating may be away from what is known, and agree with it (arXiv 2505.20275)
OVERALL = "overall"  # the mean of the dimensions


def rated(setting: TrainRaterSetting, tested: Sequence[Sample], fetch: Fetch, model: Path) -> list[Rating]:
    """What a model says of the rows that test, each once, greedily."""
    how = {"backend": "transformers", "model": str(model), "rubrics": setting.rubrics, "workers": 0}
    how |= {"min_pixels": setting.min_pixels, "max_pixels": setting.max_pixels, "batch_size": setting.batch_size}
    how |= {"dtype": "bfloat16" if setting.bf16 else "float32"}
    cases = [Edit(s.instruction, fetch(s.source), fetch(s.a), task=s.type, key=s.key) for s in tested]
    with Rater("raters.train_scorer", how) as rater:
        return [runs[0] for runs in rater.rate(cases)]


def unread(ratings: Sequence[Rating]) -> int:
    return sum(rating.scores is None for rating in ratings)


def near(
    tested: Sequence[Sample], said: Sequence[Sequence[Rating]], truths: Mapping[str, tuple[str, str]]
) -> list[dict[str, Any]]:
    """How often ratings lie within a point of what is known, of each dimension and of the mean of all (`overall`), a
    source of truth at a time (`truth`), with 95 % intervals over photos. An edit without a rating is wrong.

    said: by the base, and by the trained rater, a row a sample. truths: by key the source of what is known, and the
    photo. test: of the trained rater; test_untrained: of its base; gain: the first less the second on the same rows;
    exact: how often the trained one hits what is known.
    """
    found = []
    for truth in sorted({truths[sample.key][0] for sample in tested}):
        own = [n for n, sample in enumerate(tested) if truths[sample.key][0] == truth]
        photos = [truths[tested[n].key][1] for n in own]
        dimensions = tuple(load(tested[own[0]].rubrics, tested[own[0]].type).dimensions)
        for dimension in (*dimensions, OVERALL):
            gaps = [[_gap(tested[n], each[n], dimensions, dimension) for n in own] for each in said]
            untrained, now = ([gap is not None and gap <= NEAR for gap in each] for each in gaps)
            found.append(
                {
                    "dimension": dimension,
                    "truth": truth,
                    "test": agreement.share(now, photos),
                    "test_untrained": agreement.share(untrained, photos),
                    "exact": agreement.share([gap == 0 for gap in gaps[1]], photos),
                    "gain": comparison.paired_difference(now, untrained, photos),
                }
            )
    return found


def _gap(sample: Sample, rating: Rating, dimensions: Sequence[str], dimension: str) -> float | None:
    """How far a rating is from what is known, in points; None without one."""
    if rating.scores is None:
        return None
    known = dict(zip(dimensions, sample.scores, strict=True))
    wanted = dimensions if dimension == OVERALL else [dimension]
    return abs(sum(known[name] - rating.scores[name] for name in wanted)) / len(wanted)
