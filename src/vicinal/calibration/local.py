"""How large an error usually is where a prediction and its spread are what they are."""

import numpy as np
from numpy.typing import ArrayLike

from vicinal.calibration.checks import Floats, check_matrix, check_vector

_KNOTS, _PENALTY, _LEAST = 5, 10.0, 0.25
"""Knots of each feature, the ridge penalty in rows, and the least root as a share of the mean one."""


class ErrorSize:
    r"""Usual size of an error by features of its row, so that intervals are as wide as errors are there.

    $s(x) = \big(\bar r + \sum_{jk} w_{jk} (\phi_k(u_j(x)) - \bar\phi_{jk})\big)^2$, at least $(\bar r / 4)^2$, where
    $u_j$ is the rank of feature j among the calibrating rows as a share, $\phi_k$ are five hats over [0, 1], and w is
    the ridge regression (penalty 10) of the roots $r_i = \sqrt{|e_i|}$. So few rows give nearly one size for all.

    Conformal scores $|e_i| / s_i$ take the size that is fitted without row i (Lei et al. 2018, arXiv:1604.04173,
    section 5.2, where it is another forest).

    Args:
        features: ``[n, p]`` of the calibrating rows.
        errors: ``[n]``; their signs do not count.

    Attributes:
        left_out: ``[n]``, > 0: the size of each calibrating row as fitted without it, in closed form.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(0, 1, (400, 1))
    >>> size = ErrorSize(x, (1 + 9 * x[:, 0]) * rng.normal(size=400))
    >>> bool(2 < size([[0.9]])[0] / size([[0.1]])[0] < 5)  # 4.8 without a penalty
    True
    """

    def __init__(self, features: ArrayLike, errors: ArrayLike) -> None:
        rows = check_matrix("features", features)
        roots = np.sqrt(np.abs(check_vector("errors", errors, size=len(rows))))
        self._sorted = np.sort(rows, axis=0)
        self._mean = float(roots.mean()) if len(roots) else 0.0
        hats = self._hats(rows)
        self._center = hats.mean(axis=0) if len(hats) else np.zeros(hats.shape[1])
        hats = hats - self._center
        inverse = np.linalg.inv(hats.T @ hats + _PENALTY * np.eye(hats.shape[1]))
        self._weights = inverse @ (hats.T @ (roots - self._mean))
        leverage = ((hats @ inverse) * hats).sum(axis=1) + 1 / max(len(roots), 1)
        misses = (roots - self._mean - hats @ self._weights) / np.maximum(1 - leverage, 1e-6)
        self.left_out = self._squared(roots - misses)

    def __call__(self, features: ArrayLike) -> Floats:
        """Sizes ``[b]``, > 0, of rows with ``features [b, p]``."""
        hats = self._hats(check_matrix("features", features, columns=self._sorted.shape[1]))
        return self._squared(self._mean + (hats - self._center) @ self._weights)

    def _hats(self, features: Floats) -> Floats:
        """Values ``[b, p * 5]`` of the hats at the rank of each feature; equal values have their middle rank."""
        ranks = np.zeros_like(features)
        for column, (values, known) in enumerate(zip(features.T, self._sorted.T, strict=True)):
            ends = np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")
            ranks[:, column] = ends / max(2 * len(known), 1)
        away = np.abs(ranks[:, :, None] - np.linspace(0, 1, _KNOTS))
        return np.asarray(np.maximum(0, 1 - away * (_KNOTS - 1)).reshape(len(features), _KNOTS * features.shape[1]))

    def _squared(self, roots: Floats) -> Floats:
        """Sizes; 1 where all errors are 0."""
        return np.asarray(np.maximum(roots, _LEAST * self._mean) ** 2 if self._mean > 0 else np.ones_like(roots))
