"""Which labels are probably wrong: what is expected of rows without their labels, for ``evaluate`` and ``explore``."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from vicinal.core.arrays import Array
from vicinal.core.identity import IdsLike
from vicinal.data.table import Table
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.target_transform import PLAIN, TargetTransform
from vicinal.evaluation import left_out_predictions, wrong_classes, wrong_labels
from vicinal.evaluation.scores import several_hot
from vicinal.evaluation.wrong_labels import WrongLabels
from vicinal.report.audit_records import Part, Suspect
from vicinal.workflows.measured import places_of, shown_label
from vicinal.workflows.showing import row_text

_ABLE = 1.5
"""A ridge regression counts if its typical error is less than so many times that of the model."""


@torch.no_grad()
def left_out(model: BankedEstimator, at: torch.Tensor) -> Array:
    """Predictions of bank rows in label units, each without itself; of folds, by those that never saw it."""
    bank, fitted = model.bank_, model.fitted_
    if model.folds_ is not None:
        said = fitted.out_of_fold(at)
    else:
        said = fitted.predict_embedded(bank.vectors[at].double(), bank.identity(**bank.who(at)))
    return fitted.in_label_units(said).double().numpy()


def expected_labels(
    model: BankedEstimator, labels: Array, said: Array, features: Callable[[], Any], groups: IdsLike | None
) -> Array:
    """What is expected of each row without its own label: numbers ``[n]``, or scores of classes ``[n, K]``.

    Numbers are best told by a kernel or trees alone. Else it is the mean of the model and of a ridge regression on the
    other rows, as a trained encoder has moved mislabelled rows toward their wrong labels.

    Args:
        model: which predicted.
        labels: numbers, or places of classes ``[n]``.
        said: predictions without the row, in label units.
        features: of the rows before training, asked for where a ridge regression is fitted.
        groups: of the rows; no row is predicted from its own.
    """
    classes = len(model.fitted_.codec.classes)
    if len(labels) < 3 or not (classes or model.metric_ == "network"):
        return said
    if classes:
        other = left_out_predictions(features(), np.eye(classes)[labels], groups=groups)
        return (other.clip(1e-3) + said) / 2
    scale = label_scale(model, labels)
    truth, guess = scaled(scale, labels), scaled(scale, said)
    other = left_out_predictions(features(), truth, groups=groups).clip(truth.min(), truth.max())
    if np.median(np.abs(other - truth)) >= _ABLE * np.median(np.abs(guess - truth)):
        return said
    return scale.inverse(torch.from_numpy((guess + other) / 2)).double().numpy()


def doubts(model: BankedEstimator, labels: Array, expected: Array) -> WrongLabels:
    """How probably each label is wrong, by :func:`expected_labels`; numbers on the scale that they are learned on."""
    if len(model.fitted_.codec.classes):
        return wrong_classes(labels, expected)
    scale = label_scale(model, labels)
    return wrong_labels(scaled(scale, labels), scaled(scale, expected))


def label_scale(model: BankedEstimator, labels: Array) -> TargetTransform:
    """The scale that numbers are learned on; none for labels that have no logarithm."""
    scale = model.target_transform_
    return PLAIN if scale.name == "log" and (labels <= 0).any() else scale


def scaled(scale: TargetTransform, values: Array) -> Array:
    """Numbers on that scale."""
    return scale.forward(torch.tensor(values, dtype=torch.float64)).numpy()


def listed_suspects(
    model: BankedEstimator, table: Table, features: Any, said: Array, parts: list[Part]
) -> list[Suspect]:
    """All rows, the most suspicious first; those of the bank are judged among themselves, as in `explore`."""
    codec, bank = model.fitted_.codec, model.bank_
    if codec.multilabel:
        return _suspects_of_several(codec.classes.tolist(), table, features, said, parts)
    classes, said = codec.classes, said.copy()
    labels, groups = _labels(model, table), table.groups
    known, at = _in_bank(model, table, parts)
    if model.folds_ is not None and bank.folds is not None:  # rows that were added later are in no fold
        inside = bank.folds.numpy()[at] >= 0
        said[known[inside]] = left_out(model, torch.from_numpy(at[inside]))
    expected = expected_labels(model, labels, said, lambda: features, groups)
    wrong = doubts(model, labels, expected)
    if len(known):
        groups = bank.clusters[at] if bank.grouped else None
        expected[known] = expected_labels(model, labels[known], said[known], lambda: features[known], groups)
        wrong.ratio[known], wrong.chance[known], _ = doubts(model, labels[known], expected[known])
    shown = (classes[each.argmax(1)].tolist() if len(classes) else each.tolist() for each in (expected, said))
    cells = [row_text(row) for _, row in table.frame.iterrows()]
    figures = wrong.ratio.tolist(), cells, wrong.chance.tolist()
    rows = [*map(Suspect, table.ids.tolist(), parts, table.target, *shown, *figures)]
    # Where the bank has no clear sign of wrong labels, its chances are 0, though its ratios may be the largest.
    surest = np.where(wrong.chance >= 0.5, wrong.chance, 0)
    return [rows[place] for place in np.lexsort((-wrong.ratio, -surest))]


def _suspects_of_several(
    names: list[Any], table: Table, features: Any, said: Array, parts: list[Part]
) -> list[Suspect]:
    """The same for rows with several classes: a row is as suspicious as its most suspicious class.

    ``expected`` is that class, missing (+) or wrong (-); ``neighbors`` is its probability by the model.
    """
    labels = several_hot(table.target, names)[0]
    expected = left_out_predictions(features, labels, groups=table.groups)
    doubt = np.abs(expected - labels)
    worst, scores = doubt.argmax(1), doubt.max(1)
    listed = []
    for i in np.argsort(-scores, kind="stable").tolist():
        k = int(worst[i])
        sign = "-" if labels[i, k] else "+"
        row = table.ids.tolist()[i], parts[i], shown_label(table.target[i]), f"{sign}{names[k]}", f"{said[i, k]:.2f}"
        listed.append(Suspect(*row, float(scores[i]), row_text(table.frame.iloc[i])))
    return listed


def _in_bank(model: BankedEstimator, table: Table, parts: list[Part]) -> tuple[Array, Array]:
    """The rows of the table that the bank has, and their positions there, in its order."""
    at = model.bank_.store.positions(table.ids).numpy()
    at[np.array([part == "new" for part in parts])] = -1  # a new row may bear the number of another one in the bank
    known = np.argsort(at)[int((at < 0).sum()) :]
    return known, at[known]


def _labels(model: BankedEstimator, table: Table) -> Array:
    """Numbers, or places of classes; of an unknown class 0."""
    classes = model.fitted_.codec.classes.tolist()
    return places_of(table.target, classes).clip(min=0) if classes else table.target


def relabelled_notes(model: BankedEstimator, table: Table, parts: list[Part]) -> list[str]:
    """How many rows have another label in the table than in the bank, as after `vicinal relabel`."""
    if model.multilabel_:
        return []
    known, at = _in_bank(model, table, parts)
    count = int((model.bank_.labels.numpy()[at] != _labels(model, table)[known]).sum())
    rows = "1 row has" if count == 1 else f"{count} rows have"
    return [f"Labels worth checking are those of the table: {rows} another label in the model."] if count else []
