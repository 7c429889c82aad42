"""Whether rows have shifted from those of a fit: tests by column, what is adapted, and a report."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.calibration import ConformalClasses
from vicinal.calibration.density_ratio import effective_rows
from vicinal.calibration.split import conformal_quantile
from vicinal.core import short
from vicinal.core.checks import short_text
from vicinal.data.cells import missing_cells
from vicinal.encoders.numeric import is_dates, to_numbers
from vicinal.estimators.adaptation import (
    FEWEST_NEW,
    Adaptation,
    Floats,
    check_effective,
    class_adaptation,
    ratio_adaptation,
)
from vicinal.estimators.calibrating import SHIFTED, as_shares, calibrates, honest_answers, rows_that_calibrate, said_of
from vicinal.estimators.class_sets import calibrating_shares
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.intervals import margin, sized_misses

LEVEL = 0.01
"""Chance of a shift that is none, over all columns and predictions together."""

_LEVELS = 20
"""Levels of a category that are compared one by one."""


@dataclass(frozen=True)
class ShiftedColumn:
    """A column, or what the model says of rows, that differs: by which test, and how.

    Attributes:
        name: of the column; "prediction" and "probability of ..." are the model's.
        p: chance of such a difference without any shift, times the number of tests.
        how: the difference as a clause.
    """

    name: str
    p: float
    how: str


@dataclass(frozen=True, repr=False)
class Shift:
    """The report of :meth:`NeighborRegressor.adapt`.

    Attributes:
        rows: number of new rows.
        kind: "none", "classes" (they have become more or less frequent), "columns" (rows have become more or less
            frequent) or "errors" (of labelled rows).
        columns: what differs, the surest first.
        effective_rows: how many calibrating rows of equal weight are left.
        error: which error the next two are: "mean squared error" or "share wrong".
        error_before: that is expected on the new rows as the model was.
        error_after: as it is now.
        covered_before: share of the new rows that 90 % intervals or sets are expected to cover as they were.
        shares: of classes with these weights: each class, its share in the fit and its estimated share now.
        width: of 90 % intervals now, by labelled rows, over that of the fit.
    """

    rows: int
    kind: Literal["none", "classes", "columns", "errors"]
    columns: tuple[ShiftedColumn, ...] = ()
    effective_rows: float = 0.0
    error: str = ""
    error_before: float | None = None
    error_after: float | None = None
    covered_before: float | None = None
    shares: tuple[tuple[Any, float, float], ...] = ()
    width: float | None = None

    def record(self) -> dict[str, Any]:
        """Everything as JSON has it."""
        return asdict(self)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Sentences for a person."""
        if self.covered_before is not None and self.kind in ("none", "errors"):
            now = ": the model is as it was fitted"
            now = now if self.width is None else f"; now they are {self.width:.2g} times as wide"
            return [f"90 % intervals cover {self.covered_before:.0%} of {self.rows} labelled new rows{now}."]
        if self.kind == "none":
            return [
                f"No shift found in {self.rows} new rows (all tests together at {LEVEL:.0%}): the model is as it was."
            ]
        lines = [f"Shift found in {self.rows} new rows:"]
        lines += [f"  {one.name}: {one.how} (p = {one.p:.1g})" for one in self.columns[:8]]
        if len(self.columns) > 8:
            lines.append(f"  and {len(self.columns) - 8} more")
        if self.kind == "classes":
            moved = sorted(self.shares, key=lambda one: -abs(one[2] - one[1]))[:8]
            shares = ", ".join(f"{short_text(n, 30)} {a:.0%} -> {b:.0%}" for n, a, b in moved)
            lines += [f"Estimated class shares: {shares}", "Probabilities now use these shares."]
        else:
            lines.append("Predictions stay: labels are taken to depend on the columns as before.")
        after = f"; {self.error_after:.3g} after" if self.kind == "classes" else ""
        lines.append(f"Expected {self.error} on the new rows: {self.error_before:.3g} before{after}.")
        covered = "too few rows to say" if self.covered_before is None else f"{self.covered_before:.0%}"
        lines.append(
            f"Expected coverage of 90 % {'intervals' if self.error[0] == 'm' else 'sets'} before: {covered}. Now they "
            f"are calibrated by weighted rows, worth {self.effective_rows:.0f} rows of equal weight."
        )
        return lines


