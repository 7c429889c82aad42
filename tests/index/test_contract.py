"""One battery over all indexes: what the contract says holds for each."""

import numpy as np
import pytest
import torch

from index.conftest import COMPLETE
from references.search import search as sorted_search
from vicinal.index import load_index

pytestmark = pytest.mark.sweep(3)


def filled(make, rows, **settings):
    index = make(**settings)
    index.add(*rows)
    return index


def recall(found, wanted):
    return np.mean([len(set(f) & set(w)) / len(w) for f, w in zip(found.tolist(), wanted.tolist(), strict=True)])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("similarity", ["l2", "squared_l2", "dot", "scaled_dot", "cosine"])
def test_search_finds_what_a_sort_of_all_scores_finds(make, backend, rows, generator, similarity, record_property):
    ids, vectors = rows
    index = filled(make, rows, similarity=similarity)
    queries = torch.randn(20, 8, generator=generator)
    hits = index.search(queries, 32)
    wanted, scores = sorted_search(similarity, queries.numpy(), ids.numpy(), vectors.numpy(), 32)
    reached = recall(hits.ids, wanted)
    record_property("recall@32", float(reached))
    if backend in COMPLETE:
        assert reached == 1
        np.testing.assert_allclose(hits.scores, scores, rtol=1e-5, atol=2e-5)
    if index.exact:
        np.testing.assert_array_equal(hits.ids, wanted)
        np.testing.assert_allclose(hits.scores, scores, rtol=2e-7)
    assert reached >= {"faiss:IVF8,Flat": 0.6}.get(backend, 0.95)
    own = {int(i): n for n, i in enumerate(ids)}
    exact = np.array([[own[i] for i in line] for line in hits.ids.tolist()])
    values = sorted_search(similarity, queries.numpy(), np.arange(300), vectors.numpy(), 300)
    by_row = np.empty((20, 300), dtype=np.float32)
    np.put_along_axis(by_row, values[0], values[1], axis=1)
    np.testing.assert_allclose(hits.scores, np.take_along_axis(by_row, exact, axis=1), rtol=1e-5, atol=2e-5)


def test_hits_are_ordered_typed_and_distinct(make, rows, generator):
    hits = filled(make, rows).search(torch.randn(7, 8, generator=generator, dtype=torch.float64), 20)
    assert hits.ids.shape == hits.scores.shape == (7, 20)
    assert hits.ids.dtype == torch.int64
    assert hits.scores.dtype == torch.float32
    assert (hits.scores.diff(dim=1) <= 0).all()
    assert all(len(set(line) - {-1}) == sum(i >= 0 for i in line) for line in hits.ids.tolist())


def test_removed_rows_are_not_found_and_can_come_back(make, rows):
    ids, vectors = rows
    index = filled(make, rows)
    index.remove(ids[::2])
    assert len(index) == 150
    assert not index.has(ids[::2].numpy()).any()
    assert index.has(ids[1::2].numpy()).all()
    assert not np.isin(index.search(vectors[::2], 10).ids, ids[::2]).any()
    index.add(ids[:100:2], -vectors[:100:2])
    assert len(index) == 200
    hits = index.search(-vectors[:20:2], 1)
    assert hits.ids[:, 0].tolist() == ids[:20:2].tolist()
    np.testing.assert_allclose(hits.scores, 0, atol=1e-3)


def test_all_rows_removed_is_an_empty_index(make, rows):
    index = filled(make, rows)
    index.remove(rows[0])
    assert len(index) == 0
    assert (index.search(rows[1][:3], 2).ids == -1).all()
    index.add(*rows)
    assert len(index) == 300


def test_saved_and_loaded_it_finds_the_same(make, place, rows, tmp_path, generator):
    ids, vectors = rows
    index = filled(make, rows, similarity="cosine")
    index.remove(ids[:30])
    queries = torch.randn(9, 8, generator=generator)
    before = index.search(queries, 12)
    index.save(tmp_path / "index")
    index.close()
    loaded = load_index(tmp_path / "index", **place)
    assert type(loaded) is type(index)
    assert repr(loaded.similarity) == "Cosine()"
    assert len(loaded) == 270
    after = loaded.search(queries, 12)
    assert torch.equal(before.ids, after.ids)
    torch.testing.assert_close(before.scores, after.scores)
    loaded.add(ids[:30], vectors[:30])
    loaded.remove(ids[30:40])
    assert loaded.search(vectors[:30], 1).ids[:, 0].tolist() == ids[:30].tolist()
    loaded.save(tmp_path / "index")
    loaded.close()
    again = load_index(tmp_path / "index", **place)
    assert len(again) == 290
    again.close()


def test_fewer_rows_than_asked_for_are_filled_up(make, backend, rows):
    ids, vectors = rows[0][:10], rows[1][:10]
    index = filled(make, (ids, vectors))
    hits = index.search(vectors[:2], 15)
    assert (hits.ids[:, 10:] == -1).all()
    assert (hits.scores[:, 10:] == -torch.inf).all()
    found = [i for i in hits.ids[0].tolist() if i >= 0]
    assert hits.ids[0, : len(found)].tolist() == found
    assert set(found) == set(ids.tolist()) if backend in COMPLETE else set(found) < set(ids.tolist()) | {-1}


