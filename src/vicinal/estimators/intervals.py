"""Intervals of a fitted model: ranges of the labels that rows attend to, and the margin that calibrates them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.calibration import ErrorSize, conformal_quantile, cross_conformal_interval, range_scores
from vicinal.estimators.attention import error_size, range_features, range_of
from vicinal.estimators.calibrating import SHIFTED, adapted_mass, promises, rows_that_calibrate
from vicinal.estimators.fitted import FittedModel, once
from vicinal.estimators.forecasts import by_log, widened
from vicinal.estimators.inputs import Ids
from vicinal.estimators.out_of_fold import MOST, Who
from vicinal.heads import conformal_margin
from vicinal.heads.kinds import weighs_locally
from vicinal.training.rows import spread

_SIZED = 1024
"""Rows that tell how large errors of a kernel are, at most."""

Intervals = dict[float, np.ndarray[Any, Any]]


def intervals_of(
    model: FittedModel, queries: Tensor, who: Who, coverages: Sequence[float], excess: Tensor | None
) -> Intervals:
    """Intervals ``[n, 2]`` by coverage, of embedded queries: see :meth:`NeighborRegressor.predict_interval`.

    A row may lie ``excess [n]`` ranges of a column beyond the fit.
    """
    if model.adaptation is not None and (misses := model.adaptation.misses):
        ends = intervals_of(replace(model, adaptation=None), queries, who, (SHIFTED,), excess)[SHIFTED]
        return {level: widened(ends, conformal_quantile(misses, level)) for level in coverages}
    intervals = {level: np.tile([-np.inf, np.inf], (len(queries), 1)) for level in coverages}
    promised = [level for level in coverages if promises(model, level)]
    if model.forecasts:
        ends, log = intervals_of(replace(model, forecasts=()), queries, who, (SHIFTED,), excess)[SHIFTED], by_log(model)
        return intervals | {level: widened(ends, model.forecasts[0].radius(level), log=log) for level in promised}
    if model.folds is not None:
        ends_of = {level: _cross_ends(model, queries, who, level) for level in promised}
    else:
        ends_of = _split_ends(model, queries, who, promised)
    return intervals | {level: _in_units(model, _farther(model, ends, excess)) for level, ends in ends_of.items()}


def _split_ends(model: FittedModel, queries: Tensor, who: Who, coverages: Sequence[float]) -> dict[float, Tensor]:
    """Ends ``[n, 2]`` of intervals by coverage whose margin is calibrated on the rows held out."""
    ends, spans = {}, {}
    for level in coverages:
        widest = margin(model, level)
        one = 0.0 if weighs_locally(model.network.head) else level  # whose range is that of all levels
        if one not in spans:
            spans[one] = range_of(model, queries, who, level)
        low, high, unit = spans[one]
        size = sized_misses(model, level)[0](range_features(low, high, unit))
        widening = widest * unit * torch.from_numpy(size)
        low, high = low - widening, high + widening
        middle = (low + high) / 2  # a margin below 0 may turn a narrow range inside out
        ends[level] = torch.stack([torch.minimum(low, middle), torch.maximum(high, middle)], dim=1)
    return ends


def _cross_ends(model: FittedModel, queries: Tensor, who: Who, coverage: float) -> Tensor:
    """Ends ``[n, 2]`` of CV+ intervals: see :func:`vicinal.calibration.cross_conformal_interval`."""
    positions, bank = model.fold_positions(MOST), model.bank
    truth, *left_out = torch.empty(4, len(positions), dtype=torch.float64)
    members, codes, ranges = model.fold_members(), torch.empty(len(positions), dtype=torch.int64), []
    for fold in range(members.folds):
        at = bank.in_fold(fold, positions).nonzero()[:, 0]
        view, places = model.of_fold(fold), positions[at]
        left = members.columns(fold, bank.vectors[places].double())
        parts = range_of(view, left, bank.who(places), coverage) if len(places) else [left[:, 0]] * 3
        for all_rows, part in zip(left_out, parts, strict=True):
            all_rows[at] = part.to(all_rows)
        truth[at], codes[at] = model.codec.transform.base.forward(bank.labels[places]), fold
        ranges.append(range_of(view, members.columns(fold, queries), who, coverage))
    low, high, unit = left_out
    size = error_size(truth, low, high, unit)
    scores = range_scores(truth.numpy(), low.numpy(), high.numpy()) / (unit.numpy() * size.left_out)
    lows, highs = (torch.stack(parts, dim=1).numpy() for parts in zip(*(one[:2] for one in ranges), strict=True))
    units = np.stack([one[2].numpy() * size(range_features(*one)) for one in ranges], axis=1)  # [b, F]
    weights = bank.mass[positions].numpy() if bank.weighted else None
    known = {"weights": weights, "groups": bank.who(positions)["groups"]}
    ends = cross_conformal_interval(lows, highs, scores, codes.numpy(), coverage, unit=units, **known)
    return torch.from_numpy(ends)


def _farther(model: FittedModel, ends: Tensor, excess: Tensor | None) -> Tensor:
    r"""Ends ``[n, 2]`` of intervals of rows that lie ``excess [n]`` ranges of a column beyond what cells count as.

    Each end goes the share $e / (1 + e)$ of its way to the limit of all predictions: half of it for a row one range
    beyond, and a row infinitely far is only promised what any row is.
    """
    limits = model.limited_transform().limits()
    if excess is None or limits is None:
        return ends
    share = 1 - 1 / (1 + excess)
    farthest = torch.stack([torch.minimum(ends[:, 0], limits[0]), torch.maximum(ends[:, 1], limits[1])], dim=1)
    return ends + share[:, None] * (farthest - ends)


def _in_units(model: FittedModel, ends: Tensor) -> np.ndarray[Any, Any]:
    """Ends ``[n, 2]`` of intervals in the units of the labels, which may lie beyond all that is predicted."""
    scale = model.codec.transform.base.model_copy(update={"ends": []})
    return torch.stack([scale.inverse(end) for end in ends.unbind(dim=1)], dim=1).numpy()


@once
def margin(model: FittedModel, coverage: float) -> float:
    """By how much ranges are widened, from at most 4,096 rows; the same until the rows change."""
    _, at, _, codes = rows_that_calibrate(model)
    if len(at) == 0:
        raise ValueError("coverage: expected rows held out for calibration, got none; they were all forgotten")
    return conformal_margin(sized_misses(model, coverage)[1], coverage, adapted_mass(model), codes)


def sized_misses(model: FittedModel, coverage: float) -> tuple[ErrorSize, Tensor]:
    """The usual size of errors, and by how much the range of each calibrating row misses its label ``[n]``."""
    return _sized_misses(model, 0.0 if weighs_locally(model.network.head) else coverage)  # one range for all coverages


@once
def _sized_misses(model: FittedModel, coverage: float) -> tuple[ErrorSize, Tensor]:
    rows, at, who, _ = rows_that_calibrate(model)
    labels = model.codec.transform.base.forward(rows.labels[at])
    low, high, unit = range_of(model, rows.vectors[at].double(), who, coverage)
    # few rows are held out, and a size is learned from pairs of them: all rows of a kernel tell it with less noise
    if model.metric == "kernel" and rows is not model.bank:
        size, sizes = _sizes_by_all(model, rows.ids[at.numpy()], range_features(low, high, unit), coverage)
    else:
        size = error_size(labels, low, high, unit)
        sizes = size.left_out
    return size, torch.maximum(low - labels, labels - high) / unit / torch.from_numpy(sizes)


def _sizes_by_all(model: FittedModel, ids: Ids, features: Ids, coverage: float) -> tuple[ErrorSize, Ids]:
    """Sizes by rows of the bank, as a kernel has few numbers that they could bend, and those ``[n]`` of ``ids``."""
    bank, at = model.bank, spread(len(model.bank), _SIZED)
    labels = model.codec.transform.base.forward(bank.labels[at])
    size = error_size(labels, *range_of(model, bank.vectors[at].double(), bank.who(at), coverage))
    sizes, positions = size(features), bank.store.positions(ids)
    place = torch.searchsorted(at, positions).clamp(max=len(at) - 1)
    same = (at[place] == positions).numpy()
    sizes[same] = size.left_out[place[same]]
    return size, sizes
