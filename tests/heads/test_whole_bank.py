"""Signed kriging over a whole bank by one inverse, against the same weights solved for query by query."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.heads import Kriging
from vicinal.heads.admissible import Identity
from vicinal.heads.whole_bank import WholeBank

DOUBLE = torch.float64


def rows(seed, n, d=3):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def signed(n, noise=0.2, linear=0):
    return Kriging(n, scale=1.3, noise=noise, convex=False, linear=linear)


def compare(head, queries, bank, weight=None, **identity):
    predictor, who = WholeBank(head, bank, weight), Identity(**identity)
    whole = predictor.weights_of(queries, who)
    local = head.local_weights(queries, bank, bank_weight=weight, **identity)
    dense = head.weights(queries, bank, bank_weight=weight, **identity).detach()
    torch.testing.assert_close(whole.weights, dense, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(whole.variance, local.variance.detach(), rtol=1e-9, atol=1e-9)
    labels = rows(5, len(bank), 2)
    torch.testing.assert_close(whole.mean(labels), local.mean(labels).detach(), rtol=1e-9, atol=1e-9)
    for some in (labels, labels[:, 0]):
        torch.testing.assert_close(predictor.means_of(queries, some, who), whole.mean(some), rtol=1e-9, atol=1e-9)
    return whole


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 12),
    hidden=st.sampled_from(["none", "ids", "groups", "both"]),
    weighted=st.booleans(),
    linear=st.integers(0, 3),
)
def test_weights_are_those_of_each_query_by_itself(seed, n, hidden, weighted, linear):
    bank = rows(seed, n)
    queries = torch.cat([bank[:2], rows(seed + 1, 2)])
    identity = {}
    if hidden in ("ids", "both"):
        identity |= {"query_ids": torch.tensor([0, 1, -1, -1]), "bank_ids": torch.arange(n)}
    if hidden in ("groups", "both") and n > 2:
        identity |= {"query_groups": torch.tensor([1, 0, 1, 7]), "bank_groups": torch.arange(n) % 3}
    weight = rows(seed + 2, n, 1)[:, 0].exp() if weighted else None
    whole = compare(signed(n, linear=linear), queries, bank, weight, **identity)
    torch.testing.assert_close(whole.weights.sum(dim=1), torch.ones(4, dtype=DOUBLE))
    allowed = Identity(**identity).allowed(4, n)
    assert allowed is None or bool((whole.weights[~allowed] == 0).all())


def test_weights_solve_the_equations():
    head, bank, query = signed(6), rows(0, 6), rows(1, 1)
    inputs = [torch.cdist(a, bank).numpy() * np.sqrt(3) / 1.3 for a in (bank, query)]
    kernel, vector = ((1 + d) * np.exp(-d) for d in inputs)
    system = np.ones((7, 7))
    system[:6, :6], system[6, 6] = kernel + (0.2 + 1e-6) * np.eye(6), 0.0
    want = np.linalg.solve(system, np.append(vector[0], 1.0))[:6]
    np.testing.assert_allclose(WholeBank(head, bank).weights_of(query, Identity()).weights[0], want, atol=1e-10)


def test_equal_rows_share_a_weight_and_one_row_has_all_of_it():
    bank = torch.tensor([[0.0], [0.0], [2.0]], dtype=DOUBLE)
    weights = WholeBank(signed(3, noise=1e-6), bank).weights_of(torch.tensor([[0.1]]), Identity()).weights[0]
    torch.testing.assert_close(weights[0], weights[1])
    one = WholeBank(signed(1), bank[:1]).weights_of(torch.tensor([[9.0]]), Identity())
    assert one.weights.tolist() == [[1.0]]


def test_what_cannot_be_is_refused():
    bank = rows(0, 3)
    with pytest.raises(ValueError, match="head: expected convex=False"):
        WholeBank(Kriging(3), bank)
    with pytest.raises(ValueError, match=r"queries: expected \[b, 3\], got \(2, 4\)"):
        WholeBank(signed(3), bank).weights_of(rows(1, 2, 4), Identity())
    assert Kriging(3, convex=False, linear=1, whole_up_to=9).by_one_inverse(3)
    with pytest.raises(ValueError, match="bank: expected at least one row"):
        WholeBank(signed(3), bank[:0])
    with pytest.raises(ValueError, match="bank_weight: expected shape"):
        WholeBank(signed(3), bank, torch.ones(2))
    alone = Identity(torch.tensor([4]), torch.tensor([4, 4, 4]))
    with pytest.raises(ValueError, match="got none for query 0"):
        WholeBank(signed(3), bank).weights_of(bank[:1], alone)


def test_a_head_looks_at_all_rows_of_a_small_bank():
    head = Kriging(2, convex=False, whole_up_to=5)
    assert [head.looked_at(n) for n in (1, 5, 6)] == [1, 5, 2]
    assert head.local_weights(rows(0, 1), rows(1, 5)).positions.shape == (1, 5)
    assert head.local_weights(rows(0, 1), rows(1, 6)).positions.shape == (1, 2)
    assert head.local_weights(rows(0, 0), rows(1, 5)).positions.shape == (0, 5)
    assert "whole_up_to=5" in repr(head)
