"""Streamed quantiles are those of the dense weights."""

import pytest
import torch

from vicinal.heads import NONA, streamed_quantiles, weighted_quantile
from vicinal.masks import SoftStep, TopK


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
    found = streamed_quantiles(
        queries, bank, labels, levels, head.similarity, made, head.simplex, chunk_size=chunk, **identity
    )
    for level, values in zip(levels[:-1], found.T[:-1], strict=True):
        torch.testing.assert_close(values, weighted_quantile(weights, labels, level), atol=0, rtol=0)
    assert (found[:, -1] <= labels.max()).all()
    assert (found[:, -1] >= found[:, -2]).all()
