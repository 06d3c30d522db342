"""Which questions of an arena to ask, where not all of them are asked: spread over models and prompts alike.

All questions about a prompt judge the same few images, so that most of them repeat what is known. Spread over all
prompts, a share of the questions tells nearly as much about the models as all of them do."""

import numpy as np


def spread(
    possible: np.ndarray, pairs: np.ndarray, budget: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and pair, (N,) int each, of `budget` different questions, or of all that are possible.

    Each pair of models has about as many questions as the others, and each of them is about the prompt where its two
    models were chosen least. Equals are drawn by `rng`.
    possible: (P, Q) bool, which pairs may be asked about on which prompts. pairs: (Q, 2) int, models from 0."""
    left, load = possible.copy(), np.zeros((len(possible), int(pairs.max()) + 1))
    order = rng.permutation(len(pairs))
    _, place = np.nonzero(np.arange(len(possible))[:, None] < possible.sum(axis=0)[order])  # turn by turn
    chosen, prompts = order[place[:budget]], []
    for pair in chosen:
        busy = load[:, pairs[pair]].sum(axis=1) + rng.random(len(load))
        prompts.append(int(np.argmin(np.where(left[:, pair], busy, np.inf))))
        left[prompts[-1], pair] = False
        load[prompts[-1], pairs[pair]] += 1
    return np.array(prompts, int), chosen
