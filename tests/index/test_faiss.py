"""What is particular to FAISS: factory strings, training and graphs that cannot forget."""

import pytest
import torch

from index.conftest import skip_absent
from vicinal.index import FaissIndex, NeighborBank, load_index, open_index

skip_absent("faiss")

FACTORIES = [
    "Flat",
    "IVF4,Flat",
    "IVF4,PQ4x4",
    "PQ4x4",
    "SQ8",
    "HNSW8",
    "OPQ4,IVF4,PQ4x4",
    "PCA4,Flat",
    "IVF4,Flat,RFlat",
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("factory", FACTORIES)
def test_any_factory_string_adds_removes_saves_and_loads(factory, generator, tmp_path):
    vectors = torch.randn(300, 8, generator=generator)
    index = FaissIndex(8, factory=factory)
    index.add(range(100, 400), vectors)
    index.remove(range(100, 130))
    index.add(range(100, 110), vectors[:10] + 0.25)
    index.save(tmp_path / "index")
    for one in (index, load_index(tmp_path / "index")):
        assert len(one) == 280
        hits = one.search(vectors, 20)
        assert not torch.isin(hits.ids, torch.arange(110, 130)).any()
        assert (hits.ids >= 0).float().mean() > 0.99
        assert (hits.scores[:, 0] >= hits.scores[:, 19]).all()
    assert torch.equal(hits.ids, index.search(vectors, 20).ids)


def test_training_needs_enough_rows_and_says_so(generator):
    index = FaissIndex(4, factory="IVF64,Flat")
    assert not index.trained
    with pytest.raises(ValueError, match=r"^vectors: expected at least 64 rows to train 'IVF64,Flat', .* got 50"):
        index.add(range(50), torch.randn(50, 4, generator=generator))
    assert len(index) == 0
    index.train(torch.randn(70, 4, generator=generator))
    index.add(range(50), torch.randn(50, 4, generator=generator))
    assert len(index) == 50


def test_training_is_repeatable(generator):
    vectors, queries = torch.randn(500, 8, generator=generator), torch.randn(20, 8, generator=generator)
    found = []
    for seed in (1, 1, 2):
        index = FaissIndex(8, factory="IVF32,Flat", search="nprobe=2", seed=seed)
        index.add(range(500), vectors)
        found.append(index.search(queries, 10).ids)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize(("cells", "visited"), [(8, 8), (64, 16), (512, 64), (4096, 128)])
def test_an_eighth_of_the_cells_is_visited_within_bounds(cells, visited):
    import faiss

    index = FaissIndex(4, factory=f"IVF{cells},Flat")
    assert faiss.try_extract_index_ivf(index._index).nprobe == visited


def test_far_from_zero_no_digits_are_lost(generator):
    vectors = torch.randn(300, 4, generator=generator) * 0.01 + 3000
    index = open_index("faiss:Flat", dim=4)
    index.add(range(300), vectors)
    hits = index.search(vectors, 1)
    assert hits.ids[:, 0].tolist() == list(range(300))


def shares(index, rows, queries, wanted):
    """Of the ten nearest of each query, how many are found."""
    found = index.search(queries, 10).ids
    return torch.stack([torch.isin(one, other).float().mean() for one, other in zip(wanted, found, strict=True)]).mean()


@pytest.mark.sweep(3)
@pytest.mark.sweep(8)
@pytest.mark.parametrize("similarity", ["l2", "squared_l2", "cosine"])
@pytest.mark.parametrize("far", [1e6, 1e20, -3e38])
@pytest.mark.parametrize("factory", [*FACTORIES, "IVF4,SQ8", "IVF4_HNSW8,Flat"])
def test_a_few_far_rows_do_not_change_the_neighbors_of_others(factory, far, similarity, generator):
    plain = torch.randn(300, 8, generator=generator)
    rows, queries = plain.clone(), plain[100:130] + 0.01
    rows[[0, 17, 298]] = far
    if similarity == "cosine":
        wanted = torch.nn.functional.normalize(queries) @ torch.nn.functional.normalize(rows.double()).float().T
    else:
        wanted = -torch.cdist(queries.double(), rows.double())
    wanted = wanted.topk(10).indices
    reached = []
    for some in (plain, rows):
        index = FaissIndex(8, similarity, factory=factory)
        index.add(range(300), some)
        reached.append(shares(index, some, queries, wanted))
    assert reached[1] > reached[0] - 0.15  # codes are of other rows
    scores = index.search(torch.cat([rows[:1], queries]), 300).scores
    assert not scores.isnan().any()


@pytest.mark.parametrize("size", [1, 2, 5, 70])
def test_a_far_row_may_be_the_first_of_rows_that_come_one_after_the_other(size, generator):
    rows = 3000 + torch.randn(150, 8, generator=generator)
    rows[:3] = 1e20
    index = FaissIndex(8)
    for start in range(0, 150, size):
        part = range(start, min(150, start + size))
        index.add(part, rows[list(part)])
        if start == 20:
            index.remove([4, 20])
            index.add([4], rows[4:5])
    there = [row for row in range(3, 150) if index.has(torch.tensor([row]).numpy())[0]]
    assert index.search(rows[there], 1).ids[:, 0].tolist() == there
    assert len(index) == 150 if size == 70 else len(index) >= 149


def test_candidates_are_scored_anew_from_a_bank(generator):
    vectors = torch.randn(400, 8, generator=generator)
    bank = NeighborBank(8)
    bank.add(range(400), vectors)
    index = open_index("faiss:PQ4x4", dim=8, bank=bank)
    index.add(bank.keys, vectors)
    hits = index.search(vectors[:9], 50)
    wanted = -(vectors[:9, None].double() - vectors[hits.ids].double()).norm(dim=-1).float()
    torch.testing.assert_close(hits.scores, wanted, rtol=1e-6, atol=0)
    assert (hits.scores.diff(dim=1) <= 0).all()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"factory": "IVFx,Flat"}, r"^factory: expected what FAISS can use, got 'IVFx,Flat'; it says: "),
        ({"search": "probe=3"}, r"^search: expected what FAISS can use, got 'probe=3'; it says: "),
        ({"similarity": "l1"}, r"^similarity: expected one of l2, .* for an index 'faiss', got 'l1'; use 'exact'"),
        ({"seed": -1}, r"^seed: expected a whole number of at least 0"),
    ],
)
def test_wrong_settings_are_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        FaissIndex(8, **settings)


@pytest.mark.parametrize("name", ["index.faiss", "state.safetensors", "index.json"])
def test_a_harmed_file_is_refused_by_name(name, tmp_path, generator):
    index = FaissIndex(8)
    index.add(range(9), torch.randn(9, 8, generator=generator))
    index.save(tmp_path / "index")
    path = tmp_path / "index" / name
    path.write_bytes(path.read_bytes()[:-1] + b"#")
    with pytest.raises(ValueError, match=rf"^{name}: expected the checksum"):
        load_index(tmp_path / "index")
