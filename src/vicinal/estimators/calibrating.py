"""The rows that calibrate what a fitted model promises, and what it says of them."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vicinal.calibration.split import too_few
from vicinal.core import CalibrationWarning
from vicinal.core.checks import warn_caller
from vicinal.estimators.attention import range_features, range_of
from vicinal.estimators.bank import Bank
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.inputs import Ids
from vicinal.estimators.out_of_fold import MOST, Who
from vicinal.training.rows import spread

SHIFTED = 0.9
"""Coverage that the report of an adaptation is about."""


def rows_that_calibrate(model: FittedModel) -> tuple[Bank, Tensor, Who, Tensor | None]:
    """The bank whose rows calibrate, their positions ``[n]``, 4,096 at most, who they are, and codes of groups.

    These are the rows that folds leave out, or those that were held out; of a kernel with groups all rows, each
    predicted from other groups: it has few numbers, which no single group could have bent much.
    """
    cross_fitted = model.network.cross_fitted or (model.bank.grouped and model.metric == "kernel")
    rows = model.bank if model.folds is not None or cross_fitted else model.held_out
    at = model.fold_positions(MOST) if model.folds is not None else spread(len(rows), MOST)
    codes = rows.store.group_codes
    return rows, at, rows.who(at), None if codes is None else codes[at]


def calibrating_rows(model: FittedModel) -> int:
    """How many rows calibrate."""
    return len(model.forecasts[0]) if model.forecasts else len(rows_that_calibrate(model)[1])


def calibrating_units(model: FittedModel) -> tuple[int, str]:
    """How many "groups" those rows are of; of a model that was fitted without groups, how many "rows" they are."""
    codes = rows_that_calibrate(model)[3]
    if codes is None or model.forecasts:  # forecasts hold one row a group
        return calibrating_rows(model), "rows" if codes is None else "groups"
    return len(set(codes.tolist())), "groups"


def calibrates(model: FittedModel, coverage: float) -> bool:
    """Whether enough rows calibrate for intervals or sets of this coverage, or enough groups where there are some."""
    count, _ = calibrating_units(model)
    return bool(count and (count + 1) * coverage <= count + 1e-9)


def check_calibrates(model: FittedModel, coverage: float) -> None:
    """Raise ValueError if too few groups calibrate for finite intervals of this coverage."""
    count, units = calibrating_units(model)
    if units == "groups" and not calibrates(model, coverage):
        raise too_few(coverage, count / (count + 1), count, units)


def promises(model: FittedModel, coverage: float) -> bool:
    """The same for predictions, which without groups raise ValueError later; with groups a warning says it."""
    count, units = calibrating_units(model)
    if units == "rows" or calibrates(model, coverage):
        return True
    more = "hold out more of them, or fit with validation_fraction=0, which lets all of them calibrate"
    warn_caller(
        f"coverage: expected at most {count / (count + 1):.3f} with {count} groups that calibrate, got "
        f"{coverage}, so nothing is ruled out; ask for less, or {more}",
        CalibrationWarning,
    )
    return False


def honest_answers(model: FittedModel) -> tuple[Tensor, Tensor]:
    """Predictions of the rows that calibrate, in the units of the labels, and their labels in the bank."""
    rows, at, who, _ = rows_that_calibrate(model)
    said = model.answer(rows.vectors[at].double(), who) if model.folds is None else model.out_of_fold(at)
    return model.in_label_units(said), rows.labels[at]


def as_shares(prediction: Tensor) -> Ids:
    """Predictions as probabilities: rows of float64 that sum to 1, but for rounding."""
    shares = prediction.double()
    return np.asarray((shares / shares.sum(dim=-1, keepdim=True)).numpy())


def said_of(model: FittedModel, queries: Tensor, who: Who) -> Tensor:
    """What a model says of rows ``[n, p]``, by which populations are told apart.

    Of classes their probabilities; of numbers, on the scale of the fit, the prediction, and the logarithm of the width
    of the range where rows were held out: rows that a metric of folds has left out have wider ranges than new rows of
    their kind, which would tell the two apart for no good reason.
    """
    if model.codec.kind == "classes":
        return torch.from_numpy(as_shares(model.in_label_units(model.answer(queries, who))))
    both = torch.from_numpy(range_features(*range_of(model, queries, who, SHIFTED)))
    both[:, 1] = both[:, 1].clamp(min=torch.finfo(torch.float64).tiny).log()
    return both[:, :1] if model.network.cross_fitted else both


def adapted_mass(model: FittedModel) -> Tensor | None:
    """As how many rows each calibrating row counts ``[n]``; None: one each."""
    rows, at, who, _ = rows_that_calibrate(model)
    adaptation, codec = model.adaptation, model.codec
    if adaptation is None or adaptation.misses:
        return rows.mass[at] if rows.weighted else None
    # the ratio was learned from what the model said before it was adapted, and whatever loss is asked for now
    plain = replace(model, adaptation=None, codec=replace(codec, transform=codec.transform.base))
    said = said_of(plain, rows.vectors[at].double(), who)
    return rows.mass[at] * adaptation.calibrating_weights(said, rows.labels[at])
