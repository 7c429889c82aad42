"""Forecasts within a fit of rows with times: fits to earlier rows choose how to fit, and calibrate for later ones.

Rows left out at random lie between others, so that their errors say nothing of rows that come later.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from vicinal.calibration.groups import group_mass
from vicinal.core.checks import CalibrationWarning, warn_caller
from vicinal.core.progress import ending_in, time_left
from vicinal.data.cells import as_times
from vicinal.data.splits import AHEAD, forward_splits
from vicinal.estimators.adaptation import Floats, Forecasts
from vicinal.estimators.calibrating import SHIFTED, check_calibrates
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.inputs import Ids, as_frame, as_series, as_table
from vicinal.estimators.label_codec import label_frame
from vicinal.training.rows import spread

SHARE = 0.05
"""By which share errors of forecasts must be lower for another metric or scale of labels than the fit has chosen."""

_FARTHEST = 1e9
"""Halves of an interval that a label is told to be off, at most."""

_MOST, _NUMBERS, _FEWEST = 1024, 1 << 16, 9
"""Rows of a forecast, and probabilities of all rows, that are kept, at most; rows or groups of all, at least."""


def fit_in_time(model: Any, x: Any, y: Any, times: Any, validation: Any, known: dict[str, Any]) -> None:
    """Fit an estimator to rows with times: by what forecasts best, and with the errors of its forecasts.

    Args:
        model: the estimator.
        x: rows.
        y: their labels.
        times: ``[n]``.
        validation: positions of the rows to hold out; None: the latest.
        known: "ids", "groups" and "sample_weight", each ``[n]`` or None.
    """
    x, when = as_table("X", x), as_times(pd.Series(as_series("times", times)))
    if len(when) != (count := x.shape[0] if hasattr(x, "shape") else len(x)):
        raise ValueError(f"times: expected one for each of {count} rows, got {len(when)}")
    if model.validation_fraction == 0:
        raise ValueError("times: expected validation_fraction above 0, as folds learn from later rows, got 0")
    known = {name: np.asarray(values) for name, values in known.items() if values is not None}
    if validation is None:
        validation = _latest(when, model.validation_fraction, known.get("groups"))
    minutes = np.inf if model.minutes is None else 60 * model.minutes
    with ending_in(minutes):
        model.fit(x, y, validation=validation, **known)
        frame = model.form_.read(as_frame(model, x, reset=False))
        counts = known.get("sample_weight", np.ones(len(when))) > 0  # as rows of the bank
        at = np.flatnonzero(counts)
        labels = label_frame(model.fitted_.codec, model.bank_.labels.numpy())
        rows = _Rows(model, frame.iloc[at], labels, when[at], {name: values[at] for name, values in known.items()})
        held_out = np.searchsorted(at, np.asarray(validation)[counts[np.asarray(validation)]])
        best = rows.forecast(held_out)  # fitted to numbers; users go on to write labels as they did
        model.fitted_ = replace(best, codec=replace(best.codec, form=model.fitted_.codec.form))


def _latest(times: Ids, share: float, groups: Ids | None = None) -> Ids:
    """Positions of the latest rows, whole groups of them."""
    latest = np.argsort(times, kind="stable")[-max(1, round(share * len(times))) :]
    return np.sort(latest) if groups is None else np.flatnonzero(np.isin(groups, groups[latest]))


class _Rows:
    """The rows that a model was fitted to, in the order of its bank, with their times."""

    def __init__(self, model: Any, frame: pd.DataFrame, labels: Any, times: Ids, known: dict[str, Ids]) -> None:
        self.model, self.frame, self.labels, self.times, self.known = model, frame, labels, times, known

    def forecast(self, held_out: Ids) -> FittedModel:
        """The model as it forecasts best, with what its forecasts were like."""
        fitted: FittedModel = self.model.fitted_
        numbers = fitted.codec.kind == "numbers"
        metric = "auto" if fitted.metric == "trees and kernel" else fitted.metric  # no mean can be asked for
        chosen = metric, fitted.codec.transform.base.name if numbers else "none"
        known = [one for one in fitted.trials if one.metric not in ("network", "trees and kernel")]
        others = [(one.metric, one.target_transform) for one in known]
        tried: dict[tuple[str, str], tuple[float, tuple[Forecasts, ...]]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say of the rows the fit has said
            for one in dict.fromkeys([chosen, *(others if numbers else [])]):
                if not tried or time_left() > 0:
                    tried[one] = self._tried(one)
            best = min(tried, key=lambda one: tried[one][0] * (1 - SHARE if one == chosen else 1))
            if best != chosen:
                again = self._fitted(best, np.arange(len(self.frame)), held_out)
                fitted = again.fitted_.chosen_over(fitted)
        if not tried[best][1]:
            _, count = self._mass(np.arange(len(self.frame)))
            what = "groups" if "groups" in self.known else "rows"
            warn_caller(
                f"times: expected {what} enough for a fit to the earlier half of them and for intervals, got {count}; "
                "nothing is promised for later rows",
                CalibrationWarning,
            )
        return replace(fitted, forecasts=tried[best][1])

    def _part(self, at: Ids, *names: str) -> tuple[pd.DataFrame, dict[str, Ids]]:
        return self.frame.iloc[at], {name: self.known[name][at] for name in names if name in self.known}

    def _fitted(self, how: tuple[str, str], at: Ids, held_out: Ids | None = None) -> Any:
        """Such a model by a metric and a scale of labels, of some rows; the latest are held out."""
        frame, known = self._part(at, "ids", "groups", "sample_weight")
        if held_out is None:
            held_out = _latest(self.times[at], self.model.validation_fraction, known.get("groups"))
        settings = {"columns": dict(self.model.kinds_), "form": self.model.form_, "metric": how[0], "minutes": None}
        settings |= {"index": None, "checkpoint_dir": None, "plan": self.model.plan_}
        settings |= {"target_transform": how[1]} if self.model.fitted_.codec.kind == "numbers" else {}
        other = clone(self.model).set_params(**settings)
        labels = self.labels.iloc[at] if isinstance(self.labels, pd.DataFrame) else np.asarray(self.labels)[at]
        return other.fit(frame, labels, validation=held_out, **known)

    def _tried(self, how: tuple[str, str]) -> tuple[float, tuple[Forecasts, ...]]:
        """The root of the mean squared error of forecasts, and what they were like, for each target."""
        errors, each, places = [], [], []
        for past, later in forward_splits(self.times, self.known.get("groups")):
            some = later[spread(len(later), _MOST).numpy()]
            try:
                one = self._fitted(how, past)
                frame, known = self._part(some, "ids", "groups")
                error, outcome = self._outcome(one, frame, some, known)
            except ValueError:  # too few rows or groups, or labels that do not differ
                continue
            errors.append(error)
            each.append(outcome)
            places.append(some)
        if sum(self._mass(at)[1] for at in places) < _FEWEST:
            return np.inf, ()
        error = float(np.sqrt(np.mean(errors)))
        if self.model.fitted_.codec.kind == "numbers":
            targets = range(each[0].shape[1])
            pairs = list(zip(each, places, strict=True))
            misses = ([self._sample(at, one[:, place]).tolist() for one, at in pairs] for place in targets)
            return error, tuple(Forecasts(until=self._until(), misses=one) for one in misses)
        at, first = np.unique(np.concatenate(places), return_index=True)  # of several forecasts the one of farthest off
        drawn = self._sample(at, np.arange(len(at)))
        evenly = drawn[spread(len(drawn), max(1, _NUMBERS // each[0].shape[1])).numpy()]
        said, labels = np.concatenate(each)[first[evenly]], self.model.bank_.labels[torch.from_numpy(at[evenly])]
        return error, (Forecasts(until=self._until(), said=said.tolist(), labels=labels.long().tolist()),)

    def _mass(self, at: Ids) -> tuple[Floats, int]:
        """How much each of these rows counts, and how many rows, or groups, they are."""
        weights = self.known.get("sample_weight", np.ones(len(self.frame)))[at]
        return group_mass(self.known["groups"][at], weights) if "groups" in self.known else (weights, len(at))

    def _sample(self, at: Ids, values: Ids) -> Ids:
        """As many of the values of rows as there are rows, or groups, at even steps of the mass, rising."""
        mass, count = self._mass(at)
        order = np.argsort(values, kind="stable")
        below = np.cumsum(mass[order])
        return values[order[np.searchsorted(below, (np.arange(count) + 0.5) / count * below[-1])]]

    def _until(self) -> float:
        """As far after the last row as the last forecast went."""
        when = np.sort(seconds(self.times))
        return float(2 * when[-1] - when[round((1 - AHEAD) * len(when)) - 1])

    def _outcome(self, one: Any, frame: pd.DataFrame, some: Ids, known: dict[str, Ids]) -> tuple[float, Floats]:
        """Mean squared error of a forecast, and its misses ``[n, T]`` or probabilities of classes ``[n, K]``."""
        truth = self.model.bank_.labels[torch.from_numpy(some)].numpy()
        if self.model.fitted_.codec.kind == "classes":
            said = np.zeros((len(some), len(self.model.classes_)))
            said[:, np.isin(self.model.classes_, one.classes_)] = one.predict_proba(frame, **known)
            return 0.0, said
        check_calibrates(one.fitted_, SHIFTED)
        unit = self.model.bank_.labels.std(dim=0).numpy()
        error = np.average(np.square((one.predict(frame, **known) - truth) / unit), axis=0, weights=self._mass(some)[0])
        ends = one.predict_interval(frame, **known).reshape(len(some), -1, 2)
        log = by_log(one.fitted_)
        low, high, labels = (np.log(v) if log else v for v in (*np.moveaxis(ends, 2, 0), truth.reshape(ends.shape[:2])))
        half = np.maximum((high - low) / 2, np.finfo(np.float64).tiny)
        return float(np.mean(error)), np.minimum(np.abs(labels - (low + high) / 2) / half, _FARTHEST)


def seconds(times: Ids) -> Floats:
    """Times as numbers: dates as seconds since 1970."""
    return np.asarray(times.astype("datetime64[s]") if times.dtype.kind == "M" else times, dtype=np.float64)


def by_log(model: FittedModel) -> bool:
    """Whether intervals are wider on the scale of logarithms."""
    return model.codec.transform.base.name == "log"


def widened(ends: Floats, radius: float, *, log: bool = False) -> Floats:
    """Intervals ``[n, 2]`` of so many times the width around the same middle, on the scale of logarithms with ``log``.

    >>> widened(np.array([[1.0, 3.0]]), 2.0).tolist(), widened(np.array([[1.0, 4.0]]), 2.0, log=True).round(9).tolist()
    ([[0.0, 4.0]], [[0.5, 8.0]])
    """
    low, high = (np.log(ends) if log else ends).T
    middle, half = (low + high) / 2, radius * (high - low) / 2
    both = np.stack([middle - half, middle + half], axis=1)
    return np.exp(both) if log else both
