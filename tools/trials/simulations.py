"""Simulations too long for the tests: `python -m tools.trials.simulations coverage`, `figures`, `alike`.

In an arena of these each image is as good as its model, plus noise of its own (`image`, a standard deviation in units
of ability), and the judge's answer is Davidson's with the difference of the two images times `sharpness`. With image 0
all answers are independent; else those about one image depend on each other, as in a real arena.

`figures` prints how often 95 % intervals hold the truth, of every kind that metrics have, at the probe's sizes (a
judge's 480 questions on 4 photos, the arena's 64 prompts, a task's 60 and 8) and at the paper's 1,200 prompts.
Questions of a photo are alike: its log-odds of a right answer are normal round the judge's (PULL, half of it shared
by all judges), which at 0.7 is an intracluster correlation of 0.05 (the probe's judges show 0.00 to 0.03). Shares are
drawn anew in each repeat, from 0.55 to 0.9, and from 0.9 to 0.99 for "few errors". What came out (4000 repeats
of those with 4000 below, 1000 of difference and threshold, else 500; Spearman 100):

                             4 x 120    4 x 16    4 x 15     4 x 2    64 x 1  1200 x 1
    accuracy                   0.953     0.966     0.950     0.990     0.946     0.954
    accuracy, few errors       0.952     0.980     0.981     0.983     0.956     0.947
    win rate with ties         0.952     0.956     0.955     0.985     0.954     0.948
    mean over tasks            0.942     0.954     0.948         -     0.970     0.960
    position bias              0.938     0.934     0.938         -     0.940     0.938
    difference of judges       0.948     0.947     0.944     0.977     0.956     0.958
    kappa                      0.942     0.946     0.930         -     0.942     0.946
    alpha, nominal             0.932     0.952     0.950         -     0.936     0.946
    alpha, ordinal             0.930     0.952     0.952         -     0.940     0.938
    Spearman                   0.920     0.960     0.950         -     0.930     0.950
    threshold                  0.953     0.960         -         -     0.946     0.943

Some hold it more often than in 0.97. Shares of 4 x 2: eight rows tell little of their correlation. "Few errors" of
4 x 15 and 4 x 16 show an intracluster correlation of 0.01, and intervals must hold 0.05: even the exact ones (mid-P)
for 0.05 known beforehand hold the truth in 0.984 here. Differences of 4 x 2 (0.978 of 60,000) have bounded sums,
lighter in the tails than Student's t is for: the normal quantile would hold it in 0.917.

Where no row of a photo differs from another, intervals assume an intracluster correlation (`clustered.share_of`). Four
photos with a correlation of 0.1 and few errors: 0.92. A calibrated tie margin has no interval: it is chosen on the same
questions.

Shares whose rows are more or less alike (`alike`, 2000 repeats; photos x questions, by the intracluster correlation).
With 4 photos and more than 0.5 nothing in the data tells it:

    correlation                  0    0.05     0.3     0.5     0.8
    accuracy        4 x 16   0.963   0.965   0.942   0.929   0.890
    accuracy       16 x 16   0.953   0.956   0.943   0.947   0.945
    accuracy       64 x 16   0.953   0.953   0.950   0.946   0.949
    accuracy       300 x 4   0.960   0.957   0.949   0.957   0.951
    win rate        4 x 16   0.962   0.963   0.941   0.934   0.909
    win rate       16 x 16   0.952   0.949   0.944   0.947   0.943
    win rate       64 x 16   0.957   0.954   0.946   0.948   0.949
    win rate       300 x 4   0.958   0.959   0.948   0.954   0.951
    difference      4 x 16   0.947   0.954   0.945   0.953   0.966
    difference     16 x 16   0.958   0.947   0.957   0.948   0.949
    difference     64 x 16   0.943   0.958   0.954   0.942   0.946
    difference     300 x 4   0.952   0.958   0.948   0.952   0.949

Of ratings (`coverage`, 60 repeats):

    models prompts photos spread image sharpness  covered  ranks (together)  separated   (repeats x models)
         5      80     80    2.0   0.0       1.0    0.963  1.000              0   (60 x 5)
        17     100    100    2.0   1.0       3.0    0.944  1.000              0   (60 x 17)
        17    1200   1200    6.0   1.0       3.0    0.971  1.000              0   (6 x 17)
         6      64     64    6.0   0.5       1.0    0.931  1.000              0   (60 x 6)
         6      64      4    6.0   0.5       1.0    0.953  1.000              0   (60 x 6)
         6       8      8    2.0   0.0       1.0    0.967  1.000              0   (60 x 6)

Ranks hold all together, and a rank is a whole number: where models are apart, sure ranks are right, so that 0.95 is the
bound for models that are all equal alone, the last two lines of `coverage` (200 repeats):

         5      80     80    0.0   0.0       1.0    0.950  0.955
         6      64      4    0.0   0.5       1.0    0.968  0.955
"""

