"""Plain records of a fit, a comparison, an audit: all that a report needs, and nothing to be computed again."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal.core import check_choice

Cell = str | bytes
"""What is shown of one cell: text, or the bytes of an image (png, jpeg, gif, webp) or a sound (wav, flac, mp3, ogg)."""

Label = float | str
"""A number in regression, the name of a class in classification."""

Task = Literal["regression", "classification"]
_TOLERANCE = 1e-3


class Neighbor(NamedTuple):
    """One row of the bank that took part in a prediction.

    Attributes:
        row: what to show of the row, column by column.
        label: its label.
        weight: its share of the prediction, 0 to 1.
        contribution: what it adds to the prediction: weight times label; in classification its weight if its label
            is the predicted class, else 0.
        id: how the row is known to its owner, or "".
    """

    row: Mapping[str, Cell]
    label: Label
    weight: float
    contribution: float
    id: str = ""


@dataclass(eq=False)
class NeighborPanel:
    """One prediction with the rows that made it.

    Attributes:
        title: for example "Best prediction".
        query: what to show of the row that was predicted, column by column.
        prediction: the number or the class.
        target: the truth, or None if it is not known.
        neighbors: heaviest first; plain tuples (row, label, weight, contribution) will do.
        other_weight: weight of all rows that are not listed; with the listed weights it makes 1.
        other_contribution: what those rows add; None: what is missing from the sum.
        other_rows: how many those rows are, if known.
        probability: classification only: probability of the predicted class, which the contributions sum to where
            there is no other scale.
        id: how the row is known to its owner, or "".
        said: where rows may have several classes, those that are said; "" elsewhere. ``prediction`` is one of them all,
            whose probability the neighbors add up to.
        scale: "log", "rank" or "softmax" where contributions are of labels on another scale, see
            :class:`vicinal.estimators.target_transform.TargetTransform`.
        scaled: what they sum to there, the prediction on that scale.

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
    neighbors: Sequence[Neighbor | tuple[Any, ...]] = ()
    other_weight: float = 0.0
    other_contribution: float | None = None
    other_rows: int | None = None
    probability: float | None = None
    id: str = ""
    said: str = ""
    scale: str = "none"
    scaled: float | None = None

    def __post_init__(self) -> None:
        self.neighbors = [Neighbor(*neighbor) for neighbor in self.neighbors]
        listed = self.listed
        if not listed:
            return
        weights = sum(neighbor.weight for neighbor in listed) + self.other_weight
        if not abs(weights - 1) <= _TOLERANCE:
            raise ValueError(f"weights: expected a sum of 1 with other_weight, got {weights:.6g}")
        contributed = sum(neighbor.contribution for neighbor in listed)
        missing = self.total - contributed
        if self.other_contribution is None:
            self.other_contribution = missing
        scale = max([abs(self.total), *(abs(neighbor.contribution) for neighbor in listed), 1e-12])
        expected = 0.0 if self.other_weight == 0 else self.other_contribution
        if not abs(missing - expected) <= _TOLERANCE * scale:
            raise ValueError(
                f"contributions: expected a sum of {self.total:.6g}, the prediction, got {contributed + expected:.6g}"
            )

    @property
    def listed(self) -> list[Neighbor]:
        """The neighbors, as such."""
        return [Neighbor(*neighbor) for neighbor in self.neighbors]

    @property
    def total(self) -> float:
        """What the contributions sum to: the predicted number, on its scale, or the probability of the class."""
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
    """What a column was taken for: its name, kind (None: left out), encoder, and why."""

    name: str
    kind: str | None
    encoder: str = ""
    reason: str = ""


class Doubted(NamedTuple):
    """A figure and its 95 % interval, which is NaN where there are too few rows for one."""

    value: float
    low: float = float("nan")
    high: float = float("nan")


@dataclass(frozen=True)
class Verdict:
    """What a report says first.

    Attributes:
        rows: that were measured on.
        typical: half of the rows are predicted within this of the truth; for classes the share that is right; for
            several classes a row the micro F1.
        best: the other method with the least error, or "".
        others: how many other methods there are.
        change: of the squared error against it, as a share (-0.1: a tenth less); of classes, of the share wrong; of
            several classes a row, of the micro F1.
        covered: share of the rows in their 90 % interval or set of classes, or None.
    """

    rows: int
    typical: Doubted
    best: str = ""
    others: int = 0
    change: Doubted | None = None
    covered: Doubted | None = None