def test_an_empty_index_gives_no_hits(make):
    index = make()
    assert len(index) == 0
    hits = index.search(torch.zeros(3, 8), 2)
    assert hits.ids.tolist() == [[-1, -1]] * 3
    assert hits.scores.tolist() == [[-torch.inf] * 2] * 3
    index.add(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 8))
    index.remove([])
    assert index.search(torch.zeros(0, 8), 2).ids.shape == (0, 2)


def test_of_equal_scores_the_lower_id_comes_first(make, backend, rows):
    index = make()
    index.add(rows[0], torch.ones(300, 8))
    hits = index.search(torch.zeros(2, 8), 300)
    for line in hits.ids.tolist():
        found = [i for i in line if i >= 0]
        assert found == sorted(found)
        assert found == sorted(rows[0].tolist()) or backend not in COMPLETE
    if index.exact:
        assert index.search(torch.zeros(1, 8), 5).ids.tolist() == [sorted(rows[0].tolist())[:5]]


def test_excluded_ids_are_passed_over(make, backend, rows):
    ids, vectors = rows
    index = filled(make, rows)
    own = index.search(vectors[:9], 6)
    others = index.search(vectors[:9], 5, exclude=ids[:9])
    assert (own.ids[:, 0] == ids[:9]).all()
    assert torch.equal(own.ids[:, 1:], others.ids)
    two = index.search(vectors[:9], 4, exclude=torch.stack([ids[:9], others.ids[:, 0]], dim=1))
    if backend in COMPLETE:
        assert torch.equal(two.ids, others.ids[:, 1:])
    with pytest.raises(ValueError, match=r"^exclude: expected \[9\] or \[9, m\]"):
        index.search(vectors[:9], 4, exclude=ids[:8])


def test_bad_rows_are_refused_and_nothing_is_added(make, rows):
    ids, _ = rows
    index = filled(make, rows)
    new, more = torch.tensor([5000, 5001]), torch.randn(2, 8)
    hole = more.clone()
    hole[1, 3] = torch.nan
    cases = [
        (new, hole, r"^vectors: expected finite numbers, got NaN or infinity in row 1$"),
        (new, more / 0, r"^vectors: expected finite"),
        (new, more[:, :7], r"^vectors: expected a matrix \[2, 8\], got shape \(2, 7\)"),
        (new, more[:1], r"^vectors: expected a matrix \[2, 8\]"),
        (torch.tensor([7000, 7000]), more, r"^ids: expected each id once, got 7000"),
        (torch.stack([new[0], ids[4]]), more, rf"^ids: expected ids that the index has not yet, got {ids[4]}, "),
        (torch.tensor([4, -2]), more, r"^ids: expected whole numbers of at least 0, got -2"),
    ]
    for bad_ids, bad_vectors, told in cases:
        with pytest.raises(ValueError, match=told):
            index.add(bad_ids, bad_vectors)
    with pytest.raises(TypeError, match=r"^vectors: expected a floating dtype"):
        index.add(new, more.long())
    with pytest.raises(TypeError, match=r"^ids: expected whole numbers"):
        index.add(new.float(), more)
    assert len(index) == 300


def test_bad_removals_and_queries_are_refused(make, rows):
    index = filled(make, rows)
    with pytest.raises(ValueError, match=r"^ids: expected ids that the index has, got 123456, which it has not"):
        index.remove([int(rows[0][0]), 123456])
    with pytest.raises(ValueError, match=r"^ids: expected each id once"):
        index.remove([int(rows[0][0])] * 2)
    assert len(index) == 300
    with pytest.raises(ValueError, match=r"^queries: expected a matrix \[rows, 8\], got shape \(2, 5\)"):
        index.search(torch.zeros(2, 5), 1)
    with pytest.raises(ValueError, match=r"^queries: expected finite numbers"):
        index.search(torch.full((2, 8), torch.nan), 1)
    with pytest.raises(ValueError, match=r"^k: expected a whole number of at least 1, got 0"):
        index.search(torch.zeros(2, 8), 0)


def test_numpy_arrays_will_do(make, rows):
    index = make()
    index.add(rows[0].numpy(), rows[1].numpy().astype(np.float64))
    assert index.search(rows[1][:4].numpy(), 1).ids[:, 0].tolist() == rows[0][:4].tolist()


def test_rows_of_zeros_have_cosine_zero(make, backend):
    index = make(dim=2, similarity="cosine")
    vectors = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]] + [[0.0, 1.0]] * 7)
    index.add(range(10), vectors)
    hits = index.search(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), 10)
    found = {int(i): float(s) for i, s in zip(hits.ids[0], hits.scores[0], strict=True)}
    wanted = {0: 0.0, 1: 1.0, 2: -1.0}
    assert {i: found[i] for i in wanted if i in found} == pytest.approx({i: wanted[i] for i in wanted if i in found})
    assert set(found) >= set(wanted) or backend not in COMPLETE
    assert (hits.scores[1][hits.ids[1] >= 0] == 0).all()
