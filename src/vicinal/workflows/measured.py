"""Predictions of rows beside their labels: what each kind of label makes of them, in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vicinal.core.arrays import Array
from vicinal.estimators.banked import BankedEstimator
from vicinal.evaluation import classification_scores, ranking_scores, regression_scores, scores_by_class, several_scores
from vicinal.evaluation.scores import f1_parts, several_hot, several_log_loss


@dataclass(frozen=True, eq=False)
class Measured:
    """Predictions of numbers for rows with labels.

    Attributes:
        predicted: of the rows ``[n]``, of several targets ``[n, T]``, probabilities of classes ``[n, K]``.
        truth: labels as in a table ``[n]`` or ``[n, T]``.
        weights: ``[n]``; None: 1 each.
        queries: of rows that are ranked ``[n]``, or None.
        only_order: whether predictions are no grades, but order the rows of a query.
    """

    predicted: Array
    truth: Array
    weights: Array | None = None
    queries: Array | None = None
    only_order: bool = False

    @property
    def scores(self) -> dict[str, float]:
        """Over all rows, and over the queries that have an order."""
        ranked = {} if self.queries is None else ranking_scores(self.truth, self.predicted, self.queries)
        return ranked if self.only_order else ranked | regression_scores(self.truth, self.predicted, self.weights)

    @property
    def by_class(self) -> dict[str, dict[str, float]]:
        """Where rows may have several classes, the scores of each."""
        return {}

    @property
    def labels(self) -> Array:
        """Labels for a report: of several classes a row, 0 or 1 of each that the model knows ``[n, K]``."""
        return self.truth

    @property
    def losses(self) -> Array:
        """Squared errors (means over targets); 1 where the class is wrong; or shares of wrong decisions ``[n]``."""
        return np.asarray(((self.predicted - self.truth) ** 2).reshape(len(self.truth), -1).mean(1))

    @property
    def log_losses(self) -> Array:
        """What two models are compared by: squared errors, or negative logs of probabilities of the truth ``[n]``."""
        return self.losses

    @property
    def misses(self) -> Array:
        """How far each prediction is off, with the probabilities of classes ``[n]``."""
        return np.asarray(np.abs(self.predicted - self.truth))

    @property
    def shown(self) -> list[float | str]:
        """Predictions for a reader."""
        return [float(one) for one in self.predicted]


@dataclass(frozen=True, eq=False)
class MeasuredClasses(Measured):
    """The same with one class a row.

    Attributes:
        classes: of the columns of ``predicted`` ``[K]``.
    """

    classes: Sequence[Any] = ()

    @property
    def scores(self) -> dict[str, float]:
        """Over all rows; a class that the model does not know is wrong."""
        return classification_scores(self.truth, self.predicted, self.classes, self.weights)

    @property
    def places(self) -> Array:
        """Columns of the true classes ``[n]``; -1 of those that the model does not know."""
        return places_of(self.truth, self.classes)

    def inside(self, sets: Array) -> Array:
        """Whether sets of classes ``[n, K]`` hold the true ones ``[n]``."""
        return np.asarray((self.places >= 0) & sets[np.arange(len(sets)), self.places])

    @property
    def chances(self) -> Array:
        """Probabilities of the true classes ``[n]``; 0 of those that the model does not know."""
        places = self.places
        return np.where(places >= 0, self.predicted[np.arange(len(places)), places], 0.0)

    @property
    def losses(self) -> Array:
        """1 where the class is wrong."""
        return np.asarray(self.predicted.argmax(1) != self.places, dtype=np.float64)

    @property
    def log_losses(self) -> Array:
        """Negative logs of the chances, as in ``scores``."""
        eps = np.finfo(np.float64).eps
        return np.asarray(-np.log(np.clip(self.chances / self.predicted.sum(1), eps, 1 - eps)))

    @property
    def misses(self) -> Array:
        """1 minus the chances."""
        return np.asarray(1 - self.chances)

    @property
    def shown(self) -> list[float | str]:
        """The most probable classes."""
        return [shown_label(self.classes[place]) for place in self.predicted.argmax(1)]


@dataclass(frozen=True, eq=False)
class MeasuredSeveral(Measured):
    """The same with several classes a row, which are tuples of classes.

    Attributes:
        classes: of the columns of ``predicted`` ``[K]``.
        thresholds: the probability from which each class is said ``[K]``.
    """

    classes: Sequence[Any] = ()
    thresholds: Array | float = 0.5

    @property
    def said(self) -> Array:
        """Which classes are said ``[n, K]``."""
        return np.asarray(self.predicted >= self.thresholds)

    @property
    def scores(self) -> dict[str, float]:
        """Over all rows; a class that the model does not know is missed."""
        return several_scores(self.truth, self.predicted, self.classes, self.thresholds, self.weights)

    @property
    def by_class(self) -> dict[str, dict[str, float]]:
        """Of each class by name."""
        each = scores_by_class(self.labels, self.predicted, self.thresholds, self.weights)
        return dict(zip(map(str, self.classes), each, strict=True))

    @property
    def labels(self) -> Array:
        """0 or 1 of each class."""
        return several_hot(self.truth, self.classes)[0]

    @property
    def losses(self) -> Array:
        """Shares of wrong decisions."""
        return np.asarray((self.said != self.labels).mean(1))

    @property
    def log_losses(self) -> Array:
        """Means over the classes."""
        return np.asarray(several_log_loss(self.labels, self.predicted).mean(1))

    @property
    def misses(self) -> Array:
        """Mean squares over the classes."""
        return np.asarray(np.square(self.predicted - self.labels).mean(1))

    @property
    def parts(self) -> Array:
        """What each row adds above and below the line of the micro F1 ``[n, 2]``."""
        labels, others = several_hot(self.truth, self.classes)
        return f1_parts(labels, self.said, others)

    @property
    def shown(self) -> list[float | str]:
        """The classes that are said."""
        return [shown_label(tuple(np.asarray(self.classes)[row].tolist())) for row in self.said]


def measured(
    predicted: Array,
    truth: Array,
    weights: Array | None = None,
    *,
    classes: Sequence[Any] = (),
    thresholds: Array | None = None,
) -> Measured:
    """Of numbers (no classes), of one class a row (no thresholds), or of several."""
    if not classes:
        return Measured(predicted, truth, weights)
    if thresholds is None:
        return MeasuredClasses(predicted, truth, weights, classes=classes)
    return MeasuredSeveral(predicted, truth, weights, classes=classes, thresholds=thresholds)


def measured_of(
    model: BankedEstimator,
    predicted: Array,
    truth: Array,
    weights: Array | None = None,
    thresholds: Array | None = None,
    *,
    queries: Array | None = None,
) -> Measured:
    """Predictions of a model, or of another method for the same labels, by ``thresholds`` or those of the model."""
    codec = model.fitted_.codec
    if codec.kind == "numbers":
        return Measured(predicted, truth, weights, queries)
    limits = thresholds if thresholds is not None or not codec.multilabel else model.thresholds_
    return measured(predicted, truth, weights, classes=codec.classes.tolist(), thresholds=limits)


@dataclass(frozen=True, eq=False)
class Measurements:
    """A model and other methods, measured on the same rows.

    Attributes:
        methods: by name, "model" first.
        scores: method -> metric -> value; also of methods that are not among ``methods``.
        notes: settings of the methods, and further sentences for the reader.
        share: of the squared error of the predictions, what the model has; below 1 for out-of-fold predictions.
    """

    methods: Mapping[str, Measured]
    scores: dict[str, dict[str, float]]
    notes: list[str] = field(default_factory=list)
    share: float = 1.0

    @property
    def model(self) -> Measured:
        """The model's predictions."""
        return self.methods["model"]


def places_of(labels: Array, classes: Sequence[Any]) -> Array:
    """Of each label ``[n]`` the place among the classes; -1 if it is none of them."""
    column = {name: place for place, name in enumerate(classes)}
    return np.array([column.get(label, -1) for label in labels.tolist()], dtype=np.int64)


def shown_label(value: Any) -> str:
    """A class as text; several classes with commas between them."""
    return (", ".join(map(str, value)) or "(none)") if isinstance(value, tuple) else str(value)
