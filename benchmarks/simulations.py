"""Simulations too long for the tests: `python benchmarks/simulations.py coverage`, `figures`, `choosing`, `design`.

In an arena of these each image is as good as its model, plus noise of its own (`image`, a standard deviation in units
of ability), and the judge's answer is Davidson's with the difference of the two images times `sharpness`. With image 0
all answers are independent; else those about one image depend on each other, as in a real arena.

What came out: of `coverage` (60 repeats) and `figures` (300; the last bias 40), whose 95 % intervals go over whole
photos,

    models prompts photos spread image sharpness  covered  ranks (together)  separated   (repeats x models)
         5      80     80    2.0   0.0       1.0    0.963  1.000              0   (60 x 5)
        17     100    100    2.0   1.0       3.0    0.944  1.000              0   (60 x 17)
        17    1200   1200    6.0   1.0       3.0    0.971  1.000              0   (6 x 17)
         6      64     64    6.0   0.5       1.0    0.931  1.000              0   (60 x 6)
         6      64      4    6.0   0.5       1.0    0.953  1.000              0   (60 x 6)
         6       8      8    2.0   0.0       1.0    0.967  1.000              0   (60 x 6)

    photos rows    n  accuracy  bias  difference  kappa  alpha   row by row (Wilson)
         4  120  480     0.957     0.950     0.957     0.927     0.910     0.553
         4   16   64     0.960     0.937     0.930     0.940     0.953     0.837
        64    1   64     0.957     0.960     0.977     0.950     0.927     0.957
         8    1    8     0.933     0.947     0.960     0.976     0.947     0.933
         4    2    8     0.997     0.953     0.983     0.980     0.910     0.923
      1200    1 1200     0.947     0.925     0.960     0.960     0.980     0.947

and of `choosing`, whose widths were a bootstrap's then:

    spread image sharpness   chosen  random   tau    some   enough
       1.4   0.0       1.0   1.572   1.565   0.912  1.549  -
       8.0   0.0       1.0   1.404   1.540   0.985  1.356  -
       1.0   1.0       3.0   1.100   1.131   0.912  0.822  -
       4.0   1.0       3.0   1.054   1.150   0.971  0.809  60%
       8.0   1.0       3.0   1.018   1.152   0.985  0.815  50%
      20.0   1.0       3.0   1.008   1.059   1.000  0.886  50%

So intervals of nominal 95 % hold the truth in 91 to 98 %, but accuracies of 4 photos of 2 rows, which are too coarse;
ranks hold all together, and are wide. Where answers about one image depend on each other, 40 % of the
questions, chosen, give intervals 1 to 2 % wider than all pairs do if the models are far apart, and 5 to 10 % wider if
they are close; and where prompts are to spare ("some") they give narrower ones. Where answers are independent they do
not: there even the best choice of pairs, known beforehand, needs 66 to 99 % of the questions for models that span 12 to
1.4 units of ability ("design").
"""

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import stats

from editjudge.arena import choosing
from editjudge.statistics import agreement, comparison, ratings
from editjudge.statistics.clustered import wilson_interval

REPEATS = {"coverage": 300, "choosing": 50, "figures": 1000}


def simulate(
    abilities: np.ndarray, prompts: int, image: float, sharpness: float, rng: np.random.Generator
) -> np.ndarray:
    """Outcomes (P, Q) of all pairs of models, first against second; nu is 1."""
    first, second = np.triu_indices(len(abilities), 1)
    quality = abilities + image * rng.normal(size=(prompts, len(abilities)))
    return answered(sharpness * (quality[:, first] - quality[:, second]) / 2, rng)


