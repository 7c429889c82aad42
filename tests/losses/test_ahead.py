"""Gradients of the sums that pnp makes one related column after the other."""

import pytest
import torch

from vicinal.losses import pnp


def problem():
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 6, generator=g, dtype=torch.float64, requires_grad=True)
    relation = (torch.rand(4, 6, generator=g) < 0.4).double()
    relation[0] = 0
    return scores, relation, (torch.rand(4, 6, generator=g) < 0.8).double()


@pytest.mark.parametrize("variant", ["Ds", "O"])
def test_first_and_second_gradients(variant):
    scores, relation, weight = problem()

    def loss(at):
        return pnp(at, relation, weight, temperature=0.5, variant=variant)

    assert torch.autograd.gradcheck(loss, (scores,))
    assert torch.autograd.gradgradcheck(loss, (scores,))


def test_gradient_of_the_relation_and_the_same_value_without_it():
    scores, _, weight = problem()
    relation = torch.rand(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, r: pnp(s, r, weight, temperature=0.5), (scores, relation))
    torch.testing.assert_close(pnp(scores, relation, weight), pnp(scores, relation.detach(), weight))
