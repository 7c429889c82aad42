"""How much likelier rows are in another population, and how many rows weights leave."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vicinal.calibration.checks import Floats, check_matrix, check_vector
from vicinal.core.checks import check_between

_FARTHEST = 4.0
"""Deviations from the mean of the source up to which a feature counts."""


@dataclass(frozen=True)
class DensityRatio:
    r"""$r(x) = \exp(b + w \cdot z(x))$, with features z standardized over the source and cut at 4 deviations.

    Attributes:
        center: ``[p]``, means of the source.
        scale: ``[p]``, deviations, > 0.
        slope: w ``[p]``.
        offset: b.
    """

    center: Floats
    scale: Floats
    slope: Floats
    offset: float

    def weights(self, features: ArrayLike) -> Floats:
        """The ratio ``[n]`` of rows with ``features [n, p]``, > 0."""
        rows = check_matrix("features", features, columns=len(self.center))
        units = np.clip((rows - self.center) / self.scale, -_FARTHEST, _FARTHEST)
        return np.asarray(np.exp(self.offset + units @ self.slope), dtype=np.float64)


def density_ratio(source: ArrayLike, target: ArrayLike, *, penalty: float = 10.0) -> DensityRatio:
    r"""The ratio of the densities of two populations, by a logistic regression that tells their rows apart.

    The odds of being a target row, with both sides of equal weight, are the ratio (Bickel, Brueckner and Scheffer 2007,
    section 2). Minimized is the log-loss, each side counting as the source has rows, plus ``penalty`` / 2 times
    $\|w\|^2$. Rows of the source with these weights calibrate for the target:
    :func:`vicinal.calibration.conformal_quantile`.

    Args:
        source: ``[n, p]``.
        target: ``[m, p]``.
        penalty: > 0; larger keeps the ratio nearer to 1.

    >>> rng = np.random.default_rng(0)
    >>> old, new = rng.normal(size=(4000, 1)), rng.normal(0.5, 1, size=(4000, 1))
    >>> ratio = density_ratio(old, new)  # truly exp(x / 2 - 1 / 8)
    >>> bool(np.abs(np.log(ratio.weights([[0.0], [1.0]])) - [-0.125, 0.375]).max() < 0.1)
    True
    """
    from sklearn.linear_model import LogisticRegression  # slow to import, and predictions import this file

    rows = check_matrix("source", source)
    goal = check_matrix("target", target, columns=rows.shape[1])
    check_between("penalty", penalty, 0, np.inf)
    center, deviation = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(deviation > 1e-9 * (1 + np.abs(center)), deviation, 1.0)
    units = np.clip((np.vstack([rows, goal]) - center) / scale, -_FARTHEST, _FARTHEST)
    side = np.repeat([0, 1], [len(rows), len(goal)])
    mass = np.repeat([1.0, len(rows) / len(goal)], [len(rows), len(goal)])
    fitted = LogisticRegression(C=1 / penalty, max_iter=1000).fit(units, side, mass)
    return DensityRatio(center, scale, fitted.coef_[0], float(fitted.intercept_[0]))


def effective_rows(weights: ArrayLike) -> float:
    r"""How many rows of equal weight tell as much: $(\sum w)^2 / \sum w^2$ (Kish 1965).

    >>> effective_rows([1.0, 1.0, 0.0])
    2.0
    """
    mass = check_vector("weights", weights)
    if (mass < 0).any() or not mass.any():
        raise ValueError("weights: expected numbers >= 0, not all of them 0")
    return float(mass.sum() ** 2 / (mass**2).sum())
