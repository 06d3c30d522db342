"""Heads have the published layers; aggregation is what can be worked out by hand."""

import pytest
import torch
from torch import nn

from editjudge.judges.scorers.model import Head, aggregate


def layers(part: nn.Module) -> list[str]:
    return [repr(layer).partition(", bias")[0] for layer in part.children()]


def test_the_published_head_of_editreward():
    head = Head("gaussian", 2, 96, (1024, 16), 0.05, shared=False)
    assert len(head.parts) == 2
    linear = "Linear(in_features={}, out_features={}"
    expected = [linear.format(96, 1024), "ReLU()", "Dropout(p=0.05, inplace=False)", linear.format(1024, 16), "ReLU()"]
    assert layers(head.parts[0]) == [*expected, linear.format(16, 2)]
    assert all(weight.dtype == torch.float32 for weight in head.parameters())


def test_a_head_of_scores_knows_no_deviation_and_may_be_one_layer():
    assert layers(Head("score", 1, 8, (4,), 0.0, shared=False).parts[0])[-1].startswith("Linear(in_features=4, out_f")
    only = Head("score", 1, 8, (), 0.0, shared=False)
    assert len(only.parts[0]) == 1
    means, stds = only(torch.ones(3, 1, 8))
    assert (means.shape, stds) == ((3, 1), None)


def test_each_dimension_has_its_own_state_and_perceptron_or_shares_one():
    states = torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(0))
    for shared in (False, True):
        head = Head("gaussian", 2, 8, (6, 4), 0.0, shared, seed=3).eval()
        means, stds = head(states)
        for n in range(2):
            found = head.parts[0 if shared else n](states[:, n])
            assert torch.equal(torch.stack([means[:, n], stds[:, n]], 1), found)
    again = Head("gaussian", 2, 8, (6, 4), 0.0, True, seed=3).eval()
    assert torch.equal(again(states)[0], means), "the seed alone decides"


@pytest.mark.parametrize(("how", "mean", "std"), [("min", -1.0, 4.0), ("mean", 0.5, 2.5), ("sum", 1.0, 5.0)])
def test_aggregation_by_hand(how: str, mean: float, std: float):
    means, stds = torch.tensor([[2.0, -1.0]]), torch.tensor([[3.0, 4.0]])
    found = aggregate(means, stds, how)
    assert (found[0].item(), found[1].item()) == (mean, std)
    assert aggregate(means, None, how)[1] is None


@pytest.mark.parametrize("how", ["mean", "sum"])
def test_the_deviation_is_that_of_samples(how: str):
    means, stds = torch.tensor([0.3, -0.7, 1.1]), torch.tensor([0.5, 1.5, 1.0])
    drawn = means + stds * torch.randn(400_000, 3, generator=torch.Generator().manual_seed(0))
    drawn = drawn.mean(1) if how == "mean" else drawn.sum(1)
    mean, std = aggregate(means, stds, how)
    assert mean.item() == pytest.approx(drawn.mean().item(), abs=0.01)
    assert std.item() == pytest.approx(drawn.std().item(), rel=0.01)
