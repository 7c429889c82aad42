"""Labels as users write them, as a bank keeps them, and as a head takes and gives them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor
from torch.nn.functional import one_hot

from vicinal.core import nearest, short
from vicinal.core.identity import as_texts, canonical_ids
from vicinal.data import TableForm
from vicinal.data.target import LARGEST, SEPARATOR
from vicinal.estimators.forgetting import classes_without, range_without
from vicinal.estimators.inputs import Ids, as_series
from vicinal.estimators.labels import check_length, label_cells, read_classes, read_numbers
from vicinal.estimators.several import is_multilabel, number_form, read_multilabel, several_numbers, target_names
from vicinal.estimators.target_transform import PLAIN, TargetTransform, check_positive
from vicinal.training.error import error_of


@dataclass(frozen=True, eq=False)
class LabelCodec:
    """Labels of which nothing is predicted: a bank keeps them as they are.

    A label goes three ways: as a user writes it, as a bank keeps it (float64 ``[n]``, of several ``[n, T]``), and as a
    head takes it and gives predictions. A codec is a value: rows that bring or take classes make another one.

    Attributes:
        transform: the scale that a head works on.
        classes: names of the classes ``[K]``; none of numbers.
        targets: names of several numbers a row; None: one.
        multilabel: whether rows may have several classes.
        ends: the lowest and highest label of the training rows, of several targets ``[T]`` each.
        form: how labels that are texts or lengths of time write numbers, by the names of several targets, or "y".
    """

    transform: TargetTransform = field(default_factory=lambda: PLAIN)
    classes: Ids = field(default_factory=lambda: np.zeros(0, dtype=object))
    targets: Sequence[str] | None = None
    multilabel: bool = False
    ends: tuple[Any, Any] = (0.0, 1.0)
    form: TableForm = field(default_factory=TableForm)
    predicts: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        """What losses call them: "numbers" or "classes"."""
        return "classes" if len(self.classes) else "numbers"

    def fitted(self, train: Tensor) -> Self:
        """The codec of a fit on labels ``[n]`` or ``[n, T]`` of the bank; raises ValueError where none can be."""
        return self

    def as_predicted(self, labels: Tensor) -> Tensor:
        """Labels of the bank as a head takes them."""
        return labels

    def scaled(self, labels: Tensor) -> Tensor:
        """Labels of the bank as training takes them: on [0, 1] by the range of the training rows, or one-hot."""
        return self.as_predicted(labels)

    def label_ends(self) -> tuple[Any, Any] | None:
        """What training has scaled to 0 and 1, on the scale of the transform; None of classes."""
        return None

    def unit(self) -> float:
        """What labels of one number a row are divided by where training takes them; 1 of all others."""
        return 1.0

    def start(self, scaled: Tensor, weights: Tensor | None = None) -> Tensor:
        """Where the bias of a dense head starts, by weights ``[n]`` of mean 1."""
        raise TypeError("labels: expected those that a head predicts, got others")

    def on_scale(self, prediction: Tensor, *, uses_bank: bool) -> Tensor:
        """Predictions of a head on the scale of the transform, on which intervals are made."""
        return prediction

    def errors(self, prediction: Tensor, truth: Tensor) -> Tensor:
        """Of each row ``[b]``, as training has them, of labels as a head takes them: of scores by probabilities."""
        said = self.transform.inverse(prediction) if self.kind == "classes" else prediction
        return error_of(said, truth, multilabel=self.multilabel, numbers=self.targets is not None)

    def take(self, y: Any, rows: int) -> Ids:
        """Checked labels as the bank keeps them."""
        raise TypeError("labels: expected those that a head predicts, got others")

    def written(self, labels: Ids) -> Any:
        """Labels of the bank as ``fit`` takes them."""
        return labels

    def named(self, label: Any) -> Any:
        """A label of the bank in the words of the user: a number, a class, or a tuple of several."""
        if self.kind == "numbers":
            return label
        names = self.classes.astype(object)  # Python's own texts and numbers
        return tuple(names[np.flatnonzero(label)].tolist()) if isinstance(label, list) else names[int(label)]

    def growing(self, y: Any, rows: int, *, uses_bank: bool, new_classes: bool = False) -> Self:
        """The codec that reads labels of rows that are to be added, whose classes may be new."""
        return self.with_new(y, rows, uses_bank=uses_bank) if new_classes else self

    def with_new(self, y: Any, rows: int, *, uses_bank: bool) -> Self:
        """The codec with the classes of rows that are to be added, which a head that uses a bank predicts from."""
        if self.kind == "numbers":
            raise ValueError("new_classes: expected a model of classes, got one of numbers")
        return self

    def without(self, gone: list[Any], left: Sequence[Tensor]) -> Self:
        """The codec after rows were forgotten, which had the labels ``gone``, and ``left`` those of the other rows."""
        return self

    def kept_places(self, left: Sequence[Tensor]) -> Ids | None:
        """Places of the classes of ``left`` where all others go then; None: every class keeps its place."""
        return None


@dataclass(frozen=True, eq=False)
class NumberCodec(LabelCodec):
    """Numbers, one a row or several: a head takes them on the scale of a transform.

    Attributes:
        place: which of several numbers is meant where the head gives them all.
    """

    place: int | None = None

    @classmethod
    def of(cls, y: Any, transform: str) -> Self:
        """The codec of the labels of a fit, as users write them, before anything is fitted."""
        scale, names = TargetTransform(name="log" if transform == "log" else "none"), target_names(y)
        return cls(scale, targets=names, form=number_form(y, names))

    def read(self, y: Any, rows: int | None = None) -> Ids:
        """Numbers ``[n]`` or ``[n, T]`` as written, on any scale."""
        if self.targets is None:
            return read_numbers(y, rows, self.form.columns.get("y"))
        return several_numbers(y, self.targets, rows, self.form)

    def take(self, y: Any, rows: int) -> Ids:
        """Numbers ``[n]`` or ``[n, T]``."""
        values = self.read(y, rows)
        if self.transform.name == "log":
            for name, column in zip(self.targets or ["y"], values.reshape(rows, -1).T, strict=True):
                check_positive(column, name)
        return values

    def fitted(self, train: Tensor) -> Self:
        """With the range of the training labels."""
        if self.targets is None:
            low, high = float(train.min()), float(train.max())
            _check_range(low, high)
            return replace(self, ends=(low, high))
        ends = train.amin(dim=0), train.amax(dim=0)
        for name, low, high in zip(self.targets, *(end.tolist() for end in ends), strict=True):
            _check_range(low, high, f" of {short(name)}, which may be left out")
        return replace(self, ends=ends)

    def as_predicted(self, labels: Tensor) -> Tensor:
        """Transformed; several ``[N, T]`` on [0, 1] by the range of training rows."""
        labels = self.transform.forward(labels)
        return labels if self.targets is None else self._on_range(labels)

    def scaled(self, labels: Tensor) -> Tensor:
        """On [0, 1] by the range of training rows."""
        labels = self.as_predicted(labels)
        return self._on_range(labels) if self.targets is None else labels

    def _on_range(self, labels: Tensor) -> Tensor:
        low, high = self.label_ends()
        return (labels - low) / (high - low)

    def label_ends(self) -> tuple[Any, Any]:
        """The ends of the training labels on the scale of the transform."""
        if self.transform.name == "none":
            return self.ends
        ends = torch.stack([torch.as_tensor(end, dtype=torch.float64) for end in self.ends])
        low, high = self.transform.forward(ends)
        return (float(low), float(high)) if self.targets is None else (low, high)

    def unit(self) -> float:
        """The range of the training labels; several are on [0, 1] as the head takes them."""
        low, high = self.label_ends() if self.targets is None else (0.0, 1.0)
        return float(high - low)

    def start(self, scaled: Tensor, weights: Tensor | None = None) -> Tensor:
        """The mean of the labels."""
        return scaled.mean(dim=0) if weights is None else torch.einsum("n,n...->...", weights, scaled) / len(scaled)

    def on_scale(self, prediction: Tensor, *, uses_bank: bool) -> Tensor:
        """A head without a bank, and one of several targets, gives shares of the range of training labels."""
        if uses_bank and self.targets is None:
            if self.transform.name == "link":
                prediction = self.transform.base.forward(self.transform.inverse(prediction))
            return prediction + self.transform.constant
        low, high = self.label_ends()
        if self.place is not None:
            prediction = prediction[:, self.place]
        return low + prediction.double() * (high - low)

    def without(self, gone: list[Any], left: Sequence[Tensor]) -> Self:
        """Range and transform without labels that only forgotten rows had."""
        width = len(self.targets or ["y"])
        lost = np.array(gone, dtype=np.float64).reshape(-1, width)
        others = np.concatenate([np.asarray(labels).reshape(-1, width) for labels in left])
        ends = [np.asarray(end, dtype=np.float64).reshape(-1) for end in self.ends]
        low, high = range_without(ends[0], ends[1], lost, others)
        several = self.targets is not None
        new = (torch.from_numpy(low), torch.from_numpy(high)) if several else (float(low[0]), float(high[0]))
        return replace(self, ends=new, transform=self.transform.without(lost, others))

    def of_target(self, place: int, *, uses_bank: bool) -> Self:
        """The codec of one of several targets."""
        low, high = self.ends
        form = self.form.columns.get((self.targets or [])[place])
        return replace(
            self,
            targets=None,
            form=TableForm(columns={} if form is None else {"y": form}),
            ends=(float(low[place]), float(high[place])),
            transform=self.transform.of_target(place),
            place=None if uses_bank else place,
        )


@dataclass(frozen=True, eq=False)
class ClassCodec(LabelCodec):
    """Classes, one a row (a bank keeps its place) or several (0 and 1 of each): a head takes 0 and 1 ``[N, K]``."""

    @classmethod
    def of(cls, y: Any, rows: int, expected: Ids | None = None) -> tuple[Self, Ids]:
        """The codec of the labels of a fit, and these as the bank keeps them.

        Args:
            y: as users write them.
            rows: how many there are.
            expected: all classes that later rows may have; None: those of ``y``.

        Raises:
            ValueError: for fewer than two classes, or labels that are none.
        """
        y = as_series("y", y)
        if is_multilabel(y):
            return cls._of_several(y, rows, expected)
        values = read_classes(y, rows)
        check_classification_targets(values)
        classes = np.array(sorted(set((values if expected is None else expected).tolist())))
        if len(classes) < 2:
            raise ValueError(f"y: expected at least two classes, got one class, {short(classes[0])}")
        codec = cls(classes=classes)
        return codec, codec.take(values, rows)

    @classmethod
    def _of_several(cls, y: Any, rows: int, expected: Ids | None) -> tuple[Self, Ids]:
        check_length(y, rows)
        classes, labels = read_multilabel(y, expected)
        if len(classes) < 2:
            raise ValueError(f"y: expected at least two classes in the lists of all rows, got {len(classes)}")
        if not (labels != labels[0]).any():
            raise ValueError("y: expected classes that differ from row to row, got the same in every row")
        return cls(classes=classes, multilabel=True), labels

    def take(self, y: Any, rows: int) -> Ids:
        """Places of classes ``[n]``, or 0 and 1 of each ``[n, K]``."""
        y = as_series("y", y)
        if self.multilabel:
            check_length(y, rows)
            return read_multilabel(y, self.classes)[1]
        values = read_classes(y, rows)
        positions = {name: position for position, name in enumerate(self.classes.tolist())}
        codes = []
        for row, value in enumerate(values.tolist()):
            if value not in positions:
                got = f"got {short(value)} in row {row}{nearest(str(value), map(str, positions))}"
                raise ValueError(
                    f"y: expected a class that the model was fitted with, {got}; new classes are added by "
                    "new_classes=True (vicinal add --new-classes)"
                )
            codes.append(positions[value])
        return np.array(codes, dtype=np.float64)

    def written(self, labels: Ids) -> Any:
        """Names of classes, or a list of them for each row."""
        if self.multilabel:
            return [self.classes[row > 0].tolist() for row in labels]
        return self.classes.astype(object)[labels.astype(np.int64)]

    def as_predicted(self, labels: Tensor) -> Tensor:
        """One-hot, or 0 and 1 of several classes, ``[N, K]``, float64."""
        return labels.double() if self.multilabel else one_hot(labels.long(), len(self.classes)).double()

    def start(self, scaled: Tensor, weights: Tensor | None = None) -> Tensor:
        """The logarithm of each class's share, or the log odds of each."""
        least = 1.0 / (2 * len(scaled))
        shares = scaled.mean(dim=0) if weights is None else weights @ scaled / len(scaled)
        return shares.logit(eps=least) if self.multilabel else shares.clamp(min=least).log()

    def with_new(self, y: Any, rows: int, *, uses_bank: bool) -> Self:
        """With the classes of rows that are to be added, in their order, behind the others."""
        if self.multilabel or not uses_bank:
            raise ValueError(
                "new_classes: expected a model of one class a row that predicts from neighbors, got another; fit it "
                "again with rows of the new classes"
            )
        values, known = read_classes(y, rows), self.classes.tolist()
        kind = type(known[0])
        for row, value in enumerate(values.tolist()):
            if type(value) is not kind:
                raise ValueError(
                    f"y: expected classes of type {kind.__name__}, as those of the fit, got {short(value)} in row {row}"
                )
        return replace(self, classes=np.array(list(dict.fromkeys([*known, *values.tolist()])), self.classes.dtype.type))

    def without(self, gone: list[Any], left: Sequence[Tensor]) -> Self:
        """Classes without the names of those that no row has any more."""
        if self.multilabel:
            used = {place for labels in left for place in labels.any(dim=0).nonzero()[:, 0].tolist()}
        else:
            used = {int(place) for labels in left for place in np.unique(labels.numpy()).tolist()}
        names = {name for label in gone for name in (label if self.multilabel else [label])}
        fitted = len(self.transform.biases) or len(self.classes)
        some = classes_without(self.classes.tolist(), names, used, fitted)
        if some == self.classes.tolist():
            return self
        return replace(self, classes=np.array(some, self.classes.dtype.type))


