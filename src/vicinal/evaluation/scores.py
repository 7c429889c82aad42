"""How well predictions do: scores of a regression and of a classification."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def regression_scores(truth: ArrayLike, prediction: ArrayLike, weights: ArrayLike | None = None) -> dict[str, float]:
    """Mean squared error, mean absolute error and R2 of ``prediction [n]`` (or ``[n, T]``, averaged over targets).

    R2 is 1 minus the squared error over that of the mean of ``truth``: at most 1, 0 for the mean, and negative for
    anything worse. For a constant truth it is 0 (1 if hit exactly), for fewer than two rows NaN, as in scikit-learn.
    With ``weights [n]`` all means are weighted.

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
    mass = relative_weights(len(y), weights)[:, None]
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
    p = _finite_shares(truth, probabilities, classes)
    total = p.sum(1)
    if p.min() < -1e-6 or np.abs(total - 1).max() > 1e-3:
        row = int(np.argmax(np.maximum(np.abs(total - 1), -p.min(1))))
        raise ValueError(f"probabilities: expected rows that sum to 1, got {p[row].tolist()} in row {row}")
    column = {name: place for place, name in enumerate(classes)}
    places = np.array([column.get(label, -1) for label in truth])
    eps = np.finfo(np.float64).eps
    mass = relative_weights(len(p), weights)
    of_truth = np.where(places >= 0, p[np.arange(len(p)), places], 0.0) / total
    return {
        "accuracy": float((mass * (p.argmax(1) == places)).mean()),
        "log_loss": float((mass * -np.log(np.clip(of_truth, eps, 1 - eps))).mean()),
    }


