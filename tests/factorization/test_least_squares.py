"""Alternating least squares: values of implicit, recovery, and what is refused."""

import numpy as np
import pytest
import torch
from scipy import sparse

from references import factorization as reference
from vicinal.blockwise.blocks import block_policy
from vicinal.factorization import als

GOLDEN = np.load("tests/golden/retrieval/implicit_als.npz")


def table(rows=12, columns=9, share=0.4, seed=0, zeros=True):
    random = np.random.default_rng(seed)
    values = np.where(random.random((rows, columns)) < share, random.integers(1, 6, (rows, columns)), np.nan)
    values[3] = np.nan if zeros else 1.0
    there = ~np.isnan(values)
    at = np.nonzero(there)
    return values, sparse.csr_array((values[there], at), shape=values.shape)


@pytest.mark.parametrize("case", ["one_sweep", "ten_sweeps"])
def test_implicit_feedback_has_the_factors_and_losses_of_implicit(case):
    counts = GOLDEN["counts"]
    factors = als(
        sparse.csr_array(counts.astype(float)),
        3,
        confidence=float(GOLDEN[f"{case}__alpha"]),
        ridge=float(GOLDEN[f"{case}__reg"]),
        sweeps=int(GOLDEN[f"{case}__iters"]),
        start=torch.from_numpy(GOLDEN["v0"]),
    )
    np.testing.assert_allclose(factors.rows, GOLDEN[f"{case}__u"], atol=1e-9)
    np.testing.assert_allclose(factors.columns, GOLDEN[f"{case}__v"], atol=1e-9)
    weights = counts * GOLDEN[f"{case}__alpha"]
    mass = weights.sum() + counts.size - np.count_nonzero(counts)
    np.testing.assert_allclose(np.array(factors.objective) / mass, GOLDEN[f"{case}__losses"], rtol=1e-6)


@pytest.mark.parametrize("confidence", [None, 0.3, 8.0])
@pytest.mark.parametrize("rank", [2, 7])
def test_als_equals_numpy_row_by_row_whatever_the_blocks(confidence, rank):
    """A rank of 7 solves most rows by their few entries, one of 2 by the rank; a weight of .3 is below the others."""
    dense, entries = table()
    start = np.random.default_rng(1).normal(size=(9, rank))
    rows, columns, objective = reference.als(dense, rank, confidence, 0.2, 3, start)
    for size in (16, 1 << 22):
        with block_policy(memory_entries=size):
            ours = als(entries, rank, confidence=confidence, ridge=0.2, sweeps=3, start=torch.from_numpy(start))
        np.testing.assert_allclose(ours.rows, rows, atol=1e-9)
        np.testing.assert_allclose(ours.columns, columns, atol=1e-9)
        assert ours.objective[-1] == pytest.approx(objective)
    assert not ours.rows[3].any()


def test_conjugate_gradients_reach_the_exact_factors_as_their_residual_falls():
    _, entries = table()
    start = torch.from_numpy(np.random.default_rng(1).normal(size=(9, 4)))
    exact = als(entries, 4, confidence=2.0, ridge=0.2, sweeps=4, start=start)
    errors = []
    for share in (1e-1, 1e-4, 1e-10):
        near = als(entries, 4, confidence=2.0, ridge=0.2, sweeps=4, start=start, inexact=share)
        errors.append(float((near.rows @ near.columns.T - exact.rows @ exact.columns.T).abs().max()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-8
    # A residual beyond what rounding allows is not reached, so all rows are solved exactly.
    same = als(entries, 4, confidence=2.0, ridge=0.2, sweeps=4, start=start, inexact=1e-300)
    np.testing.assert_allclose(same.rows, exact.rows, atol=1e-9)


def test_a_matrix_of_low_rank_is_completed_from_half_its_entries():
    random = np.random.default_rng(0)
    whole = random.normal(size=(60, 3)) @ random.normal(size=(3, 50))
    whole /= 1.0
    seen = random.random(whole.shape) < 0.5
    entries = sparse.csr_array((whole[seen], np.nonzero(seen)), shape=whole.shape)
    factors = als(entries, 3, ridge=0.0, sweeps=60, generator=torch.Generator().manual_seed(0))
    error = np.linalg.norm(factors.rows @ factors.columns.T - torch.from_numpy(whole)) / np.linalg.norm(whole)
    assert error < 1e-6


@pytest.mark.parametrize("confidence", [None, 4.0])
def test_the_objective_never_rises_and_float32_stays_near(confidence):
    _, entries = table(30, 20)
    seeded = [torch.Generator().manual_seed(3) for _ in range(2)]
    wide = als(entries, 5, confidence=confidence, ridge=0.1, generator=seeded[0])
    assert all(new <= old * (1 + 1e-9) for old, new in zip(wide.objective, wide.objective[1:], strict=False))
    narrow = als(entries.astype(np.float32), 5, confidence=confidence, ridge=0.1, generator=seeded[1])
    assert narrow.rows.dtype == torch.float32
    assert narrow.objective[-1] == pytest.approx(wide.objective[-1], rel=1e-2)


def test_stored_zeros_are_values_to_complete_but_no_clicks():
    entries = sparse.csr_array((np.array([1.0, 0.0]), (np.array([0, 1]), np.array([0, 1]))), shape=(2, 2))
    start = torch.ones(2, 1, dtype=torch.float64)
    assert als(entries, 1, ridge=0.1, sweeps=1, start=start).rows[1] == 0
    counted = entries.copy()
    counted.eliminate_zeros()
    one, other = (als(each, 1, confidence=1.0, ridge=0.1, sweeps=2, start=start) for each in (entries, counted))
    assert torch.equal(one.rows, other.rows)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rank": 10}, "rank: expected a whole number of at most 9, got 10"),
        ({"ridge": -1.0}, "ridge: expected a number of at least 0, got -1"),
        ({"ridge": 0.0}, r"ridge: expected a number above 0, got 0: row 3 has 0 entries, fewer than the rank 4"),
        ({"confidence": 0.0}, "confidence: expected a number above 0"),
        ({"inexact": 1.0}, "inexact: expected a number between 0 and 1"),
        ({"sweeps": 0}, "sweeps: expected a whole number of at least 1"),
        ({"start": torch.zeros(3, 4)}, r"start: expected finite numbers \(9, 4\)"),
    ],
)
def test_bad_settings_are_told(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        als(table()[1], **{"rank": 4, **settings})


def test_bad_interactions_are_told():
    dense, entries = table()
    with pytest.raises(TypeError, match=r"^interactions: expected a sparse matrix of scipy \[m, n\], got ndarray"):
        als(dense, 2)
    entries.data[0] = np.nan
    with pytest.raises(ValueError, match=r"^interactions: expected finite numbers"):
        als(entries, 2)
    entries.data[0] = -1.0
    with pytest.raises(ValueError, match=r"^interactions: expected numbers of at least 0 with confidence="):
        als(entries, 2, confidence=1.0)
    with pytest.raises(ValueError, match=r"^interactions: expected at least one entry"):
        als(sparse.csr_array((3, 3)), 2)
    with pytest.raises(ValueError, match=r"^ridge: expected a larger number: the system of row 0 is singular"):
        als(sparse.csr_array(np.ones((4, 4))), 2, ridge=0.0, start=torch.ones(4, 2, dtype=torch.float64))
