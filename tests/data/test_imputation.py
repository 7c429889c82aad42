"""Missing numbers by matching the distributions of batches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_iris

from vicinal.data import impute_by_matching
from vicinal.transport import wasserstein

GOLDEN = Path(__file__).parents[1] / "golden/sets/tdm_batch_cost.npz"


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def holes(table, seed=0, share=0.2):
    missing = np.random.default_rng(seed).random(table.shape) < share
    return np.where(missing, np.nan, table), missing


def test_the_cost_of_two_batches_is_exact_transport():
    with np.load(GOLDEN) as data:
        x, y = (torch.from_numpy(data[key]).requires_grad_() for key in ("X1", "X2"))
        value = wasserstein(x, y)
        value.backward()
        np.testing.assert_allclose(value.detach().numpy(), data["value"], rtol=1e-12)
        np.testing.assert_allclose(x.grad.numpy(), data["dX1"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(y.grad.numpy(), data["dX2"], rtol=0, atol=1e-12)
        distance = np.linalg.norm(data["X1"][:, None] - data["X2"], axis=-1)
        assert float(value.detach()) == pytest.approx(float((data["plan"] * distance).sum()))
        assert float(wasserstein(x.detach(), x.detach()[[2, 0, 3, 1]])) == data["shuffled_value"]


def test_the_cost_has_no_order_and_its_gradient_is_right():
    x, y = normal(0, 7, 3), normal(1, 7, 3)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(wasserstein(x[order], y), wasserstein(x, y))
    distance = np.linalg.norm(x.numpy()[:, None] - y.numpy(), axis=-1)
    assert float(wasserstein(x, y)) == pytest.approx(distance[linear_sum_assignment(distance)].mean())
    assert torch.autograd.gradcheck(wasserstein, (x.requires_grad_(), y.requires_grad_()))
    same = normal(3, 4, 2).requires_grad_()
    wasserstein(same, same.detach()[[1, 0, 3, 2]]).backward()
    assert not same.grad.any()
    torch.testing.assert_close(wasserstein(1e4 * x + 1e4, 1e4 * y + 1e4), 1e4 * wasserstein(x, y))
    assert wasserstein(x.bfloat16(), y.bfloat16()).dtype == torch.float32
    with pytest.raises(ValueError, match=r"^others: expected \[n, d\] as the points"):
        wasserstein(x, y[:3])


def test_numbers_that_are_there_stay_and_what_is_missing_comes_nearer_than_means():
    x = load_iris().data
    table, missing = holes(x)
    for couplings in (0, 2):
        full = impute_by_matching(table, steps=150, batch_size=64, couplings=couplings)
        np.testing.assert_array_equal(full[~missing], x[~missing])
        scale = x.std(axis=0)
        error = np.sqrt((((full - x) / scale)[missing] ** 2).mean())
        of_means = np.sqrt((((np.nanmean(table, axis=0) - x) / scale)[missing] ** 2).mean())
        assert error < 0.75 * of_means
    np.testing.assert_array_equal(full, impute_by_matching(table, steps=150, batch_size=64, couplings=2))


def test_a_table_without_holes_is_itself_and_units_do_not_matter():
    x = normal(5, 20, 3).numpy()
    np.testing.assert_array_equal(impute_by_matching(x), x)
    table, _ = holes(x)
    one, other = (impute_by_matching(factor * table + 3, steps=20) for factor in (1, 1e4))
    np.testing.assert_allclose(1e4 * (one - 3), other - 3, rtol=1e-5, atol=1e-5)
    assert np.isfinite(impute_by_matching(table[:, :1], steps=5)).all()  # one column: no couplings
    table[:, 1] = np.where(np.isnan(table[:, 1]), np.nan, 2.0)
    assert np.abs(impute_by_matching(table, steps=5)[:, 1] - 2).max() < 1


def test_what_cannot_be_imputed_is_refused():
    table = normal(6, 8, 2).numpy()
    with pytest.raises(ValueError, match=r"^table: expected \[n, d\] with n of at least 4, got \(3, 2\)"):
        impute_by_matching(table[:3])
    with pytest.raises(ValueError, match=r"^table: expected finite numbers"):
        impute_by_matching(np.where([False, True], np.nan, table))
    with pytest.raises(ValueError, match=r"^table: expected finite numbers"):
        impute_by_matching(np.where(table > 0, np.inf, table))
    with pytest.raises(ValueError, match=r"^steps: expected"):
        impute_by_matching(table, steps=0)
