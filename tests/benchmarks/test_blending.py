"""Blend weights of benchmarks/nona are the best point of the simplex."""

import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "nona"


@pytest.fixture
def blend_weights(monkeypatch):
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__("blending").blend_weights
    sys.modules.pop("blending", None)


def drawn(spread, seed=0, rows=60):
    generator = np.random.default_rng(seed)
    truth = generator.normal(size=rows)
    common = 0.2 * generator.normal(size=(rows, 1))
    return truth[:, None] + generator.normal(size=(rows, len(spread))) * spread + common, truth


@pytest.mark.parametrize("spread", [(0.5, 0.5, 0.5), (0.1, 1.0, 3.0), (1.0, 0.2, 0.3), (2.0, 0.0, 1.0)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e8])
def test_no_point_of_a_grid_is_better(blend_weights, spread, scale):
    guesses, truth = drawn(spread)
    weights = blend_weights(guesses * scale, truth * scale)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    steps = np.linspace(0, 1, 41)
    grid = np.array([(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1 + 1e-9])
    errors = ((guesses @ grid.T - truth[:, None]) ** 2).mean(0)
    assert ((guesses @ weights - truth) ** 2).mean() <= errors.min() * (1 + 1e-9) + 1e-12


def test_the_exact_one_takes_all_and_copies_share(blend_weights):
    _, truth = drawn((1.0,))
    np.testing.assert_allclose(blend_weights(np.column_stack([truth + 1, truth]), truth), [0, 1], atol=1e-6)
    np.testing.assert_allclose(blend_weights(truth[:, None] + 1, truth), [1])
    copies = np.column_stack([truth + np.sin(9 * truth)] * 2)
    weights = blend_weights(copies, truth)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()


def test_order_of_the_columns_does_not_matter(blend_weights):
    guesses, truth = drawn((0.5, 0.4, 0.9, 0.6))
    order = [2, 0, 3, 1]
    np.testing.assert_allclose(blend_weights(guesses[:, order], truth), blend_weights(guesses, truth)[order], atol=1e-9)


@pytest.mark.parametrize(
    ("predictions", "truth"),
    [(np.zeros((3, 2)), np.zeros(4)), (np.zeros((0, 2)), np.zeros(0)), (np.zeros((3, 13)), np.zeros(3))],
)
def test_wrong_shapes(blend_weights, predictions, truth):
    with pytest.raises(ValueError, match=r"^predictions: expected \[n, k\]"):
        blend_weights(predictions, truth)


def test_not_finite(blend_weights):
    with pytest.raises(ValueError, match=r"^predictions: expected finite"):
        blend_weights([[1.0, np.nan]], [1.0])
