"""Streamed quantiles are those of the dense weights."""

import pytest
import torch

from vicinal.heads import NONA
from vicinal.heads.intervals import weighted_quantile
from vicinal.heads.members import label_quantiles
from vicinal.masks import SoftStep, TopK
from vicinal.similarity import NegativeSquaredL2


@pytest.mark.parametrize("simplex", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("mask", ["none", "s1", "s2", "topk"])
@pytest.mark.parametrize(("rows", "chunk"), [(1, None), (7, 2), (3000, 256), (3000, None)])
def test_equal_to_the_quantiles_of_dense_weights(simplex, mask, rows, chunk):
    torch.manual_seed(rows)
    made = {"none": None, "topk": TopK(9)}.get(mask) if mask in ("none", "topk") else SoftStep(4, mask).double()
    head = NONA("l2", made, simplex)
    queries, bank = torch.randn(12, 4).double(), torch.randn(rows, 4).double()
    labels = torch.randn(rows).double().mul(3).round()  # ties
    identity = {} if rows == 1 else {"query_ids": torch.arange(12), "bank_ids": torch.arange(rows)}
    with torch.no_grad():
        weights = head.weights(queries, bank, **identity)
    levels = [0.0, 0.05, 0.5, 0.95, 1.0]
    streamed = NONA("l2", made, simplex, chunk_size=chunk)
    found = label_quantiles(streamed, queries, bank, labels, levels, **identity)
    for level, values in zip(levels[:-1], found.T[:-1], strict=True):
        torch.testing.assert_close(values, weighted_quantile(weights, labels, level), atol=0, rtol=0)
    assert (found[:, -1] <= labels.max()).all()
    assert (found[:, -1] >= found[:, -2]).all()


@pytest.mark.parametrize("seed", [13, 73, 79, 146])
def test_the_nearest_row_keeps_its_weight_however_its_distance_rounds(seed):
    """Of these twins a product of blocks is a last digit above the exact distance: the row was lost, and all weight."""
    generator = torch.Generator().manual_seed(seed)
    bank = torch.randn(64, 2, generator=generator, dtype=torch.float64)
    bank[1::2] = bank[::2] + 1e-3 * torch.randn(32, 2, generator=generator, dtype=torch.float64)
    bank, labels, groups = bank.float(), torch.randperm(64, generator=generator).double(), torch.arange(64) // 2
    who = {"query_groups": groups, "bank_groups": groups}
    weights = NONA(NegativeSquaredL2(), TopK(1)).double().weights(bank.double(), bank, **who)
    expected = torch.stack([weighted_quantile(weights, labels, level) for level in (0.25, 0.75)], dim=1)
    found = label_quantiles(NONA(NegativeSquaredL2(), TopK(1)), bank.double(), bank, labels, (0.25, 0.75), **who)
    assert torch.equal(found, expected)
    apart = label_quantiles(
        NONA(NegativeSquaredL2(), TopK(1), chunk_size=7), bank.double(), bank, labels, (0.25, 0.75), **who
    )
    assert torch.equal(apart, expected)
