"""Pruned predictions are the same, and skip most of a bank of clusters."""

import pytest
import torch

from vicinal.blockwise import tally
from vicinal.heads import NONA, streamed_prediction
from vicinal.masks import SoftStep, TopK
from vicinal.similarity import resolve_similarity

pytestmark = pytest.mark.sweep(3)

CHUNK = 64


def clusters(count=16, size=2 * CHUNK, dim=4, dtype=torch.float64):
    """Tight clusters, one after the other, and queries near some of them."""
    generator = torch.Generator().manual_seed(0)
    centers = 10 * torch.randn(count, 1, dim, generator=generator, dtype=dtype)
    bank = (centers + 0.3 * torch.randn(count, size, dim, generator=generator, dtype=dtype)).flatten(0, 1)
    queries = centers[::3, 0] + 0.3 * torch.randn(len(centers[::3]), dim, generator=generator, dtype=dtype)
    return queries, bank, torch.randn(len(bank), generator=generator, dtype=dtype)


def s1(extent="admissible"):
    """S1 that rejects everything beyond a tenth of the range."""
    mask = SoftStep(4, "s1", "global", extent).double()
    with torch.no_grad():
        mask.logits.copy_(torch.tensor([2.5, 0.0, -1.0]))
    return mask


HEADS = {
    "s1": (s1, "softmax"),
    "s1-all": (lambda: s1("all"), "softmax"),
    "s1-sparsemax": (s1, "sparsemax"),
    "topk": (lambda: TopK(5), "softmax"),
    "topk-entmax15": (lambda: TopK(5), "entmax15"),
    "sparsemax": (lambda: None, "sparsemax"),
    "entmax15": (lambda: None, "entmax15"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("similarity", ["l2", "squared_l2", "l1", "dot", "scaled_dot", "cosine"])
@pytest.mark.parametrize("name", HEADS)
def test_equals_the_dense_head(name, similarity, dtype):
    queries, bank, labels = (value.to(dtype) for value in clusters(dtype=torch.float64))
    mask, simplex = HEADS[name]
    head = NONA(similarity, mask(), simplex).to(dtype)
    ids = torch.arange(len(bank))
    scores = resolve_similarity(similarity)(queries, bank)
    nearest = scores.argmax(dim=1)
    rounding = 4 * torch.finfo(dtype).eps * float(scores.abs().max())  # of a score, and so of the log of a weight
    keys = {"query_ids": nearest, "bank_ids": ids, "query_groups": nearest % 5, "bank_groups": ids % 5}
    for identity in ({}, keys):
        with torch.no_grad():
            want = head(queries, bank, labels, **identity)
            got = streamed_prediction(
                queries, bank, labels, head.similarity, head.mask, head.simplex, chunk_size=CHUNK, **identity
            )
        torch.testing.assert_close(got, want, rtol=0, atol=(1e-6 if dtype == torch.float64 else 1e-4) + rounding)


@pytest.mark.parametrize("name", ["s1", "topk", "sparsemax"])
def test_at_least_five_times_fewer_blocks_of_clustered_data_are_scored(name):
    queries, bank, labels = clusters()
    mask, simplex = HEADS[name]
    head = NONA("l2", mask(), simplex).double()
    with torch.no_grad(), tally() as work:
        streamed_prediction(queries, bank, labels, head.similarity, head.mask, head.simplex, chunk_size=CHUNK)
    assert 0 < work["scored"] < 0.2 * work["scorable"]


def test_without_clusters_nothing_is_skipped_and_nothing_is_wrong():
    generator = torch.Generator().manual_seed(0)
    queries, bank = (torch.randn(n, 40, generator=generator).double() for n in (20, 1000))
    labels, head = torch.arange(1000.0).double(), NONA(mask=TopK(3))
    with tally() as work:
        got = streamed_prediction(queries, bank, labels, head.similarity, head.mask, chunk_size=100)
    torch.testing.assert_close(got, head(queries, bank, labels))
    assert work["scorable"] == 0  # bounds that are too loose are not tried


def test_ties_with_the_kth_row_are_kept():
    bank = torch.arange(8.0)[:, None].repeat_interleave(50, dim=0) * 10
    labels = torch.arange(400.0)
    head = NONA(mask=TopK(3))
    got = streamed_prediction(bank[:1], bank, labels, head.similarity, head.mask, chunk_size=50)
    torch.testing.assert_close(got, labels[:50].mean()[None])
