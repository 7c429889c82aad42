"""Distances to the nearest admissible row, and coverage, against plain loops."""

import pytest
import torch

from vicinal.blockwise import block_policy
from vicinal.metrics import neighbor_coverage
from vicinal.metrics.geometry import nearest_distances


def drawn(rows=30, dim=3, seed=0):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("block", [7, 1 << 22])
def test_against_a_plain_loop(block):
    x, groups = drawn().double(), torch.arange(30) % 4
    for own in (None, groups):
        with block_policy(memory_entries=block):
            found = nearest_distances(x, query_groups=own)
        for i in range(30):
            others = [j for j in range(30) if j != i and (own is None or own[i] != own[j])]
            torch.testing.assert_close(found[i], min((x[i] - x[j]).norm() for j in others))


def test_with_a_bank():
    x, bank = drawn(), drawn(50, seed=1)
    torch.testing.assert_close(nearest_distances(x, bank), torch.cdist(x, bank).amin(1))
    same = nearest_distances(x, x)  # a bank: rows are not left out by their place
    assert same.tolist() == [0.0] * 30
    groups = torch.arange(30)
    found = nearest_distances(x, x, query_groups=groups, bank_groups=groups)
    torch.testing.assert_close(found, nearest_distances(x))


def test_coverage_is_a_distribution_function():
    x = drawn()
    shares = neighbor_coverage(x, [0.0, 0.3, 1.0, 100.0])
    assert shares[0] == 0
    assert shares[-1] == 1
    assert bool((shares.diff() >= 0).all())
    assert neighbor_coverage(x, 0.3) == shares[1]
    assert neighbor_coverage(torch.ones(4, 2), 0.0) == 1  # duplicates


def test_rows_without_neighbors_are_never_covered():
    assert nearest_distances(torch.zeros(1, 2)).tolist() == [torch.inf]
    assert neighbor_coverage(torch.zeros(3, 2), 1e9, query_groups=torch.zeros(3, dtype=torch.int64)) == 0
    assert nearest_distances(torch.zeros(2, 2), torch.zeros(0, 2)).tolist() == [torch.inf] * 2


def test_large_offsets_and_half_precision():
    x = drawn(dim=2) + 1e4
    torch.testing.assert_close(nearest_distances(x).double(), nearest_distances(x.double()), rtol=1e-3, atol=1e-6)
    assert bool(nearest_distances(drawn().bfloat16()).isfinite().all())


def test_wrong_arguments_are_named():
    x = drawn()
    with pytest.raises(ValueError, match="radius"):
        neighbor_coverage(x, -1.0)
    with pytest.raises(ValueError, match="at least one row"):
        neighbor_coverage(x[:0], 1.0)
    with pytest.raises(ValueError, match=r"bank_groups: expected groups of queries and bank"):
        nearest_distances(x, x, query_groups=torch.arange(30))
    with pytest.raises(ValueError, match=r"query_groups: expected \[30\]"):
        nearest_distances(x, query_groups=torch.arange(3))
    with pytest.raises(ValueError, match="without a bank"):
        nearest_distances(x, bank_groups=torch.arange(30))