import functools
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from editjudge.statistics import agreement, clustered, pointwise, psychometric, ratings

REPEATS = 300  # of `coverage`
PULL = 0.5  # how far photos move the log-odds of a right answer: at 0.7 an intracluster correlation of 0.05


def answered(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Outcomes at half the differences x (P, Q)."""
    odds = np.stack([np.exp(-x), np.ones_like(x), np.exp(x)], axis=-1).cumsum(axis=-1)
    return (rng.random(x.shape)[..., None] * odds[..., -1:] > odds).sum(axis=-1) - 1


def all_pairs(outcomes: np.ndarray, models: int) -> ratings.Matches:
    """The matches of outcomes (P, Q) as one dimension."""
    prompt, pair = (x.ravel() for x in np.indices(outcomes.shape))
    zeros, names = np.zeros(len(pair), int), tuple(f"m{k:02d}" for k in range(models))
    return ratings.Matches(prompt, zeros, *pairs_of(models)[pair].T, outcomes.ravel().astype(np.int8), names, ("all",))


def pairs_of(models: int) -> np.ndarray:
    return np.stack(np.triu_indices(models, 1), axis=1)


def spread_out(models: int, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Normal abilities, centred, from lowest to highest `spread`."""
    abilities = rng.normal(size=models)
    return (abilities - abilities.mean()) / np.ptp(abilities) * spread


def covered(found: Mapping[str, Any] | tuple, truth: float, prefix: str = "") -> float:
    """1 where an interval holds the truth, 0 where it does not, NaN where there is none."""
    low, high = found if isinstance(found, tuple) else (found[f"{prefix}low"], found[f"{prefix}high"])
    return np.nan if low is None or high is None else float(low <= truth <= high)


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)


def expected(level: Any, spread: float = PULL) -> Any:
    """The mean of expit(level + spread * z) over photos, z being normal."""
    return special.expit(np.asarray(level)[..., None] + spread * NODES) @ WEIGHTS / WEIGHTS.sum()


class Judged:
    """Answers of three judges to n questions: a photo's questions are harder or easier to all of them, and to each.

    A judge is right with chance expit(level + PULL * z), z half the photo's own and half the photo's with this judge;
    where it is wrong, it says Tie (a fifth) or the other side. levels: (3,).
    """

    def __init__(self, photos: int, rows: int, levels: np.ndarray, rng: np.random.Generator) -> None:
        self.photo = np.repeat(np.arange(photos), rows)
        z = (rng.normal(size=(photos, 1)) + rng.normal(size=(photos, 3))) / math.sqrt(2)
        chance = special.expit(levels + PULL * z)[self.photo]
        draw = rng.random((photos * rows, 3))
        self.truth = rng.integers(0, 2, photos * rows) * 2
        wrong = np.where(draw < chance + 0.2 * (1 - chance), 1, 2 - self.truth[:, None])
        self.right, self.code = draw < chance, np.where(draw < chance, self.truth[:, None], wrong)
        self.said = np.array(agreement.ANSWERS, object)[self.code]

    def answers(self, judge: int) -> list[str]:
        return list(self.said[:, judge].tolist())


def levels(least: float, most: float, rng: np.random.Generator) -> np.ndarray:
    """Of three judges, right on an ordinary photo with shares drawn from least..most."""
    return special.logit(rng.uniform(least, most, 3))


def accuracy(photos: int, rows: int, rng: np.random.Generator, least: float = 0.55, most: float = 0.9) -> float:
    of = levels(least, most, rng)
    right = Judged(photos, rows, of, rng).right[:, 0].tolist()
    return covered(agreement.share(right, np.repeat(np.arange(photos), rows)), expected(of[0]))


def rare_errors(photos: int, rows: int, rng: np.random.Generator) -> float:
    return accuracy(photos, rows, rng, 0.9, 0.99)


