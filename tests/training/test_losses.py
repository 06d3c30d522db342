"""Losses against values by hand, scipy's integral and finite differences."""

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from editjudge.training import scorer


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def ranked(kind: str, a: float, b: float, std: float = 0.0, sign: float = 1.0) -> float:
    return scorer.ranking(kind, values(a), values(b), (values(std), values(0.0)), values(sign)).item()


def test_values_by_hand():
    assert ranked("bradley_terry", 1.0, 0.0) == pytest.approx(math.log(1 + math.exp(-1)))
    assert ranked("uncertainty", 1.0, 0.0) == pytest.approx(math.log(1 + math.exp(-1)))
    assert ranked("uncertainty", 0.0, 0.0, 3.0) == pytest.approx(math.log(2)), "by symmetry"
    a, b, k = math.exp(0.5), math.exp(-0.2), 5.0
    win, loss = a / (a + k * b), b / (b + k * a)
    tie = (k * k - 1) * a * b / ((a + k * b) * (b + k * a))
    assert win + loss + tie == pytest.approx(1)
    found = [ranked("bradley_terry_ties", 0.5, -0.2, sign=sign) for sign in (1, 0, -1)]
    assert found == pytest.approx([-math.log(win), -math.log(tie), -math.log(loss)])


@pytest.mark.parametrize(
    ("mean", "std", "error"),
    [(0.3, 0.5, 1e-6), (-2, 1, 1e-6), (1.5, 2, 1e-6), (-4, 3, 1e-4), (-3, 4, 1e-3), (6, 4, 1e-3), (0.5, 8, 1e-2)],
)
def test_the_quadrature_is_the_expectation(mean: float, std: float, error: float):
    found = scorer.log_expected_sigmoid(values(mean), values(std)).exp().item()
    exact = quad(lambda e: norm.pdf(e) * expit(mean + std * e), -12, 12, epsabs=1e-12, limit=900)[0]
    assert found == pytest.approx(exact, abs=error)


@pytest.mark.parametrize("kind", ["uncertainty", "bradley_terry", "bradley_terry_ties"])
def test_gradients_are_finite_differences_and_stay_finite(kind: str):
    sign = values(1, -1, 0)

    def loss(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return scorer.ranking(kind, a, b, (s, t), sign)

    given = [values(*row).requires_grad_() for row in ((0.5, 1, -1), (0.2, 2, 0.1), (0.5, 1, 2), (1.5, 0.3, 1))]
    assert torch.autograd.gradcheck(loss, given)
    far = torch.tensor([-1e4], requires_grad=True)
    found = scorer.ranking(kind, far, -far, (far.abs(), far.abs()), torch.tensor([1.0]))
    found.sum().backward()
    assert found.isfinite().all()
    assert far.grad is not None
    assert far.grad.isfinite().all()


def test_a_tie_teaches_only_the_loss_with_ties():
    assert [ranked(kind, 1.0, 0.0, sign=0.0) for kind in ("uncertainty", "bradley_terry")] == [0, 0]
    assert ranked("bradley_terry_ties", 1.0, 0.0, sign=0.0) > 0


@pytest.mark.parametrize("kind", ["uncertainty", "bradley_terry", "bradley_terry_ties"])
def test_exchanging_the_sides_changes_nothing(kind: str):
    a, b, s, t = (torch.randn(50, generator=torch.Generator().manual_seed(n)) for n in range(4))
    sign = torch.sign(torch.arange(50) % 3 - 1.0)
    forward = scorer.ranking(kind, a, b, (s.exp(), t.exp()), sign)
    assert torch.allclose(forward, scorer.ranking(kind, b, a, (t.exp(), s.exp()), -sign))
