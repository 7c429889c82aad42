"""Probabilities from scores of classes: how steep they are, by rows that had no part in their own scores."""

from dataclasses import replace
from typing import Any

from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.target_transform import TargetTransform
from vicinal.training.class_kernel import calibrate_scores
from vicinal.training.rows import spread

_CALIBRATED = 4096
"""Rows that the scale of scores of classes is calibrated on, at most."""

_FLOORS = (3e-3, 1e-2, 3e-2)
"""What may be added to shares of classes before their power is taken: of a class of 30 rows no error out of fold shows
what a lower one costs."""


def with_scale(model: FittedModel) -> FittedModel:
    """The model with the scale of scores of classes, from rows that are each predicted from the others."""
    scores, bank, at = model.left_out(model.bank, spread(len(model.bank), _CALIBRATED))
    known = model.bank_labels()[at], bank.mass[at]
    if model.metric == "kernel":
        fitted, scale = calibrate_scores(scores, *known), dict[str, Any](name="softmax")
    else:
        shares = scores.double().clamp(min=0)
        each = {floor: calibrate_scores((shares + floor).log(), *known) for floor in _FLOORS}
        floor = min(each, key=lambda one: each[one].loss)
        fitted, scale = each[floor], dict[str, Any](name="power", floor=floor)
    scale |= {"slope": fitted.slope, "biases": fitted.biases.tolist()}
    scaled = replace(model, codec=replace(model.codec, transform=TargetTransform.model_validate(scale)))
    scaled.computed.left_out = scores, bank, at  # no scale changes what the others say
    return scaled
