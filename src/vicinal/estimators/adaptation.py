"""What a model knows of a population that differs from its fit, and what it says of how rows have shifted."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from vicinal.calibration.density_ratio import DensityRatio, density_ratio, effective_rows
from vicinal.calibration.label_shift import likely_class_weights
from vicinal.core.checks import short_text
from vicinal.core.untrusted import Saved
from vicinal.data.cells import missing_cells
from vicinal.encoders.numeric import is_dates, to_numbers

FEWEST_NEW = 30
"""New rows, at least."""

FEWEST_EFFECTIVE = 20
"""Rows of equal weight that the weighted calibrating rows must be worth, at least."""

LEVEL = 0.01
"""Chance of a shift that is none, over all columns and predictions together."""

_LEVELS = 20
"""Levels of a category that are compared one by one."""

Floats = np.ndarray[Any, np.dtype[np.float64]]
_Positive = Annotated[float, Field(ge=0)]


class Adaptation(Saved):
    """How a model was adapted to other rows.

    Attributes:
        rows: number of these rows.
        class_weights: how much more frequent each class is among them; empty: classes count as in the fit.
        center: of the density ratio of what the model says of a row; empty without one. See
            :class:`vicinal.calibration.DensityRatio`, also for the next three.
        scale: likewise.
        slope: likewise.
        offset: likewise.
    """

    rows: Annotated[int, Field(ge=FEWEST_NEW)]
    class_weights: list[_Positive] = Field(default_factory=list, max_length=1 << 20)
    center: list[float] = Field(default_factory=list, max_length=1 << 20)
    scale: list[Annotated[float, Field(gt=0)]] = Field(default_factory=list, max_length=1 << 20)
    slope: list[float] = Field(default_factory=list, max_length=1 << 20)
    offset: float = 0.0

    @classmethod
    def of_ratio(cls, rows: int, ratio: DensityRatio) -> "Adaptation":
        """The one that weighs rows by a density ratio."""
        parts = {name: getattr(ratio, name).tolist() for name in ("center", "scale", "slope")}
        return cls(rows=rows, offset=ratio.offset, **parts)

    def reweighed(self, probabilities: Tensor) -> Tensor:
        r"""Probabilities ``[n, K]`` for the new frequencies of classes: $p_k w_k / \sum_l p_l w_l$."""
        if not self.class_weights:
            return probabilities
        weights = torch.ones(probabilities.shape[1], dtype=torch.float64)
        weights[: len(self.class_weights)] = torch.tensor(self.class_weights, dtype=torch.float64)
        mass = probabilities.double().clamp(min=1e-12) * weights[: probabilities.shape[1]]
        return mass / mass.sum(dim=1, keepdim=True).clamp(min=1e-300)

    def lowers_log_loss(self, probabilities: Tensor, labels: Tensor) -> bool:
        """Whether the weights of classes lower the log-loss of rows ``[n, K]`` that are weighted by them."""
        weights, at = self.calibrating_weights(probabilities, labels), torch.arange(len(labels))
        both = (probabilities, self.reweighed(probabilities))
        before, after = (-(one[at, labels.long()].clamp(min=1e-9).log() @ weights) for one in both)
        return bool(after < before)

    def calibrating_weights(self, features: Tensor, labels: Tensor) -> Tensor:
        """Weights ``[n]`` of calibrating rows by what the model says of them ``[n, p]`` and by their labels ``[n]``."""
        if self.class_weights:
            weights = torch.ones(int(labels.max()) + 1 + len(self.class_weights), dtype=torch.float64)
            weights[: len(self.class_weights)] = torch.tensor(self.class_weights, dtype=torch.float64)
            return weights[labels.long()]
        center, scale, slope = (np.array(part) for part in (self.center, self.scale, self.slope))
        ratio = DensityRatio(center, scale, slope, self.offset)
        return torch.from_numpy(ratio.weights(features[:, : len(self.center)].numpy()))


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


@dataclass(frozen=True)
class Shift:
    """The report of :meth:`NeighborRegressor.adapt`.

    Attributes:
        rows: number of new rows.
        kind: "none", "classes" (they have become more or less frequent) or "columns" (rows have become more or less
            frequent).
        columns: what differs, the surest first.
        effective_rows: how many calibrating rows of equal weight are left.
        error: which error the next two are: "mean squared error" or "share wrong".
        error_before: that is expected on the new rows as the model was.
        error_after: as it is now.
        covered_before: share of the new rows that 90 % intervals or sets are expected to cover as they were.
        shares: of classes with these weights: each class, its share in the fit and its estimated share now.
    """

    rows: int
    kind: Literal["none", "classes", "columns"]
    columns: tuple[ShiftedColumn, ...] = ()
    effective_rows: float = 0.0
    error: str = ""
    error_before: float | None = None
    error_after: float | None = None
    covered_before: float | None = None
    shares: tuple[tuple[Any, float, float], ...] = ()

    def record(self) -> dict[str, Any]:
        """Everything as JSON has it."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Sentences for a person."""
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
            lines.append(
                "Estimated class shares: " + ", ".join(f"{short_text(n, 30)} {a:.0%} -> {b:.0%}" for n, a, b in moved)
            )
            lines.append("Probabilities now use these shares.")
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
    level = str(common[most]) if most < len(common) else "other"
    return ShiftedColumn(
        short_text(name, 40), p, f"{short_text(level, 30)} {shares[0, most]:.0%} -> {shares[1, most]:.0%}"
    )


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


def class_adaptation(calibrating: Tensor, new: Tensor) -> Adaptation:
    """The weights of classes from predictions ``[n, K]`` of calibrating rows and ``[m, K]`` of new ones."""
    return Adaptation(rows=len(new), class_weights=likely_class_weights(calibrating.numpy(), new.numpy()).tolist())


def class_shares(said: Tensor, adaptation: Adaptation, names: Sequence[Any]) -> tuple[tuple[Any, float, float], ...]:
    """Each class with its mean probability ``said [n, K]`` in the fit, and among the new rows."""
    if not adaptation.class_weights:
        return ()
    before = said.mean(dim=0)
    now = before * torch.tensor(adaptation.class_weights, dtype=torch.float64)
    return tuple(zip(names, before.tolist(), (now / now.sum()).tolist(), strict=False))


def ratio_adaptation(calibrating: Tensor, new: Tensor) -> Adaptation:
    """The density ratio from what the model says of calibrating rows ``[n, p]`` and of new ones ``[m, p]``."""
    return Adaptation.of_ratio(len(new), density_ratio(calibrating.numpy(), new.numpy()))


def check_effective(weights: Tensor) -> float:
    """The effective number of calibrating rows; raises ValueError where it is too small."""
    count = effective_rows(weights.numpy())
    if count < FEWEST_EFFECTIVE:
        raise ValueError(
            f"X: expected new rows like at least {FEWEST_EFFECTIVE} of the rows that calibrate, got rows like "
            f"{count:.1f} of {len(weights)}; label some of the new rows, and add them or fit anew"
        )
    return count
