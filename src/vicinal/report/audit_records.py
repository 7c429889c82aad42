"""Plain records of an audit: all that its page needs, already computed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vicinal.report.records import ShownRecord

Part = Literal["bank", "held out", "new"]
"""The part that a row belongs to: predicted from, held out of training, or never seen by the model."""


@dataclass(frozen=True)
class Suspect:
    """A row whose label does not fit the other rows.

    Attributes:
        row: its id.
        expected: what the suspicion goes by, without the row: a number by a kernel or trees, else the mean of the model
            and a ridge regression on untrained features; for several classes per row, the most suspicious class, after
            "+" if missing, "-" if wrong.
        neighbors: the model's prediction without the row (its encoder has seen the labels of the bank); for several
            classes per row, the probability of that class.
        score: what rows are sorted by, larger = more suspicious: the logarithm of how much more likely the label is as
            another row's than as its own; for several classes per row how far the class is from its probability.
        shown: some of its cells as text.
        chance: probability that the label is wrong; 0 without a clear sign of wrong labels; None: not known (several
            classes per row).
    """

    row: Any
    part: Part
    label: Any
    expected: Any
    neighbors: Any
    score: float
    shown: str
    chance: float | None = None


@dataclass(frozen=True)
class Copies:
    """Rows with the same content, or nearly the same embedding.

    Attributes:
        what: the column whose cells are equal, "all columns", or "the embedding".
        rows: ids of the rows.
        parts: the part that each row belongs to.
        labels: of each row.
        distance: between embeddings; 0 for equal content.
    """

    what: str
    rows: Sequence[Any]
    parts: Sequence[Part]
    labels: Sequence[Any]
    distance: float = 0.0

    def places(self, label: Callable[[Any], str]) -> str:
        """The first eight rows with part and label."""
        rows = zip(self.rows, self.parts, self.labels, strict=True)
        return " = ".join([f"{row} ({part}, {label(one)})" for row, part, one in rows][:8])

    @property
    def across(self) -> bool:
        """Whether a new row has a copy among the rows that the model has seen."""
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
        served: number of new rows that have it among their nearest neighbors.
        weight: its mean weight in their predictions.
        shown: some of its cells as text.
    """

    row: Any
    label: Any
    served: int
    weight: float
    shown: str


@dataclass(repr=False)
class AuditRecord(ShownRecord):
    """An audit of a model on labelled rows.

    Attributes:
        rows: number of rows by part.
        scores: metric -> value on the new rows.
        slices: errors by category, see :func:`vicinal.evaluation.audit.error_slices`, worst first.
        target_slices: errors by tenths of the target, or by class.
        coverage: see :func:`vicinal.evaluation.audit.coverage_curve`; empty for classes.
        class_sets: for classes: method -> coverage and mean size of conformal sets; else empty.
        multiplicity: of the members of a classifier, see :func:`vicinal.metrics.predictive_multiplicity`; else empty.
        hubness: skewness of ``served``.
        unused: share of the bank that is among the nearest neighbors of no new row.
        neighbors: how many nearest neighbors are counted.
        suspects: most suspicious first, as many as were asked for.
        worth_checking: number of labels that are more probably wrong than right, also of those not listed.
        expected_wrong: how many of these are expected to be wrong.
        copies: rows of equal content, and near copies.
        predicted: predictions of the new rows: numbers, or probabilities; ``truth`` are their labels.
        classes: their names; empty for numbers.
        served: for each bank row, the number of new rows that have it among their nearest neighbors ``[N]``.
        by_class: see :class:`~vicinal.report.records.FitRecord`.
        baselines: method -> metric -> value on the new rows.
        time: column of times, or "".
        periods: see :class:`vicinal.evaluation.audit.Period`, with ``width``: the factor by which 90 % intervals must
            be wider to cover 90 % of the period's rows (None for classes).
        drift: changes of "error" and "coverage" in time, if any: see :class:`vicinal.evaluation.Drift`.
        fairness: :class:`vicinal.evaluation.fairness.GroupGap` as a dictionary, with its sentence; or empty.
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
    worth_checking: int = 0
    expected_wrong: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Everything but the arrays of the pictures, as dictionaries, lists, numbers and text."""
        plain = {name: value for name, value in asdict(self).items() if not isinstance(value, np.ndarray)}
        for copies, entry in zip(self.copies, plain["copies"], strict=True):
            entry |= {"across": copies.across, "conflicting": copies.conflicting}
        return plain
