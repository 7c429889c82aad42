"""Thresholds that hold where rows to predict differ from rows to calibrate on: likelihood-ratio regularization."""

import numpy as np
from numpy.typing import ArrayLike

from vicinal.calibration.checks import Floats, check_matrix, check_vector
from vicinal.core.checks import check_between

GRID = (0.001, 0.01, 0.1, 1.0, 10.0)


class ShiftedQuantile:
    r"""LR-QR: a conformal threshold $h(x) = \phi(x) \cdot \theta$ for rows from another population.

    Minimizes $\mathrm{mean}_{source}\, \rho_{c}(S - h) + \lambda\, \overline{|S|}\, (\beta^2 \mathrm{mean}_{source} h^2
    - 2 \beta\, \mathrm{mean}_{target} h)$ over $\theta$ and $\beta$, where $\rho_c$ is the pinball loss at the coverage
      c and $\overline{|S|}$ the mean size of the scores, which makes $\lambda$ dimensionless. The bracket is
    $E_{source}(\beta h - r)^2$ up to a constant, since $E_{source}[r h] = E_{target}[h]$: the likelihood ratio r of the
    two populations directs the fit, but is not estimated for it. Joshi et al. 2025 (arXiv:2502.13030).

    Coverage is exact for the source rows weighted by $\beta h$. So coverage on the target is as good as $\beta h$ is as
    a likelihood ratio, and as well as the features let h follow the scores; features that can do neither leave a gap.

    Args:
        coverage: share of target rows with score <= threshold, between 0 and 1.
        strength: $\lambda$ >= 0; "auto" takes the one of 0.001 .. 10 with the smallest pinball loss on held-out thirds
            of the calibration rows, weighted by the likelihood ratio that the features express best (in mean square
            over the source, which needs no labels). All strengths are compared under the same weights.
        seed: of the split into thirds.

    Attributes:
        strength_: the strength that was used; set by :meth:`fit`, as the rest.
        coefficients: ``[p]``, theta.
        ratio_scale: beta; beta h(x) is the fitted likelihood ratio.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 1))
    >>> scores = np.abs(rng.normal(size=2000)) * np.exp(0.5 * x[:, 0])
    >>> shifted = rng.normal(1.0, 1.0, size=(2000, 1))
    >>> features = lambda x: np.hstack([np.ones_like(x), x, x**2])
    >>> model = ShiftedQuantile(coverage=0.9).fit(features(x), scores, features(shifted))
    >>> fresh = np.abs(rng.normal(size=2000)) * np.exp(0.5 * shifted[:, 0])
    >>> bool(abs((fresh <= model.predict(features(shifted))).mean() - 0.9) < 0.03)
    True
    """

    def __init__(self, coverage: float = 0.9, *, strength: float | str = "auto", seed: int = 0) -> None:
        self.coverage = check_between("coverage", coverage, 0, 1)
        if strength != "auto":
            check_between("strength", strength, 0, float("inf"), closed=True)
        self.strength, self.seed = strength, seed
        self.coefficients: Floats | None = None
        self.ratio_scale = 0.0

    def fit(
        self, features: ArrayLike, scores: ArrayLike, target: ArrayLike, *, source: ArrayLike | None = None
    ) -> "ShiftedQuantile":
        """Fit the threshold.

        Args:
            features: ``[n, p]`` of calibration rows; one column must be constant.
            scores: ``[n]`` conformal scores of these rows.
            target: ``[m, p]`` features of rows like those to be predicted; their labels are not needed.
            source: ``[k, p]`` further unlabelled rows like those of calibration (default: ``features``).

        Raises:
            ValueError: without a constant feature, or with fewer than 1 / (1 - coverage) calibration rows.
        """
        rows = check_matrix("features", features)
        values = check_vector("scores", scores, size=len(rows))
        width = rows.shape[1]
        goal = check_matrix("target", target, columns=width)
        base = rows if source is None else check_matrix("source", source, columns=width)
        if not any(np.ptp(column) == 0 and column[0] != 0 for column in rows.T):
            raise ValueError("features: expected a constant column among them, found none; add a column of ones")
        least = int(np.ceil(1 / (1 - self.coverage) - 1e-9))
        if len(rows) < least:
            raise ValueError(f"scores: expected at least {least} rows for coverage {self.coverage}, got {len(rows)}")
        strength = self._chosen(rows, values, goal, base) if self.strength == "auto" else float(self.strength)
        self.strength_ = strength
        self.coefficients, self.ratio_scale = _solve(rows, values, goal, base, self.coverage, strength)
        return self

    def predict(self, features: ArrayLike) -> Floats:
        """Thresholds ``[n]``: the set of a row holds every label whose score is at most this."""
        if self.coefficients is None:
            raise ValueError("predict: expected a fitted ShiftedQuantile, got one without coefficients; call fit first")
        return check_matrix("features", features, columns=len(self.coefficients)) @ self.coefficients

    def _chosen(self, rows: Floats, values: Floats, goal: Floats, base: Floats) -> float:
        folds = np.random.default_rng(self.seed).permutation(len(rows)) % 3
        weight = _ratio(rows, goal, base)
        losses = []
        for strength in GRID:
            height = np.empty(len(rows))
            for fold in range(3):
                inside, outside = folds != fold, folds == fold
                theta, _ = _solve(rows[inside], values[inside], goal, base, self.coverage, strength)
                height[outside] = rows[outside] @ theta
            losses.append(float(weight @ _pinball(values - height, self.coverage)))
        return GRID[int(np.argmin(losses))]


