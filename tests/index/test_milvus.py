"""What is particular to Milvus: a database that outlives its process, also one that is killed."""

import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from index.conftest import skip_absent
from vicinal.index import MilvusIndex, NeighborBank, open_index

skip_absent("milvus")

CHILD = """
import sys, torch
from vicinal.index import open_index
index = open_index("milvus:" + sys.argv[1], dim=8)
vectors = torch.randn(40_000, 8, generator=torch.Generator().manual_seed(3))
for start in range(0, 1000, 200):
    index.add(range(start, start + 200), vectors[start : start + 200])
    if start == 200:
        index.remove(range(50))
        index.flush()
    print("kept", flush=True)
print("cut short", flush=True)
index.add(range(1000, 40_000), vectors[1000:])
print("done", flush=True)
"""


@pytest.mark.slow
def test_a_process_killed_in_the_middle_of_an_add_keeps_all_that_was_acknowledged(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "bank.db")], stdout=subprocess.PIPE, text=True
    )
    try:
        for line in child.stdout:
            if line.startswith("cut short"):
                break
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert rest == ""  # else the add was over before the kill
    vectors = torch.randn(40_000, 8, generator=torch.Generator().manual_seed(3))
    index = open_index(f"milvus:{tmp_path / 'bank.db'}", dim=8)
    there = index.has(np.arange(1000))
    assert there.tolist() == [False] * 50 + [True] * 950
    assert 950 <= len(index) < 40_000
    hits = index.search(vectors[50:1000], 1)
    assert hits.ids[:, 0].tolist() == list(range(50, 1000))
    torch.testing.assert_close(hits.scores, torch.zeros(950, 1), atol=2e-3, rtol=0)
    more = np.arange(1000, 3000)
    index.add(more[~index.has(more)], vectors[more[~index.has(more)]])  # and it goes on
    assert index.has(more).all()
    index.close()


def test_two_indexes_share_a_file_and_a_collection(database, generator):
    one = open_index(f"milvus:{database}", dim=4, collection="shared")
    two = open_index(f"milvus:{database}", dim=4, collection="shared")
    one.add([7, 8], torch.randn(2, 4, generator=generator))
    assert len(two) == 2
    one.close()
    one.close()
    assert two.search(torch.zeros(1, 4), 2).ids.sort().values.tolist() == [[7, 8]]
    two.close()


def test_another_collection_is_refused(database):
    open_index(f"milvus:{database}", dim=4, collection="checked").close()
    with pytest.raises(ValueError, match=r"^dim: expected 4 as the collection 'checked' has it, got 5"):
        open_index(f"milvus:{database}", dim=5, collection="checked")
    with pytest.raises(ValueError, match=r"^similarity: expected one of metric L2 .* got 'cosine', which is of COSINE"):
        open_index(f"milvus:{database}", dim=4, similarity="cosine", collection="checked")


def test_an_index_of_no_known_type_is_refused(database):
    with pytest.raises(ValueError, match=r"^index_type: expected one of 'AUTOINDEX', .* did you mean 'HNSW'\?"):
        open_index(f"milvus:{database}", dim=4, collection="odd", index_type="HNWS")


def test_after_a_flush_rows_are_indexed_and_found(database, generator):
    vectors = torch.randn(400, 4, generator=generator)
    index = open_index(f"milvus:{database}", dim=4, collection="flushed")
    index.add(range(400), vectors)
    index.flush(indexed=True)
    assert (index.search(vectors, 1).ids[:, 0] == torch.arange(400)).float().mean() > 0.95
    index.close()


def test_bad_addresses_are_refused():
    with pytest.raises(ValueError, match=r"^uri: expected a file ending in .db, or an address"):
        MilvusIndex(4, uri="./bank.sqlite")
    with pytest.raises(ValueError, match=r"^index: expected a file or an address behind 'milvus:'"):
        open_index("milvus", dim=4)
    with pytest.raises(ValueError, match=r"^similarity: expected one of l2, .* got 'l1'; use 'exact'"):
        open_index("milvus:./bank.db", dim=4, similarity="l1")


def test_a_database_that_is_gone_is_said_so(tmp_path):
    index = open_index(f"milvus:{tmp_path / 'bank.db'}", dim=4)
    index.save(tmp_path / "index")
    index.close()
    (tmp_path / "bank.db").rename(tmp_path / "moved.db")
    with pytest.raises(ValueError, match=r"^uri: expected the database .*bank.db, got none"):
        MilvusIndex.load(tmp_path / "index", uri=str(tmp_path / "bank.db"))
    moved = MilvusIndex.load(tmp_path / "index", uri=str(tmp_path / "moved.db"))
    assert len(moved) == 0
    moved.close()


@pytest.mark.slow
def test_candidates_are_scored_anew_from_a_bank(database, generator):
    vectors = torch.randn(200, 4, generator=generator) + 100
    bank = NeighborBank(4)
    bank.add([f"row {i}" for i in range(200)], vectors)
    index = open_index(f"milvus:{database}", dim=4, collection="anew", bank=bank)
    index.add(bank.keys, vectors)
    bank.remove(["row 5"])
    hits = index.search(vectors[:20], 3)
    assert not (hits.ids == 5).any()
    known = hits.ids >= 0
    rows = vectors[hits.ids.clamp(min=0)].double()
    wanted = -(vectors[:20, None].double() - rows).norm(dim=-1).float()
    torch.testing.assert_close(hits.scores[known], wanted[known], rtol=1e-6, atol=0)
    index.close()
