"""Plain records of a prediction, a fit and a comparison: all that a report needs, already computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal.core import check_choice
from vicinal.report.text import metric_name, number, score_table

Cell = str | bytes
"""A cell for a page: text, or the bytes of an image (png, jpeg, gif, webp) or a sound (wav, flac, mp3, ogg)."""

Label = float | str
"""A number in regression, the name of a class in classification."""

Task = Literal["regression", "classification"]
_TOLERANCE = 1e-3


class Neighbor(NamedTuple):
    """One bank row behind a prediction.

    Attributes:
        row: cells to show, by column.
        label: its label.
        weight: its share of the prediction; for signed kriging it may be below 0.
        contribution: what it adds to the prediction: weight times label, of comparables times the adjusted label; in
            classification its weight if its label is the predicted class, else 0.
        id: id of the row, or "".
        adjusted: of comparables the label with the adjustments, in its own unit; else None.
        adjustments: of comparables what each column adds to the label, on the scale of the contributions; else none.
    """

    row: Mapping[str, Cell]
    label: Label
    weight: float
    contribution: float
    id: str = ""
    adjusted: float | None = None
    adjustments: Mapping[str, float] = MappingProxyType({})


class TrendLine(NamedTuple):
    """What a trend by columns adds to a prediction of comparables, on the scale of the contributions.

    Attributes:
        weight: of the trend itself.
        value: what it alone would predict.
        columns: what each column adds to that value.
        label: the value in the unit of the labels; None: it is in that unit.
    """

    weight: float
    value: float
    columns: Mapping[str, float] = MappingProxyType({})
    label: float | None = None

    @property
    def contribution(self) -> float:
        """What it adds to the prediction."""
        return self.weight * self.value


@dataclass(eq=False)
class NeighborPanel:
    """One prediction with the rows that made it.

    Attributes:
        title: for example "Best prediction".
        query: cells of the predicted row to show, by column.
        prediction: the number or the class.
        target: the truth, or None if it is not known.
        neighbors: heaviest first; plain tuples (row, label, weight, contribution) will do.
        other_weight: weight of all rows that are not listed; all weights together sum to 1.
        other_contribution: what those rows add; None: what is missing from the sum.
        other_rows: number of those rows, if known.
        probability: classification only: probability of the predicted class; without another scale, the contributions
            sum to it.
        id: id of the row, or "".
        said: for rows with several classes, the predicted ones; else "". ``prediction`` is then the class whose
            probability the contributions sum to.
        scale: "log", "rank" or "softmax" if contributions are on another scale than the labels, see
            :class:`vicinal.estimators.target_transform.TargetTransform`; else "none".
        scaled: the prediction on that scale, which the contributions sum to.
        trend: of comparables; its weight and contribution are in the sums with those of the rows. Else None.

    Raises:
        ValueError: if the weights do not sum to 1, or the contributions do not sum to the prediction.

    >>> panel = NeighborPanel("Best", {"word": "horribly"}, -2.4, -2.3, [({"word": "horrible"}, -2.5, 0.9, -2.25)], 0.1)
    >>> round(panel.other_contribution, 2)
    -0.15
    """

    title: str
    query: Mapping[str, Cell]
    prediction: Label
    target: Label | None
    neighbors: Sequence[Neighbor] = ()
    other_weight: float = 0.0
    other_contribution: float | None = None
    other_rows: int | None = None
    probability: float | None = None
    id: str = ""
    said: str = ""
    scale: str = "none"
    scaled: float | None = None
    trend: TrendLine | None = None

    def __post_init__(self) -> None:
        self.neighbors = [Neighbor(*neighbor) for neighbor in self.neighbors]
        listed, of_trend = self.neighbors, self.trend or TrendLine(0.0, 0.0)
        if not listed and self.trend is None:
            return
        weights = sum(neighbor.weight for neighbor in listed) + self.other_weight + of_trend.weight
        if not abs(weights - 1) <= _TOLERANCE:
            raise ValueError(f"weights: expected a sum of 1 with other_weight, got {weights:.6g}")
        contributed = sum(neighbor.contribution for neighbor in listed) + of_trend.contribution
        missing = self.total - contributed
        if self.other_contribution is None:
            self.other_contribution = missing
        parts = [self.total, of_trend.contribution, *(neighbor.contribution for neighbor in listed)]
        scale = max(1e-12, *map(abs, parts))
        expected = 0.0 if self.other_weight == 0 else self.other_contribution
        if not abs(missing - expected) <= _TOLERANCE * scale:
            raise ValueError(
                f"contributions: expected a sum of {self.total:.6g}, the prediction, got {contributed + expected:.6g}"
            )

    @property
    def total(self) -> float:
        """What the contributions sum to: the prediction on its scale, or the probability of the class."""
        if self.scaled is not None:
            return self.scaled
        if self.probability is not None:
            return float(self.probability)
        if isinstance(self.prediction, str):
            raise ValueError(
                f"probability: expected the probability of {self.prediction!r}, got None; "
                "a predicted class needs what its contributions sum to"
            )
        return float(self.prediction)


@dataclass(frozen=True)
class Column:
    """How a column is used: its name, kind (None: left out), encoder, and the reason."""

    name: str
    kind: str | None
    encoder: str = ""
    reason: str = ""


class Doubted(NamedTuple):
    """A number and its 95 % interval, which is NaN if there are too few rows for one."""

    value: float
    low: float = float("nan")
    high: float = float("nan")


@dataclass(frozen=True)
class Verdict:
    """The summary that a report begins with.

    Attributes:
        rows: number of rows that were measured.
        typical: the median absolute error; for classes the accuracy; for several classes per row the micro F1.
        best: the best other method, or "".
        others: number of other methods.
        change: against that method, relative change of the squared error (-0.1: a tenth less); for classes, difference
            of the share that is wrong; for several classes per row, of the micro F1.
        covered: share of the rows within their 90 % interval or set of classes, or None.
    """

    rows: int
    typical: Doubted
    best: str = ""
    others: int = 0
    change: Doubted | None = None
    covered: Doubted | None = None


@dataclass(frozen=True)
class Example:
    """A measured row, as the search of a report finds it.

    Attributes:
        id: id of the row.
        prediction: the number or the class.
        target: the truth.
        cells: as text, by column.
        interval: low and high ends of the 90 % interval, or None.
        probability: of the predicted class, or None.
        f1: for a row with several classes, F1 of the predicted ones; else None.
    """

    id: str
    prediction: Label
    target: Label
    cells: Mapping[str, str] = field(default_factory=dict)
    interval: Sequence[float] | None = None
    probability: float | None = None
    f1: float | None = None


class ShownRecord:
    """A record that shows its scores, in a notebook as a table, in place of all its arrays."""

    name: str
    target_name: str
    scores: Mapping[str, Any]
    truth: NDArray[Any]

    @property
    def several(self) -> bool:
        """Whether rows can have several classes."""
        return self.truth.ndim == 2

    def _title(self) -> str:
        return f"{self.name}: {self.target_name}"

    def _lines(self) -> list[list[str]]:
        each = self.scores if "model" in self.scores else {"model": self.scores, **getattr(self, "baselines", {})}
        return score_table(each, number)

    def __repr__(self) -> str:
        heads, *rows = self._lines()
        said = [", ".join(f"{a} {b}".strip() for a, b in zip(heads, row, strict=True)) for row in rows]
        return "\n".join([self._title(), *said])

    def _repr_html_(self) -> str:
        from vicinal.report.theme import Part, notebook_html

        headings, *rows = self._lines()
        return notebook_html(Part(self._title(), headings=headings, rows=rows))


@dataclass(eq=False, repr=False)
class FitRecord(ShownRecord):
    """One fitted model: its data, its results, and the data of its figures.

    Attributes:
        name: of the data or the model; the title of the page.
        target_name: the predicted column.
        task: "regression" or "classification".
        settings: shown in this order; sentences also use "head", "readout" and "target_transform".
        columns: ``Column`` or tuples (name, kind, encoder, reason).
        rows_used: rows left after dropping.
        dropped: reason -> number of rows.
        duplicates: one sentence on equal rows across the splits, or "".
        scores: method -> metric -> value on the test rows; "model" first, then baselines such as "mean".
        history: name -> one value per epoch; names such as "train_mse" and "validation_mse" share a panel.
        predicted: test predictions ``[n]``, or probabilities ``[n, classes]``.
        truth: test labels ``[n]``: numbers, or names of classes; for several classes per row 0 or 1 ``[n, classes]``.
        classes: names of the classes in the order of the columns of ``predicted``.
        embedding: of bank rows ``[m, d]``; a figure samples them.
        embedding_labels: their labels ``[m]``.
        panels: predictions with their neighbors.
        mask_curves: (unit grid ``[g]``, list of (label, values ``[g]``)), or None if there is no mask.
        split_sizes: "train", "validation", "test" -> number of rows.
        out_of_fold: metric -> value on the rows of the fit, each predicted by members that never saw it (for numbers,
            what all members together should have); empty if rows were held out instead. Without test rows, ``scores``,
            ``predicted`` and ``truth`` are out of fold, too.
        duration_s: wall time of the fit in seconds.
        verdict: how good the model is, with its uncertainty; None: not known.
        coverage: of intervals, see :func:`vicinal.evaluation.audit.coverage_curve`; for classes one entry, whose width
            is the mean number of classes in a set.
        examples: rows that the report lists and searches, in this order.
        by_class: for several classes per row, :func:`vicinal.evaluation.scores_by_class` of each by name; else empty.
        importance: column -> its share of what the metric uses, the largest first; empty if the metric has no columns.
        importance_by: what these are shares of: what columns add to a "trend", or to a squared "distance".
        slices: groups of measured rows with the largest error: see :func:`vicinal.evaluation.audit.error_slices`.

    Raises:
        ValueError: if arrays that belong together differ in length, or there is no score of "model".
    """

    name: str
    target_name: str
    task: Task
    settings: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[Column] = ()
    rows_used: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    duplicates: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    predicted: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    truth: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    classes: Sequence[str] = ()
    embedding: NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0)))
    embedding_labels: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    panels: Sequence[NeighborPanel] = ()
    mask_curves: tuple[NDArray[Any], Sequence[tuple[str, NDArray[Any]]]] | None = None
    split_sizes: Mapping[str, int] = field(default_factory=dict)
    out_of_fold: Mapping[str, float] = field(default_factory=dict)
    duration_s: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    verdict: Verdict | None = None
    coverage: Sequence[Mapping[str, Any]] = ()
    examples: Sequence[Example] = ()
    by_class: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    importance: Mapping[str, float] = field(default_factory=dict)
    importance_by: Literal["trend", "distance"] = "trend"
    slices: Sequence[Any] = ()

    def __post_init__(self) -> None:
        check_choice("task", self.task, ("regression", "classification"))
        self.columns = [Column(*c) if isinstance(c, tuple) else c for c in self.columns]
        self.predicted, self.truth = np.asarray(self.predicted), np.asarray(self.truth)
        self.embedding, self.embedding_labels = np.asarray(self.embedding), np.asarray(self.embedding_labels)
        if "model" not in self.scores:
            raise ValueError(f"scores: expected an entry 'model', got {sorted(self.scores)}")
        if len(self.predicted) != len(self.truth):
            raise ValueError(f"truth: expected {len(self.predicted)} as the predictions, got {len(self.truth)}")
        if len(self.embedding) != len(self.embedding_labels):
            raise ValueError(
                f"embedding_labels: expected {len(self.embedding)} as the rows of the embedding, "
                f"got {len(self.embedding_labels)}"
            )
        if self.embedding.ndim == 1:
            self.embedding = self.embedding[:, None]
        if self.task == "classification" and len(self.predicted):
            expected = (len(self.truth), len(self.classes))
            if self.predicted.shape != expected:
                raise ValueError(f"predicted: expected probabilities {expected}, got {self.predicted.shape}")


@dataclass(eq=False, repr=False)
class CompareRecord(ShownRecord):
    """Several methods on the same splits of one or several data sets.

    Attributes:
        results: data set -> method -> one value per split, the splits in the same order for all methods.
        metric: name of the score.
        scale: factor that shown values are multiplied by.
        higher_is_better: True for metrics such as R2.
        reference: the method that relative changes refer to.
        friedman: (statistic, p-value) over the data sets, or None.
        ranks: method -> average rank over the data sets (1 is best).
        critical_difference: of average ranks by Nemenyi's test, or None.
        test_note: one sentence on the data and the level of the test.
        seconds: data set -> duration of the fits of a split.
        answer: which method is best, one sentence for each data set.
        p_values: data set -> method -> p-value of the difference from the reference.

    Raises:
        ValueError: if there is no result, or methods of one data set have different numbers of splits.
    """

    name: str
    results: Mapping[str, Mapping[str, Sequence[float]]]
    metric: str = "mse"
    scale: float = 1000.0
    higher_is_better: bool = False
    reference: str = "dense"
    friedman: tuple[float, float] | None = None
    ranks: Mapping[str, float] = field(default_factory=dict)
    critical_difference: float | None = None
    test_note: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    answer: Sequence[str] = ()
    p_values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.results or not all(self.results.values()):
            raise ValueError("results: expected at least one data set with one method, got none")
        for name, methods in self.results.items():
            lengths = {method: len(values) for method, values in methods.items()}
            if len(set(lengths.values())) != 1 or 0 in lengths.values():
                raise ValueError(f"results: expected as many splits for each method of {name!r}, got {lengths}")

    @property
    def methods(self) -> list[str]:
        """All methods, in the order in which they first appear."""
        return list(dict.fromkeys(method for methods in self.results.values() for method in methods))

    @property
    def measure(self) -> str:
        """The metric, and of which labels it is where these are scaled."""
        return metric_name(self.metric) + (f" x {self.scale:g}, labels scaled to 0-1" if self.scale != 1 else "")

    def _title(self) -> str:
        return f"{self.name}: mean {self.measure}"

    def _lines(self) -> list[list[str]]:
        means = [{m: number(self.scale * float(np.mean(v))) for m, v in one.items()} for one in self.results.values()]
        return [["", *self.results], *([method, *(one.get(method, "") for one in means)] for method in self.methods)]
