"""What a fit is measured against: the mean, a grid of k nearest neighbors.

Each is fitted on the training rows, chooses its settings on the validation rows, and predicts the test rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.neighbors import NearestNeighbors

from vicinal.calibration import f1_thresholds
from vicinal.evaluation.scores import classification_scores, regression_scores, relative_weights, several_hot

Features: TypeAlias = Any
"""A dense array or a scipy sparse matrix, [rows, f]."""

NEIGHBORS = (3, 5, 7)
POWERS = (1, 2)
WEIGHTS = ("uniform", "distance")
ALPHAS = tuple(float(alpha) for alpha in np.logspace(-2, 4, 13))
SPREADS = tuple(float(alpha) for alpha in np.logspace(-2, 3, 6))


@dataclass(frozen=True, eq=False)
class Baseline:
    """A simple method's prediction of the test rows.

    Attributes:
        name: "mean", "k-NN", "ridge" or "logistic regression".
        prediction: ``[c]`` in a regression, class probabilities ``[c, C]`` in a classification.
        settings: what was chosen on the validation rows.
        validation: the error of that choice on the rows used to make it: squared error, or share of wrong rows (for
            :func:`tuned_baselines`: log loss).
        rows: how many training rows it was fitted on; 0: all.
        thresholds: where rows may have several classes, the probability from which each is predicted ``[C]``: that of
            the highest F1 on the rows used for the choice, see :func:`vicinal.calibration.f1_thresholds`.
    """

    name: str
    prediction: NDArray[np.float64]
    settings: dict[str, Any] = field(default_factory=dict)
    validation: float = float("nan")
    rows: int = 0
    thresholds: NDArray[np.float64] | None = None


def mean_baseline(
    train_target: ArrayLike, rows: int, *, classes: Sequence[Any] = (), weights: ArrayLike | None = None
) -> Baseline:
    """The mean of ``train_target [a]`` for each of ``rows``, by ``weights [a]``; with ``classes``, their shares.

    >>> mean_baseline([1.0, 3.0], 2).prediction.tolist()
    [2.0, 2.0]
    """
    labels = one_hot(train_target, classes)
    mass = relative_weights(len(labels), weights)
    mean = (labels.T * mass).T.mean(0, keepdims=True)
    thresholds = None
    if has_several(train_target):
        thresholds = f1_thresholds(np.repeat(mean, len(labels), axis=0), labels, mass)
    return Baseline("mean", np.repeat(mean, rows, axis=0), thresholds=thresholds)


def knn_grid(
    train: NDArray[Any],
    train_target: ArrayLike,
    validation: NDArray[Any],
    validation_target: ArrayLike,
    test: NDArray[Any],
    *,
    classes: Sequence[Any] | None = None,
) -> Baseline:
    """Nearest neighbors as in the paper: k in {3, 5, 7}, p in {1, 2}, weights uniform or by inverse distance.

    The numbers are those of scikit-learn's KNeighborsRegressor and KNeighborsClassifier; each p is searched once.
    k is at most ``a``.

    Args:
        train: embeddings ``[a, d]``.
        train_target: numbers ``[a]``, or class names if ``classes`` is given.
        validation: embeddings ``[b, d]``.
        validation_target: ``[b]``.
        test: embeddings ``[c, d]``.
        classes: class of each column of the probabilities ``[C]``; None in a regression.
    """
    for name, values in (("train", train), ("validation", validation), ("test", test)):
        _check_embeddings(name, np.asarray(values), np.asarray(train).shape[-1])
    classes = () if classes is None else classes
    labels = one_hot(train_target, classes)
    counts = sorted({min(k, len(labels)) for k in NEIGHBORS})
    search = {p: NearestNeighbors(n_neighbors=counts[-1], p=p).fit(train) for p in POWERS}
    tried: list[tuple[tuple[float, float], int, int, str]] = []
    for p in POWERS:
        distances, places = search[p].kneighbors(validation)
        for k in counts:
            for weights in WEIGHTS:
                guess = neighbor_mean(labels, distances[:, :k], places[:, :k], weights)
                tried.append((_error(validation_target, guess, classes), k, p, weights))
    (error, _), k, p, weights = min(tried, key=lambda choice: choice[0])
    settings = {"n_neighbors": k, "p": p, "weights": weights}

    def guessed(rows: NDArray[Any]) -> NDArray[np.float64]:
        distances, places = search[p].kneighbors(rows, n_neighbors=k)
        return neighbor_mean(labels, distances, places, weights)

    several, thresholds = has_several(validation_target), None
    if several:
        thresholds = f1_thresholds(guessed(validation), one_hot(validation_target, classes))
    return Baseline("k-NN", guessed(test), settings, error, thresholds=thresholds)


def knn_baseline(
    train: NDArray[Any],
    train_target: ArrayLike,
    test: NDArray[Any],
    settings: Mapping[str, Any],
    *,
    classes: Sequence[Any] | None = None,
) -> Baseline:
    """Nearest neighbors with settings that :func:`knn_grid` chose on other rows; the other arguments are as there.

    >>> settings = {"n_neighbors": 1, "p": 2, "weights": "uniform"}
    >>> knn_baseline(np.array([[0.0], [1.0]]), [3.0, 5.0], np.array([[0.9]]), settings).prediction
    array([5.])
    """
    for name, values in (("train", train), ("test", test)):
        _check_embeddings(name, np.asarray(values), np.asarray(train).shape[-1])
    labels, k = one_hot(train_target, () if classes is None else classes), min(settings["n_neighbors"], len(train))
    distances, places = NearestNeighbors(n_neighbors=k, p=settings["p"]).fit(train).kneighbors(test)
    return Baseline("k-NN", neighbor_mean(labels, distances, places, settings["weights"]), dict(settings))


def one_hot(target: Any, classes: Sequence[Any]) -> NDArray[np.float64]:
    """Numbers ``[n]`` as they are (no classes); classes one-hot ``[n, C]``, several of a row 0 or 1 of each."""
    if not len(classes):
        return np.asarray(target, dtype=np.float64)
    if has_several(target):
        return several_hot(target, classes)[0]
    column = {name: place for place, name in enumerate(classes)}
    unknown = [name for name in np.asarray(target).tolist() if name not in column]
    if unknown:
        raise ValueError(f"train_target: expected one of the classes {list(classes)}, got {unknown[0]!r}")
    return np.eye(len(classes))[[column[name] for name in np.asarray(target).tolist()]]


def has_several(target: Any) -> bool:
    """Whether labels are tuples of classes, of rows that may have several."""
    return len(target) > 0 and isinstance(target[0], tuple)


def neighbor_mean(
    labels: NDArray[np.float64], distances: NDArray[np.float64], places: NDArray[np.int64], weights: str
) -> NDArray[np.float64]:
    """Mean of the neighbors' labels, ``[n]`` or ``[n, C]``; a neighbor at distance 0 outweighs all others."""
    share = np.ones(distances.shape)  # [n, k]
    if weights == "distance":
        with np.errstate(divide="ignore", over="ignore"):
            share = 1 / distances.astype(np.float64)
        hit = np.isinf(share)
        share = np.where(hit.any(1, keepdims=True), hit, share)
    share = share / share.sum(1, keepdims=True)
    return np.einsum("nk,nk...->n...", share, labels[places])


def _error(truth: ArrayLike, guess: NDArray[np.float64], classes: Sequence[Any]) -> tuple[float, float]:
    """What a choice goes by: squared error, also of several classes; or share of wrong rows, then log loss."""
    if not len(classes) or has_several(truth):
        return regression_scores(one_hot(truth, classes), guess)["mse"], 0.0
    scores = classification_scores(np.asarray(truth), guess, classes)
    return 1 - scores["accuracy"], scores["log_loss"]


def _check_embeddings(name: str, values: NDArray[Any], width: int) -> None:
    if values.ndim != 2 or values.shape[1] != width or not len(values):
        raise ValueError(f"{name}: expected embeddings [rows, {width}], at least one row, got shape {values.shape}")
    wrong = ~np.isfinite(values).all(1)
    if wrong.any():
        raise ValueError(
            f"{name}: expected finite embeddings, got {values[np.argmax(wrong)]} in row {np.argmax(wrong)}"
        )
