"""What makes scores of a hidden state, and one score of several dimensions."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias, cast

import torch
from torch import nn

Aggregation: TypeAlias = Literal["min", "mean", "sum"]
OUTPUTS = {"gaussian": 2, "score": 1}


def perceptron(sizes: Sequence[int], dropout: float) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them, and dropout behind the first one."""
    layers: list[nn.Module] = []
    for n, (inside, outside) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(inside, outside), nn.ReLU()] + ([nn.Dropout(dropout)] if n == 0 else [])
    return nn.Sequential(*layers[: -1 if len(sizes) > 2 else -2])


class Head(nn.Module):
    """Scores of D dimensions out of a hidden state for each: a perceptron a dimension, or one that all share.

    kind `gaussian` gives a mean and the logarithm of a standard deviation, as EditReward's does; `score` a mean alone,
    as ADIEE's. Its weights are float32 and depend on the seed alone.
    """

    def __init__(
        self, kind: str, dimensions: int, hidden: int, sizes: Sequence[int], dropout: float, shared: bool, seed: int = 0
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(seed)
            self.parts = nn.ModuleList(
                perceptron([hidden, *sizes, OUTPUTS[kind]], dropout) for _ in range(1 if shared else dimensions)
            )
        self.dimensions = dimensions

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Means and logarithms of standard deviations, (n, D) each, of states (n, D, hidden). None: it knows none."""
        own = [self.parts[n % len(self.parts)] for n in range(self.dimensions)]
        weight = cast(nn.Linear, own[0][0]).weight  # type: ignore[index]
        with torch.autocast(states.device.type, enabled=False):
            found = torch.stack([part(states[:, n].to(weight.dtype)) for n, part in enumerate(own)], 1).float()
        return found[..., 0], found[..., 1] if found.shape[-1] == 2 else None


def aggregate(
    means: torch.Tensor, stds: torch.Tensor | None, how: Aggregation
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One mean and standard deviation, (...), of independent dimensions' (..., D).

    min: the lowest mean, and the standard deviation of that very dimension. Clark's moments of the least of Gaussians
    would be another quantity: its mean lies below the lowest one, so it would not belong to the score that is given.
    mean, sum: sqrt(sum s^2), of the mean divided by D.
    """
    count = means.shape[-1]
    if how == "min":
        overall, lowest = means.min(-1)
        return overall, None if stds is None else stds.gather(-1, lowest[..., None])[..., 0]
    together = None if stds is None else torch.linalg.vector_norm(stds, dim=-1)  # torch.sqrt differs between CPUs
    if how == "sum":
        return means.sum(-1), together
    return means.mean(-1), None if together is None else together / count
