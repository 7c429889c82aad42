"""The nearest rows are those of all distances in float64, in their order, whatever is tied, hidden, huge or tiny."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import vicinal.blockwise.nearest as nearest_module
from vicinal.blockwise import block_policy
from vicinal.blockwise.exclusion import Exclusion
from vicinal.blockwise.nearest import NearestRows, lowest_rows
from vicinal.blockwise.scores import BlockScores
from vicinal.similarity.base import resolve_similarity
from vicinal.similarity.factors import score_kernel

SMALL = {"search_entries": 96, "query_rows": 3, "pair_entries": 64, "block_entries": 16}
"""Blocks of 32 rows for 3 queries."""


def want(queries, bank, k, hidden=None):
    """Squared distances and positions ``[b, k]`` from one difference after the other, ties by position."""
    squared = (queries.double()[:, None] - bank.double()[None]).square().sum(dim=-1)
    if hidden is not None:
        squared = squared.masked_fill(hidden, torch.inf)
    values, positions = squared.sort(dim=1, stable=True)
    return values[:, :k], positions[:, :k]


def check(found, queries, bank, k, hidden=None):
    values, positions = want(queries, bank, k, hidden)
    known = values < torch.inf
    torch.testing.assert_close(found.values, values, rtol=1e-14, atol=0)
    assert torch.equal(found.positions[known], positions[known])


@st.composite
def problems(draw):
    """Queries, a bank with copies and ties, k, keys and what they hide."""
    seed, rows, dim = draw(st.integers(0, 99)), draw(st.integers(1, 150)), draw(st.integers(1, 5))
    g = torch.Generator().manual_seed(seed)
    kind = draw(st.sampled_from(["normal", "whole", "copies", "one row"]))
    bank = torch.randn(rows, dim, generator=g)
    if kind == "whole":
        bank = bank.round()
    elif kind != "normal":
        bank = bank[torch.randint(3 if kind == "copies" and rows > 2 else 1, (rows,), generator=g)]
    queries = torch.cat([bank[:2], torch.randn(5, dim, generator=g)]).double()
    scale = draw(st.sampled_from([1.0, 1e-30, 1e-12, 1e12, 1e19, 1e30]))
    shift = draw(st.sampled_from([0.0, 1.0, 1e3, 1e6]))
    bank, queries = (bank + shift) * scale, (queries + shift) * scale
    keys = []
    if draw(st.booleans()):
        keys.append((torch.arange(len(queries)), torch.randperm(rows, generator=g)))
    if draw(st.booleans()):
        groups = draw(st.integers(1, 6))
        keys.append((torch.arange(len(queries)) % groups, torch.randint(groups, (rows,), generator=g)))
    hidden = torch.zeros(len(queries), rows, dtype=torch.bool)
    for of_queries, of_bank in keys:
        hidden |= of_queries[:, None] == of_bank
    return queries, bank, draw(st.sampled_from([1, 2, 7, 40, 200])), keys, hidden


@given(problems(), st.booleans(), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_equals_all_distances(problem, small, dtype):
    queries, bank, k, keys, hidden = problem
    bank = bank.to(dtype)
    with block_policy(**SMALL if small else {}):
        found = NearestRows(bank).search(queries, bank, k, Exclusion(keys) if keys else None)
    check(found, queries, bank, min(k, len(bank)), hidden)


@given(st.integers(0, 50), st.lists(st.tuples(st.booleans(), st.integers(1, 30)), min_size=1, max_size=5))
def test_follows_rows_that_come_and_go(seed, steps):
    g = torch.Generator().manual_seed(seed)
    bank = torch.randn(60, 3, generator=g).round(decimals=1)
    known, queries = NearestRows(bank), torch.randn(9, 3, generator=g)
    for adds, count in steps:
        if adds:
            new = 5 * torch.randn(count, 3, generator=g)
            bank, changed = torch.cat([bank, new]), torch.arange(len(bank), len(bank) + count)
        else:  # the last rows take the places of those that are gone
            gone = torch.randperm(len(bank), generator=g)[: min(count, len(bank) - 1)]
            left = len(bank) - len(gone)
            holes = gone[gone < left]
            moved = torch.tensor([p for p in range(left, len(bank)) if p not in gone.tolist()], dtype=torch.int64)
            bank = bank.clone()
            bank[holes], changed = bank[moved], holes
            bank = bank[:left]
        known.update(bank, changed)
        with block_policy(**SMALL):
            check(known.search(queries, bank, 5), queries, bank, min(5, len(bank)))


def test_a_bank_of_other_size_is_refused():
    bank = torch.zeros(4, 2)
    with pytest.raises(ValueError, match="bank: expected the 4 rows that were prepared, got 3"):
        NearestRows(bank).search(bank, bank[:3], 1)


@pytest.mark.parametrize("precision", ["highest", "medium"])
def test_holds_however_products_are_rounded(precision):
    g = torch.Generator().manual_seed(0)
    queries, bank = torch.randn(40, 30, generator=g), torch.randn(3000, 30, generator=g)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        check(NearestRows(bank).search(queries, bank, 20), queries, bank, 20)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("small", [False, True])
def test_no_row_is_lost_whatever_the_sums_are_wrong_by_within_their_bound(small, monkeypatch):
    """Of rows that are nearest the sums are too high, of all others too low, by nearly a bound of 0.3."""
    g = torch.Generator().manual_seed(0)
    queries, bank = torch.randn(20, 3, generator=g), torch.randn(400, 3, generator=g)
    nearest = torch.zeros(20, 400, dtype=torch.bool).scatter(1, want(queries, bank, 10)[1], value=True)
    select = nearest_module._Tile._select

    def rough(tile, values, offset, slack, block, entries):
        part = nearest[tile.rows, block.start : block.start + values.shape[1]]
        values = values + torch.where(part, 0.29, -0.29).to(values.dtype)
        return select(tile, values, offset, torch.full_like(slack, 0.3), block, entries)

    monkeypatch.setattr(nearest_module._Tile, "_select", rough)
    monkeypatch.setattr(nearest_module, "_CROWDED", 1.0)
    with block_policy(**SMALL if small else {}):
        check(NearestRows(bank).search(queries, bank, 10), queries, bank, 10)


@pytest.mark.parametrize("name", ["l2", "squared_l2", "l1", "dot", "cosine"])
def test_lowest_costs_of_any_similarity(name):
    g = torch.Generator().manual_seed(0)
    queries, bank = (torch.randn(n, 4, generator=g, dtype=torch.float64) for n in (6, 300))
    similarity = resolve_similarity(name)
    scores = BlockScores(score_kernel(similarity), queries, bank, 64, 4)
    best = similarity(queries, bank).topk(5, dim=1)
    found = lowest_rows(scores, Exclusion([]), 5)
    assert torch.equal(found.positions, best.indices)
    costs = scores.costs_of(found.values)  # of inner products up to one number for each query
    torch.testing.assert_close(costs.diff(dim=1), -best.values.diff(dim=1))


def test_an_outlier_and_a_far_center_cost_no_exactness():
    g = torch.Generator().manual_seed(0)
    bank = torch.randn(2000, 8, generator=g)
    queries = torch.randn(20, 8, generator=g)
    bank[7] = 1e8
    for shift in (0.0, 1e4):
        check(NearestRows(bank + shift).search(queries + shift, bank + shift, 9), queries + shift, bank + shift, 9)


MEMORY = """
import torch
from vicinal.blockwise.nearest import NearestRows
torch.set_num_threads(1)
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
torch.manual_seed(0)
queries, bank = torch.randn(512, 16), torch.randn(200_000, 16)
if {copies}:
    bank = bank[torch.randint(4, (len(bank),))]
NearestRows(bank[:5000]).search(queries, bank[:5000], 32)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = peak()
NearestRows(bank).search(queries, bank, 32)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the highest memory cannot be reset here")
@pytest.mark.parametrize("copies", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_needs_a_few_blocks_where_all_distances_have_781_mib(copies):
    code = MEMORY.format(copies=copies)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert float(done.stdout) < 64
