"""Intervals from the whole distribution of neighbor labels: regions of highest density, in one piece or several."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vicinal.calibration.checks import Floats, check_vector
from vicinal.calibration.split import conformal_quantile
from vicinal.core.checks import check_between, check_integer


def neighbor_density(weights: ArrayLike, labels: ArrayLike, at: ArrayLike, *, width: float) -> Floats:
    r"""Smoothed distribution of neighbor labels, $\sum_j p_{ij}\, \mathcal N(v; y_j, \mathrm{width}^2)$.

    Args:
        weights: ``[b, N]``, rows sum to 1.
        labels: ``[N]``.
        at: ``[g]``, points v common to all rows, or ``[b, g]``.
        width: deviation of the kernel, in label units, above 0.

    Returns:
        ``[b, g]``.
    """
    check_between("width", width, 0, float("inf"))
    mass = np.asarray(weights, dtype=np.float64)
    targets = check_vector("labels", labels, size=mass.shape[-1])
    points = np.asarray(at, dtype=np.float64)

    def normal(grid: Floats) -> Floats:
        """The density of each label at each point ``[N, g]``."""
        return np.asarray(np.exp(-0.5 * ((grid - targets[:, None]) / width) ** 2) / (width * np.sqrt(2 * np.pi)))

    if points.ndim == 1:
        return np.asarray(mass @ normal(points))
    # a row at a time: of all rows it would be [b, N, g]
    rows = [row @ normal(grid) for row, grid in zip(mass, points, strict=True)]
    return np.asarray(rows, dtype=np.float64).reshape(points.shape)


@dataclass
class DensityIntervals:
    """Conformal highest-density regions: all labels at which the neighbors' density is a good share of its mode's.

    The score of a label is 1 - density / density at the mode, so the threshold from calibration rows gives regions that
    cover as promised, narrow where neighbors agree and in several pieces where they disagree (after Izbicki et al.
    2022, arXiv:1910.05575, with the neighbors' weights as the density).

    Args:
        coverage: between 0 and 1.
        width: deviation of the kernel in label units; None: by Silverman's rule from the labels of the bank.
        points: of the grid on which regions are found.

    >>> labels = np.array([0.0, 0.1, 5.0, 5.1])
    >>> weights = np.array([[0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    >>> regions = DensityIntervals(coverage=0.5, width=0.2).fit(weights.repeat(5, 0), labels, np.arange(10) * 0.0 + 0.2)
    >>> [len(pieces) for pieces in regions.predict(weights, labels)]
    [1, 2]
    """

    coverage: float = 0.9
    width: float | None = None
    points: int = 512
    threshold: float | None = None

    def fit(self, weights: ArrayLike, labels: ArrayLike, truth: ArrayLike) -> "DensityIntervals":
        """Calibrate on rows with ``weights [n, N]`` over the bank's ``labels [N]`` and own labels ``truth [n]``."""
        check_between("coverage", self.coverage, 0, 1)
        targets = check_vector("labels", labels)
        of_rows = check_vector("truth", truth, size=len(np.asarray(weights)))
        if self.width is None:
            self.width = max(0.9 * float(targets.std()) * len(targets) ** -0.2, 1e-12)
        height = neighbor_density(weights, targets, of_rows[:, None], width=self.width)[:, 0]
        mode = np.maximum(
            self._on_grid(weights, targets)[1].max(1), height
        )  # a peak may lie between points of the grid
        self.threshold = conformal_quantile(1 - height / mode, self.coverage)
        return self

    def predict(self, weights: ArrayLike, labels: ArrayLike) -> list[list[tuple[float, float]]]:
        """For each row the pieces (low, high) of its region, from low to high."""
        if self.threshold is None:
            raise ValueError("predict: expected fitted DensityIntervals, got none calibrated; call fit first")
        grid, density = self._on_grid(weights, check_vector("labels", labels))
        inside = 1 - density / density.max(1, keepdims=True) <= self.threshold
        step = (grid[1] - grid[0]) / 2
        return [_pieces(grid, row, step) for row in inside]

    def _on_grid(self, weights: ArrayLike, targets: Floats) -> tuple[Floats, Floats]:
        width = self.width or 1e-12
        check_integer("points", self.points, 2)
        margin = 4 * width
        grid = np.linspace(targets.min() - margin, targets.max() + margin, self.points)
        return grid, neighbor_density(weights, targets, grid, width=width)


def _pieces(grid: Floats, inside: Floats, step: float) -> list[tuple[float, float]]:
    edge = np.diff(np.concatenate([[0], inside.astype(int), [0]]))
    starts, ends = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1) - 1
    return [(float(grid[a] - step), float(grid[b] + step)) for a, b in zip(starts, ends, strict=True)]
