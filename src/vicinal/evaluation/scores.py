"""How well predictions do: scores of a regression and of a classification."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def regression_scores(truth: ArrayLike, prediction: ArrayLike, weights: ArrayLike | None = None) -> dict[str, float]:
    """Mean squared error, mean absolute error and R2 of ``prediction [n]`` (or ``[n, T]``, averaged over targets).

    R2 is 1 minus the squared error over that of the mean of ``truth``: at most 1, 0 for the mean, negative below it;
    of a constant truth it is 0 (1 if hit exactly), of fewer than two rows NaN, as in scikit-learn. With
    ``weights [n]`` all means are weighted.

    Raises:
        ValueError: for no rows, different shapes, or a number that is not finite.

    >>> regression_scores([1.0, 2.0, 3.0], [1.0, 2.0, 5.0])["mae"]
    0.6666666666666666
    """
    y, p = np.asarray(truth, dtype=np.float64), np.asarray(prediction, dtype=np.float64)
    if y.shape != p.shape or not y.size:
        raise ValueError(f"prediction: expected shape {y.shape} as the truth, at least one row, got {p.shape}")
    for name, values in (("truth", y), ("prediction", p)):
        _check_finite(name, values)
    error = (y - p).reshape(len(y), -1)  # [n, T]
    mass = np.ones((len(y), 1)) if weights is None else relative_weights(weights, len(y))[:, None]
    squared = (mass * error**2).sum(0)
    labels = y.reshape(len(y), -1)
    spread = (mass * (labels - (mass * labels).mean(0)) ** 2).sum(0)
    exact = np.where(squared == 0, 1.0, 0.0)
    r2 = np.where(spread > 0, 1 - squared / np.where(spread > 0, spread, 1.0), exact)
    return {
        "mse": float((mass * error**2).mean()),
        "mae": float((mass * np.abs(error)).mean()),
        "r2": float(r2.mean()) if len(y) > 1 else float("nan"),
    }


def classification_scores(
    truth: Sequence[Any] | NDArray[Any],
    probabilities: ArrayLike,
    classes: Sequence[Any],
    weights: ArrayLike | None = None,
) -> dict[str, float]:
    """Accuracy (of the most probable class) and mean negative natural log of the true class' probability.

    A true class that is not in ``classes`` (never seen in training) counts as wrong with probability 0. Probabilities
    are clipped at 2.2e-16, as scikit-learn does, so one confident mistake costs at most 36.

    Args:
        truth: class of each row ``[n]``.
        probabilities: ``[n, C]``, rows sum to 1.
        classes: the class of each column ``[C]``.
        weights: ``[n]``, of weighted means; None: 1 each.

    Raises:
        ValueError: for other shapes, or rows that do not sum to 1.

    >>> scores = classification_scores(["a", "b"], [[1.0, 0.0], [0.5, 0.5]], ["a", "b"])
    >>> scores["accuracy"], round(scores["log_loss"], 6)  # the second row costs log 2
    (0.5, 0.346574)
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if p.shape != (len(truth), len(classes)) or not len(truth):
        raise ValueError(f"probabilities: expected shape {(len(truth), len(classes))}, got {p.shape}")
    _check_finite("probabilities", p)
    total = p.sum(1)
    if p.min() < -1e-6 or np.abs(total - 1).max() > 1e-3:
        row = int(np.argmax(np.maximum(np.abs(total - 1), -p.min(1))))
        raise ValueError(f"probabilities: expected rows that sum to 1, got {p[row].tolist()} in row {row}")
    column = {name: place for place, name in enumerate(classes)}
    places = np.array([column.get(label, -1) for label in truth])
    eps = np.finfo(np.float64).eps
    mass = np.ones(len(p)) if weights is None else relative_weights(weights, len(p))
    of_truth = np.where(places >= 0, p[np.arange(len(p)), places], 0.0) / total
    return {
        "accuracy": float((mass * (p.argmax(1) == places)).mean()),
        "log_loss": float((mass * -np.log(np.clip(of_truth, eps, 1 - eps))).mean()),
    }


def relative_weights(weights: ArrayLike, rows: int) -> NDArray[np.float64]:
    """``weights [rows]``, > 0, divided by their mean.

    >>> relative_weights([1, 3], 2).tolist()
    [0.5, 1.5]
    """
    mass = np.asarray(weights, dtype=np.float64)
    if mass.shape != (rows,) or not (np.isfinite(mass) & (mass > 0)).all():
        raise ValueError(f"weights: expected {rows} finite numbers above 0, got others")
    relative: NDArray[np.float64] = mass / mass.mean()
    return relative


def _check_finite(name: str, values: NDArray[np.float64]) -> None:
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(np.argmax(wrong.reshape(len(values), -1).any(1)))
        raise ValueError(f"{name}: expected finite numbers, got {values[row]} in row {row}")
