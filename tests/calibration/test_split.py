"""Split conformal thresholds, interval scores and class sets cover as promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration import (
    ConformalClasses,
    DensityIntervals,
    class_scores,
    conformal_quantile,
    distance_scores,
    interval_quality,
    neighbor_density,
    neighbor_spread,
    range_scores,
)


@given(st.integers(5, 60), st.sampled_from([0.5, 0.8]), st.integers(0, 10_000))
def test_the_quantile_is_the_rank_that_the_theorem_needs(count: int, coverage: float, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=count)
    threshold = conformal_quantile(scores, coverage)
    below = (scores <= threshold).sum()
    assert below >= (count + 1) * coverage - 1e-9
    assert (scores < threshold).sum() < (count + 1) * coverage


def test_equal_weights_are_no_weights_and_zero_weights_leave_rows_out() -> None:
    scores = np.random.default_rng(0).normal(size=40)
    assert conformal_quantile(scores, 0.8, weights=np.full(40, 3.0)) == conformal_quantile(scores, 0.8)
    kept = np.arange(40) < 20
    assert conformal_quantile(scores, 0.8, weights=kept.astype(float)) == conformal_quantile(scores[kept], 0.8)


def test_known_likelihood_ratios_restore_coverage_under_shift() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=4000)
    scores = np.abs(rng.normal(size=4000)) * np.exp(x / 2)
    shifted = rng.normal(1, 1, size=4000)
    fresh = np.abs(rng.normal(size=4000)) * np.exp(shifted / 2)
    plain = (fresh <= conformal_quantile(scores, 0.9)).mean()
    weighted = (fresh <= conformal_quantile(scores, 0.9, weights=np.exp(x - 0.5))).mean()
    assert plain < 0.83
    assert abs(weighted - 0.9) < 0.03


def test_too_few_rows_say_what_coverage_they_can_give() -> None:
    with pytest.raises(ValueError, match=r"coverage: expected at most 0.833 with 5 calibration rows, got 0.9"):
        conformal_quantile(range(5), 0.9)
    with pytest.raises(ValueError, match=r"at most 0\.833"):
        conformal_quantile(range(5), 0.9, weights=np.ones(5))


def test_scores_that_are_not_finite_are_named() -> None:
    with pytest.raises(ValueError, match=r"scores: expected finite numbers, got nan at \[1\]"):
        conformal_quantile([0.0, np.nan], 0.5)


def test_spread_is_the_weighted_deviation() -> None:
    rng = np.random.default_rng(0)
    weights, labels = rng.dirichlet(np.ones(7), 4), rng.normal(size=7)
    expected = [np.sqrt(np.average((labels - row @ labels) ** 2, weights=row)) for row in weights]
    assert neighbor_spread(weights, labels, floor=0.0) == pytest.approx(expected)
    assert (neighbor_spread(np.eye(7), labels) == pytest.approx(0.1 * labels.std())) is True


def test_normalized_and_range_scores_match_their_intervals() -> None:
    y, low, high = np.array([0.0, 2.0, 9.0]), np.array([1.0, 1.0, 1.0]), np.array([3.0, 3.0, 3.0])
    margin = 1.0
    inside = (y >= low - margin) & (y <= high + margin)
    assert ((range_scores(y, low, high) <= margin) == inside).all()
    scaled = distance_scores(y, low, np.array([2.0, 1.0, 1.0]))
    assert scaled.tolist() == [0.5, 1.0, 8.0]
    with pytest.raises(ValueError, match="spread: expected numbers above 0"):
        distance_scores(y, low, np.zeros(3))


def test_the_interval_score_is_best_at_the_true_quantiles() -> None:
    y = np.random.default_rng(0).normal(size=20_000)
    edge = 1.6448536
    best = interval_quality(y, np.full_like(y, -edge), np.full_like(y, edge), 0.9)
    assert best["covered"] == pytest.approx(0.9, abs=0.01)
    for factor in (0.7, 1.4):
        other = interval_quality(y, np.full_like(y, -edge * factor), np.full_like(y, edge * factor), 0.9)
        assert other["interval_score"] > best["interval_score"]


@pytest.fixture
def votes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    shares = rng.dirichlet(np.full(6, 0.5), 6000)
    return shares, np.array([rng.choice(6, p=row) for row in shares])


@pytest.mark.parametrize(("method", "seed"), [("lac", None), ("aps", 0), ("raps", 0), ("aps", None)])
def test_class_sets_cover(votes: tuple[np.ndarray, np.ndarray], method: str, seed: int | None) -> None:
    shares, labels = votes
    model = ConformalClasses(method, coverage=0.85, seed=seed).fit(shares[:3000], labels[:3000])
    sets = model.predict(shares[3000:])
    covered = sets[np.arange(3000), labels[3000:]].mean()
    assert covered > 0.83
    assert covered < (0.87 if method == "lac" or seed is not None else 1.0)
    if seed is None:
        assert sets.any(1).all() or method == "lac"


def test_class_scores_by_hand() -> None:
    shares = np.array([[0.2, 0.5, 0.3]])
    assert class_scores(shares, method="lac").tolist() == [[0.8, 0.5, 0.7]]
    assert class_scores(shares, method="aps").tolist() == [[1.0, 0.5, 0.8]]
    assert class_scores(shares, method="aps", uniform=[0.5]).tolist() == [[0.9, 0.25, 0.65]]
    assert class_scores(shares, method="raps", penalty=0.1, allowed=1) == pytest.approx(np.array([[1.2, 0.5, 0.9]]))


def test_class_sets_refuse_logits_and_use_before_fit() -> None:
    with pytest.raises(ValueError, match="probabilities: expected rows of probabilities that sum to 1"):
        class_scores([[2.0, -1.0]])
    with pytest.raises(ValueError, match="call fit first"):
        ConformalClasses().predict([[0.5, 0.5]])
    with pytest.raises(ValueError, match="labels: expected class numbers from 0 to 1"):
        ConformalClasses().fit([[0.5, 0.5]], [2])


def test_the_density_integrates_to_one_and_its_regions_cover() -> None:
    rng = np.random.default_rng(0)
    labels = rng.normal(size=200)
    grid = np.linspace(-8, 8, 2001)
    weights = rng.dirichlet(np.ones(200), 900)
    density = neighbor_density(weights[:3], labels, grid, width=0.3)
    assert density.sum(1) * (grid[1] - grid[0]) == pytest.approx(1.0)
    side = rng.choice([-5.0, 5.0], 900)
    truth = side + rng.normal(0, 0.5, 900)  # two modes, known to the neighbors only as one of two
    bank = np.concatenate([np.full(100, -5.0), np.full(100, 5.0)]) + rng.normal(0, 0.5, 200)
    flat = np.full((900, 200), 1 / 200)
    regions = DensityIntervals(0.9, width=0.3).fit(flat[:450], bank, truth[:450]).predict(flat[450:], bank)
    covered = np.mean([any(a <= y <= b for a, b in row) for row, y in zip(regions, truth[450:], strict=True)])
    assert abs(covered - 0.9) < 0.05
    assert all(any(b < 0 for a, b in row) and any(a > 0 for a, b in row) for row in regions)
    assert max(sum(b - a for a, b in row) for row in regions) < 6  # the gap between the modes is left out


def test_a_density_region_is_never_empty_where_labels_pile_up_between_points():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 300) / 9.0  # of digits, which lie between the points of the grid
    truth = labels[rng.integers(0, 300, 200)]
    weights = (labels[None] == truth[:, None]).astype(float)
    weights /= weights.sum(1, keepdims=True)
    regions = DensityIntervals(0.9, points=64).fit(weights[:100], labels, truth[:100])
    assert regions.threshold >= 0
    pieces = regions.predict(weights[100:], labels)
    assert all(any(a <= y <= b for a, b in row) for y, row in zip(truth[100:], pieces, strict=True))
