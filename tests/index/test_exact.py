"""Exact search misses nothing, whatever is scanned."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from references.search import search as sorted_search
from vicinal.core import entries
from vicinal.index import ExactIndex, NeighborBank, scanning
from vicinal.similarity import Similarity

SIMILARITIES = [
    found.name
    for found in entries("similarity")
    if found.name in {"l1", "l2", "squared_l2", "dot", "scaled_dot", "cosine"}
]


@given(
    st.sampled_from(SIMILARITIES),
    st.sampled_from([0.0, 30.0, 3000.0]),
    st.sampled_from([1e-3, 1.0]),
    st.integers(1, 60),
    st.integers(0, 10**6),
)
def test_a_scan_gives_the_hits_of_a_sort(similarity, offset, spread, k, seed):
    generator = torch.Generator().manual_seed(seed)
    vectors = (torch.randn(90, 5, generator=generator) * spread + offset)[
        torch.randint(0, 90, (200,), generator=generator)
    ]
    queries = torch.cat([vectors[:3], torch.randn(4, 5, generator=generator) * spread + offset])
    ids = torch.randperm(1000, generator=generator)[:200]
    index = ExactIndex(5, similarity)
    index.add(ids, vectors)
    old, scanning.BLOCK = scanning.BLOCK, 64
    try:
        hits = index.search(queries, k)
    finally:
        scanning.BLOCK = old
    if similarity == "l1":  # its scores are those of the module, which computes in float32
        wanted, scores = sorted_search(similarity, queries.numpy(), ids.numpy(), vectors.numpy(), k)
        np.testing.assert_allclose(hits.scores, scores, rtol=1e-5, atol=1e-6 * (offset + 1))
        return
    wanted, scores = sorted_search(similarity, queries.numpy(), ids.numpy(), vectors.numpy(), k)
    np.testing.assert_allclose(hits.scores, scores, rtol=3e-7, atol=1e-7 if similarity == "cosine" else 0)
    if similarity not in ("dot", "scaled_dot", "cosine"):  # whose numpy sums round otherwise
        np.testing.assert_array_equal(hits.ids, wanted)


@pytest.mark.slow
def test_blocks_do_not_matter(monkeypatch, generator):
    vectors, queries = torch.randn(500, 6, generator=generator), torch.randn(300, 6, generator=generator)
    index = ExactIndex(6)
    index.add(range(500), vectors)
    found = []
    for block in (1, 7, 500, 4096):
        monkeypatch.setattr("vicinal.index.exact.BLOCK", block)
        found.append(index.search(queries, 9))
    assert all(torch.equal(f.ids, found[0].ids) and torch.equal(f.scores, found[0].scores) for f in found)


@pytest.mark.parametrize("similarity", ["l2", "squared_l2"])
def test_near_rows_far_from_the_center_are_not_missed(similarity, monkeypatch, generator):
    """Their products in float32 are wrong by more than the distances of all rows of their side."""
    monkeypatch.setattr("vicinal.index.exact.BLOCK", 16)
    sides = torch.where(torch.arange(200) % 2 == 0, 1e3, -1e3)[:, None]
    vectors, ids = sides + 0.01 * torch.randn(200, 5, generator=generator), torch.arange(200)
    index = ExactIndex(5, similarity)
    index.add(ids, vectors)
    wanted, _ = sorted_search(similarity, vectors[:9].numpy(), ids.numpy(), vectors.numpy(), 7)
    np.testing.assert_array_equal(index.search(vectors[:9], 7).ids, wanted)


@pytest.mark.parametrize("scale", [1e-20, 1e18])
@pytest.mark.parametrize("similarity", ["l2", "squared_l2", "dot", "cosine"])
def test_very_small_and_large_numbers(similarity, scale, generator):
    vectors = torch.randn(50, 4, generator=generator) * scale
    index = ExactIndex(4, similarity)
    index.add(range(50), vectors)
    hits = index.search(vectors[:5], 50)
    assert not hits.scores.isnan().any()
    assert (hits.ids.sort(dim=1).values == torch.arange(50)).all()
    if similarity == "l2":
        assert hits.ids[:, 0].tolist() == [0, 1, 2, 3, 4]


class Nearness(Similarity):
    """A similarity of somebody else."""

    def score(self, queries, bank):
        return torch.exp(-torch.cdist(queries, bank))


def test_a_similarity_of_somebody_else_will_do(generator, tmp_path):
    vectors = torch.randn(60, 4, generator=generator)
    index, plain = ExactIndex(4, Nearness()), ExactIndex(4)
    for one in (index, plain):
        one.add(range(60), vectors)
    hits = index.search(vectors[:6], 4)
    assert torch.equal(hits.ids, plain.search(vectors[:6], 4).ids)
    torch.testing.assert_close(hits.scores[:, 0], torch.ones(6), atol=1e-3, rtol=0)
    with pytest.raises(ValueError, match=r"^similarity: expected one with a name, to be saved, got Nearness"):
        index.save(tmp_path / "index")


def test_a_shared_bank_is_searched_by_key_and_changed_by_itself(generator):
    vectors = torch.randn(30, 4, generator=generator)
    bank = NeighborBank(4)
    bank.add([f"n{i}" for i in range(30)], vectors, groups=[i // 3 for i in range(30)])
    index = ExactIndex(4, bank=bank)
    hits = index.search(vectors[:5], 1)
    assert bank.ids_of_keys(hits.ids[:, 0]).tolist() == [f"n{i}" for i in range(5)]
    others = index.search(vectors[:5], 3, exclude=bank.hidden_keys([f"n{i}" for i in range(5)], [0, 0, 0, 1, 9]))
    hidden = [{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {3, 4, 5}, {4, 27, 28, 29}]
    assert not any(own & set(line) for own, line in zip(hidden, others.ids.tolist(), strict=True))
    assert (others.ids >= 0).all()
    bank.remove(["n2"])
    assert not (index.search(vectors[:5], 29).ids == 2).any()
    index.remove([2])
    index.add(bank.keys, bank.vectors)
    with pytest.raises(ValueError, match=r"^ids: expected rows that the bank that is searched has no more, got 3"):
        index.remove([3])
    with pytest.raises(ValueError, match=r"^ids: expected rows of the bank that is searched, got 99; add them"):
        index.add([99], torch.zeros(1, 4))


def test_hidden_keys_are_those_of_the_id_and_the_group():
    bank = NeighborBank(1)
    bank.add([10, 11, 12, 13], torch.zeros(4, 1), groups=["x", "y", "x", "z"])
    assert bank.hidden_keys([10, 99], ["x", "w"]).tolist() == [[10, 10, 12], [-1, -1, -1]]
    assert bank.hidden_keys([10, 99]).tolist() == [[10], [-1]]
    with pytest.raises(ValueError, match=r"^ids: expected ids or groups of the queries, got neither"):
        bank.hidden_keys()