@dataclass(frozen=True, eq=False)
class LikenessCodec(LabelCodec):
    """What makes rows alike: numbers, classes, or several classes a row, each combination of which has a place.

    Attributes:
        several: whether classes are combinations, their names joined.
    """

    several: bool = False
    predicts: ClassVar[bool] = False

    def take(self, y: Any, rows: int) -> Ids:
        """Numbers ``[n]``, or places of classes, which are known."""
        if self.kind == "numbers":
            return read_numbers(y, rows, self.form.columns.get("y"))
        names, known = self._alike(y, rows)
        place = {name: code for code, name in enumerate(known.tolist())}
        return np.array([place[name] for name in names.tolist()], dtype=np.float64)

    def with_new(self, y: Any, rows: int, *, uses_bank: bool) -> Self:
        """With the classes of rows that are to be added behind the others."""
        if self.kind == "numbers":
            return super().with_new(y, rows, uses_bank=uses_bank)
        names, known = self._alike(y, rows)
        every = list(dict.fromkeys([*known.tolist(), *names.tolist()]))
        return self if len(every) == len(known) else replace(self, classes=np.array(every))

    def growing(self, y: Any, rows: int, *, uses_bank: bool, new_classes: bool = False) -> Self:
        """New classes need not be asked for: what is alike is learned for classes that no fit has seen."""
        return super().growing(y, rows, uses_bank=uses_bank, new_classes=new_classes or self.kind == "classes")

    def without(self, gone: list[Any], left: Sequence[Tensor]) -> Self:
        """Without classes that no row has any more."""
        places = self.kept_places(left)
        return self if places is None else replace(self, classes=self.classes[places])

    def kept_places(self, left: Sequence[Tensor]) -> Ids | None:
        """Places of the classes that there are still."""
        used = np.unique(np.concatenate([labels.numpy() for labels in left])).astype(np.int64)
        return None if self.kind == "numbers" or len(used) == len(self.classes) else used

    def _alike(self, y: Any, rows: int) -> tuple[Ids, Ids]:
        """Classes ``[n]`` of rows and those that are known, both as texts unless both are whole numbers."""
        names, known = class_names(y, rows, several=self.several), self.classes
        if names.dtype.kind != known.dtype.kind:
            names, known = as_texts(names).astype(str), as_texts(known).astype(str)
        return names, known

    def as_predicted(self, labels: Tensor) -> Tensor:
        """Labels of the bank as losses take them: classes ``[n]``, several ``[n, C]``, or numbers ``[n]``."""
        if self.kind == "numbers":
            return labels
        if not self.several:
            return labels.long()
        sets = [name.split(SEPARATOR) if name else [] for name in map(str, self.classes)]
        column = {name: place for place, name in enumerate(sorted({name for names in sets for name in names}))}
        table = torch.zeros(len(sets), max(1, len(column)), dtype=torch.int64)
        for row, names in enumerate(sets):
            table[row, [column[name] for name in names]] = 1
        return table[labels.long()]

    def written(self, labels: Ids) -> Any:
        """Numbers, names of classes, or a list of them for each row."""
        if self.kind == "numbers":
            return labels
        names = self.classes[labels.astype(np.int64)]
        return [str(one).split(SEPARATOR) if one else [] for one in names] if self.several else names


