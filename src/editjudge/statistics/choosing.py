"""Which two models to compare next, and on which prompt, so that few questions give narrow intervals.

Questions are chosen in rounds. With V the covariance of the fitted abilities and e the difference of two models, an
answer whose expected information about that difference is I changes V to V - I (V e)(V e)' / (1 + I e' V e), so that
the sum of the variances falls by I |V e|^2 / (1 + I e' V e): A-optimal design, as in V. V. Fedorov, Theory of Optimal
Experiments (1972). Within a pair the prompts come first where the two models were asked about least, because answers
about one image depend on each other.

How much that saves depends on the answers. All questions about a prompt judge the same few images, so that most of them
repeat what is known, and models that are far apart tell nothing about each other. Where answers are independent and the
models close, no choice of pairs beats all pairs alike: the width falls with the root of the number of questions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from editjudge.statistics import clustered, ratings

STEPS = 100  # times that a round looks again for the best pair
TIE = 1e-9  # pairs whose worths differ by a smaller share are equal: processors differ in the last bits
Ask = Callable[[np.ndarray, np.ndarray], Sequence[int | None]]


@dataclass(frozen=True)
class MatchAnswers:
    """N questions in the order they were asked: prompt and pair, (N,) int; outcome (N,) float, NaN for no verdict."""

    prompt: np.ndarray
    pair: np.ndarray
    outcome: np.ndarray


def information(difference: np.ndarray, nu: float) -> np.ndarray:
    """Expected (Fisher) information of one match about the difference of its two abilities, 0..0.25, higher is better.

    difference: abilities of the first less those of the second, any shape. nu: Davidson's tie parameter, above 0. The
    variance of the score of Davidson (1970): (p_tie (1 - p_tie) + 4 p_first p_second) / 4."""
    p_first, p_second, p_tie = ratings.chances(difference, nu)
    return (p_tie * (1 - p_tie) + 4 * p_first * p_second) / 4


def allocate(fitted: ratings.Fit, pairs: np.ndarray, room: np.ndarray, n: int) -> np.ndarray:
    """How many of `n` questions each pair gets, (Q,) int: greedily the pair that lowers the sum of variances most.

    pairs: (Q, 2) int, the first of them where several are as good. room: (Q,) int, questions that are left of each
    pair. Fewer than n are given where room ends."""
    gain = information(fitted.abilities[pairs[:, 0]] - fitted.abilities[pairs[:, 1]], float(np.exp(fitted.log_nu[0])))
    covariance, left = fitted.covariance.copy(), room.astype(int).copy()
    given = np.zeros(len(pairs), int)
    step = max(1, n // STEPS)
    while (todo := min(n - given.sum(), left.sum())) > 0:
        along = covariance[:, pairs[:, 0]] - covariance[:, pairs[:, 1]]  # (K, Q), V e of each pair
        columns = np.arange(len(pairs))
        within = along[pairs[:, 0], columns] - along[pairs[:, 1], columns]  # e' V e
        worth = np.where(left > 0, gain * (along**2).sum(axis=0) / (1 + gain * within), -1.0)
        best = int(np.argmax(worth >= worth.max() * (1 - TIE)))
        count = min(step, int(todo), int(left[best]))
        given[best] += count
        left[best] -= count
        weight = count * gain[best]
        covariance -= weight / (1 + weight * within[best]) * np.outer(along[:, best], along[:, best])
    return given


def place(
    given: np.ndarray, pairs: np.ndarray, open_: np.ndarray, load: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and pair (N,) of the given questions, each on the prompts where its models were asked about least.

    given: (Q,) questions of each pair. open_: (P, Q) bool, what may be asked, and load: (P, K), how often each model
    was asked about on each prompt; both are brought up to date. Prompts that are equal are drawn by `rng`."""
    prompts, chosen = [], []
    for pair in rng.permutation(np.flatnonzero(given)):
        models = pairs[pair]
        free = rng.permutation(np.flatnonzero(open_[:, pair]))
        taken = free[np.argsort(load[np.ix_(free, models)].sum(axis=1), kind="stable")[: given[pair]]]
        open_[taken, pair] = False
        load[np.ix_(taken, models)] += 1
        prompts.append(taken)
        chosen.append(np.full(len(taken), pair))
    return np.concatenate(prompts), np.concatenate(chosen)


def in_rounds(
    possible: np.ndarray, pairs: np.ndarray, budget: int, rounds: int, ask: Ask, rng: np.random.Generator
) -> MatchAnswers:
    """Asks `budget` questions (or all that are possible) in rounds, each chosen by what the answers so far tell.

    possible: (P, Q) bool, which pairs may be asked about on which prompts. pairs: (Q, 2) int, models from 0, all of
    which occur. ask: the outcomes of prompts and pairs, +1 where the pair's first model wins, -1 where its second does,
    0 for a tie, None for no verdict; such a question is spent. The first round takes all pairs alike. No question is
    asked twice."""
    k = int(pairs.max()) + 1
    open_, load, names = possible.copy(), np.zeros((len(possible), k), int), [str(n) for n in range(k)]
    fitted = ratings.Fit(np.zeros(k), np.zeros(1), np.eye(k + 1), True, "balanced", "davidson")  # equal, far from sure
    answers = MatchAnswers(np.zeros(0, int), np.zeros(0, int), np.zeros(0))
    for size in np.diff(np.linspace(0, min(budget, possible.sum()), min(rounds, budget) + 1).astype(int)):
        if size:
            prompt, pair = place(allocate(fitted, pairs, open_.sum(axis=0), int(size)), pairs, open_, load, rng)
            outcome = np.array([np.nan if one is None else one for one in ask(prompt, pair)], float)
            parts = zip((answers.prompt, answers.pair, answers.outcome), (prompt, pair, outcome), strict=True)
            answers = MatchAnswers(*(np.concatenate(part) for part in parts))
            if np.isfinite(answers.outcome).any():  # the prior is what keeps a few answers from deciding
                fitted = ratings.fit(to_matches(answers, pairs, names), ratings.PRIORS["published"])
    return answers


def to_matches(answers: MatchAnswers, pairs: np.ndarray, names: Sequence[str]) -> ratings.Matches:
    """The answers with a verdict as matches of one dimension."""
    scored = np.isfinite(answers.outcome)
    first, second = pairs[answers.pair[scored]].T
    outcome = answers.outcome[scored].astype(np.int8)
    zeros = np.zeros(len(outcome), int)
    return ratings.Matches(answers.prompt[scored], zeros, first, second, outcome, tuple(names), ("all",))


def width(matches: ratings.Matches) -> float:
    """Mean width of the models' 95 % intervals in rating points, over whole clusters; lower is better.

    Raises ValueError as `ratings.fit` and `ratings.clustered_covariance`."""
    covariance = ratings.clustered_covariance(matches, ratings.fit(matches))
    half = clustered.t_quantile(matches.n_clusters) * np.sqrt(np.diag(covariance))
    return float(ratings.SCALE * 2 * half.mean())
