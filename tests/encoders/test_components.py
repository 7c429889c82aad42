"""Wide parts of rows as their leading principal components."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.encoders.components import Components


def random(n, width, seed=0):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("n", [5, 8, 60])
def test_equals_the_svd_of_numpy(n):
    x = random(n, 8) * torch.linspace(1, 4, 8) + 3
    u, s, v = np.linalg.svd((x - x.mean(0)).numpy(), full_matrices=False)
    size = min(4, n - 1)
    signs = np.sign(v[np.arange(size), np.abs(v[:size]).argmax(1)])
    want = u[:, :size] * s[:size] * signs / (s[0] / np.sqrt(n))
    got = Components([8], [False], 4).fit(x)(x)
    np.testing.assert_allclose(got[:, :size], want, atol=1e-10)
    assert got.shape == (n, 4)
    assert got[:, 0].std(correction=0).item() == pytest.approx(1)


def test_plain_parts_pass():
    x = random(20, 9)
    components = Components([2, 6, 1], [True, False, True], 3).fit(x)
    assert components.dim == 6
    got = components(x.float())
    assert got.dtype == torch.float64
    torch.testing.assert_close(got[:, [0, 1, 5]], x[:, [0, 1, 8]].float().double(), rtol=0, atol=0)
    assert set(components.state_dict()) == {"mean1", "basis1"}
    assert not Components([3], [True]).state_dict()


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 12),
    width=st.integers(1, 6),
    rank=st.integers(0, 6),
    scale=st.sampled_from([1e-150, 1.0, 1e150]),
    shift=st.sampled_from([0.0, 1.0, 1e3]),
    seed=st.integers(0, 99),
)
def test_any_rank_scale_and_order_of_rows(n, width, rank, scale, shift, seed):
    x = (random(n, rank, seed) @ random(rank, width, seed + 1) + shift) * scale
    got = Components([width], [False], 30).fit(x)(x)
    assert got.shape == (n, width)
    some = min(n - 1, width, rank)
    assert (got[:, some:].abs() < 1e-7).all()
    assert got.abs().max() <= n**0.5 + 1e-6
    if some:
        assert got[:, 0].std(correction=0).item() == pytest.approx(1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    other = Components([width], [False], 30).fit(x[order])(x)
    torch.testing.assert_close(torch.cdist(got, got), torch.cdist(other, other), rtol=0, atol=1e-5)


def test_directions_without_variance_say_nothing_of_later_rows():
    x = torch.zeros(9, 3).double()
    x[:, 1] = torch.arange(9)
    components = Components([3], [False]).fit(x + 0.1)
    assert components.basis0.count_nonzero() == 1
    assert components.basis0[1, 0] > 0
    assert not Components([3], [False]).fit(torch.full((9, 3), 0.1))(random(4, 3)).any()


def test_state_and_gradients():
    components = Components([2, 5], [True, False], 3).fit(random(20, 7))
    fresh = Components([2, 5], [True, False], 3)
    fresh.load_state_dict(components.state_dict())
    x = random(4, 7, 1).requires_grad_()
    torch.testing.assert_close(fresh(x), components(x), rtol=0, atol=0)
    assert torch.autograd.gradcheck(components, x)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Components([2], [True, False]), "plain: expected one flag"),
        (lambda: Components([], []), "plain: expected one flag"),
        (lambda: Components([0], [True]), "widths: expected"),
        (lambda: Components([2], [False]).fit(random(0, 2)), "features: expected finite .* got no rows"),
        (lambda: Components([2], [False]).fit(random(3, 2) / 0), "features: expected finite .* got others"),
        (lambda: Components([2], [False])(random(3, 4)), r"features: expected \[n, 2\], got \(3, 4\)"),
    ],
)
def test_what_does_not_fit_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
