"""Sets of classes that hold the true one, and probabilities from which classes are predicted."""

from typing import Any

import numpy as np
from torch import Tensor

from vicinal.calibration import ConformalClasses, answering_threshold, cross_conformal_sets, drawn_rows, f1_thresholds
from vicinal.estimators.calibrating import (
    adapted_mass,
    as_shares,
    calibrating_rows,
    honest_answers,
    promises,
    rows_that_calibrate,
)
from vicinal.estimators.fitted import FittedModel, once
from vicinal.estimators.inputs import Ids
from vicinal.estimators.out_of_fold import MOST, Who, fold_predictions


def calibrating_shares(model: FittedModel) -> tuple[Tensor, Tensor, Ids | None, Ids | None]:
    """Honest predictions ``[n, K]`` of at most 4,096 rows, their labels, weights and codes of groups."""
    adaptation = model.adaptation
    if model.forecasts and not model.codec.multilabel:
        said, truth = model.forecasts[0].of_classes(len(model.codec.classes))
        if adaptation is None:
            return said, truth, None, None
        return adaptation.reweighed(said), truth, adaptation.calibrating_weights(said, truth).numpy(), None
    each = adapted_mass(model), rows_that_calibrate(model)[3]
    mass, codes = (None if one is None else one.numpy() for one in each)
    return *honest_answers(model), mass, codes


def class_sets(model: FittedModel, queries: Tensor, who: Who, coverage: float, method: str) -> np.ndarray[Any, Any]:
    """Sets of classes ``[n, K]`` of embedded queries: see :meth:`NeighborClassifier.predict_set`."""
    if not promises(model, coverage):
        return np.ones((len(queries), len(model.codec.classes)), dtype=bool)
    known, truth, weights, groups = calibrating_shares(model)
    labels = truth.long().numpy()
    if model.folds is None:
        fitted = ConformalClasses(method, coverage=coverage, seed=0)
        fitted.fit(as_shares(known), labels, weights, groups)
        return fitted.predict(as_shares(model.in_label_units(model.answer(queries, who))))
    folds = model.bank.folds
    codes = np.zeros(0, dtype=np.int64) if folds is None else folds[model.fold_positions(MOST)].numpy()
    shares = as_shares(fold_predictions(model, queries, who))
    settings: dict[str, Any] = {"method": method, "weights": weights, "groups": groups}
    return cross_conformal_sets(shares, as_shares(known), labels, codes, coverage, **settings)


@once
def class_thresholds(model: FittedModel) -> Ids:
    """The probability at which each of several classes is predicted: see :attr:`NeighborClassifier.thresholds_`."""
    if not calibrating_rows(model):
        return np.full(len(model.codec.classes), 0.5)
    known, truth, weights, _ = calibrating_shares(model)
    return f1_thresholds(known.double().numpy(), truth.numpy(), weights)


@once
def threshold_of_answers(model: FittedModel, abstain: float) -> float:
    """The probability from which rows are answered: see :meth:`NeighborClassifier.answering_threshold`."""
    said, truth, weights, groups = calibrating_shares(model)
    at = drawn_rows(len(truth), weights, groups)  # the bound is binomial: each row once, and one of each group
    shares = as_shares(said)[at]
    wrong = shares.argmax(axis=1) != truth.numpy()[at]
    return answering_threshold(shares.max(axis=1, initial=0.0), wrong, abstain)