@dataclass(frozen=True)
class Example:
    """A row that was measured on, as the search of a report finds it.

    Attributes:
        id: how the row is known to its owner.
        prediction: the number or the class.
        target: the truth.
        cells: column by column, as text.
        interval: of 90 %: low and high, or None.
        probability: of the predicted class, or None.
        f1: of the classes said for a row that may have several, or None.
    """

    id: str
    prediction: Label
    target: Label
    cells: Mapping[str, str] = field(default_factory=dict)
    interval: Sequence[float] | None = None
    probability: float | None = None
    f1: float | None = None


@dataclass(eq=False)
class FitRecord:
    """One fitted model: what went in, what came out, and pictures of why.

    Attributes:
        name: of the data or the model; the title of the page.
        target_name: the predicted column.
        task: "regression" or "classification".
        settings: shown as they are, in their order; "head" and "seed" are used in sentences.
        columns: ``Column`` or tuples (name, kind, encoder, reason).
        rows_used: rows left after dropping.
        dropped: reason -> number of rows.
        duplicates: one sentence on equal rows across the splits, or "".
        scores: method -> metric -> value on the test rows; "model" first, then baselines ("mean", "knn", "ridge").
        history: name -> one value an epoch; names such as "train_mse" and "validation_mse" share a picture.
        predicted: test predictions ``[n]``, or probabilities ``[n, classes]``.
        truth: test labels ``[n]``: numbers, or names of classes; where rows may have several, 0 or 1 ``[n, classes]``.
        classes: names of the classes in the order of the columns of ``predicted``.
        embedding: a sample of the bank ``[m, d]``.
        embedding_labels: its labels ``[m]``.
        panels: predictions with their neighbors.
        mask_curves: (unit grid ``[g]``, list of (label, values ``[g]``)), or None if there is no mask.
        split_sizes: "train", "validation", "test" -> number of rows.
        out_of_fold: metric -> value on the rows that the model was fitted on, each predicted by members that never saw
            it; empty if rows were held out in place of folds. Without test rows it is where all scores come from.
        duration_s: wall time of the fit in seconds.
        versions: package -> version.
        notes: further sentences that a reader should see.
        verdict: how good the model is, with its doubt; None: not known.
        coverage: of intervals, see :func:`vicinal.evaluation.coverage_curve`; of classes one entry, whose width is the
            mean number of classes in a set.
        examples: rows that the report lists and searches, in this order.
        by_class: where rows may have several classes, :func:`vicinal.evaluation.scores_by_class` of each by name.

    Raises:
        ValueError: if arrays that belong together differ in length, or there is no score of "model".
    """

    name: str
    target_name: str
    task: Task
    settings: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[Column | tuple[Any, ...]] = ()
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

    @property
    def several(self) -> bool:
        """Whether rows may have several classes."""
        return self.truth.ndim == 2

    @property
    def column_list(self) -> list[Column]:
        """The columns, as such."""
        return [column if isinstance(column, Column) else Column(*column) for column in self.columns]

    def __post_init__(self) -> None:
        check_choice("task", self.task, ("regression", "classification"))
        self.columns = [c if isinstance(c, Column) else Column(*c) for c in self.columns]
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