def several_hot(
    cells: Sequence[Sequence[Any]] | NDArray[Any], classes: Sequence[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows of several classes as 0 or 1 of each of ``classes`` ``[n, K]``, and how many others they have ``[n]``.

    >>> labels, others = several_hot([("a", "new"), ()], ["a", "b"])
    >>> labels.tolist(), others.tolist()
    ([[1.0, 0.0], [0.0, 0.0]], [1.0, 0.0])
    """
    places = {name: place for place, name in enumerate(classes)}
    labels, others = np.zeros((len(cells), len(classes))), np.zeros(len(cells))
    for row, names in enumerate(cells):
        known = [places[name] for name in names if name in places]
        labels[row, known] = 1.0
        others[row] = len(names) - len(known)
    return labels, others


def several_scores(
    truth: Sequence[Sequence[Any]] | NDArray[Any],
    probabilities: ArrayLike,
    classes: Sequence[Any],
    thresholds: ArrayLike,
    weights: ArrayLike | None = None,
) -> dict[str, float]:
    r"""Scores where rows may have several classes: of what is said from thresholds on, and of the probabilities.

    If a class is predicted for p rows, rightly for h of them, and t rows have it, $F_1 = 2h / (p + t)$: "micro_f1"
    takes it of the sums over all classes, "macro_f1" is the mean over classes that some row has. "subset_accuracy" is
    the share of rows whose classes are exactly those predicted, "hamming_loss" the share of wrong decisions, one for
    each row and class. From the probabilities come "average_precision", the mean over the classes of "macro_f1", and
    "log_loss", over all.

    A class that is not in ``classes`` (never seen in training) counts as missed in "micro_f1" and "subset_accuracy",
    and nowhere else. Probabilities are clipped at 2.2e-16.

    Args:
        truth: classes of each row ``[n]``.
        probabilities: ``[n, K]``, each in [0, 1].
        classes: the class of each column ``[K]``.
        thresholds: the probability from which each class is predicted ``[K]``.
        weights: ``[n]``, of weighted sums and means; None: 1 each.

    Raises:
        ValueError: for other shapes, or probabilities outside of [0, 1].

    >>> scores = several_scores([("a",), ("a", "b")], [[0.9, 0.1], [0.8, 0.3]], ["a", "b"], [0.5, 0.5])
    >>> scores["micro_f1"], scores["subset_accuracy"], scores["hamming_loss"]  # the second b is not said
    (0.8, 0.5, 0.25)
    """
    p = check_several(truth, probabilities, classes)
    labels, others = several_hot(truth, classes)
    said = p >= np.asarray(thresholds)
    mass = relative_weights(len(p), weights)
    right, counted = said == labels, f1_parts(labels, said, others)
    by_class = [one for one in scores_by_class(labels, p, thresholds, mass) if one["rows"]]
    hits, both = mass @ counted
    return {
        "micro_f1": float(hits / both) if both else 0.0,
        "macro_f1": float(np.mean([one["f1"] for one in by_class] or [0.0])),
        "subset_accuracy": float((mass * (right.all(1) & (others == 0))).mean()),
        "hamming_loss": float((mass[:, None] * ~right).mean()),
        "average_precision": float(np.mean([one["average_precision"] for one in by_class] or [0.0])),
        "log_loss": float((mass[:, None] * several_log_loss(labels, p)).mean()),
    }


def several_log_loss(labels: NDArray[np.float64], probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Negative log of the probability of what is true of each row and class, ``[n, K]``."""
    eps = np.finfo(np.float64).eps
    return np.asarray(-np.log(np.clip(np.where(labels > 0, probabilities, 1 - probabilities), eps, 1 - eps)))


def f1_parts(
    labels: NDArray[np.float64], said: NDArray[np.bool_], others: NDArray[np.float64] | float = 0.0
) -> NDArray[np.float64]:
    """What each row adds above and below the line of the micro F1, ``[n, 2]``: 2h, and p + t."""
    return np.stack([2 * (labels * said).sum(1), labels.sum(1) + said.sum(1) + others], axis=1)


def scores_by_class(
    labels: NDArray[np.float64], probabilities: ArrayLike, thresholds: ArrayLike, weights: ArrayLike | None = None
) -> list[dict[str, float]]:
    """Of each class: rows that have it, rows where it is said, threshold, precision, recall, F1, average precision.

    A value without rows is NaN. Arguments are those of :func:`several_scores`, labels 0 or 1 ``[n, K]``.

    >>> one, = scores_by_class(np.array([[1.0], [0.0], [1.0]]), [[0.9], [0.8], [0.1]], [0.5])
    >>> one["precision"], one["recall"], round(one["average_precision"], 3)
    (0.5, 0.5, 0.833)
    """
    from sklearn.metrics import average_precision_score  # slow to import

    p, limits = np.asarray(probabilities, dtype=np.float64), np.asarray(thresholds, dtype=np.float64)
    mass = relative_weights(len(p), weights)
    said = p >= limits
    hits, saying, having = mass @ (labels * said), mass @ said, mass @ labels
    none = float("nan")
    return [
        {
            "rows": int(labels[:, k].sum()),
            "said": int(said[:, k].sum()),
            "threshold": float(limits[k]),
            "precision": float(hits[k] / saying[k]) if saying[k] else none,
            "recall": float(hits[k] / having[k]) if having[k] else none,
            "f1": float(2 * hits[k] / (saying[k] + having[k])) if saying[k] + having[k] else none,
            "average_precision": float(average_precision_score(labels[:, k], p[:, k], sample_weight=mass))
            if having[k]
            else none,
        }
        for k in range(p.shape[1])
    ]


def check_several(truth: Sequence[Any] | NDArray[Any], probabilities: ArrayLike, classes: Sequence[Any]) -> Any:
    """Probabilities of several classes ``[n, K]``, each in [0, 1]; see :func:`several_scores`."""
    p = _finite_shares(truth, probabilities, classes)
    if p.min() < -1e-6 or p.max() > 1 + 1e-6:
        row = int(np.argmax((p < -1e-6).any(1) | (p > 1 + 1e-6).any(1)))
        raise ValueError(f"probabilities: expected numbers from 0 to 1, got {p[row].tolist()} in row {row}")
    return p.clip(0, 1)


def relative_weights(rows: int, weights: ArrayLike | None = None) -> NDArray[np.float64]:
    """``weights [rows]``, > 0, divided by their mean; None: 1 each.

    >>> relative_weights(2, [1, 3]).tolist()
    [0.5, 1.5]
    """
    mass = np.ones(rows) if weights is None else np.asarray(weights, dtype=np.float64)
    if mass.shape != (rows,) or not (np.isfinite(mass) & (mass > 0)).all():
        raise ValueError(f"weights: expected {rows} finite numbers above 0, got others")
    return mass / mass.mean()


def _finite_shares(truth: Sequence[Any] | NDArray[Any], probabilities: ArrayLike, classes: Sequence[Any]) -> Any:
    p = np.asarray(probabilities, dtype=np.float64)
    if p.shape != (len(truth), len(classes)) or not p.size:
        raise ValueError(f"probabilities: expected shape {(len(truth), len(classes))}, got {p.shape}")
    _check_finite("probabilities", p)
    return p


def _check_finite(name: str, values: NDArray[np.float64]) -> None:
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(np.argmax(wrong.reshape(len(values), -1).any(1)))
        raise ValueError(f"{name}: expected finite numbers, got {values[row]} in row {row}")
