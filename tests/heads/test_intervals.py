"""Intervals: the weighted quantile against its definition, and the coverage that conformal calibration promises."""

import math

import pytest
import torch

from vicinal.heads import conformal_margin, neighbor_range
from vicinal.heads.intervals import weighted_quantile


def drawn(seed, b=6, n=9):
    """Weights with zeros whose rows sum to 1, and labels with a tie."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(b, n, generator=generator, dtype=torch.float64)
    weights = weights * (torch.rand(b, n, generator=generator) < 0.7)
    weights[:, 0] += 0.1
    labels = torch.randn(n, generator=generator, dtype=torch.float64)
    labels[3] = labels[5]
    return weights / weights.sum(dim=-1, keepdim=True), labels


@pytest.mark.parametrize("level", [0.05, 0.31, 0.5, 0.77, 0.95, 1.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_quantile_is_the_smallest_label_with_enough_weight_at_or_below(level, seed):
    weights, labels = drawn(seed)
    for row, got in zip(weights.tolist(), weighted_quantile(weights, labels, level).tolist(), strict=True):
        enough = [
            v
            for v in labels.tolist()
            if math.fsum(p for p, y in zip(row, labels.tolist(), strict=True) if y <= v) >= level - 1e-12
        ]
        assert got == min(enough)


def test_quantile_of_equal_weights_is_not_moved_by_rounding():
    """A sum of ten tenths is not 1, and of three tenths not 0.3."""
    labels = torch.arange(10.0)
    weights = torch.full((1, 10), 0.1)
    assert [weighted_quantile(weights, labels, k / 10).item() for k in range(1, 11)] == list(range(10))


def test_quantile_of_one_neighbor_is_its_label():
    weights = torch.tensor([[0.0, 1.0, 0.0]])
    for level in (0.01, 0.5, 1.0):
        assert weighted_quantile(weights, torch.tensor([3.0, 2.0, 9.0]), level).tolist() == [2.0]


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_range_holds_the_coverage_of_the_weight_and_narrows_with_it(coverage):
    weights, labels = drawn(3)
    low, high = neighbor_range(weights, labels, coverage)
    inside = (labels >= low[:, None]) & (labels <= high[:, None])
    assert ((weights * inside).sum(dim=-1) >= coverage - 1e-9).all()
    wider_low, wider_high = neighbor_range(weights, labels, coverage + 0.09)
    assert (wider_low <= low).all()
    assert (wider_high >= high).all()


@pytest.mark.parametrize(("count", "coverage", "rank"), [(19, 0.9, 18), (9, 0.9, 9), (99, 0.5, 50), (10, 0.8, 9)])
def test_margin_is_the_order_statistic_of_split_conformal(count, coverage, rank, generator):
    misses = torch.randperm(count, generator=generator) + 1.0
    assert conformal_margin(misses, coverage) == rank


@pytest.mark.parametrize("coverage", [0.6, 0.9])
def test_margin_covers_exchangeable_rows_as_often_as_asked(coverage, generator):
    """Mean coverage of a new row over 4,000 draws of 24 calibration rows is ceil(25 c) / 25."""
    misses = torch.randn(4000, 25, generator=generator).exp()
    covered = [float(row[24]) <= conformal_margin(row[:24], coverage) for row in misses]
    assert sum(covered) / len(covered) == pytest.approx(math.ceil(25 * coverage) / 25, abs=0.02)


def test_errors_say_what_to_do():
    with pytest.raises(
        ValueError, match=r"^coverage: expected at most 0.800 with 4 calibration rows, got 0.9; ask for less"
    ):
        conformal_margin(torch.zeros(4), 0.9)
    for coverage in (0, 1, 1.5):
        with pytest.raises(ValueError, match=r"^coverage: expected a number between 0 and 1"):
            neighbor_range(torch.ones(1, 2) / 2, torch.zeros(2), coverage)
    with pytest.raises(ValueError, match=r"^labels: expected \[3\]"):
        weighted_quantile(torch.ones(1, 3) / 3, torch.zeros(2), 0.5)
