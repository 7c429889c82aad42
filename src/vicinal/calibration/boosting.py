"""Level-set boosting: predictions whose every level is right on average, for every group that a learner can see."""

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vicinal.calibration.checks import Floats, check_matrix, check_vector
from vicinal.core.checks import check_between, check_integer

_Round = dict[int, Any]
"""The learner fitted on each level that held enough rows, by the level's number."""


class LevelSetBoosting:
    r"""Makes predictions multicalibrated: on each level of them, no learner can still improve.

    Predictions are rounded to ``levels`` + 1 values. Each round fits a weak learner to the labels of every level's
    rows, moves the level by ``rate`` toward it, and rounds again; at a fixed point $E[h(x)(y - v) \mid f(x) = v]$ is
    small for every level v and learner h. Globus-Harris et al., *Multicalibration as Boosting for Regression*, ICML
    2023 (arXiv:2301.13767).

    Args:
        learner: an object with fit(X, y) and predict(X), copied for each level (default: ridge regression with almost
            no penalty).
        levels: steps of the grid, at least 1.
        rounds: most rounds.
        rate: share of the way to the learner's prediction, in (0, 1].
        least: levels with at most this many rows are left unchanged.
        tolerance: stop when a round's squared error, before rounding, is not lower than the last one's by more than
            this; on the validation rows if :meth:`fit` is given any. None: always make all rounds.
        low: lower end of the grid (default: the lowest label that :meth:`fit` sees).
        high: upper end of the grid (default: the highest label that :meth:`fit` sees).

    Attributes:
        grid: ``[levels + 1]``, set by :meth:`fit`, as the rest.
        errors: mean squared error of the start, then after each round kept (rounded predictions, fitting rows).

    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (400, 1))
    >>> y = np.abs(x[:, 0])
    >>> model = LevelSetBoosting(levels=8, rounds=6).fit(x, y, start=(x[:, 0] + 1) / 2)
    >>> bool(model.errors[-1] < 0.2 * model.errors[0])
    True
    """

    def __init__(
        self,
        learner: Any = None,
        *,
        levels: int = 10,
        rounds: int = 100,
        rate: float = 1.0,
        least: int = 1,
        tolerance: float | None = 1e-4,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        from sklearn.linear_model import Ridge  # here, so that importing heads stays light

        self.learner = Ridge(alpha=1e-8) if learner is None else learner
        self.levels, self.rounds = check_integer("levels", levels), check_integer("rounds", rounds, 0)
        check_between("rate", rate, 0, 1, closed=True)
        self.rate, self.least = rate, check_integer("least", least, 0)
        self.tolerance, self.low, self.high = tolerance, low, high
        self.errors: list[float] = []
        self._rounds: list[_Round] | None = None

    def fit(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        *,
        start: ArrayLike | None = None,
        validation: tuple[ArrayLike, ArrayLike, ArrayLike | None] | None = None,
    ) -> "LevelSetBoosting":
        """Fit the rounds.

        Args:
            features: ``[n, p]`` that the learner sees: group membership, embeddings, anything.
            labels: ``[n]``.
            start: ``[n]`` predictions of the model to be calibrated (default: those of one learner fitted on all).
            validation: features, labels and start predictions (None if ``start`` is None) that decide when to stop.
        """
        rows = check_matrix("features", features)
        truth = check_vector("labels", labels, size=len(rows))
        self.grid = self._grid(truth)
        self._first: Any = None if start is not None else self._copy().fit(rows, truth)
        current = self._started(rows, start)
        judged = None if validation is None else self._validated(validation, rows.shape[1])
        self.errors, self._rounds = [float(((current - truth) ** 2).mean())], []
        best = self.errors[0] if judged is None else float(((judged[2] - judged[1]) ** 2).mean())
        for _ in range(self.rounds):
            step = self._fitted(rows, truth, current)
            moved = self._moved(step, rows, current)
            error = float(((moved - truth) ** 2).mean())
            if judged is not None:
                ahead = self._moved(step, judged[0], judged[2])
                error = float(((ahead - judged[1]) ** 2).mean())
                judged = (judged[0], judged[1], ahead)
            if self.tolerance is not None and best - error <= self.tolerance:
                break
            best, current = error, moved
            self._rounds.append(step)
            self.errors.append(float(((self._rounded(current) - truth) ** 2).mean()))
        return self

    def predict(self, features: ArrayLike, *, start: ArrayLike | None = None) -> Floats:
        """Calibrated predictions ``[n]``, all on ``grid``; ``start`` as it was (or was not) given to :meth:`fit`."""
        if self._rounds is None:
            raise ValueError("predict: expected a fitted LevelSetBoosting, got one without rounds; call fit first")
        rows = check_matrix("features", features)
        current = self._started(rows, start)
        for step in self._rounds:
            current = self._moved(step, rows, current)
        return self._rounded(current)

    def _grid(self, truth: Floats) -> Floats:
        low = float(truth.min()) if self.low is None else self.low
        high = float(truth.max()) if self.high is None else self.high
        if low >= high:
            raise ValueError(f"labels: expected a range of values, got only {low:g}")
        if truth.min() < low or truth.max() > high:
            raise ValueError(
                f"labels: expected values from {low:g} to {high:g}, got {truth.min():g}..{truth.max():g}; "
                "widen low and high"
            )
        return np.linspace(low, high, self.levels + 1)

    def _started(self, rows: Floats, start: ArrayLike | None) -> Floats:
        if (start is None) != (self._first is not None):
            raise ValueError("start: expected predictions exactly if fit was given some")
        if start is not None:
            return check_vector("start", start, size=len(rows))
        return np.asarray(self._first.predict(rows), dtype=np.float64)

    def _validated(
        self, validation: tuple[ArrayLike, ArrayLike, ArrayLike | None], width: int
    ) -> tuple[Floats, Floats, Floats]:
        rows = check_matrix("validation features", validation[0], columns=width)
        truth = check_vector("validation labels", validation[1], size=len(rows))
        return rows, truth, self._started(rows, validation[2])

    def _copy(self) -> Any:
        from sklearn.base import clone

        return clone(self.learner) if hasattr(self.learner, "get_params") else copy.deepcopy(self.learner)

    def _level(self, values: Floats) -> Any:
        return np.abs(values[:, None] - self.grid).argmin(1)

    def _rounded(self, values: Floats) -> Floats:
        return np.asarray(self.grid[self._level(values)], dtype=np.float64)

    def _fitted(self, rows: Floats, truth: Floats, current: Floats) -> _Round:
        level, learners = self._level(current), {}
        for number in np.unique(level):
            mine = level == number
            if mine.sum() > self.least:
                learners[int(number)] = self._copy().fit(rows[mine], truth[mine])
        return learners

    def _moved(self, step: _Round, rows: Floats, current: Floats) -> Floats:
        level = self._level(current)
        moved = np.asarray(self.grid[level], dtype=np.float64)
        for number, learner in step.items():
            mine = level == number
            if mine.any():
                moved[mine] = (1 - self.rate) * moved[mine] + self.rate * learner.predict(rows[mine])
        return moved


def multicalibration_error(
    predictions: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    *,
    levels: int | None = 10,
) -> Floats:
    r"""For each group function h: $\sum_v P(f = v)\, |E[h(x)(y - v) \mid f = v]|$; the error of a model is the largest.

    Args:
        predictions: ``[n]``, f.
        labels: ``[n]``, y.
        groups: ``[n, G]``, a column for each h, for instance 0/1 membership; a column of ones gives plain calibration.
        levels: predictions are rounded to ``levels`` + 1 values between their lowest and highest; None: they are levels
            already.

    Returns:
        ``[G]``.

    >>> multicalibration_error([0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0], [[1], [1], [1], [1]], levels=None).tolist()
    [0.25]
    """
    values = check_vector("predictions", predictions)
    truth = check_vector("labels", labels, size=len(values))
    members = check_matrix("groups", groups, rows=len(values))
    if levels is not None and len(values):
        grid = np.linspace(values.min(), values.max(), check_integer("levels", levels) + 1)
        values = grid[np.abs(values[:, None] - grid).argmin(1)]
    _, level = np.unique(values, return_inverse=True)
    count = np.bincount(level)
    sums = np.stack([np.bincount(level, column * (truth - values)) for column in members.T], axis=1)
    means = sums / count[:, None]
    return np.asarray((count[:, None] * np.abs(means)).sum(0) / len(values), dtype=np.float64)
