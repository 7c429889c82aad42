"""What is found in passes over blocks is what the whole matrix gives, whatever the blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.blockwise.blocks import Buffers
from vicinal.blockwise.exclusion import Exclusion
from vicinal.blockwise.thresholds import find_threshold, response, simplex_weights
from vicinal.blockwise.topk import RunningTopK
from vicinal.heads import admissible
from vicinal.masks import entmax15, softmax, sparsemax

MAPS = {"softmax": softmax, "sparsemax": sparsemax, "entmax15": entmax15}
seeds = st.integers(0, 10_000)


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def relative(scores):
    return scores - scores.amax(dim=1, keepdim=True)


@given(seeds, st.integers(1, 30), st.integers(1, 12), st.integers(1, 7))
def test_k_lowest_of_blocks(seed, columns, k, size):
    values = normal(seed, 5, columns).round(decimals=1)  # with ties
    nearest = RunningTopK(values, k)
    for start in range(0, columns, size):
        nearest.update(slice(0, 2), values[:2, start : start + size], start)
        nearest.update(torch.tensor([4, 2, 3]), values[[4, 2, 3], start : start + size], start)
    want = values.topk(min(k, columns), largest=False).values
    torch.testing.assert_close(nearest.values[:, :columns], want)
    assert (nearest.values[:, columns:] == torch.inf).all()
    torch.testing.assert_close(values.gather(1, nearest.positions[:, :columns]), want)
    assert all(len(set(row.tolist())) == len(row) for row in nearest.positions[:, :columns])


@pytest.mark.parametrize("simplex", ["sparsemax", "entmax15"])
@settings(deadline=None, max_examples=25)
@given(seed=seeds, size=st.integers(1, 9), scale=st.sampled_from([0.01, 1.0, 30.0]))
def test_thresholds_of_blocks_give_the_weights_of_the_map(simplex, seed, size, scale):
    scores = relative(scale * normal(seed, 4, 9))

    def visit():
        for start in range(0, 9, size):
            for rows in (slice(0, 3), slice(3, 4)):
                yield rows, scores[rows, start : start + size].clone()

    threshold = find_threshold(simplex, visit, 4, scores)
    got = simplex_weights(simplex, scores.clone(), threshold)
    torch.testing.assert_close(got, MAPS[simplex](scores), rtol=0, atol=1e-12)


@pytest.mark.parametrize("simplex", MAPS)
def test_responses_are_the_derivative_of_the_map(simplex):
    scores, move = normal(3, 2, 7).requires_grad_(), normal(4, 2, 7)
    weights = MAPS[simplex](scores)
    (moved,) = torch.autograd.grad(weights, scores, move)  # the matrix of derivatives is symmetric
    r = response(simplex, weights.detach())
    want = r * (move - (r * move).sum(dim=1, keepdim=True) / r.sum(dim=1, keepdim=True))
    torch.testing.assert_close(moved, want)


@given(seeds, st.integers(1, 8), st.booleans(), st.booleans())
def test_excluded_entries_are_those_that_are_not_admissible(seed, size, ids, groups):
    generator = torch.Generator().manual_seed(seed)
    q, x = torch.randint(0, 6, (2, 5), generator=generator), torch.randint(0, 6, (2, 11), generator=generator)
    keys = [(q[i], x[i]) for i, there in enumerate((ids, groups)) if there]
    exclusion = Exclusion(keys)
    named = {"query_ids": q[0], "bank_ids": x[0]} if ids else {}
    named |= {"query_groups": q[1], "bank_groups": x[1]} if groups else {}
    allowed = admissible((5, 11), **named)
    for start in range(0, 11, size):
        stop = min(start + size, 11)
        values = torch.ones(5, stop - start)
        entries = exclusion.within(start, stop)
        got = values if entries is None else entries.fill(values, slice(0, 5), 0.0)
        want = torch.ones_like(got) if allowed is None else allowed[:, start:stop].float()
        assert torch.equal(got, want)


def test_buffers_are_used_again_under_their_name():
    buffers, large = Buffers(), torch.zeros(4, 6)
    first = buffers.like("gaps", large)
    assert first.shape == (4, 6)
    assert buffers.empty("gaps", 3, 5, large).data_ptr() == first.data_ptr()
    assert buffers.like("others", large).data_ptr() != first.data_ptr()
    assert buffers.like("gaps", large.double()).dtype == torch.float64
    assert buffers.empty("gaps", 9, 9, large).shape == (9, 9)