def answered(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Outcomes at half the differences x (P, Q)."""
    odds = np.stack([np.exp(-x), np.ones_like(x), np.exp(x)], axis=-1).cumsum(axis=-1)
    return (rng.random(x.shape)[..., None] * odds[..., -1:] > odds).sum(axis=-1) - 1


def all_pairs(outcomes: np.ndarray, models: int) -> ratings.Matches:
    prompt, pair = (x.ravel() for x in np.indices(outcomes.shape))
    return to_matches(choosing.Answers(prompt, pair, outcomes.ravel().astype(float)), models)


def to_matches(answers: choosing.Answers, models: int) -> ratings.Matches:
    return choosing.to_matches(answers, pairs_of(models), [f"m{k:02d}" for k in range(models)])


def pairs_of(models: int) -> np.ndarray:
    return np.stack(np.triu_indices(models, 1), axis=1)


def spread_out(models: int, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Normal abilities, centred, from lowest to highest `spread`."""
    abilities = rng.normal(size=models)
    return (abilities - abilities.mean()) / np.ptp(abilities) * spread


def covered(low: float | None, truth: float, high: float | None) -> float:
    """1 where an interval holds the truth, 0 where it does not, NaN where there is none."""
    return np.nan if low is None or high is None else float(low <= truth <= high)


def right_answers(photos: int, rows: int, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Answers right or wrong (n, 3) of three judges, and their photos (n,); photos differ (intracluster 0.05)."""
    pull = 19.0
    chance = rng.beta(share * pull, (1 - share) * pull, photos) if rows > 1 else np.full(photos, share)
    return rng.random((photos * rows, 3)) < np.repeat(chance, rows)[:, None], np.repeat(np.arange(photos), rows)


def figures() -> None:
    """How often 95 % intervals of accuracies, biases, differences, kappas and alphas hold the truth, by their size."""
    sides = np.array(["Image A", "Image B"], object)
    print("photos rows    n  accuracy  bias  difference  kappa  alpha   row by row (Wilson)")
    for photos, rows in ((4, 120), (4, 16), (64, 1), (8, 1), (4, 2), (1200, 1)):
        held = []
        for repeat in range(REPEATS["figures"]):
            rng = np.random.default_rng([repeat, photos, rows])
            right, clusters = right_answers(photos, rows, 0.7, rng)
            said = sides[right.astype(int)]
            found = agreement.share(right[:, 0].tolist(), clusters)
            bias = agreement.position_bias(said[:, 0].tolist(), said[:, 1].tolist(), clusters)
            gain = comparison.paired_difference(right[:, 0].tolist(), right[:, 1].tolist(), clusters)
            kappa = comparison.cohen_kappa(said[:, 0].tolist(), said[:, 1].tolist(), clusters)
            alpha = comparison.krippendorff_alpha(said.T.tolist(), sides.tolist(), clusters)
            agreed = 0.05 if rows > 1 else 0.0  # of two judges, beyond chance: what their photos share
            held.append(
                [
                    covered(found["low"], 0.7, found["high"]),
                    covered(bias["low"], 0.3, bias["high"]),
                    covered(gain["low"], 0.0, gain["high"]),
                    covered(kappa["low"], agreed, kappa["high"]),
                    covered(alpha["low"], agreed, alpha["high"]),
                    covered(*(lambda w: (w[0], 0.7, w[1]))(wilson_interval(right[:, 0].sum(), len(right)))),
                ]
            )
        shown = "  ".join(f"{value:8.3f}" for value in np.nanmean(held, axis=0))
        print(f"{photos:6} {rows:4} {photos * rows:4}  {shown}", flush=True)


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
    ):
        truth = spread_out(models, spread, np.random.default_rng(0))
        marginal = ratings.fit(arena(truth, 20_000, 20_000, image, sharpness, np.random.default_rng(1))).abilities
        order = models - np.argsort(np.argsort(marginal))
        held, ranks, apart = [], [], 0
        repeats = REPEATS["coverage"] // (10 if prompts > 1000 else 1)
        for repeat in range(repeats):
            matches = arena(truth, prompts, photos, image, sharpness, np.random.default_rng([repeat, 2]))
            rows = sorted(ratings.leaderboard(matches).models, key=lambda row: row["model"])
            if rows[0]["low"] is None:
                apart += 1
                continue
            points = ratings.rating(marginal)
            held.append([row["low"] <= at <= row["high"] for row, at in zip(rows, points, strict=True)])
            ranks.append(all(row["rank_low"] <= at <= row["rank_high"] for row, at in zip(rows, order, strict=True)))
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


def choose() -> None:
    """Width of the intervals after 40 % of the questions, chosen and at random, over that of all pairs: medians.

    some: the chosen ones against all pairs on 40 % of the prompts, with 40 % of their questions. enough: the share of
    the questions, of 50, 60 and 80 %, that brings the median within 1 % of the width of all pairs.
    """
    print("spread image sharpness   chosen  random   tau    some   enough")
    for setting in (
        (1.4, 0.0, 1.0),
        (8.0, 0.0, 1.0),
        (1.0, 1.0, 3.0),
        (4.0, 1.0, 3.0),
        (8.0, 1.0, 3.0),
        (20.0, 1.0, 3.0),
    ):
        found = np.array([chosen_once(repeat, *setting) for repeat in range(REPEATS["choosing"])])
        width, random, tau, some, *shares = np.median(found, axis=0)
        enough = next((f"{share:.0%}" for share, ratio in zip(SHARES, shares, strict=True) if ratio <= 1.01), "-")
        spread, image, sharpness = setting
        print(
            f"{spread:6} {image:5} {sharpness:9}   {width:.3f}   {random:.3f}   {tau:.3f}  {some:.3f}  {enough}",
            flush=True,
        )


SHARES = (0.5, 0.6, 0.8)


def chosen_once(seed: int, spread: float, image: float, sharpness: float) -> list[float]:
    models, prompts = 17, 120
    rng = np.random.default_rng([seed, 3])
    outcomes = simulate(spread_out(models, spread, rng), prompts, image, sharpness, rng)
    full = all_pairs(outcomes, models)
    whole = choosing.width(full)
    fit = chosen(outcomes, int(0.4 * outcomes.size), models, seed)
    at_random = rng.permutation(outcomes.size)[: int(0.4 * outcomes.size)]
    prompt, pair = np.unravel_index(at_random, outcomes.shape)
    blind = to_matches(choosing.Answers(prompt, pair, outcomes[prompt, pair].astype(float)), models)
    tau = stats.kendalltau(ratings.fit(full).abilities, ratings.fit(fit).abilities).statistic
    fewer = choosing.width(all_pairs(outcomes[:48], models))
    some = choosing.width(chosen(outcomes, int(0.4 * outcomes[:48].size), models, seed)) / fewer
    shares = [choosing.width(chosen(outcomes, int(s * outcomes.size), models, seed)) / whole for s in SHARES]
    return [choosing.width(fit) / whole, choosing.width(blind) / whole, tau, some, *shares]


def chosen(outcomes: np.ndarray, budget: int, models: int, seed: int) -> ratings.Matches:
    def ask(prompt: np.ndarray, pair: np.ndarray) -> list[int | None]:
        return outcomes[prompt, pair].tolist()

    possible, rng = np.ones(outcomes.shape, bool), np.random.default_rng(seed)
    answers = choosing.in_rounds(possible, pairs_of(models), budget, 20, ask, rng)
    return to_matches(answers, models)


def design() -> None:
    """The least share of the questions that gives the mean width of all pairs, with independent answers, by the spread.

    The optimal weights of the pairs by the multiplicative algorithm, for 17 models evenly apart that are known.
    """
    print("spread   share of the questions")
    pairs = pairs_of(17)
    contrast = np.eye(17)[pairs[:, 0]] - np.eye(17)[pairs[:, 1]]  # (Q, K)
    for spread in (1.4, 3.0, 5.0, 8.0, 12.0, 20.0):
        abilities = np.linspace(-spread / 2, spread / 2, 17)
        gain = choosing.information(contrast @ abilities, 1.0)
        weight = np.full(len(pairs), 1 / len(pairs))
        widths = []
        for _ in range(2000):
            information = contrast.T @ (contrast * (weight * gain)[:, None])
            covariance = np.linalg.inv(information + 1 / 17) - 1 / 17
            errors = np.sqrt(np.diag(covariance))
            widths.append(errors.mean())
            slope = gain * ((contrast @ covariance) ** 2 / errors).sum(axis=1)
            weight = weight * np.sqrt(slope / (weight @ slope))
            weight /= weight.sum()
        print(f"{spread:6}   {(widths[-1] / widths[0]) ** 2:.2f}", flush=True)


if __name__ == "__main__":
    simulations: dict[str, Callable[[], None]] = {"coverage": coverage, "choosing": choose, "design": design}
    simulations["figures"] = figures
    simulations[sys.argv[1]]()
