"""Which labels are probably wrong: what is expected of rows without their labels, for ``evaluate`` and ``explore``."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from vicinal.core.arrays import Array
from vicinal.core.identity import IdsLike
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.target_transform import PLAIN, TargetTransform
from vicinal.evaluation import left_out_predictions, wrong_classes, wrong_labels
from vicinal.evaluation.wrong_labels import WrongLabels

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