def win_rate(photos: int, rows: int, rng: np.random.Generator) -> float:
    """Of two models, a tie being half a win."""
    of = levels(0.4, 0.8, rng)
    judged = Judged(photos, rows, of, rng)
    worth = np.where(judged.right[:, 0], 1.0, np.where(judged.code[:, 0] == 1, 0.5, 0.0))
    truth = expected(of[0]) + 0.1 * (1 - expected(of[0]))
    return covered(vars(clustered.share(worth, judged.photo)), truth)


def over_tasks(photos: int, rows: int, rng: np.random.Generator) -> float:
    """The mean over 8 tasks, of which the judge finds some harder."""
    of, tasks = levels(0.6, 0.85, rng)[0], np.arange(photos * rows) % 8
    harder = np.linspace(-1, 1, 8)
    photo = np.repeat(np.arange(photos), rows)
    chance = special.expit(of + harder[tasks] + PULL * rng.normal(size=photos)[photo])
    right = rng.random(len(chance)) < chance
    said = np.where(right, "Image A", "Image B").tolist()
    found = agreement.accuracy_report(["Image A"] * len(said), said, tasks.astype(str).tolist(), photo.tolist())
    return covered(found, expected(of + harder).mean(), "mean_over_tasks_")


def position(photos: int, rows: int, rng: np.random.Generator) -> float:
    """Of a judge that says the first side, whatever it sees, of a tenth to a third of the questions."""
    leaning = special.logit(rng.uniform(0.1, 0.33))
    photo = np.repeat(np.arange(photos), rows)
    blind = rng.random(photos * rows) < special.expit(leaning + PULL * rng.normal(size=photos))[photo]
    first = np.where(blind | (rng.random(len(blind)) < 0.5), "Image A", "Image B")
    second = np.where(blind | (first == "Image B"), "Image A", "Image B")
    found = agreement.position_bias(first.tolist(), second.tolist(), photo.tolist())
    return covered(found, 0.5 + expected(leaning) / 2)


def difference(photos: int, rows: int, rng: np.random.Generator) -> float:
    of = levels(0.55, 0.9, rng)
    right = Judged(photos, rows, of, rng).right
    found = agreement.paired_difference(right[:, 0], right[:, 1], np.repeat(np.arange(photos), rows))
    return covered(found, expected(of[0]) - expected(of[1]))


SKILLED = special.logit(np.array([0.8, 0.7, 0.6]))


def everybody() -> Judged:
    """Judges of the levels SKILLED on as good as all photos."""
    return Judged(100_000, 1, SKILLED, np.random.default_rng(0))


@functools.cache
def true_kappa() -> float:
    many = everybody()
    return float(agreement.cohen_kappa(many.answers(0), many.answers(1), many.photo % 2)["kappa"])


@functools.cache
def true_alphas() -> tuple[float, float]:
    many = everybody()
    found = agreement.krippendorff_alpha(many.said.T.tolist(), agreement.ANSWERS, many.photo % 2)
    return found["alpha"], found["ordinal"]


def kappa(photos: int, rows: int, rng: np.random.Generator) -> float:
    judged = Judged(photos, rows, SKILLED, rng)
    return covered(agreement.cohen_kappa(judged.answers(0), judged.answers(1), judged.photo), true_kappa())


def alphas(photos: int, rows: int, rng: np.random.Generator) -> list[float]:
    """Nominal and ordinal."""
    judged = Judged(photos, rows, SKILLED, rng)
    found = agreement.krippendorff_alpha(judged.said.T.tolist(), agreement.ANSWERS, judged.photo)
    nominal, ordinal = true_alphas()
    return [covered(found, nominal), covered(found, ordinal, "ordinal_")]


def nominal_alpha(photos: int, rows: int, rng: np.random.Generator) -> float:
    return alphas(photos, rows, rng)[0]


def ordinal_alpha(photos: int, rows: int, rng: np.random.Generator) -> float:
    return alphas(photos, rows, rng)[1]


def rated(photos: int, rows: int, rng: np.random.Generator) -> tuple[dict, dict, dict]:
    """A scorer's scores and people's ratings of 5 models' edits of each prompt, and the photo of each prompt.

    Both see the edit's quality; the scorer also the photo, which people do not mind, and each has noise.
    """
    shape = (photos, rows, 5)
    quality, seen = rng.normal(size=shape), 0.5 * rng.normal(size=(photos, 1, 5))
    scores, ratings_ = (quality + extra + 0.8 * rng.normal(size=shape) for extra in (seen, 0.0))
    edits = {(f"{p}.{r}", f"m{m}"): (p, r, m) for p, r, m in np.ndindex(*shape)}
    photo = {edit[0]: place[0] for edit, place in edits.items()}
    return (
        {e: float(scores[at]) for e, at in edits.items()},
        {e: (float(ratings_[at]),) for e, at in edits.items()},
        photo,
    )


