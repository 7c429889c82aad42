"""Split conformal prediction: the quantile of calibration scores that makes sets of later rows cover."""

import math

import numpy as np
from numpy.typing import ArrayLike

from vicinal.calibration.checks import Floats, check_vector
from vicinal.calibration.groups import group_mass
from vicinal.core.checks import check_between


def conformal_quantile(
    scores: ArrayLike, coverage: float, *, weights: ArrayLike | None = None, groups: ArrayLike | None = None
) -> float:
    r"""Threshold q with P(score of a new row <= q) >= ``coverage``.

    Without weights it is the $\lceil (n+1)\,\mathrm{coverage} \rceil$-th smallest of n calibration scores. With
    likelihood ratios $w_i$ between the population to predict and the one calibrated on, it is the weighted quantile in
    which the new row has the mean weight of the others (Tibshirani et al. 2019, arXiv:1904.06019, with the test row's
    own ratio replaced by that mean, so that one threshold serves all rows).

    Args:
        scores: ``[n]``, of calibration rows that are exchangeable with new ones; larger = stranger.
        coverage: between 0 and 1.
        weights: ``[n]``, >= 0, not all 0.
        groups: ``[n]``; then groups are exchangeable and not rows, the new row is of a new group, and the quantile is
            that of :func:`vicinal.calibration.group_mass`.

    Raises:
        ValueError: if there are too few rows, or groups, for any finite threshold.

    >>> conformal_quantile(range(1, 20), 0.9)
    18.0
    >>> conformal_quantile([1.0, 2.0, 3.0, 4.0], 0.5, weights=[0.0, 0.0, 1.0, 1.0])
    4.0
    >>> conformal_quantile([1.0, 2.0, 3.0, 4.0], 0.5, groups=[0, 0, 0, 1])
    4.0
    """
    values = check_vector("scores", scores)
    check_between("coverage", coverage, 0, 1)
    count = len(values)
    mass = np.ones(count) if weights is None else check_vector("weights", weights, size=count)
    if (mass < 0).any() or (count and not mass.any()):
        raise ValueError("weights: expected numbers >= 0, not all of them 0")
    new_mass, units = mass.sum() / np.count_nonzero(mass) if count else 1.0, "rows"
    if groups is not None:
        (mass, count), new_mass, units = group_mass(groups, mass), 1.0, "groups"
    order = np.argsort(values, kind="stable")
    share = np.cumsum(mass[order]) / (mass.sum() + new_mass)
    reached = int(np.searchsorted(share, coverage - 1e-12))
    if reached == len(values):
        raise too_few(coverage, float(mass.sum() / (mass.sum() + new_mass)), count, units)
    return float(values[order[reached]])


def too_few(coverage: float, most: float, count: int, units: str = "rows") -> ValueError:
    """The error for ``count`` rows or groups, of which the threshold of ``most`` at most can be one."""
    return ValueError(
        f"coverage: expected at most {most:.3f} with {count} calibration {units}, got {coverage}; "
        f"ask for less, or fit on more {units}"
    )


def distance_scores(labels: ArrayLike, predictions: ArrayLike, spread: ArrayLike | None = None) -> Floats:
    """Scores ``[n]`` of intervals around a prediction: |y - prediction|, divided by ``spread`` where it is given.

    A spread that follows the neighbors (:func:`neighbor_spread`) gives intervals that are wide where neighbors
    disagree (Lei et al. 2018, arXiv:1604.04173, section 5.2).

    >>> distance_scores([1.0, 4.0], [2.0, 2.0], [1.0, 4.0]).tolist()
    [1.0, 0.5]
    """
    truth = check_vector("labels", labels)
    miss = np.abs(truth - check_vector("predictions", predictions, size=len(truth)))
    if spread is None:
        return miss
    width = check_vector("spread", spread, size=len(truth))
    if (width <= 0).any():
        raise ValueError("spread: expected numbers above 0; add a small share of the labels' deviation to each")
    return np.asarray(miss / width, dtype=np.float64)


def range_scores(labels: ArrayLike, low: ArrayLike, high: ArrayLike) -> Floats:
    """Scores ``[n]`` of quantile ranges: max(low - y, y - high), negative inside.

    Romano et al. 2019 (arXiv:1905.03222).

    >>> range_scores([1.0, 5.0], [0.0, 0.0], [4.0, 4.0]).tolist()
    [-1.0, 1.0]
    """
    truth = check_vector("labels", labels)
    below = check_vector("low", low, size=len(truth)) - truth
    return np.maximum(below, truth - check_vector("high", high, size=len(truth)))


def neighbor_spread(weights: ArrayLike, labels: ArrayLike, *, floor: float = 0.1) -> Floats:
    r"""Deviation of each row's neighbor labels, $\sqrt{\sum_j p_{ij} (y_j - \hat y_i)^2}$, kept off zero.

    Args:
        weights: ``[b, N]``, rows sum to 1.
        labels: ``[N]``.
        floor: this share of the labels' overall deviation is added in quadrature, since neighbors that happen to agree
            do not make a prediction certain.

    >>> neighbor_spread([[0.5, 0.5, 0.0]], [0.0, 2.0, 4.0], floor=0.0).tolist()
    [1.0]
    """
    mass = np.asarray(weights, dtype=np.float64)
    targets = check_vector("labels", labels, size=mass.shape[-1])
    mean = mass @ targets
    variance = np.maximum(mass @ targets**2 - mean**2, 0)
    floor = check_between("floor", floor, 0, math.inf, closed=True)
    return np.asarray(np.sqrt(variance + (floor * targets.std()) ** 2), dtype=np.float64)


def interval_quality(labels: ArrayLike, low: ArrayLike, high: ArrayLike, coverage: float) -> dict[str, float]:
    r"""How good intervals are: share covered, mean width, and the interval score (lower is better).

    The interval (Winkler) score is $(u - l) + \frac{2}{\alpha} [l - y]_+ + \frac{2}{\alpha} [y - u]_+$ with $\alpha$ =
    1 - ``coverage`` (Gneiting and Raftery 2007): it is proper for the two quantiles, so neither width nor coverage can
    be traded for the other unnoticed.

    >>> interval_quality([1.0, 5.0], [0.0, 0.0], [4.0, 4.0], 0.9)["covered"]
    0.5
    """
    alpha = 1 - check_between("coverage", coverage, 0, 1)
    truth = check_vector("labels", labels)
    bottom, top = (check_vector(name, end, size=len(truth)) for name, end in (("low", low), ("high", high)))
    outside = np.maximum(bottom - truth, 0) + np.maximum(truth - top, 0)
    width = top - bottom
    return {
        "covered": float(((truth >= bottom) & (truth <= top)).mean()),
        "width": float(width.mean()),
        "interval_score": float((width + 2 / alpha * outside).mean()),
    }