def shift_of(
    model: FittedModel, frame: pd.DataFrame, vectors: Tensor, kinds: dict[str, Any]
) -> tuple[Shift, Adaptation | None]:
    """How new rows have shifted from those of the fit, and the adaptation to them; the model stays as it is.

    Args:
        model: without an adaptation.
        frame: columns of the new rows.
        vectors: their embeddings ``[m, d]``.
        kinds: of the columns.
    """
    check_new_rows(len(frame))
    bank, at, who, _ = rows_that_calibrate(model)
    labels, nobody = bank.labels[at], {"ids": None, "groups": None}
    said = said_of(model, bank.vectors[at].double(), who), said_of(model, vectors, nobody)
    tables, names = (model.bank.rows, frame, kinds), model.codec.classes.tolist()
    tested = [f"probability of {short(name)}" for name in names] or ["prediction"]
    columns = shifted_columns(*tables, said, tested)
    if not columns:
        return Shift(len(frame), "none"), None
    adaptation = ratio_adaptation(*said)
    if names:
        by_class = class_adaptation(*said)
        of_rows = by_class.calibrating_weights(said[0], model.bank.labels).numpy()
        if by_class.lowers_log_loss(said[0], labels) and explained_by_classes(*numbers_of(*tables), of_rows):
            adaptation = by_class
    weights = adaptation.calibrating_weights(said[0], labels)
    effective, mass = check_effective(weights), bank.mass[at] * weights
    adapted, share = replace(model, adaptation=adaptation), mass / mass.sum()
    shift = Shift(
        rows=len(frame),
        kind="classes" if adaptation.class_weights else "columns",
        columns=columns,
        effective_rows=effective,
        error="share wrong" if names else "mean squared error",
        error_before=float(_errors(model) @ share),
        error_after=float(_errors(adapted) @ share),
        covered_before=_coverage(model, mass),
        shares=class_shares(said[0], adaptation, names),
    )
    return shift, adaptation


def _errors(model: FittedModel) -> Tensor:
    """Error of each calibrating row ``[n]``: squared, or whether the predicted class is wrong."""
    if model.codec.kind == "numbers":
        said, labels = honest_answers(model)
        return (said.double() - labels).square()
    said, labels, _, _ = calibrating_shares(model)
    return (said.argmax(dim=1) != labels.long()).double()


def _coverage(model: FittedModel, mass: Tensor) -> float | None:
    """Share of the calibrating rows, by ``mass [n]``, within 90 % intervals or sets; None if too few calibrate."""
    if not calibrates(model, SHIFTED):
        return None
    if model.codec.kind == "numbers":
        inside = sized_misses(model, SHIFTED)[1] <= margin(model, SHIFTED)
    else:
        said, truth, weights, groups = calibrating_shares(model)
        sets, labels = ConformalClasses("lac", coverage=SHIFTED, seed=0), truth.long().numpy()
        sets.fit(as_shares(said), labels, weights, groups)
        inside = torch.from_numpy(sets.predict(as_shares(said))[np.arange(len(labels)), labels])
    return float((inside.double() @ mass) / mass.sum())


def shift_of_labelled(labels: Floats, said: Floats, ends: Floats) -> tuple[Shift, Adaptation | None]:
    """Whether 90 % intervals fail for labelled rows, by a binomial test, and the adaptation to their errors."""
    from scipy.stats import binomtest  # slow to import

    check_new_rows(len(labels))
    low, high = ends.T
    misses = np.abs(labels - (low + high) / 2) / np.maximum((high - low) / 2, 1e-12)
    error, covered = float(np.mean((said - labels) ** 2)), int((misses <= 1).sum())
    known: dict[str, Any] = {"error": "mean squared error", "error_before": error, "error_after": error}
    shift = Shift(len(misses), "none", covered_before=covered / len(misses), **known)
    if binomtest(covered, len(misses), SHIFTED).pvalue >= LEVEL:
        return shift, None
    adaptation = Adaptation(rows=len(misses), misses=misses.tolist())
    return replace(shift, kind="errors", width=conformal_quantile(misses, SHIFTED)), adaptation


def check_new_rows(count: int) -> None:
    """Raise ValueError for too few new rows."""
    if count < FEWEST_NEW:
        raise ValueError(f"X: expected at least {FEWEST_NEW} new rows to tell a shift, got {count}; collect more")