@functools.cache
def rank_correlation() -> float:
    """Of normal scores and ratings, over all photos: 6 / pi * arcsin(r / 2), K. Pearson's formula."""
    r = 1 / math.sqrt((1 + 0.25 + 0.64) * (1 + 0.64))
    return 6 / math.pi * math.asin(r / 2)


def spearman(photos: int, rows: int, rng: np.random.Generator) -> float:
    return covered(pointwise.pointwise_report(*rated(photos, rows, rng)), rank_correlation(), "spearman_")


def seen_gaps(photos: int, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gaps of 0.5 to 12, whether they were seen, and their photos; thresholds differ by a fifth between photos."""
    photo, gaps = np.repeat(np.arange(photos), rows), rng.uniform(0.5, 12, photos * rows)
    scale = 4 * np.exp(0.2 * rng.normal(size=photos))[photo]
    return gaps, (rng.random(len(gaps)) < 1 - 0.5 * np.exp(-((gaps / scale) ** 2))).astype(float), photo


@functools.cache
def true_threshold() -> float:
    gaps, worth, _ = seen_gaps(200_000, 1, np.random.default_rng(0))
    return psychometric.fit(gaps, worth).threshold


def threshold(photos: int, rows: int, rng: np.random.Generator) -> float:
    found = psychometric.threshold_interval(*seen_gaps(photos, rows, rng))
    return np.nan if found is None else covered(found, true_threshold())


SIZES = ((4, 120), (4, 16), (4, 15), (4, 2), (64, 1), (1200, 1))
FEW = 32  # questions below which only shares and differences are printed
KINDS: dict[str, tuple[Callable[[int, int, np.random.Generator], float], int, int]] = {  # least questions, repeats
    "accuracy": (accuracy, 1, 4000),
    "accuracy, few errors": (rare_errors, 1, 4000),
    "win rate with ties": (win_rate, 1, 4000),
    "mean over tasks": (over_tasks, FEW, 500),
    "position bias": (position, FEW, 500),
    "difference of judges": (difference, 1, 1000),
    "kappa": (kappa, FEW, 500),
    "alpha, nominal": (nominal_alpha, FEW, 500),
    "alpha, ordinal": (ordinal_alpha, FEW, 500),
    "Spearman": (spearman, FEW, 100),
    "threshold": (threshold, 2 * FEW, 1000),
}


def held(kind: str, photos: int, rows: int, repeats: int) -> float:
    """How often the 95 % interval of a kind of figure holds the truth, of those that there are; NaN without one."""
    once, least, _ = KINDS[kind]
    if photos * rows < least:
        return math.nan
    found = [once(photos, rows, np.random.default_rng([n, photos, rows])) for n in range(repeats)]
    return float(np.nanmean(found))


def figures() -> None:
    """How often 95 % intervals of all kinds of figures hold the truth, by photos x questions of each."""
    print(" " * 22 + "".join(f"{f'{photos} x {rows}':>10}" for photos, rows in SIZES) + "   repeats")
    for kind, (_, _, repeats) in KINDS.items():
        print(f"{kind:22}", end="")
        for photos, rows in SIZES:
            value = held(kind, photos, rows, repeats)
            print(f"{'-' if math.isnan(value) else format(value, '.3f'):>10}", end="", flush=True)
        print(f"{repeats:10}", flush=True)


def alike_held(kind: str, clusters: int, rows: int, alike: float, repeats: int = 2000) -> float:
    """How often the interval of a kind of ALIKE_KINDS holds the truth: a cluster's chances are beta around shares drawn
    from 0.55 to 0.9, so that its rows have an intracluster correlation of `alike`."""
    by, held = np.repeat(np.arange(clusters), rows), list[float]()
    for repeat in range(repeats):
        rng = np.random.default_rng([repeat, clusters, int(100 * alike)])
        shares, weight = rng.uniform(0.55, 0.9, 2), 1 / alike - 1 if alike else math.inf
        chances = rng.beta(shares * weight, (1 - shares) * weight, (clusters, 2)) if alike else shares
        right = rng.random((clusters * rows, 2)) < np.broadcast_to(chances, (clusters, 2))[by]
        ties, (first, second) = ~right & (rng.random(right.shape) < 0.2), shares
        if kind == "difference":
            found = clustered.mean(right[:, 0] * 1.0 - right[:, 1], by, 2)
            held.append(covered(vars(found), first - second))
        else:
            half = 0.5 * (kind == "win rate")
            found = clustered.share(right[:, 0] + half * ties[:, 0], by)
            held.append(covered(vars(found), first + 0.2 * half * (1 - first)))
    return float(np.nanmean(held))


ALIKE_KINDS, ALIKE_SIZES = ("accuracy", "win rate", "difference"), ((4, 16), (16, 16), (64, 16), (300, 4))


def alike() -> None:
    """How often 95 % intervals of shares hold the truth, by how alike the rows of a cluster are."""
    print("correlation           " + "".join(f"{each:>8}" for each in (0, 0.05, 0.3, 0.5, 0.8)))
    for kind in ALIKE_KINDS:
        for clusters, rows in ALIKE_SIZES:
            print(f"{kind:12}{f'{clusters} x {rows}':>10}", end="")
            for each in (0, 0.05, 0.3, 0.5, 0.8):
                print(f"{alike_held(kind, clusters, rows, each):8.3f}", end="", flush=True)
            print()


def coverage() -> None:
    """How often 95 % intervals of ratings hold the truth, what all pairs on 20,000 photos would say, and all ranks."""
    print("models prompts photos spread image sharpness  covered  ranks (together)  separated   (repeats x models)")
    for models, prompts, photos, spread, image, sharpness in (
        (5, 80, 80, 2.0, 0.0, 1.0),
        (17, 100, 100, 2.0, 1.0, 3.0),
        (17, 1200, 1200, 6.0, 1.0, 3.0),
        (6, 64, 64, 6.0, 0.5, 1.0),
        (6, 64, 4, 6.0, 0.5, 1.0),
        (6, 8, 8, 2.0, 0.0, 1.0),
        (5, 80, 80, 0.0, 0.0, 1.0),
        (6, 64, 4, 0.0, 0.5, 1.0),
    ):
        truth = spread_out(models, spread, np.random.default_rng(0))
        marginal = ratings.fit(arena(truth, 20_000, 20_000, image, sharpness, np.random.default_rng(1))).abilities
        order = models - np.argsort(np.argsort(marginal))
        first, last = (order, order) if spread else (np.ones(models), np.full(models, models))  # equal: all ranks
        held, ranks, apart = [], [], 0
        repeats = REPEATS // (10 if prompts > 1000 else 1)
        for repeat in range(repeats):
            matches = arena(truth, prompts, photos, image, sharpness, np.random.default_rng([repeat, 2]))
            rows = sorted(ratings.leaderboard(matches).models, key=lambda row: row["model"])
            if rows[0]["low"] is None:
                apart += 1
                continue
            points = ratings.rating(marginal)
            held.append([row["low"] <= at <= row["high"] for row, at in zip(rows, points, strict=True)])
            low, high = (np.array([row[name] for row in rows]) for name in ("rank_low", "rank_high"))
            ranks.append(bool((low <= first).all() and (high >= last).all()))
        row = f"{models:6} {prompts:7} {photos:6} {spread:6} {image:5} {sharpness:9}"
        print(f"{row}    {np.mean(held):.3f}  {np.mean(ranks):.3f}  {apart:13}   ({repeats} x {models})", flush=True)


def arena(
    truth: np.ndarray, prompts: int, photos: int, image: float, sharpness: float, rng: np.random.Generator
) -> ratings.Matches:
    """All pairs on all prompts; `image` is the noise of a model on a photo, which its prompts share."""
    first, second = np.triu_indices(len(truth), 1)
    quality = truth + image * rng.normal(size=(photos, len(truth)))[np.arange(prompts) % photos]
    matches = all_pairs(answered(sharpness * (quality[:, first] - quality[:, second]) / 2, rng), len(truth))
    return replace(matches, cluster=matches.cluster % photos)


if __name__ == "__main__":
    simulations: dict[str, Callable[[], None]] = {"figures": figures, "coverage": coverage, "alike": alike}
    for name in sys.argv[1:] or ("figures", "coverage"):
        simulations[name]()
