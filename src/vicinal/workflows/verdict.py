"""The summary at the top of a report: the model's error, its change from the best other method, and its coverage.

Each number has a 95 % interval; the rows behind them are listed for the report's search.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from vicinal.calibration import clopper_pearson
from vicinal.core.arrays import Array
from vicinal.core.checks import plain
from vicinal.data import Split
from vicinal.encoders.numeric import is_dates, to_numbers
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.evaluation.audit import Slice, coverage_curve, error_slices
from vicinal.evaluation.ranking import query_ndcg
from vicinal.evaluation.scores import relative_weights
from vicinal.report.records import Doubted, Example, Verdict
from vicinal.workflows.measured import Measured, MeasuredClasses, MeasuredSeveral, Measurements, places_of, shown_label
from vicinal.workflows.opening import OpenTable
from vicinal.workflows.showing import shown_cells

LEVELS = (0.5, 0.8, 0.9)
"""Coverages of the intervals that a fit checks."""

COVERED = 2000
"""Most test rows whose intervals are checked."""

SEARCHED = 300
"""Most test rows that a report shows."""

FEWEST = 10
"""Fewest rows, or groups of rows, for a 95 % interval."""

_RESAMPLES = 1000


@dataclass(frozen=True)
class Covering:
    """Coverage of a model's intervals or sets of classes on some of the test rows.

    Attributes:
        places: positions of these rows among the test rows ``[m]``.
        levels: of intervals, see :func:`vicinal.evaluation.audit.coverage_curve`; one level for sets of classes.
        bounds: 90 % intervals ``[m, 2]``, or None.
        inside: whether the 90 % interval or set of a row holds its label ``[m]``, or None.
    """

    places: Array
    levels: list[dict[str, Any]]
    bounds: Array | None = None
    inside: Array | None = None


def covering(model: BankedEstimator, opened: OpenTable, split: Split) -> Covering:
    """Whether intervals, or sets of classes, hold the labels of the test rows; empty if too few rows calibrate."""
    places = np.linspace(0, len(split.test) - 1, min(COVERED, len(split.test))).round().astype(np.int64)
    levels = [level for level in LEVELS if model.calibrates(level)]
    if not len(places) or not levels or not model.network_.head.uses_bank:
        return Covering(places, [])
    part = opened.table.select(split.test[places])
    frame, ids, groups = part.frame[list(opened.kinds)], part.ids, part.groups
    if isinstance(model, NeighborRegressor):
        bounds = model.predict_intervals(frame, levels, ids=ids, groups=groups)
        truth, last = part.target.astype(float), bounds.get(0.9)
        inside = None if last is None else (truth >= last[:, 0]) & (truth <= last[:, 1])
        return Covering(places, coverage_curve(truth, bounds, weights=part.weights), last, inside)
    if not isinstance(model, NeighborClassifier) or model.multilabel_ or 0.9 not in levels:  # several have no sets
        return Covering(places, [])
    sets = model.predict_set(frame, 0.9, ids=ids, groups=groups)
    right = places_of(part.target, model.classes_.tolist())
    inside = (right >= 0) & sets[np.arange(len(sets)), right]
    covered, width = (float(np.average(values, weights=part.weights)) for values in (inside, sets.sum(1)))
    level = {"coverage": 0.9, "covered": covered, "width": width, "by_part": []}
    return Covering(places, [level], inside=inside)


def verdict(measured: Measurements, groups: Array, promise: Covering) -> Verdict:
    """The summary that a report begins with.

    Args:
        measured: predictions of the model and of other methods on the same rows.
        groups: of these rows ``[n]``, resampled as a whole.
        promise: from :func:`covering`.
    """
    ours, weights = measured.model, measured.model.weights
    rows = len(ours.truth)
    mass = relative_weights(rows, weights)
    codes = np.unique(groups, return_inverse=True)[1]
    at, better, mean, change = promise.places, max, _difference, _difference
    covered = None if promise.inside is None else _share(promise.inside, codes[at], mass[at])
    if isinstance(ours, MeasuredSeveral):
        each = {name: one.parts for name, one in measured.methods.items() if isinstance(one, MeasuredSeveral)}
        mean = change = _micro_f1
    elif ours.queries is not None:  # a query is what is drawn, whatever its rows weigh
        queries: Array = np.asarray(ours.queries)
        each = {name: query_ndcg(one.truth, one.predicted, queries) for name, one in measured.methods.items()}
        each = {name: values[~np.isnan(each["model"])] for name, values in each.items()}
        rows = len(each["model"])
        codes, mass = np.arange(rows), np.ones(rows)
    else:
        each, better = {name: one.losses for name, one in measured.methods.items()}, min
        each["model"] = each["model"] * measured.share
    mine = each.pop("model")
    best = better(each, key=lambda name: float(mean(mass[None], each[name], None)[0]), default="")
    if better is max:
        typical = _doubted(mine, None, codes, mass, mean)
    elif isinstance(ours, MeasuredClasses):
        typical = _share(1 - mine, codes, mass)
    else:
        typical, change = _doubted(np.sqrt(mine), None, codes, mass, _median), _relative
    against = _doubted(mine, each[best], codes, mass, change) if best else None
    return Verdict(rows, typical, best, len(each), against, covered)


def examples(
    model: BankedEstimator, opened: OpenTable, rows: Array, measured: Measured, promise: Covering
) -> list[Example]:
    """At most 300 of the measured ``rows [n]``, the largest error first, with the intervals of ``promise``."""
    places = np.linspace(0, len(rows) - 1, min(SEARCHED, len(rows))).round().astype(np.int64)
    part, shown, misses, f1 = opened.table.select(rows[places]), measured.shown, measured.misses, None
    if isinstance(measured, MeasuredSeveral):
        hits, both = measured.parts.T
        f1 = np.where(both > 0, hits / np.maximum(both, 1), 1.0)
        misses = 1 - f1
    at = {} if promise.bounds is None else dict(zip(promise.places.tolist(), promise.bounds.tolist(), strict=True))
    classes = isinstance(measured, MeasuredClasses)
    columns = [name for name in opened.kinds if opened.kinds[name] not in ("image", "set")]
    listed, frame = [], model.form_.written(part.frame)
    for row in np.argsort(-misses[places], kind="stable").tolist():
        place, target = int(places[row]), part.target[row]
        cells = shown_cells({name: frame[name].iloc[row] for name in columns}, dict(model.kinds_), part.root)
        listed.append(
            Example(
                id=str(part.ids[row]),
                prediction=shown[place],
                target=float(target) if type(measured) is Measured else shown_label(target),
                cells={name: cell for name, cell in cells.items() if isinstance(cell, str)},
                interval=at.get(place),
                probability=float(measured.predicted[place].max()) if classes else None,
                f1=None if f1 is None else float(f1[place]),
            )
        )
    return listed


def worst_groups(opened: OpenTable, rows: Array, measured: Measured) -> list[Slice]:
    """The groups of measured rows of more than the mean error, worst first: of a category or a third of a number."""
    part, columns = opened.table.select(rows), dict[str, Any]()
    for name, kind in opened.kinds.items():
        cells = part.frame[name]
        if kind == "number" and cells.nunique() > _THIRDS:
            columns[name] = thirds(cells)
        elif kind in ("number", "category"):
            columns[name] = cells.tolist()
    slices = error_slices(measured.losses, columns) if len(rows) else []
    return [part for part in slices if part.ratio > 1][:_WORST]


def thirds(cells: pd.Series) -> list[str | None]:
    """In which third of a column of numbers or dates each cell is; None: empty, or one of a column without thirds."""
    numbers, dates = to_numbers(cells, str(cells.name)), is_dates(cells)
    known = ~np.isnan(numbers)
    ends = np.unique(np.quantile(numbers[known], np.linspace(0, 1, _THIRDS + 1))) if known.any() else np.zeros(0)
    shown = [str(np.datetime64(math.floor(end), "D")) if dates else plain(end) for end in ends.tolist()]
    names = [f"{low} to {high}" for low, high in pairwise(shown)]
    places = np.clip(np.searchsorted(ends, numbers, side="right") - 1, 0, max(0, len(names) - 1))
    return [names[at] if is_known and names else None for at, is_known in zip(places.tolist(), known, strict=True)]


_THIRDS, _WORST = 3, 6


def _share(hits: Array, codes: Array, mass: Array) -> Doubted:
    r"""A share with its Clopper-Pearson interval for one row per group, with weights $(\sum w)^2 / \sum w^2$ rows."""
    share = float((mass * hits).sum() / mass.sum())
    each = np.bincount(np.unique(codes, return_inverse=True)[1], mass)
    even = bool((mass == 1).all())
    count = len(each) if even else float(each.sum() ** 2 / (each**2).sum())
    if count < FEWEST:
        return Doubted(share)
    low, high = clopper_pearson(share * count, count, 0.05)
    return Doubted(share, float(low), float(high))


def _doubted(values: Array, others: Array | None, codes: Array, mass: Array, statistic: Any) -> Doubted:
    """A statistic of the rows with its bootstrap percentile interval, resampling whole groups."""
    if values.ndim == 1:
        # rising, so that a weighted median is where the sum of weights passes half; means do not mind
        order = np.argsort(values, kind="stable")
        values, codes, mass = values[order], codes[order], mass[order]
        others = None if others is None else others[order]
    figure = float(statistic(mass[None], values, others)[0])
    if len(np.unique(codes)) < FEWEST or not np.isfinite(figure):
        return Doubted(figure)
    drawn = np.concatenate([statistic(mass * times, values, others) for times in _draws(codes)])
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Doubted(figure, float(low), float(high))


def _draws(codes: Array) -> Iterator[Array]:
    """How often each row is drawn ``[r, n]``, in blocks of resamples."""
    rng, groups = np.random.default_rng(0), int(codes.max()) + 1
    block = max(1, 1_000_000 // len(codes))
    for start in range(0, _RESAMPLES, block):
        counts = rng.multinomial(groups, np.full(groups, 1 / groups), size=min(block, _RESAMPLES - start))
        yield counts[:, codes].astype(float)


def _median(weights: Array, values: Array, others: Array | None) -> Array:
    sums = weights.cumsum(axis=1)
    return np.asarray(values[(sums >= sums[:, -1:] / 2).argmax(axis=1)])


def _relative(weights: Array, values: Array, others: Array | None) -> Array:
    """Mean of ``values`` over that of ``others``, minus 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(weights @ values / (weights @ others) - 1)


def _micro_f1(weights: Array, values: Array, others: Array | None) -> Array:
    """The micro F1 from the rows' parts of its numerator and denominator, ``[n, 2]``, minus that of ``others``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ours, theirs = (
            (weights @ one[:, 0]) / (weights @ one[:, 1]) for one in (values, values if others is None else others)
        )
    return np.asarray(ours if others is None else ours - theirs)


def _difference(weights: Array, values: Array, others: Array | None) -> Array:
    """Mean of ``values``, minus that of ``others``."""
    return np.asarray(weights @ (values if others is None else values - others) / weights.sum(1))
