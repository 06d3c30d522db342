"""Simulations too long for the tests: `python benchmarks/simulations.py coverage`, `... choosing` and `... design`.

In an arena of these each image is as good as its model, plus noise of its own (`image`, a standard deviation in units
of ability), and the judge's answer is Davidson's with the difference of the two images times `sharpness`. With image 0
all answers are independent; else those about one image depend on each other, as in a real arena.

What came out (one core; a minute, and seven):

    models prompts spread image sharpness   covered  (repeats x models)
         5      80    2.0   0.0       1.0   0.941    (300 x 5)
        17     100    2.0   0.0       1.0   0.938    (300 x 17)
        17     100    2.0   1.0       3.0   0.943    (300 x 17)
        17     100    6.0   1.0       3.0   0.940    (300 x 17)
        17      30    2.0   1.0       3.0   0.934    (300 x 17)

    spread image sharpness   chosen  random   tau    some   enough
       1.4   0.0       1.0   1.572   1.565   0.912  1.549  -
       8.0   0.0       1.0   1.404   1.540   0.985  1.356  -
       1.0   1.0       3.0   1.100   1.131   0.912  0.822  -
       4.0   1.0       3.0   1.054   1.150   0.971  0.809  60%
       8.0   1.0       3.0   1.018   1.152   0.985  0.815  50%
      20.0   1.0       3.0   1.008   1.059   1.000  0.886  50%

So intervals of nominal 95 % hold the truth in 94 %. Where answers about one image depend on each other, 40 % of the
questions, chosen, give intervals 1 to 2 % wider than all pairs do if the models are far apart, and 5 to 10 % wider if
they are close; and where prompts are to spare ("some") they give narrower ones. Where answers are independent they do
not: there even the best choice of pairs, known beforehand, needs 66 to 99 % of the questions for models that span 12 to
1.4 units of ability ("design").
"""

import sys
from collections.abc import Callable

import numpy as np
from scipy import stats

from editjudge.arena import choosing
from editjudge.statistics import ratings

REPEATS = {"coverage": 300, "choosing": 50}


def simulate(
    abilities: np.ndarray, prompts: int, image: float, sharpness: float, rng: np.random.Generator
) -> np.ndarray:
    """Outcomes (P, Q) of all pairs of models, first against second; nu is 1."""
    first, second = np.triu_indices(len(abilities), 1)
    quality = abilities + image * rng.normal(size=(prompts, len(abilities)))
    x = sharpness * (quality[:, first] - quality[:, second]) / 2
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


def coverage() -> None:
    """How often 95 % intervals of 1,000 resamples hold the truth: what all pairs on 20,000 prompts would say."""
    print("models prompts spread image sharpness   covered  (repeats x models)")
    for models, prompts, spread, image, sharpness in (
        (5, 80, 2.0, 0.0, 1.0),
        (17, 100, 2.0, 0.0, 1.0),
        (17, 100, 2.0, 1.0, 3.0),
        (17, 100, 6.0, 1.0, 3.0),
        (17, 30, 2.0, 1.0, 3.0),
    ):
        truth = spread_out(models, spread, np.random.default_rng(0))
        held = []
        many = all_pairs(simulate(truth, 20_000, image, sharpness, np.random.default_rng(1)), models)
        marginal = ratings.fit(many).abilities
        for repeat in range(REPEATS["coverage"]):
            rng = np.random.default_rng([repeat, 2])
            matches = all_pairs(simulate(truth, prompts, image, sharpness, rng), models)
            replicates = ratings.bootstrap(matches, ratings.fit(matches), 1000, rng)
            low, high = np.quantile(replicates, (0.025, 0.975), axis=0)
            held.append((low <= marginal) & (marginal <= high))
        row = f"{models:6} {prompts:7} {spread:6} {image:5} {sharpness:9}"
        print(f"{row}   {np.mean(held):.3f}    ({len(held)} x {models})", flush=True)


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
    simulations[sys.argv[1]]()
