"""Ranks of related columns, by hand and by counting."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vicinal.ranks.hard import rank_order, related_ranks
from vicinal.ranks.pairs import split_pairs


def test_ranks_by_hand():
    s = torch.tensor([[0.3, 0.9, 0.3, 0.3, 0.1]])
    r = torch.tensor([[1, 0, 0, 1, 0]])
    assert related_ranks(s, r).tolist() == [[3, 4]]
    assert related_ranks(s, r, ties="best").tolist() == [[2, 3]]
    assert related_ranks(s, r, ties="first").tolist() == [[2, 4]]
    assert related_ranks(s, r, ties="last").tolist() == [[2, 4]]
    assert rank_order(s, r, ties="last").tolist() == [[1, 3, 2, 0, 4]]
    assert math.isinf(related_ranks(s.expand(2, 5), torch.cat([r, 0 * r]))[1, 0])


@given(seed=st.integers(0, 2**31 - 1))
def test_a_rank_is_one_more_than_the_columns_before(seed):
    g = torch.Generator().manual_seed(seed)
    s = torch.randn(3, 8, generator=g).round()
    r, w = (torch.rand(3, 8, generator=g) < 0.5 for _ in range(2))
    related, unrelated = split_pairs(s, r, w)
    for ties in ("worst", "best"):
        ranks = related_ranks(s, r, w, ties=ties)
        for i in range(3):
            mine = s[i, related[i]].sort(descending=True).values
            others = s[i, unrelated[i]]
            before = [(others >= q).sum() if ties == "worst" else (others > q).sum() for q in mine]
            want = [m + 1 + int(count) for m, count in enumerate(before)]
            assert ranks[i][ranks[i].isfinite()].tolist() == want


def test_split_pairs_leaves_out_weight_0_and_reads_grades():
    related, unrelated = split_pairs(torch.zeros(1, 4), torch.tensor([[0.5, 0, 2, 0]]), torch.tensor([[1, 0.1, 0, 0]]))
    assert related.tolist() == [[True, False, False, False]]
    assert unrelated.tolist() == [[False, True, False, False]]


def test_bad_input():
    with pytest.raises(ValueError, match=r"^ties: expected one of 'worst', 'best', 'first', 'last', got 'average'"):
        rank_order(torch.zeros(1, 1), torch.zeros(1, 1), ties="average")
    with pytest.raises(ValueError, match=r"^scores: expected a matrix"):
        related_ranks(torch.zeros(3), torch.zeros(3))
