"""What an audit of a model found, as plain records: the page and the JSON file are made from these alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Part = Literal["bank", "held out", "new"]
"""Where a row stands: predicted from, held out of training for calibration, or never seen by the model."""


@dataclass(frozen=True)
class Suspect:
    """A row whose label does not fit what the other rows make one expect.

    Attributes:
        row: its label in the table.
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
        rows: labels of the rows in the table.
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

    def as_json(self) -> dict[str, Any]:
        """Everything but the arrays of the pictures, as dictionaries, lists, numbers and text."""
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            if not isinstance(value, np.ndarray):
                plain[name] = _plain(value)
        for copies, told in zip(self.copies, plain["copies"], strict=True):
            told |= {"across": copies.across, "conflicting": copies.conflicting}
        return plain


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
