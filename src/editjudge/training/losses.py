"""Losses of scorers, one value a comparison or an edit, never negative; 0 is right and sure.

All are of means and standard deviations in the scorer's own unit, tensors of one shape (...), float32.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch.nn.functional import logsigmoid, softplus

NODES = 32
TIES = (
    5.0  # how many times likelier a win must be than the other side's for a tie to be no likelier: k of Rao and Kupper
)


@cache
def _nodes() -> tuple[torch.Tensor, torch.Tensor]:
    """Where a standard Gaussian is looked at, and the logarithms of the weights, which sum to 1; (NODES,) float64."""
    places, weights = np.polynomial.hermite.hermgauss(NODES)
    return torch.from_numpy(math.sqrt(2) * places), torch.from_numpy(np.log(weights / math.sqrt(math.pi)))


def log_expected_sigmoid(mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """log E[sigmoid(mean + std * e)] of a standard Gaussian e, by Gauss-Hermite quadrature: no random numbers.

    The error of the expectation is below 1e-6 up to std 2, 1e-3 up to 4 and 1e-2 up to 8. Finite wherever `mean` is.
    """
    places, weights = (part.to(mean) for part in _nodes())
    return torch.logsumexp(logsigmoid(mean[..., None] + std[..., None] * places) + weights, dim=-1)


def uncertainty(better: torch.Tensor, worse: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """-log P(better beats worse), both Gaussians: EditReward's Eq. 4. std: of their difference, sqrt(s_b^2 + s_w^2)."""
    return -log_expected_sigmoid(better - worse, std)


def bradley_terry(better: torch.Tensor, worse: torch.Tensor) -> torch.Tensor:
    """-log sigmoid(better - worse)."""
    return softplus(worse - better)


def bradley_terry_ties(a: torch.Tensor, b: torch.Tensor, sign: torch.Tensor, k: float = TIES) -> torch.Tensor:
    """-log of what came out: A better (sign 1), B better (-1) or a tie (0), after Rao and Kupper (1967).

    P(A better) = e^a / (e^a + k e^b), P(tie) = (k^2 - 1) e^(a + b) / ((e^a + k e^b) (k e^a + e^b)); k above 1.
    """
    a_wins, b_wins = softplus(b - a + math.log(k)), softplus(a - b + math.log(k))  # -log of each
    tie = a_wins + b_wins - math.log(k * k - 1)
    return torch.where(sign > 0, a_wins, torch.where(sign < 0, b_wins, tie))


def regression(mean: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The squared difference."""
    return (mean - target) ** 2


def ranking(
    kind: str, a: torch.Tensor, b: torch.Tensor, stds: tuple[torch.Tensor, torch.Tensor], sign: torch.Tensor
) -> torch.Tensor:
    """The loss `kind` of comparisons of A with B. sign: 1 where A is better, -1 where B is.

    sign 0 is a tie, which only bradley_terry_ties learns from: elsewhere the loss is then 0.
    """
    compared = (sign != 0).to(a)
    losses: dict[str, Callable[[], torch.Tensor]] = {
        "uncertainty": lambda: uncertainty(sign * a, sign * b, stds[0].hypot(stds[1])) * compared,
        "bradley_terry": lambda: bradley_terry(sign * a, sign * b) * compared,
        "bradley_terry_ties": lambda: bradley_terry_ties(a, b, sign),
    }
    return losses[kind]()
