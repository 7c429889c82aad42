"""The smooth choice of k columns; values of the public code: see tests/losses/test_listed_golden.py."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from references.listed_losses import soft_topk_mask
from vicinal.masks import log_soft_topk, soft_topk


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=st.integers(0, 10_000), k=st.integers(1, 6), alpha=st.floats(0.1, 50), scale=st.floats(0.01, 100))
def test_rows_sum_to_k_and_equal_numpy(seed, k, alpha, scale):
    scores = scale * normal(seed, 3, 7)
    mask = soft_topk(scores, k, alpha=alpha)
    torch.testing.assert_close(mask.sum(1), torch.full((3,), float(k), dtype=torch.float64), rtol=1e-12, atol=0)
    want = np.stack([soft_topk_mask(row, k, alpha) for row in scores.numpy()])
    np.testing.assert_allclose(mask, want, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(soft_topk(scores + 3.5, k, alpha=alpha), mask, rtol=1e-6, atol=1e-6)
    order = torch.tensor([5, 0, 6, 2, 1, 4, 3])
    torch.testing.assert_close(soft_topk(scores[:, order], k, alpha=alpha), mask[:, order])


def test_a_flat_row_is_k_of_n_and_a_sharp_choice_the_hard_one():
    torch.testing.assert_close(soft_topk(torch.full((2, 8), -7.5), 3), torch.full((2, 8), 3 / 8))
    scores = normal(0, 4, 9)
    hard = torch.zeros_like(scores).scatter(1, scores.topk(3, dim=1).indices, 1.0)
    torch.testing.assert_close(soft_topk(scores, 3, alpha=1e5), hard, rtol=0, atol=1e-12)
    assert (soft_topk(scores, 3).argsort(1) == scores.argsort(1)).all()


@pytest.mark.parametrize("alpha", [0.7, 4.0])
def test_gradient_is_exact_and_its_rows_sum_to_0(alpha):
    scores = normal(1, 4, 6)
    scores[1] = 0.3
    scores[2, 4] = scores[2, 1]
    weight = torch.ones(4, 6)
    weight[0, 2] = 0.0
    leaf, per_row = scores.requires_grad_(), torch.tensor([1, 2, 3, 5])
    for function in (soft_topk, lambda *given, **settings: log_soft_topk(*given, **settings).clamp(min=-1e3)):
        assert torch.autograd.gradcheck(lambda s, f=function: f(s, per_row, alpha=alpha, weight=weight), (leaf,))
    slopes = normal(2, 4, 6)
    (slope,) = torch.autograd.grad((slopes * soft_topk(leaf, 2, alpha=alpha)).sum(), leaf)
    torch.testing.assert_close(slope.sum(1), torch.zeros(4, dtype=torch.float64))


def test_columns_that_do_not_count_and_a_number_for_each_row():
    scores, per_row = normal(3, 3, 6), torch.tensor([1, 4, 2])
    weight = torch.ones(3, 6)
    weight[:, 1] = 0.0
    mask = soft_topk(scores, per_row, weight=weight)
    kept = [0, 2, 3, 4, 5]
    assert (mask[:, 1] == 0).all()
    for row, k in enumerate(per_row.tolist()):
        torch.testing.assert_close(mask[row : row + 1, kept], soft_topk(scores[row : row + 1, kept], k))
    spoiled = scores.clone()
    spoiled[:, 1] = -torch.inf
    torch.testing.assert_close(soft_topk(spoiled, per_row), mask)
    spoiled[:, 1] = torch.nan
    torch.testing.assert_close(soft_topk(spoiled, per_row, weight=weight), mask)
    whole = soft_topk(scores, torch.tensor([6, 0, 9]))
    assert whole.tolist() == [[1.0] * 6, [0.0] * 6, [1.0] * 6]


@pytest.mark.parametrize("size", [1e4, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_finite_in_low_precision(size, dtype):
    leaf = (size * normal(4, 3, 7).sign()).to(dtype).requires_grad_()
    logs = log_soft_topk(leaf, 2, alpha=10.0)
    assert logs.dtype == torch.float32
    logs.sum().backward()
    assert logs.isfinite().all()
    assert leaf.grad.isfinite().all()
    torch.testing.assert_close(logs.exp().sum(1), torch.full((3,), 2.0))


def test_rows_without_columns():
    assert soft_topk(torch.zeros(2, 0), torch.tensor([1, 1])).shape == (2, 0)
    assert soft_topk(torch.zeros(0, 4), 2).shape == (0, 4)
    assert (soft_topk(torch.zeros(2, 4), 2, weight=torch.zeros(2, 4)) == 0).all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"k": 0}, "^k: expected a whole number of at least 1, got 0"),
        ({"k": 4}, "^k: expected less than the 4 columns, got 4"),
        (
            {"k": torch.tensor([1])},
            r"^k: expected a whole number or one for each of 2 rows, got torch.int64 of shape \(1,\)",
        ),
        ({"k": 1, "alpha": 0}, "^alpha: expected a number above 0"),
        ({"k": 1, "weight": torch.ones(2, 3)}, r"^weight: expected \(2, 4\)"),
    ],
)
def test_what_does_not_fit_is_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        soft_topk(torch.zeros(2, 4), **settings)
