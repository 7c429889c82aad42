"""Values that change when the term that defines a method is deleted: one for each that a mutation once survived."""

import numpy as np
import pytest
import torch

from vicinal.calibration import (
    LabelShiftSets,
    LevelSetBoosting,
    ShiftedQuantile,
    area_under_selective_curve,
    class_weights,
    clopper_pearson_upper,
    multicalibration_error,
)
from vicinal.links import ConvexPotential
from vicinal.samplers import prototype_distances

DOUBLE = {"dtype": torch.float64}


@pytest.mark.parametrize("kind", ["cosine", "euclidean"])
def test_several_prototypes_measure_to_the_center_of_the_own_cluster(kind):
    angles = np.array([0.0, 0.1, 1.5, 1.7, 3.0, 3.3])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    expected = []
    for pair in rows.reshape(3, 2, 2):
        center = pair.mean(0)
        if kind == "cosine":
            expected += list(1 - pair @ center / np.linalg.norm(center))
        else:
            expected += list(np.linalg.norm(pair - center, axis=1))
    assert prototype_distances(rows, prototypes=3, kind=kind) == pytest.approx(expected, abs=1e-9)


def shifted_rows(seed: int, rows: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, target = rng.normal(size=rows), rng.normal(1.2, 0.6, size=rows)
    scores = np.abs(rng.normal(size=rows)) * np.exp(x)
    return (*tuple(np.stack([np.ones_like(z), z], axis=1) for z in (x, target)), scores)


def test_the_likelihood_ratio_term_draws_the_threshold_toward_the_ratio():
    """The stronger, the nearer is the threshold to a multiple of the likelihood ratio, as the paper's bracket says."""
    source, target, scores = shifted_rows(0)

    def likeness(strength: float) -> float:
        model = ShiftedQuantile(0.8, strength=strength).fit(source, scores, target)
        return model.predict(target).mean() ** 2 / np.square(model.predict(source)).mean()

    plain, weak, strong = (likeness(strength) for strength in (0.0, 0.05, 0.5))
    assert plain < weak - 0.01
    assert weak < strong - 0.01


def test_the_strength_that_is_chosen_depends_on_the_rows():
    chosen = set()
    for seed in range(4):
        source, target, scores = shifted_rows(seed, 200)
        chosen.add(ShiftedQuantile(0.8, strength="auto").fit(source, scores, target).strength_)
        chosen.add(ShiftedQuantile(0.8, strength="auto").fit(source, scores, source).strength_)
    assert len(chosen) > 1


@pytest.mark.parametrize("level", [0.1, 0.6])
def test_label_shift_sets_take_the_largest_threshold_whose_bound_holds(level):
    """The definition, a candidate at a time: accepted rows below it are missed, the others held."""
    rng = np.random.default_rng(3)
    labels, goal = rng.integers(0, 2, 600), (rng.random(600) < 0.7).astype(int)

    def answers(truth):
        first = np.clip(0.8 - 0.6 * truth + rng.normal(0, 0.12, len(truth)), 0.01, 0.99)
        return np.stack([first, 1 - first], axis=1)

    shares, target = answers(labels), answers(goal)
    model = LabelShiftSets(error=0.15, level=level, seed=5).fit(shares, labels, target)
    weights = class_weights(labels, shares.argmax(1), target.argmax(1), 2, level / 2)
    assert weights.high == pytest.approx(model.weights.high)
    own, draws = shares[np.arange(600), labels], np.random.default_rng(5).random(600)
    most, best = weights.high.max(), 0.0
    for threshold in np.unique(own):
        missed = int(((draws <= weights.high[labels] / most) & (own < threshold)).sum())
        held = int(((draws <= weights.low[labels] / most) & (own >= threshold)).sum())
        if missed + held and clopper_pearson_upper(missed, missed + held, level / 2) <= 0.15:
            best = threshold
    assert best > 0
    assert model.threshold == pytest.approx(best)


def test_the_area_under_the_selective_curve_is_the_mean_of_running_means():
    rng = np.random.default_rng(0)
    scores, errors = rng.permutation(50).astype(float), rng.exponential(size=50)
    ranked = errors[np.argsort(-scores)]
    expected = np.mean([ranked[: count + 1].mean() for count in range(50)])
    assert area_under_selective_curve(scores, errors) == pytest.approx(expected)


def test_boosting_moves_a_level_by_the_rate():
    features, labels = np.ones((8, 1)), np.array([0.0, 1, 1, 1, 1, 1, 1, 1])
    start = np.full(8, 0.5)
    for rate in (0.25, 0.5, 1.0):
        settings = {"levels": 1000, "rounds": 1, "rate": rate, "tolerance": None}
        model = LevelSetBoosting(**settings).fit(features, labels, start=start)
        assert model.predict(features, start=start) == pytest.approx(0.5 + rate * (7 / 8 - 0.5), abs=1e-3)


def test_levels_count_by_their_rows():
    predictions, labels = [0.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.4]
    error = multicalibration_error(predictions, labels, np.ones((4, 1)), levels=None)
    assert error == pytest.approx([0.25 * 1.0 + 0.75 * 0.2])


def test_the_strength_of_a_convex_potential_adds_half_its_square():
    plain, strong = ConvexPotential(3, strength=0.0).double(), ConvexPotential(3, strength=0.4).double()
    strong.load_state_dict(plain.state_dict())
    z, other = torch.randn(5, 3, **DOUBLE), torch.randn(5, 3, **DOUBLE)
    torch.testing.assert_close(strong.primitive(z) - plain.primitive(z), 0.2 * z.square().sum(-1))
    torch.testing.assert_close(strong(z) - plain(z), 0.4 * z)
    apart = strong.divergence(z, other) - plain.divergence(z, other)
    torch.testing.assert_close(apart, 0.2 * (z - other).square().sum(-1))
