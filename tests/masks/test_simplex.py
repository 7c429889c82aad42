"""One test per promise of a simplex map, each over every registered one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from references import nona as reference
from vicinal.core import entries
from vicinal.masks import resolve_simplex, softmax

each = pytest.mark.parametrize("entry", entries("simplex"), ids=lambda e: e.name)
quick = settings(deadline=None, derandomize=True, max_examples=30)


def rows(seed, b=4, n=7, spread=1.5):
    return spread * torch.randn(b, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@each
@pytest.mark.parametrize("spread", [0.1, 1.5, 20.0])
def test_equals_numpy_reference(entry, spread):
    s = rows(0, spread=spread)
    s[1, 2] = s[1, 5]  # a tie
    s[2] = 0.7  # a flat row
    want = [getattr(reference, entry.name)(row.tolist()) for row in s]
    np.testing.assert_allclose(entry.factory(s).numpy(), want, rtol=0, atol=1e-12)


@each
@pytest.mark.parametrize("closed", [[0], [1, 4], [0, 1, 2, 3, 4, 5]])
def test_minus_infinity_gets_weight_0_and_the_rest_as_if_alone(entry, closed):
    s = rows(1)
    kept = [j for j in range(s.shape[1]) if j not in closed]
    s[:, closed] = -torch.inf
    got = entry.factory(s)
    assert (got[:, closed] == 0).all()
    torch.testing.assert_close(got[:, kept], entry.factory(s[:, kept]))


@each
def test_a_row_closed_throughout_gets_weights_0_and_gradient_0(entry):
    s = rows(2, spread=0.1)
    s[1] = -torch.inf
    s.requires_grad_()
    got = entry.factory(s)
    (got * rows(3)).sum().backward()
    assert (got[1] == 0).all()
    torch.testing.assert_close(got.sum(dim=-1), torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64))
    assert (s.grad[1] == 0).all()
    assert s.grad.isfinite().all()
    assert s.grad[0].abs().max() > 0


@each
def test_gradcheck_with_a_tie_and_closed_columns(entry):
    s = rows(4)
    s[0, 1] = s[0, 2] = s[0].max() + 0.1
    closed = torch.zeros_like(s, dtype=torch.bool)
    closed[:, 3] = closed[2, :6] = True

    def mapped(scores):
        return entry.factory(scores.masked_fill(closed, -torch.inf))

    assert torch.autograd.gradcheck(mapped, s.requires_grad_())


@each
@quick
@given(seed=st.integers(0, 10_000), shift=st.floats(-50, 50), spread=st.sampled_from([0.01, 1.0, 30.0]))
def test_keeps_what_it_declares(entry, seed, shift, spread):
    s = rows(seed, spread=spread)
    weights = entry.factory(s)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4, dtype=torch.float64))
    order = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    if "permutation-invariant" in entry.facts:
        torch.testing.assert_close(entry.factory(s[:, order]), weights[:, order])
    if "score-shift-invariant" in entry.facts:
        torch.testing.assert_close(entry.factory(s + shift), weights, rtol=1e-9, atol=1e-9)
    ranked = weights.gather(-1, s.argsort(dim=-1))
    assert (ranked.diff(dim=-1) >= -1e-12).all()  # a higher score never weighs less


@each
def test_hard_rejection_is_declared_by_exactly_the_maps_that_reject(entry):
    s = torch.tensor([[0.0, -3.0, -5.0]], dtype=torch.float64)
    assert (entry.factory(s)[0, 1:] == 0).all() == ("hard-rejection" in entry.facts)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("closed", [False, True])
def test_values_and_gradients_are_finite_for_large_scores(entry, dtype, closed):
    s = torch.tensor([[1e4, -1e4, 0.0, 1e4], [-1e4, -1e4, -1e4, -1e4], [1e4, 9e3, 1.0, -1.0]], dtype=dtype)
    if closed:
        s[:, 3] = -torch.inf
    s.requires_grad_()
    got = entry.factory(s)
    (got * torch.arange(4)).sum().backward()
    torch.testing.assert_close(got.sum(dim=-1).float(), torch.ones(3), rtol=0, atol=0.01)
    assert s.grad.isfinite().all()


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_off_by_the_rounding_of_the_result_only(entry, dtype):
    """Sums over many columns in half precision would be off by far more."""
    s = rows(5, n=300, spread=0.5).to(dtype)
    want = entry.factory(s.double())
    torch.testing.assert_close(entry.factory(s).double(), want, rtol=torch.finfo(dtype).eps, atol=1e-6)


@each
def test_no_rows(entry):
    assert entry.factory(torch.zeros(0, 3)).shape == (0, 3)


@each
def test_one_column_gets_weight_1(entry):
    assert entry.factory(torch.tensor([[-7.0], [1e4]])).tolist() == [[1.0], [1.0]]


def test_sparsemax_is_the_nearest_point_of_the_simplex(generator):
    s = rows(6)
    nearest = resolve_simplex("sparsemax")(s)
    others = torch.rand(500, 1, 7, generator=generator, dtype=torch.float64).log().neg()
    others = others / others.sum(dim=-1, keepdim=True)  # drawn from the simplex
    assert ((others - s).square().sum(dim=-1) > (nearest - s).square().sum(dim=-1)).all()


def test_a_name_or_a_callable_is_resolved_and_anything_else_refused():
    def custom(scores):
        return scores

    assert resolve_simplex("softmax") is softmax
    assert resolve_simplex(custom) is custom
    with pytest.raises(ValueError, match=r"^simplex: expected one of .*; did you mean 'entmax15'\?$"):
        resolve_simplex("entmax1.5")
    with pytest.raises(TypeError, match=r"^simplex: expected a name or a callable, got 3$"):
        resolve_simplex(3)
