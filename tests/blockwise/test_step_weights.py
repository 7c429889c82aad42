"""Weights by S2 without a gradient are those of the formula that autograd goes through, whose gradients are right."""

import pytest
import torch

from vicinal.blockwise.step_weights import mapped
from vicinal.heads import NONA, Ensemble
from vicinal.masks import SoftStep

each_map = pytest.mark.parametrize("simplex", ["softmax", "entmax15", "sparsemax"])


@each_map
@pytest.mark.parametrize("case", ["apart", "own bank", "two rows", "near ties", "flat", "large"])
def test_the_short_way_is_the_formula(simplex, case):
    generator = torch.Generator().manual_seed(3)
    head = NONA("l2", SoftStep(3, "s2"), simplex).double()
    queries = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    bank, identity = torch.randn(9, 3, generator=generator, dtype=torch.float64), {}
    if case in ("own bank", "two rows"):
        bank = queries = queries[:2] if case == "two rows" else queries
        identity = {"query_ids": torch.arange(len(bank)), "bank_ids": torch.arange(len(bank))}
    if case == "near ties":
        bank[3:6] = bank[:3] + 1e-9
    if case == "flat":
        bank[:] = bank[0]
    if case == "large":
        queries, bank = queries * 1e4, bank * 1e4
    want = head.weights(queries, bank.clone().requires_grad_(), **identity).detach()
    with torch.no_grad():
        got = head.weights(queries, bank, **identity)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


@each_map
def test_gradients_are_those_of_central_differences_and_can_be_differentiated_again(simplex):
    generator = torch.Generator().manual_seed(5)
    head = NONA("squared_l2", SoftStep(2, "s2"), simplex).double()
    bank = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    identity = {"query_ids": torch.arange(3), "bank_ids": torch.arange(5)}
    queries = torch.randn(3, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: head.weights(rows, bank, **identity), queries)
    if simplex == "softmax":  # the others have weights of exactly 0, whose gradient bends there
        assert torch.autograd.gradgradcheck(lambda rows: head.weights(rows, bank, **identity), queries)


@pytest.mark.parametrize("similarity", ["l2", "squared_l2", "cosine"])
def test_members_together_are_each_alone(similarity):
    generator = torch.Generator().manual_seed(7)
    heads = [NONA(similarity, SoftStep(2, "s2"), "entmax15").double() for _ in range(3)]
    rows = torch.randn(7, 6, generator=generator, dtype=torch.float64)
    rows[1] = rows[0]  # coincident rows do not pull
    rows.requires_grad_()
    labels = torch.arange(7, dtype=torch.float64)
    ids = {"query_ids": torch.arange(7), "bank_ids": torch.arange(7)}
    together = Ensemble(heads).each(rows, rows, labels, **ids)
    alone = torch.stack([h(p, p, labels, **ids) for h, p in zip(heads, rows.chunk(3, dim=1), strict=True)], dim=-1)
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-12)
    pulls = [torch.autograd.grad(one.square().sum(), rows)[0] for one in (together, alone)]
    torch.testing.assert_close(*pulls, rtol=1e-8, atol=1e-10)


def test_scores_that_are_closed_throughout_get_weights_0():
    scores = torch.tensor([[0.0, -1.0], [-torch.inf, -torch.inf]])
    for simplex in ("softmax", "entmax15", "sparsemax"):
        weights = mapped(simplex, scores.clone())
        assert weights[1].tolist() == [0.0, 0.0]
        assert weights[0].sum() == pytest.approx(1)