def class_names(y: Any, rows: int, *, several: bool) -> Ids:
    """Names of classes ``[n]`` in canonical form; of several classes in a row, in order and joined."""
    cells = label_cells(y, rows)
    if not several:
        names = canonical_ids("y", cells)
        return names if names.dtype == np.int64 else names.astype(str)
    joined = []
    for row, cell in enumerate(cells):
        if isinstance(cell, str) or not hasattr(cell, "__iter__"):
            raise ValueError(f"y: expected a list of classes in row {row}, got {short(cell)}")
        if any(pd.isna(name) is True for name in cell):
            raise ValueError(
                f"y: expected names of classes in each list, got {short(list(cell))} in row {row}; an empty list is a "
                "row without any (input contains NaN)"
            )
        parts = sorted({str(name) for name in cell})
        if any(SEPARATOR in name or not name for name in parts):
            raise ValueError(
                f"y: expected names without {SEPARATOR!r}, and none empty, got {short(parts)} in row {row}"
            )
        joined.append(SEPARATOR.join(parts))
    return np.array(joined)


def label_frame(codec: LabelCodec, labels: Ids) -> Any:
    """Labels of the bank as ``fit`` takes them, several numbers as a table of named columns."""
    values = codec.written(labels)
    return values if codec.targets is None else pd.DataFrame(values, columns=list(codec.targets))


def _check_range(low: float, high: float, of: str = "") -> None:
    """Raise ValueError for ends of the training labels between which there is nothing to learn."""
    if low == high:
        raise ValueError(f"y: expected labels that differ, got {low:g} in every training row{of}; nothing to learn")
    if high - low < 1 / LARGEST:
        raise ValueError(
            f"y: expected labels that differ by more than {1 / LARGEST:g}, got {low:g} to {high:g}{of}; give them in a "
            "smaller unit"
        )
