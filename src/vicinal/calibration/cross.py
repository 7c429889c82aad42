"""Cross-conformal prediction, CV+: every row calibrates, by the model that was fitted without its fold."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.blockwise.blocks import row_slices
from vicinal.calibration.checks import Floats, check_matrix, check_vector
from vicinal.calibration.classes import METHODS, class_scores
from vicinal.calibration.groups import group_mass
from vicinal.calibration.split import too_few
from vicinal.core import check_choice
from vicinal.core.checks import check_between

_NUMBERS = 1 << 22
"""Numbers that are held at a time."""


def cross_conformal_interval(
    low: ArrayLike,
    high: ArrayLike,
    scores: ArrayLike,
    folds: ArrayLike,
    coverage: float,
    *,
    unit: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Floats:
    r"""CV+ intervals from ranges of F models, each fitted without one fold of rows.

    .. math::
        \Big[ Q^-_{\alpha}\{l_{f(i)}(x) - s_i\, u_{f(i)}(x)\},\ Q^+_{1-\alpha}\{h_{f(i)}(x) + s_i\, u_{f(i)}(x)\} \Big]

    where f(i) is the fold of calibration row i, $s_i = \max(l_{f(i)}(x_i) - y_i,\, y_i - h_{f(i)}(x_i)) /
    u_{f(i)}(x_i)$ its score by the model that was fitted without it, $Q^+_{1-\alpha}$ the $\lceil (1-\alpha)(n+1)
    \rceil$-th smallest and $Q^-_\alpha$ the $\lceil (1-\alpha)(n+1) \rceil$-th largest. With $l = h$ the prediction and
    $u = 1$ this is CV+ of Barber, Candès, Ramdas and Tibshirani (2021, arXiv:1905.02928).

    For exchangeable rows and n rows in F folds it covers at least $1 - 2\alpha - \sqrt{2/n}$ of the time whatever the
    models. Where a fold hardly changes them, which is usual, it covers about $1 - \alpha$.

    Args:
        low: lower ends ``[b, F]`` of the rows to predict, by each model.
        high: upper ends ``[b, F]``.
        scores: ``[n]``, of the calibration rows.
        folds: ``[n]``, from 0 to F - 1.
        coverage: $1 - \alpha$, between 0 and 1.
        unit: ``[b, F]``, > 0; None: 1.
        weights: ``[n]``, > 0, of the calibration rows: quantiles are then weighted, and a row to predict gets the mean
            weight, see :func:`vicinal.calibration.conformal_quantile`.
        groups: ``[n]``, each within one fold: quantiles are then those of groups, and a row to predict is of a new one,
            see :func:`vicinal.calibration.group_mass`.

    Returns:
        ``[b, 2]``; where the ends would cross, both are set to their midpoint.

    Raises:
        ValueError: if there are too few calibration rows, or shapes do not agree.

    >>> cross_conformal_interval([[0.0, 1.0]], [[0.0, 1.0]], [1.0, 2.0, 1.0, 2.0], [0, 0, 1, 1], 0.6).tolist()
    [[-1.0, 2.0]]
    """
    lows, highs, misses, codes, mass, least = _checked(low, high, scores, folds, coverage, weights, groups)
    units = np.ones_like(lows) if unit is None else check_matrix("unit", unit, rows=len(lows), columns=lows.shape[1])
    ends = np.empty((len(lows), 2))
    for part in row_slices(len(lows), max(1, _NUMBERS // len(misses))):
        margin = units[part][:, codes] * misses  # [b, n]
        ends[part, 0] = -_quantiles(margin - lows[part][:, codes], mass, least)
        ends[part, 1] = _quantiles(highs[part][:, codes] + margin, mass, least)
    middle = ends.mean(axis=1)
    return np.stack([np.minimum(ends[:, 0], middle), np.maximum(ends[:, 1], middle)], axis=1)


def cross_conformal_sets(
    probabilities: ArrayLike,
    calibration: ArrayLike,
    labels: ArrayLike,
    folds: ArrayLike,
    coverage: float = 0.9,
    *,
    method: str = "lac",
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> NDArray[np.bool_]:
    r"""CV+ sets of classes: class c is in where $\#\{i : s_i < s_{f(i)}(x, c)\} < (1 - \alpha)(n + 1)$.

    Romano, Sesia and Candès (2020, arXiv:2006.02544, section 2.3); scores are those of
    :func:`vicinal.calibration.class_scores`. The guarantee is that of :func:`cross_conformal_interval`.

    Args:
        probabilities: ``[b, F, C]``, of the rows to predict by each model.
        calibration: ``[n, C]``, of each calibration row by the model that was fitted without it.
        labels: their classes ``[n]``.
        folds: their folds ``[n]``.
        coverage: $1 - \alpha$, between 0 and 1.
        method: "lac", "aps" or "raps".
        weights: ``[n]``, see :func:`cross_conformal_interval`.
        groups: ``[n]``, see there.

    Returns:
        ``[b, C]``.

    >>> rows = [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]]
    >>> cross_conformal_sets([[[0.8, 0.2], [0.9, 0.1]]], rows, [0, 1, 0, 1], [0, 0, 1, 1], 0.6).tolist()
    [[True, False]]
    """
    check_choice("method", method, METHODS)
    shares = np.asarray(probabilities, dtype=np.float64)
    if shares.ndim != 3:
        raise ValueError(f"probabilities: expected [rows, folds, classes], got shape {shares.shape}")
    calibration_scores = class_scores(calibration, method=method)
    truth = np.asarray(labels, dtype=np.int64)
    scores = calibration_scores[np.arange(len(truth)), truth]
    ends = shares[:, :, 0], shares[:, :, 0]
    _, _, misses, codes, mass, least = _checked(*ends, scores, folds, coverage, weights, groups)
    below = np.zeros((len(shares), shares.shape[2]))
    for fold in range(shares.shape[1]):
        inside = np.flatnonzero(codes == fold)
        ranked = inside[np.argsort(misses[inside], kind="stable")]
        places = np.searchsorted(misses[ranked], class_scores(shares[:, fold], method=method))
        below += np.append(0.0, mass[ranked].cumsum())[places]
    return np.asarray(below < least)


def _quantiles(values: Floats, mass: Floats, least: float) -> Floats:
    """Of each row ``[b, n]`` the smallest value that has mass of at least ``least`` up to it."""
    if (mass == 1).all():
        place = math.ceil(least) - 1
        return np.asarray(np.partition(values, place, axis=1)[:, place])
    order = np.argsort(values, axis=1, kind="stable")
    places = (mass[order].cumsum(axis=1) < least).sum(axis=1, keepdims=True)
    return np.asarray(np.take_along_axis(values, np.take_along_axis(order, places, axis=1), axis=1)[:, 0])


def _checked(
    low: ArrayLike,
    high: ArrayLike,
    scores: ArrayLike,
    folds: ArrayLike,
    coverage: float,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> tuple[Floats, Floats, Floats, NDArray[np.int64], Floats, float]:
    """The arrays, checked, the mass of each row, and how much of it lies up to the end."""
    lows = check_matrix("low", low)
    highs = check_matrix("high", high, rows=len(lows), columns=lows.shape[1])
    misses = check_vector("scores", scores)
    codes = np.asarray(folds)
    if codes.shape != misses.shape or codes.dtype.kind not in "iu":
        raise ValueError(f"folds: expected {len(misses)} whole numbers, got {codes.dtype} {codes.shape}")
    if len(codes) and not (codes.min() >= 0 and codes.max() < lows.shape[1]):
        raise ValueError(f"folds: expected numbers from 0 to {lows.shape[1] - 1}, got {codes.min()} to {codes.max()}")
    count = len(misses)
    share = check_between("coverage", coverage, 0, 1)
    mass = np.ones(count) if weights is None else check_vector("weights", weights, size=count)
    if not (mass > 0).all():
        raise ValueError("weights: expected numbers above 0, got others")
    if groups is not None:
        mass, number = group_mass(groups, mass)
        least = (number + 1) * share - 1e-9  # sums of shares are rounded
        if least > number:
            raise too_few(coverage, number / (number + 1), number, "groups")
        return lows, highs, misses, codes, mass, min(least, number - 1e-9)
    least = math.ceil((count + 1) * share - 1e-9) if weights is None else (mass.sum() + mass.mean()) * share - 1e-12
    if least > mass.sum():
        raise too_few(coverage, count / (count + 1), count)
    return lows, highs, misses, codes, mass, float(least)