def _ratio(rows: Floats, goal: Floats, base: Floats) -> Floats:
    r"""Likelihood ratio ``[n]`` of ``rows``: of all $\phi \cdot w$ the nearest to it in the mean square, at least 0.

    $E_{source}(\phi \cdot w - r)^2$ is least where $E_{source}[\phi \phi^T]\, w = E_{target}[\phi]$.
    """
    weights = np.linalg.lstsq(base.T @ base / len(base), goal.mean(0), rcond=None)[0]
    return np.asarray(np.maximum(rows @ weights, 0.0), dtype=np.float64)


def _pinball(gap: Floats, level: float) -> Floats:
    return np.maximum(level * gap, (level - 1) * gap)


def _solve(
    rows: Floats, values: Floats, goal: Floats, base: Floats, level: float, strength: float
) -> tuple[Floats, float]:
    r"""Theta and beta: pinball smoothed over a shrinking width, L-BFGS at each, beta in closed form inside.

    At the best beta the bracket is $-(\mathrm{mean}_{target} h)^2 / \mathrm{mean}_{source} h^2$, which does not
    depend on the size of h.
    """
    from scipy.optimize import minimize  # slow to import, and predictions import this file

    scale = float(np.abs(values).mean()) or 1.0
    moment, mean = base.T @ base / len(base), goal.mean(0)
    start = np.linalg.lstsq(rows, np.full(len(rows), np.quantile(values, level)), rcond=None)[0]

    def objective(theta: Floats, width: float) -> tuple[float, Floats]:
        gap = values - rows @ theta
        soft = width * np.logaddexp(0, -gap / width)  # smooth pinball: level * gap + soft
        chance = 1 / (1 + np.exp(np.clip(gap / width, -500, 500)))
        loss = level * gap + soft
        slope = rows.T @ (chance - level) / len(rows)
        reach, size = float(mean @ theta), float(theta @ moment @ theta)
        bracket = -(reach**2) / size
        pull = -2 * reach / size * mean + 2 * reach**2 / size**2 * (moment @ theta)
        return float(loss.mean()) + strength * scale * bracket, slope + strength * scale * pull

    for width in (0.1, 0.01, 0.001, 0.0001):
        result = minimize(
            objective, start, args=(width * scale,), jac=True, method="L-BFGS-B", options={"maxiter": 500}
        )
        start = result.x
    size = float(start @ moment @ start)
    if size <= 0:
        raise ValueError("scores: expected some above 0, got a threshold of 0 everywhere; nothing can be calibrated")
    return np.asarray(start, dtype=np.float64), float(mean @ start) / size