def shifted_columns(
    old: pd.DataFrame, new: pd.DataFrame, kinds: dict[str, Any], said: tuple[Tensor, Tensor], names: Sequence[str]
) -> tuple[ShiftedColumn, ...]:
    """What differs between two tables, and in what the model says of their rows.

    Numbers by the test of Kolmogorov and Smirnov, categories by chi squared; p-values times the number of tests.

    Args:
        old: rows of the fit.
        new: new rows.
        kinds: of columns; those of other kinds than numbers and categories count through what the model says.
        said: features ``[n, p]`` and ``[m, p]`` of calibrating and new rows.
        names: of the first of these, which are tested.
    """
    from scipy.stats import ks_2samp  # slow to import

    tests = []
    for name, kind in kinds.items():
        if kind == "number" and name in old and name in new:
            pair = [to_numbers(table[name], name) for table in (old, new)]
            a, b = (values[~np.isnan(values)] for values in pair)
            if len(a) and len(b):
                means = (float(a.mean()), float(b.mean()))
                days = is_dates(old[name])
                shown = [str(np.datetime64(math.floor(at), "D")) if days else f"{at:.4g}" for at in means]
                how = f"mean {' -> '.join(shown)}"
                tests.append(ShiftedColumn(short_text(name, 40), float(ks_2samp(a, b).pvalue), how))
        elif kind == "category" and name in old and name in new:
            tests.append(_category_test(name, old[name], new[name]))
    for place, name in enumerate(names):
        a, b = (part[:, place].numpy() for part in said)
        how = f"mean {a.mean():.3g} -> {b.mean():.3g}"
        tests.append(ShiftedColumn(name, float(ks_2samp(a, b).pvalue), how))
    adjusted = [ShiftedColumn(one.name, min(1.0, one.p * len(tests)), one.how) for one in tests]
    return tuple(sorted((one for one in adjusted if one.p < LEVEL), key=lambda one: one.p))


def _levels(column: "pd.Series[Any]") -> "pd.Series[Any]":
    return column.astype(object).where(~missing_cells(column), "(empty)").map(str)


def _category_test(name: str, old: "pd.Series[Any]", new: "pd.Series[Any]") -> ShiftedColumn:
    from scipy.stats import chi2_contingency

    a, b = _levels(old), _levels(new)
    common = pd.concat([a, b]).value_counts().index[:_LEVELS]
    counts = np.array([[(side == level).sum() for level in common] for side in (a, b)], dtype=float)
    rest = np.array([[len(a)], [len(b)]]) - counts.sum(axis=1, keepdims=True)
    counts = np.hstack([counts, rest])
    counts = counts[:, counts.sum(axis=0) > 0]
    shares = counts / counts.sum(axis=1, keepdims=True)
    p = float(chi2_contingency(counts).pvalue) if counts.shape[1] > 1 else 1.0
    most = int(np.abs(shares[1] - shares[0]).argmax())
    level = short_text(str(common[most]) if most < len(common) else "other", 30)
    return ShiftedColumn(short_text(name, 40), p, f"{level} {shares[0, most]:.0%} -> {shares[1, most]:.0%}")


def numbers_of(old: pd.DataFrame, new: pd.DataFrame, kinds: dict[str, Any]) -> tuple[Floats, Floats]:
    """Numbers, and most frequent levels of categories as 0 and 1, of both tables ``[n, p]``, in units of the old."""
    columns = []
    for name, kind in kinds.items():
        if kind == "number" and name in old and name in new:
            pair = [to_numbers(table[name], name) for table in (old, new)]
            middle = 0.0 if np.isnan(pair[0]).all() else float(np.nanmedian(pair[0]))
            columns.append([np.where(np.isnan(values), middle, values) for values in pair])
        elif kind == "category" and name in old and name in new:
            levels = _levels(old[name]), _levels(new[name])
            columns += [
                [(side == one).to_numpy(dtype=float) for side in levels] for one in levels[0].value_counts().index[:5]
            ]
    if not columns:
        return np.zeros((len(old), 0)), np.zeros((len(new), 0))
    a, b = (np.stack([pair[side] for pair in columns], axis=1) for side in (0, 1))
    unit = np.where(a.std(axis=0) > 0, a.std(axis=0), 1.0)
    return a / unit, b / unit


def explained_by_classes(old: Floats, new: Floats, weights: Floats) -> bool:
    """Whether rows of the fit ``[n, p]`` with ``weights [n]`` differ half as much from new rows, or less.

    Squared differences of means, less what chance makes of them.
    """
    if old.shape[1] == 0:
        return True

    def apart(mass: Floats) -> float:
        noise = old.shape[1] * (1 / effective_rows(mass) + 1 / len(new))
        return float((((mass / mass.sum()) @ old - new.mean(axis=0)) ** 2).sum() - noise)

    return apart(weights) <= 0.5 * max(apart(np.ones(len(old))), 0.0)


def class_shares(said: Tensor, adaptation: Adaptation, names: Sequence[Any]) -> tuple[tuple[Any, float, float], ...]:
    """Each class with its mean probability ``said [n, K]`` in the fit, and among the new rows."""
    if not adaptation.class_weights:
        return ()
    before = said.mean(dim=0)
    now = before * torch.tensor(adaptation.class_weights, dtype=torch.float64)
    return tuple(zip(names, before.tolist(), (now / now.sum()).tolist(), strict=False))
