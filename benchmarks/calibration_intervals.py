"""Every kind of 90 % interval on one split: plain residual, neighbor range, spread, local error, density regions."""

import numpy as np
import torch
from calibration_models import Fold

from vicinal.calibration import (
    DensityIntervals,
    conformal_quantile,
    distance_scores,
    interval_quality,
    neighbor_spread,
    range_scores,
)
from vicinal.heads import neighbor_range

COVERAGE = 0.9


def by_quartile(truth: np.ndarray, inside: np.ndarray) -> dict[str, float]:
    """Share covered in each quarter of the test labels, from the lowest to the highest."""
    order = np.argsort(truth, kind="stable")
    return {f"q{i + 1}": float(inside[part].mean()) for i, part in enumerate(np.array_split(order, 4))}


def figures(fold: Fold, method: str, low: np.ndarray, high: np.ndarray, error: float) -> dict:
    """One line of the table."""
    found = interval_quality(fold.test, low, high, COVERAGE)
    inside = (fold.test >= low) & (fold.test <= high)
    return {
        "split": fold.seed,
        "method": method,
        "covered": found["covered"],
        "width": found["width"],
        "score": found["interval_score"],
        "error": error,
        "rows": len(fold.test),
        **by_quartile(fold.test, inside),
    }


def around(fold, method, held, test, held_spread, test_spread) -> dict:
    """Prediction +- quantile * spread."""
    radius = conformal_quantile(distance_scores(fold.held, held, held_spread), COVERAGE) * test_spread
    return figures(fold, method, test - radius, test + radius, float(np.mean((test - fold.test) ** 2)))


def ranges(fold: Fold, *, inward: float = 0.01) -> list[dict]:
    """The central range of neighbor labels, moved by one margin, and by one share of its width.

    The ends are drawn in a little toward the prediction, so that labels that repeat do not tie; with ``inward`` 0 they
    are labels.
    """
    labels = torch.from_numpy(fold.bank)
    ends = []
    for weights in (fold.held_weights, fold.test_weights):
        inner = weights @ fold.bank
        both = neighbor_range(torch.from_numpy(weights), labels, COVERAGE)
        ends.append([end.numpy() + inward * (inner - end.numpy()) for end in both])
    (held_low, held_high), (low, high) = ends
    error = float(np.mean((fold.test_weights @ fold.bank - fold.test) ** 2))
    misses = range_scores(fold.held, held_low, held_high)
    margin = conformal_quantile(misses, COVERAGE)
    floor = 0.1 * fold.bank.std()
    share = conformal_quantile(misses / (held_high - held_low + floor), COVERAGE) * (high - low + floor)
    made = []
    for method, wider in (("range", margin), ("range, scaled", share)):
        middle = (low + high) / 2
        made.append(figures(fold, method, np.minimum(low - wider, middle), np.maximum(high + wider, middle), error))
    return made


def levels(fold: Fold) -> dict:
    """The range between two quantiles of the smoothed neighbor labels whose levels are calibrated (not its ends)."""
    width = 0.25 * fold.bank.std()
    grid = np.linspace(fold.bank.min() - 4 * width, fold.bank.max() + 4 * width, 400)
    steps = 1 / (1 + np.exp(-1.702 * (grid[:, None] - fold.bank) / width))  # logistic kernel
    held, test = fold.held_weights @ steps.T, fold.test_weights @ steps.T
    own = np.array([np.interp(y, grid, row) for y, row in zip(fold.held, held, strict=True)])
    reach = conformal_quantile(np.abs(own - 0.5), COVERAGE)
    low = np.array([np.interp(0.5 - reach, row, grid) for row in test])
    high = np.array([np.interp(0.5 + reach, row, grid) for row in test])
    return figures(fold, "levels", low, high, float(np.mean((fold.test_weights @ fold.bank - fold.test) ** 2)))


def local_error(fold: Fold, weights: np.ndarray, floor: float = 0.1) -> np.ndarray:
    """Weighted deviation of the neighbors' own errors, each predicted without its own label."""
    squared = (fold.bank - fold.bank_weights @ fold.bank) ** 2
    return np.sqrt(weights @ squared + (floor * fold.bank.std()) ** 2)


def density(fold: Fold) -> list[dict]:
    """Regions of high density (their total length), and each one's hull."""
    regions = DensityIntervals(coverage=COVERAGE, points=256).fit(fold.held_weights, fold.bank, fold.held)
    pieces = regions.predict(fold.test_weights, fold.bank)
    low, high = (np.array([row[i][j] for row in pieces]) for i, j in ((0, 0), (-1, 1)))
    error = float(np.mean((fold.test_weights @ fold.bank - fold.test) ** 2))
    hull = figures(fold, "density, hull", low, high, error)
    inside = np.array([any(a <= y <= b for a, b in row) for y, row in zip(fold.test, pieces, strict=True)])
    total = float(np.mean([sum(b - a for a, b in row) for row in pieces]))
    several = {"covered": float(inside.mean()), "width": total, **by_quartile(fold.test, inside)}
    region = {**hull, "method": "density", **several}
    region.pop("score")  # of one interval only
    return [region, hull]


def intervals(fold: Fold) -> list[dict]:
    """All methods on one split."""
    held, test = fold.held_weights @ fold.bank, fold.test_weights @ fold.bank
    ones = np.ones(len(held)), np.ones(len(test))
    spread = [neighbor_spread(weights, fold.bank) for weights in (fold.held_weights, fold.test_weights)]
    local = [local_error(fold, weights) for weights in (fold.held_weights, fold.test_weights)]
    root = [np.sqrt(s) for s in spread]
    return [
        around(fold, "dense residual", fold.held_dense, fold.test_dense, *ones),
        around(fold, "residual", held, test, *ones),
        around(fold, "spread", held, test, *spread),
        around(fold, "spread, root", held, test, *root),
        around(fold, "local error", held, test, *local),
        around(fold, "dense, spread", fold.held_dense, fold.test_dense, *root),
        *ranges(fold),
        {**ranges(fold, inward=0.0)[0], "method": "range, ends that tie"},
        levels(fold),
        *density(fold),
    ]
