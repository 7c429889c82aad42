"""Promises of the head over fetched rows: its bound is never passed, and all rows give the head itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.heads import NONA, ApproximateNONA
from vicinal.index import ExactIndex, NeighborBank, open_index
from vicinal.masks import SoftStep, TopK

SIMILARITIES = ("l2", "l1", "squared_l2", "cosine", "dot", "scaled_dot")
MASKS = ("none", "s1", "s2", "topk", "s1 global", "s2 all")


def make_mask(name, dim, seed=0):
    torch.manual_seed(seed)
    if name == "none":
        return None
    if name == "topk":
        return TopK(5)
    family, _, more = name.partition(" ")
    mask = SoftStep(
        dim, family, "global" if more == "global" else "pointwise", "all" if more == "all" else "admissible"
    )
    with torch.no_grad():
        for value in mask.parameters():
            value.copy_(torch.randn_like(value) * 1.5)
    return mask.double()


def make_case(similarity, mask, simplex, *, rows=300, dim=3, seed=0, scale=3.0, grid=False, ids=False, groups=False):
    """A head, a bank in two clouds, queries, and who may not see whom."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(rows, dim, generator=generator) * scale
    vectors[rows // 2 :] += 4 * scale
    if grid:
        vectors = vectors.round()
    labels = torch.randn(rows, generator=generator, dtype=torch.float64)
    bank = NeighborBank(dim)
    own = torch.arange(rows) // 7 if groups else None
    bank.add(range(10, rows + 10), vectors, labels, groups=own)
    queries = vectors[:: max(1, rows // 12)].double() + 0.3 * torch.randn(1, dim, generator=generator).double()
    asked = {}
    if ids:
        asked["ids"] = [10 + i for i in range(0, rows, max(1, rows // 12))][: len(queries)]
    if groups:
        asked["groups"] = [i // 7 for i in range(0, rows, max(1, rows // 12))][: len(queries)]
    head = NONA(similarity, make_mask(mask, dim, seed), simplex)
    return head, bank, queries, asked


def true_weights(head, bank, queries, asked):
    identity = {}
    if "ids" in asked:
        identity |= {"query_ids": bank.positions(asked["ids"]), "bank_ids": torch.arange(len(bank))}
    if "groups" in asked:
        identity |= {"query_groups": torch.tensor(asked["groups"]), "bank_groups": bank.group_codes}
    with torch.no_grad():
        return head.weights(queries, bank.vectors.double(), **identity)


def apart(weights, wanted):
    """Half the sum of absolute differences, from dense weights of the rows that were listed."""
    return (weights - wanted).abs().sum(dim=1) / 2


def spread_out(found, rows):
    dense = torch.zeros(len(found.weights), rows, dtype=torch.float64)
    return dense.scatter_add_(1, found.positions.clamp(min=0), found.weights)


@settings(max_examples=3 * settings().max_examples)
@given(
    similarity=st.sampled_from(SIMILARITIES),
    mask=st.sampled_from(MASKS),
    simplex=st.sampled_from(["softmax", "sparsemax", "entmax15"]),
    rows=st.sampled_from([1, 2, 9, 60, 300]),
    dim=st.sampled_from([1, 3, 17]),
    first=st.sampled_from([1, 2, 8, 40]),
    scale=st.sampled_from([1e-3, 0.3, 3.0, 300.0]),
    grid=st.booleans(),
    ids=st.booleans(),
    groups=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_bound_is_never_passed(similarity, mask, simplex, rows, dim, first, scale, grid, ids, groups, seed):
    if rows <= 9 and (groups or (ids and rows == 1)):
        groups, ids = False, rows > 1
    head, bank, queries, asked = make_case(
        similarity, mask, simplex, rows=rows, dim=dim, seed=seed, scale=scale, grid=grid, ids=ids, groups=groups
    )
    near = ApproximateNONA(head, ExactIndex(dim, similarity, bank=bank), bank, tolerance=1.0, first=first)
    assert near.proven
    found = near.predict(queries, **asked, top=rows)
    wanted = true_weights(head, bank, queries, asked)
    assert (apart(spread_out(found, rows), wanted) <= found.left_out + 1e-7).all()
    truth = wanted @ bank.labels
    assert ((found.prediction - truth).abs() <= found.error + 1e-6 * (1 + truth.abs())).all()


@pytest.mark.sweep(4)
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("simplex", ["softmax", "sparsemax", "entmax15"])
def test_with_all_rows_it_is_the_head(similarity, mask, simplex):
    head, bank, queries, asked = make_case(similarity, mask, simplex, ids=True, groups=True)
    near = ApproximateNONA(head, ExactIndex(3, similarity, bank=bank), bank, tolerance=0.0, first=300)
    found = near.predict(queries, **asked, top=300)
    wanted = true_weights(head, bank, queries, asked)
    torch.testing.assert_close(spread_out(found, 300), wanted, atol=1e-7, rtol=1e-6)
    assert (found.left_out <= 1e-12).all()


@pytest.mark.parametrize("mask", MASKS)
def test_more_rows_are_fetched_until_the_tolerance_is_met(mask):
    head, bank, queries, asked = make_case("l2", mask, "softmax", rows=900, ids=True)
    index = ExactIndex(3, "l2", bank=bank)
    wanted = true_weights(head, bank, queries, asked) @ bank.labels
    before = 0.0
    for tolerance in (0.9, 1e-2, 1e-6, 0.0):
        found = ApproximateNONA(head, index, bank, tolerance=tolerance, first=4).predict(queries, **asked)
        assert (found.left_out <= tolerance).all()
        assert float(found.fetched.double().mean()) >= before
        before = float(found.fetched.double().mean())
        assert ((found.prediction - wanted).abs() <= found.error + 1e-7).all()


@pytest.mark.parametrize(("mask", "simplex"), [("topk", "softmax"), ("none", "sparsemax"), ("none", "entmax15")])
def test_sparse_weights_are_exact_from_few_rows(mask, simplex):
    head, bank, queries, _ = make_case("l2", mask, simplex, rows=4000, scale=30.0)
    found = ApproximateNONA(head, ExactIndex(3, bank=bank), bank, tolerance=0.0, first=16).predict(queries)
    assert (found.left_out == 0).all()
    assert int(found.fetched.max()) <= 64
    torch.testing.assert_close(found.prediction, true_weights(head, bank, queries, {}) @ bank.labels)


def test_rejection_makes_few_rows_exact():
    head, bank, queries, _ = make_case("l2", "s1", "softmax", rows=4000, dim=2)
    with torch.no_grad():  # rejects all but the nearest tenth of the range
        head.mask.projection.weight.zero_()
        head.mask.projection.bias.copy_(torch.tensor([6.0, -4.0, 0.0]))
    found = ApproximateNONA(head, ExactIndex(2, bank=bank), bank, tolerance=0.2, first=256).predict(queries)
    wanted = true_weights(head, bank, queries, {}) @ bank.labels
    assert ((found.prediction - wanted).abs() <= found.error + 1e-7).all()
    assert int(found.fetched.max()) < len(bank)


def test_far_rows_count_little_once_one_is_fetched():
    """20,000 far rows: counted at the score of a near row they weigh much, at that of one of them nothing."""
    bank = NeighborBank(2)
    near = torch.rand(100, 2)
    bank.add(range(20100), torch.cat([near, torch.rand(20000, 2) + 60]), torch.rand(20100, dtype=torch.float64))
    found = ApproximateNONA(NONA(), ExactIndex(2, bank=bank), bank, tolerance=1e-9, first=100).predict(
        near[:5].double()
    )
    assert (found.fetched == 200).all()


def test_classes_are_shares():
    head, bank, queries, _ = make_case("l2", "none", "softmax")
    places = (bank.labels > 0).double()
    bank.update(bank.ids, labels=places)
    near = ApproximateNONA(head, ExactIndex(3, bank=bank), bank, classes=2, tolerance=1e-8)
    found = near.predict(queries)
    wanted = true_weights(head, bank, queries, {}) @ torch.stack([1 - places, places], dim=1)
    torch.testing.assert_close(found.prediction, wanted, atol=1e-7, rtol=0)
    assert torch.equal(found.error, found.left_out)


def test_the_bound_holds_after_rows_come_and_go():
    head, bank, queries, _ = make_case("l2", "s2", "softmax", rows=200)
    near = ApproximateNONA(head, ExactIndex(3, bank=bank), bank, tolerance=1.0, first=8)
    for step in range(6):
        far = torch.randn(40, 3) * 10 * (step + 1)
        new = torch.arange(1000 + 40 * step, 1040 + 40 * step)
        bank.add(new, far, torch.randn(40, dtype=torch.float64))
        near.added(new)
        gone = torch.from_numpy(bank.ids[:: 7 + step].copy())
        bank.remove(gone)
        near.removed(gone)
        wanted = true_weights(head, bank, queries, {})
        found = near.predict(queries, top=len(bank))
        assert (apart(spread_out(found, len(bank)), wanted) <= found.left_out + 1e-7).all()


@pytest.mark.parametrize("name", ["faiss:IVF16,Flat", "faiss:HNSW32"])
def test_an_approximate_index_bounds_what_it_returned(name):
    pytest.importorskip("faiss", reason="faiss-cpu is an optional package")
    head, bank, queries, _ = make_case("l2", "none", "softmax", rows=2000)
    index = open_index(name, dim=3, bank=bank)
    index.add(bank.keys, bank.vectors)
    near = ApproximateNONA(head, index, bank, tolerance=1e-3)
    assert not near.proven
    found = near.predict(queries)
    wanted = true_weights(head, bank, queries, {}) @ bank.labels
    torch.testing.assert_close(found.prediction, wanted, atol=1e-2, rtol=0)


def test_what_cannot_be_bounded_is_refused():
    head, bank, _, _ = make_case("l2", "none", "softmax", rows=9)
    with pytest.raises(ValueError, match=r"^head: expected a mask and a simplex map of this library"):
        ApproximateNONA(NONA(mask=torch.nn.Identity()), ExactIndex(3, bank=bank), bank)
    with pytest.raises(ValueError, match=r"^similarity: expected l1, l2"):
        ApproximateNONA(NONA("snr"), ExactIndex(3, "snr", bank=bank), bank)
    with pytest.raises(ValueError, match=r"^bank: expected one with labels"):
        ApproximateNONA(head, ExactIndex(3, bank=bank), NeighborBank(3))
    lonely = NeighborBank(3)
    lonely.add([4], torch.zeros(1, 3), torch.zeros(1))
    near = ApproximateNONA(NONA(), ExactIndex(3, bank=lonely), lonely)
    with pytest.raises(ValueError, match=r"^bank: expected a row of another id and group for every query"):
        near.predict(torch.zeros(1, 3), ids=[4])


def test_no_queries_get_no_predictions():
    head, bank, _, _ = make_case("l2", "s2", "softmax", rows=9)
    found = ApproximateNONA(head, ExactIndex(3, bank=bank), bank).predict(torch.zeros(0, 3), top=2)
    assert found.prediction.shape == (0,)
    assert found.weights.shape == (0, 2)
