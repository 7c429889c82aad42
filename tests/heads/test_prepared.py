"""A prepared bank and scores in bfloat16 change no prediction; what changed since is refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.blockwise.bfloat16_bounds import (
    Bfloat16Bank,
    Bfloat16Distances,
    bfloat16_ends,
    bfloat16_nearest,
    has_bfloat16,
)
from vicinal.heads import NONA, PreparedBank, streamed_prediction
from vicinal.masks import SoftStep, TopK

DIM = 6
MASKS = {
    "none": lambda: None,
    "s1": lambda: SoftStep(DIM, "s1"),
    "s1-all": lambda: SoftStep(DIM, "s1", extent="all"),
    "s2": lambda: SoftStep(DIM, "s2", "global"),
    "topk": lambda: TopK(5),
}
needs_bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason="this processor has no products of bfloat16")


def rows(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def bank_of(kind, count, seed):
    """Rows that bfloat16 tells apart badly."""
    if kind == "far from the origin":
        return rows(seed, count, DIM) + 500
    if kind == "whole numbers":
        return torch.randint(-2, 3, (count, DIM), generator=torch.Generator().manual_seed(seed)).float()
    if kind == "one shell":  # all but equally far from the origin, which is a query
        shell = torch.nn.functional.normalize(rows(seed, count, DIM), dim=1)
        return shell * (1 + 1e-4 * rows(seed + 1, count, 1))
    if kind == "repeated":
        return rows(seed, -(-count // 4), DIM).repeat(4, 1)[:count]
    if kind == "heavy tails":
        return rows(seed, count, DIM) / rows(seed + 1, count, 1).abs().clamp(min=1e-2)
    return rows(seed, count, DIM)


KINDS = ["normal", "far from the origin", "whole numbers", "one shell", "repeated", "heavy tails"]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("similarity", ["l2", "squared_l2", "l1", "dot", "scaled_dot", "cosine"])
def test_equals_the_dense_head_in_value_and_gradient(similarity, mask, dtype):
    queries, bank, labels = rows(0, 20, DIM, dtype=dtype), rows(1, 300, DIM, dtype=dtype), rows(2, 300, dtype=dtype)
    made = NONA(similarity, MASKS[mask]())
    made = made.double() if dtype == torch.float64 else made
    groups = torch.arange(300) % 7
    for keys in ({}, {"query_groups": groups[:20], "bank_groups": groups}):
        found = []
        for prepared in (None, PreparedBank(bank, similarity)):
            leaf = queries.clone().requires_grad_()
            got = streamed_prediction(
                leaf, bank, labels, made.similarity, made.mask, chunk_size=64, prepared=prepared, **keys
            )
            found.append((got.detach(), torch.autograd.grad(got.sum(), leaf)[0]))
        tolerance = {torch.float64: 1e-6, torch.float32: 1e-4, torch.bfloat16: 1e-2}[dtype]
        with torch.no_grad():
            dense = made(queries, bank, labels, **keys)
        torch.testing.assert_close(found[1][0], dense, rtol=0, atol=tolerance)
        torch.testing.assert_close(found[1][1], found[0][1], rtol=tolerance, atol=tolerance)


@needs_bfloat16
@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, derandomize=True, max_examples=15)
@given(seed=st.integers(0, 10_000), count=st.sampled_from([33, 64, 700]), k=st.sampled_from([1, 5, 32]))
def test_bounds_hold_and_nothing_is_missed(kind, seed, count, k):
    bank = bank_of(kind, count, seed)
    queries = torch.cat([rows(seed + 2, 20, DIM) + bank.mean(dim=0), bank[:8], bank.mean(dim=0)[None]])
    exact = (queries.double()[:, None] - bank.double()).square().sum(dim=2)
    rounded_bank = Bfloat16Distances(queries, bank, Bfloat16Bank.of(bank, bank.mean(dim=0)))
    assert rounded_bank.safe
    rounded = rounded_bank.product(slice(0, len(queries)), 0).float()
    every = slice(0, len(queries))
    for column in range(rounded.shape[1]):
        assert (rounded_bank.below(rounded[:, column], every) <= exact[:, column]).all()
        assert (rounded_bank.above(rounded[:, column], every) >= exact[:, column]).all()
    rounded_bank.limit = 1 << 30
    ends, nearest = bfloat16_ends(rounded_bank), bfloat16_nearest(rounded_bank, min(k, count))
    assert ends is not None
    assert nearest is not None
    spread = 1e-5 * exact.amax(dim=1)
    for got, want in zip(ends.values, (exact.amin(dim=1), exact.amax(dim=1)), strict=True):
        assert ((got - want).abs() <= 1e-5 * want.clamp(min=1e-6)).all() or ((got - want).abs() <= 0.1 * spread).all()
    want = exact.topk(min(k, count), dim=1, largest=False).values
    torch.testing.assert_close(nearest[0].double(), want, rtol=1e-5, atol=1e-6 * float(exact.amax()))
    torch.testing.assert_close(exact.gather(1, nearest[1]), want, rtol=1e-5, atol=1e-6 * float(exact.amax()))


@needs_bfloat16
@pytest.mark.parametrize("mask", ["s1", "s2", "topk"])
@pytest.mark.parametrize("kind", KINDS)
def test_near_ties_do_not_change_predictions(kind, mask):
    """Against the same head in float64; the fourth part of the queries are bank rows."""
    bank, labels = bank_of(kind, 900, 3), rows(4, 900)
    queries = torch.cat([rows(5, 30, DIM) + bank.mean(dim=0), bank[:10]])
    made = NONA("l2", MASKS[mask]()).requires_grad_(requires_grad=False)
    prepared = PreparedBank(bank, bfloat16=True)
    got = streamed_prediction(queries, bank, labels, made.similarity, made.mask, prepared=prepared)
    plain = streamed_prediction(queries, bank, labels, made.similarity, made.mask)
    wide = made.double()(queries.double(), bank.double(), labels.double())
    if mask == "topk" and kind == "one shell":  # which rows are nearest is decided by the last bits
        assert (got - wide).abs().mean() < 0.1
        return
    torch.testing.assert_close(got.double(), wide, rtol=0, atol=max(1e-4, 4 * float((plain - wide).abs().max())))


@needs_bfloat16
def test_rows_that_cannot_be_told_apart_take_the_long_way():
    bank = torch.ones(5000, DIM)
    rounded_bank = Bfloat16Distances(rows(0, 20, DIM), bank, Bfloat16Bank.of(bank, bank.mean(dim=0)))
    assert bfloat16_ends(rounded_bank) is None
    assert bfloat16_nearest(rounded_bank, 3) is None
    got = streamed_prediction(
        rows(0, 20, DIM),
        bank,
        torch.arange(5000.0),
        NONA().similarity,
        TopK(3),
        prepared=PreparedBank(bank, bfloat16=True),
    )
    torch.testing.assert_close(got, torch.full((20,), 2499.5))


def test_numbers_that_overflow_take_the_long_way():
    bank = rows(0, 50, DIM) * 1e17
    rounded_bank = Bfloat16Distances(bank[:20], bank, Bfloat16Bank.of(bank, bank.mean(dim=0)))
    assert not rounded_bank.safe


def test_another_bank_or_similarity_is_refused():
    bank, labels = rows(0, 30, DIM), rows(1, 30)
    prepared, queries = PreparedBank(bank), rows(2, 4, DIM)
    with pytest.raises(ValueError, match=r"^prepared: expected a PreparedBank of this bank, got one of another"):
        streamed_prediction(queries, bank.clone(), labels, prepared.similarity, prepared=prepared)
    with pytest.raises(
        ValueError, match=r"^prepared: expected a PreparedBank for Cosine\(\), got one for NegativeL2\(\)"
    ):
        streamed_prediction(queries, bank, labels, NONA("cosine").similarity, prepared=prepared)
    bank[0] += 1
    with pytest.raises(ValueError, match=r"^prepared: expected a PreparedBank of the bank as it is now, got an older"):
        streamed_prediction(queries, bank, labels, prepared.similarity, prepared=prepared)


def test_the_head_takes_it():
    bank, labels, queries = rows(0, 30, DIM), rows(1, 30), rows(2, 4, DIM)
    prepared = PreparedBank(bank)
    for chunk in (None, 8):
        torch.testing.assert_close(
            NONA(chunk_size=chunk)(queries, bank, labels, prepared=prepared), NONA()(queries, bank, labels)
        )


@pytest.mark.parametrize("family", ["s1", "s2"])
@pytest.mark.parametrize("logits", [(-20.0, -20.0, -20.0), (20.0, 20.0, 20.0), (-20.0, 20.0, 9.0), (9.0, -9.0, -9.0)])
def test_extreme_steps_stream_as_they_are(family, logits):
    mask = SoftStep(DIM, family, "global")
    with torch.no_grad():
        mask.logits.copy_(torch.tensor(logits))
    inputs = [rows(0, 30, DIM).requires_grad_(), rows(1, 400, DIM).requires_grad_(), rows(2, 400)]
    found = []
    for head in (NONA(mask=mask), NONA(mask=mask, chunk_size=90)):
        prediction = head(*inputs)
        found.append((prediction, *torch.autograd.grad(prediction.square().sum(), [*inputs[:2], mask.logits])))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=0, atol=1e-3)
    assert all(bool(value.isfinite().all()) for value in found[1])