@dataclass(eq=False)
class CompareRecord:
    """Several methods on the same splits of one or several data sets.

    Attributes:
        name: the title of the page.
        results: data set -> method -> one value a split, the splits in the same order for all methods.
        metric: what the values are.
        scale: the values are shown times this.
        higher_is_better: for metrics such as R2.
        reference: the method that relative changes are against.
        friedman: (statistic, p value) over the data sets, or None.
        ranks: method -> average rank over the data sets (1 is best).
        critical_difference: of average ranks by Nemenyi's test, or None.
        test_note: one sentence on what the test was taken over and at which level.
        seconds: data set -> wall time a split.
        settings: shown as they are.
        versions: package -> version.
        notes: further sentences that a reader should see.
        answer: which method is best, in a sentence for each data set.
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


Part = Literal["bank", "held out", "new"]
"""Where a row stands: predicted from, held out of training for calibration, or never seen by the model."""


@dataclass(frozen=True)
class Suspect:
    """A row whose label does not fit what the other rows make one expect.

    Attributes:
        row: its id.
        part: where it stands.
        label: as the data have it.
        expected: what a ridge regression on untrained features predicts without it.
        neighbors: what the model's neighbors predict without it (its encoder has seen the label, if it is in the bank).
        score: how far the two are apart; larger = more suspicious.
        shown: some of its cells, for people.
    """

    row: Any
    part: Part
    label: Any
    expected: Any
    neighbors: Any
    score: float
    shown: str


@dataclass(frozen=True)
class Copies:
    """Rows with the same content, or nearly the same embedding.

    Attributes:
        what: the column whose cells are equal, "all columns", or "the embedding".
        rows: ids of the rows.
        parts: where each stands.
        labels: of each row.
        distance: between embeddings; 0 for equal content.
    """

    what: str
    rows: Sequence[Any]
    parts: Sequence[Part]
    labels: Sequence[Any]
    distance: float = 0.0

    @property
    def across(self) -> bool:
        """Whether a row the model has never seen has a copy among those that it has."""
        return "new" in self.parts and len(set(self.parts)) > 1

    @property
    def conflicting(self) -> bool:
        """Whether the copies have different labels."""
        return len({str(label) for label in self.labels}) > 1


@dataclass(frozen=True)
class Hub:
    """A bank row that serves many predictions.

    Attributes:
        row: its id.
        label: its label.
        served: how many queries have it among their first neighbors.
        weight: its mean weight in the predictions.
        shown: some of its cells.
    """

    row: Any
    label: Any
    served: int
    weight: float
    shown: str


@dataclass
class AuditRecord:
    """An audit of a model on labelled rows.

    Attributes:
        name: of the data.
        model: name of the model's folder.
        target_name: the column predicted.
        task: "regression" or "classification".
        rows: rows by part.
        scores: metric -> value on the new rows.
        slices: rows of the table of slices, worst first.
        target_slices: by tenths of the target, or by class.
        coverage: see :func:`vicinal.evaluation.coverage_curve`; empty for classes.
        class_sets: for classes: method -> coverage and mean size of conformal sets; else empty.
        multiplicity: of members of a classifier, see :func:`vicinal.metrics.predictive_multiplicity`; else empty.
        hubs: bank rows that serve most.
        hubness: skewness of how often bank rows are among the first neighbors.
        unused: share of the bank that is among nobody's first neighbors.
        neighbors: how many first neighbors that counts.
        suspects: most suspicious first.
        copies: rows of the same content and near copies.
        predicted: of the new rows: numbers, or probabilities.
        truth: of the new rows.
        classes: names, or none.
        served: ``[N]``, for the picture.
        notes: what a reader should know.
        versions: of the software.
        by_class: as of :class:`FitRecord`.
        baselines: method -> metric -> value on the new rows.
        time: column of times, or "".
        periods: see :class:`vicinal.evaluation.Period`; with ``width``, by which 90 % intervals have to be wider to
            hold 90 % of the period's rows (None of classes).
        drift: of "error" and "coverage", where they change in time: see :class:`vicinal.evaluation.Drift`.
        fairness: :class:`vicinal.evaluation.GroupGap` as a dictionary, and its sentence; or empty.
    """

    name: str
    model: str
    target_name: str
    task: Literal["regression", "classification"]
    rows: Mapping[str, int]
    scores: Mapping[str, float]
    slices: Sequence[Any]
    target_slices: Sequence[Any]
    coverage: Sequence[Mapping[str, Any]]
    class_sets: Mapping[str, Mapping[str, float]]
    hubs: Sequence[Hub]
    hubness: float
    unused: float
    neighbors: int
    suspects: Sequence[Suspect]
    copies: Sequence[Copies]
    predicted: NDArray[Any]
    truth: NDArray[Any]
    classes: Sequence[str]
    served: NDArray[np.int64]
    notes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    multiplicity: Mapping[str, float] = field(default_factory=dict)
    time: str = ""
    periods: Sequence[Mapping[str, Any]] = ()
    drift: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fairness: Mapping[str, Any] = field(default_factory=dict)
    by_class: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        """Whether rows may have several classes."""
        return self.truth.ndim == 2

    def as_json(self) -> dict[str, Any]:
        """Everything but the arrays of the pictures, as dictionaries, lists, numbers and text."""
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            if not isinstance(value, np.ndarray):
                plain[name] = _plain(value)
        for copies, entry in zip(self.copies, plain["copies"], strict=True):
            entry |= {"across": copies.across, "conflicting": copies.conflicting}
        return plain


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
