"""Columns of numbers and of vectors: standardized, missing numbers flagged."""

import abc
import datetime
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from pydantic import Field, NonNegativeFloat, model_validator
from torch import Tensor

from vicinal.core import ColumnError, register, short
from vicinal.core.checks import short_text
from vicinal.encoders.base import ColumnEncoder, SavedEncoder, refuse
from vicinal.encoders.calendar import (
    CALENDAR,
    calendar_parts,
    days_of,
    has_days,
    has_times,
    is_date,
    is_duration,
    moment_of,
    seconds_of,
)
from vicinal.encoders.inputs import RowInputs

Array = np.ndarray[Any, np.dtype[np.float64]]


def to_numbers(series: "pd.Series[Any]", column: str) -> Array:
    """A column as float64 ``[n]``, NaN where a value is missing; dates become days since 1970, durations seconds.

    A time of day is the seconds since midnight.

    Raises:
        ValueError: naming the row of the first cell that is not a number, or is infinite.

    >>> to_numbers(pd.Series([1, None, "2.5"]), "age")
    array([1. , nan, 2.5])
    """
    if pd.api.types.is_datetime64_any_dtype(series):
        return days_of(series)
    if pd.api.types.is_timedelta64_dtype(series):
        return np.asarray(series.dt.total_seconds(), dtype=np.float64)
    if pd.api.types.is_complex_dtype(series):
        raise refuse(column, series.index[0], "a number", short(series.iloc[0]))
    if pd.api.types.is_numeric_dtype(series):
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        objects = series.astype(object)
        whole = objects.map(lambda cell: type(cell) is int)
        if whole.any():
            objects[whole] = objects[whole].map(as_float)
        lasting = objects.map(is_duration)
        if lasting.any():
            objects[lasting] = objects[lasting].map(seconds_of)
        objects = objects.where(objects.map(_is_scalar) | objects.isna(), "not a number")
        dates = objects.map(is_date)
        if dates.any():
            objects[dates] = days_of(pd.Series([moment_of(cell) for cell in objects[dates]], dtype="datetime64[us]"))
        read = pd.to_numeric(objects, errors="coerce")
        values = read.to_numpy(dtype=np.float64, na_value=np.nan)
        wrong = np.isnan(values) & ~(series.isna() | objects.map(_is_blank)).to_numpy(dtype=bool)
        if wrong.any():
            first = int(np.argmax(wrong))
            advice = "leave the cell empty where the number is not known"
            raise refuse(column, series.index[first], "a number", short(series.iloc[first]), advice)
    infinite = np.isinf(values)
    if infinite.any():
        first = int(np.argmax(infinite))
        got = str(values[first])
        raise refuse(column, series.index[first], "a finite number", got, "correct it or leave the cell empty")
    return values


def as_float(number: Any) -> float:
    """A number of any make as a float; infinite if it is too large for one, as whole numbers of Python may be.

    >>> as_float(10**400)
    inf
    """
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def is_dates(series: "pd.Series[Any]") -> bool:
    """Whether all cells of a column are dates, except for missing ones.

    >>> is_dates(pd.Series(["2026-11-20", None])), is_dates(pd.Series(["2026-11-20", "3"])), is_dates(pd.Series([None]))
    (True, False, False)
    """
    if pd.api.types.is_datetime64_any_dtype(series):
        return True
    if pd.api.types.is_numeric_dtype(series):
        return False
    cells = [cell for cell in series[series.notna()] if not _is_blank(cell)]
    return bool(cells) and all(map(is_date, cells))


def _is_scalar(cell: object) -> bool:
    """Whether a cell of an object column may be read as one number (strings are tried)."""
    plain = isinstance(cell, str | int | float | np.number | datetime.date)
    return plain or (hasattr(cell, "__float__") and not hasattr(cell, "shape"))


def _is_blank(cell: object) -> bool:
    """Whether a cell is text that stands for a missing number."""
    return isinstance(cell, str) and cell.strip().casefold() in ("", "nan", "na", "n/a", "null", "none")


def to_vectors(series: "pd.Series[Any]", column: str, width: int | None) -> Array:
    """A column of lists or arrays of numbers as float64 ``[n, width]``; None: as wide as the first row.

    Raises:
        ValueError: naming the row that is missing, of another length, or holds something else than finite numbers.
    """
    rows: list[Array] = []
    for row, cell in series.items():
        try:
            values = np.asarray(cell, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise refuse(column, row, "a list of numbers", short(cell)) from None
        if values.ndim != 1:
            raise refuse(column, row, "a list of numbers", short(cell), "leave out rows without one")
        width = len(values) if width is None else width
        if len(values) != width or not width:
            raise refuse(column, row, f"{width or 'some'} numbers", f"{len(values)}")
        if not np.isfinite(values).all():
            place = int(np.argmin(np.isfinite(values)))
            raise refuse(column, row, "finite numbers", f"{values[place]} at place {place}")
        rows.append(values)
    return np.stack(rows) if rows else np.zeros((0, width or 0))


def standardizer(values: Array) -> tuple[Array, Array]:
    """Mean and factor of each column of ``values [n, d]`` (NaN left out); a constant column has factor 0.

    A column that is constant in the training rows says nothing, and a later value that differs would be
    infinitely many deviations away: factor 0 keeps it at 0.
    """
    largest = np.nanmax(np.abs(values), axis=0)  # [d], keeps the squares of huge numbers finite
    largest[largest == 0] = 1.0
    scaled = values / largest
    mean = np.nanmean(scaled, axis=0) * largest
    spread = np.nanstd(scaled, axis=0)
    spread[spread < 1e-14] = 0.0
    deviation = spread * largest
    tellable = deviation > 1e-300  # below, the factor would be infinite
    return mean, np.where(tellable, 1.0 / np.where(tellable, deviation, 1.0), 0.0)


BEYOND = 0.5
"""How far beyond the ends of the training rows numbers go on to count, in ranges between these ends."""


WIDE, FARTHEST = 1e3, 10.0
"""Positive numbers whose ends are so many times apart have a long tail, and go on up to so many times the upper end."""


def ends_of(values: Array, dates: Sequence[int] = ()) -> Array:
    """Both ends ``[2, d]`` of columns ``[n, d]`` (NaN left out), but for wild cells.

    Up to a tenth of the cells are wild that lie farther beyond the next than ``WIDE`` times the range of the others: a
    placeholder, or another unit. With one of them in the mean and the deviation all others would be one number. Dates,
    the columns at the places ``dates``, have no long tail: ``FARTHEST`` times their range is wild.

    >>> ends_of(np.array([[1.0], *[[2.0]] * 8, [4.0], [1e30]])).T
    array([[1., 4.]])
    """
    ends = np.array([np.nanmin(values, axis=0), np.nanmax(values, axis=0)])
    for place, column in enumerate(values.T):
        known = np.sort(column[~np.isnan(column)])
        few, times = len(known) // 10, FARTHEST if place in dates else WIDE
        for end, rows in ((1, known), (0, -known[::-1])) if few else ():
            with np.errstate(over="ignore", invalid="ignore"):
                inner, gaps = rows[-few - 1 : -1] - rows[few : few + 1], np.diff(rows[-few - 1 :])
            wild = gaps > times * np.where(inner > 0, inner, np.inf)
            if wild.any():
                ends[end, place] = (2 * end - 1) * rows[-few - 1 + int(np.argmax(wild))]
    return ends


def limits(low: Sequence[float], high: Sequence[float], width: int) -> tuple[Array, Array]:
    """The least and most that numbers of columns count as ``[width]``: their ends and ``BEYOND`` of the range between.

    A column of incomes, or of populations, goes on for a quarter of its range of logarithms if that is more, as labels
    on that scale do. Without ends, as encoders were once saved, they are infinite.

    >>> limits([0.0], [2.0], 1)
    (array([-1.]), array([3.]))
    """
    if not low:
        return np.full(width, -np.inf), np.full(width, np.inf)
    ends = np.array([low, high])
    with np.errstate(over="ignore"):
        reach = BEYOND * ends[1] - BEYOND * ends[0]  # of huge ends the range itself overflows
        times = np.divide(ends[1], ends[0], out=np.ones(width), where=ends[0] > 0)
        tail = np.where(times >= WIDE, np.minimum(times**0.25, FARTHEST) * ends[1], ends[1])
        return ends[0] - reach, np.maximum(ends[1] + reach, tail)


def bounded(values: Array, low: Sequence[float], high: Sequence[float]) -> tuple[Array, Array]:
    """Numbers ``[n, d]`` within :func:`limits`, and how far each lies beyond them, in ranges of its column ``[n, d]``.

    One wild cell (a placeholder, another unit) then moves its own row no farther than the ends of what was fitted, and
    overflows nothing that other rows are computed from. A column that never differed says nothing, beyond or not.
    """
    inside = np.clip(values, *limits(low, high, values.shape[1]))
    if not low:
        return inside, np.zeros(values.shape)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        excess = np.abs(values * BEYOND - inside * BEYOND) / (BEYOND * np.array(high) - BEYOND * np.array(low))
    return inside, np.where((values != inside) & (np.array(low) < np.array(high)), np.nan_to_num(excess), 0.0)


class SavedVectors(SavedEncoder):
    """See :meth:`VectorEncoder.config`; encoders that were saved before there were ends have none."""

    mean: list[float] = Field(min_length=1)
    factor: list[NonNegativeFloat]
    low: list[float] = Field(default_factory=list)
    high: list[float] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_an_entry(self) -> Self:
        width, low, high = len(self.mean), self.low, self.high
        if width != len(self.factor):
            raise ValueError(f"{width} means and {len(self.factor)} factors")
        if not len(low) == len(high) in (0, width) or any(a > b for a, b in zip(low, high, strict=True)):
            raise ValueError(f"{len(low)} low and {len(high)} high ends of {width} columns")
        return self


class SavedNumbers(SavedVectors):
    """See :meth:`NumberEncoder.config`; encoders that were saved before there were dates have none."""

    flagged: list[str]
    dates: list[str] = Field(default_factory=list)
    timed: list[str] = Field(default_factory=list)
    monthly: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_a_column(self) -> Self:
        if len(self.mean) != len(self.columns):
            raise ValueError(f"{len(self.mean)} means of {len(self.columns)} columns")
        if not set(self.flagged) <= set(self.columns) or len(set(self.flagged)) < len(self.flagged):
            raise ValueError("flags of other columns than there are")
        known = {*self.timed, *self.monthly} <= set(self.dates) <= set(self.columns)
        if not known or len(set(self.dates)) < len(self.dates):
            raise ValueError("dates of other columns than there are")
        return self


class StandardEncoder(ColumnEncoder):
    """An encoder of numbers that are standardized, and count as far as half their range beyond their ends."""

    statistics: ClassVar[tuple[str, ...]] = ("mean", "factor", "low", "high")

    def __init__(self, columns: str | Sequence[str]) -> None:
        super().__init__(columns)
        self.mean: list[float] = []
        self.factor: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.dates: list[str] = []

    def forward(self, batch: Tensor) -> Tensor:
        """The prepared numbers, in the dtype in which they come."""
        return batch

    def take_statistics(self, values: Array) -> None:
        """Mean, factor and both ends of numbers ``[n, d]``, NaN where one is missing."""
        ends = self._ends(values)
        mean, factor = standardizer(values.clip(*ends))
        self.mean, self.factor = mean.tolist(), factor.tolist()
        self.low, self.high = ends.tolist()

    def widen(self, frame: pd.DataFrame) -> None:
        """Let both ends be those of these rows, too."""
        low, high = self._ends(np.concatenate([[self.low, self.high], self._read(frame)]))
        self.low, self.high = np.minimum(self.low, low).tolist(), np.maximum(self.high, high).tolist()

    def _ends(self, values: Array) -> Array:
        return ends_of(values, [self.columns.index(name) for name in self.dates])

    @abc.abstractmethod
    def _read(self, frame: pd.DataFrame) -> Array:
        """Its numbers ``[n, d]``, NaN where one is missing."""

    def standardized(self, values: Array) -> tuple[Array, Tensor | None]:
        """Standardized numbers ``[n, d]``, and how far each lies beyond the ends, see :func:`bounded`; None: none."""
        inside, excess = bounded(values, self.low, self.high)
        beyond = torch.from_numpy(excess) if excess.any() else None
        return (inside - np.array(self.mean)) * np.array(self.factor), beyond

    def forget(self, gone: pd.DataFrame, left: "Callable[[str], pd.Series[Any]]") -> None:
        """Let both ends that only forgotten rows had be those of the rows that are left.

        Rows that were added after the fit move no end outwards. Where no number is left, both ends are the mean: the
        column says nothing any more.

        >>> frame = pd.DataFrame({"age": [1.0, 3.0, 99.0]})
        >>> encoder = NumberEncoder("age").fit(frame)
        >>> encoder.forget(frame[2:], lambda column: frame[column][:2])
        >>> encoder.high
        [3.0]
        """
        ends = np.array([self.low, self.high])
        if self.low and (ends[:, None] == self._read(gone)).any():
            others = self._read(pd.DataFrame({name: left(name) for name in self.columns}))
            others = np.where(np.isnan(others).all(axis=0), np.array(self.mean), others)
            ends = np.clip([np.nanmin(others, axis=0), np.nanmax(others, axis=0)], *ends)
            self.low, self.high = ends.tolist()

    def check_fitted(self) -> None:
        """Raise ValueError if it is not fitted."""
        if not self.mean:
            raise ValueError(f"{type(self).__name__}: expected a fitted encoder, got one without means; call fit first")


@register("encoder", "numbers", "number", "parameter-free", family="numeric columns")
class NumberEncoder(StandardEncoder):
    """Standardized numbers; a missing one is the mean, with a flag where the training rows had missing values.

    The vectors are float64: the standardized columns, then a 0/1 flag for each column in ``flagged``. Numbers count as
    far as half the range of the training rows beyond its ends, see :func:`bounded`.

    Args:
        columns: one or several columns of numbers.

    Attributes:
        dates: the columns that were dates in the training rows; their vectors are days, see :meth:`calendar`.
        timed: those of them whose times of day differ.
        monthly: those of them whose days of the month do.

    >>> frame = pd.DataFrame({"age": [1.0, 3.0, None]})
    >>> encoder = NumberEncoder("age").fit(frame)
    >>> encoder(encoder.prepare(frame).select(torch.tensor([0, 1, 2])))
    tensor([[-1.,  0.],
            [ 1.,  0.],
            [ 0.,  1.]], dtype=torch.float64)
    """

    kind = "number"
    name = "numbers"
    several = True
    saved = SavedNumbers
    statistics = (*StandardEncoder.statistics, "flagged", "dates", "timed", "monthly")

    def __init__(self, columns: str | Sequence[str]) -> None:
        super().__init__(columns)
        self.flagged: list[str] = []
        self.timed: list[str] = []
        self.monthly: list[str] = []

    @property
    def dim(self) -> int:
        """One for each column, and one for each flag."""
        return len(self.entries)

    @property
    def entries(self) -> list[str]:
        """The columns, then those with flags."""
        self.check_fitted()
        return [*self.columns, *self.flagged]

    @property
    def numbers(self) -> list[int]:
        """All but the flags."""
        return list(range(len(self.columns)))

    def fit(self, frame: pd.DataFrame) -> Self:
        """Take mean, deviation, both ends, and which columns have missing values, dates and times of day.

        Raises:
            ValueError: for a column that is all missing.
        """
        values = self._read(frame)  # [n, columns]
        missing: list[int] = np.count_nonzero(np.isnan(values), axis=0).tolist()  # [columns]
        for column, count in zip(self.columns, missing, strict=True):
            if count == len(values):
                raise ColumnError(
                    f"{short_text(column)}: expected at least one number, got {len(values)} rows all missing; "
                    "leave the column out"
                )
        self.dates = [column for column in self.columns if is_dates(frame[column])]
        self.take_statistics(values)
        self.flagged = [column for column, count in zip(self.columns, missing, strict=True) if count]
        days = {column: to_numbers(frame[column], column) for column in self.dates}
        self.timed = [column for column in self.dates if has_times(days[column])]
        self.monthly = [column for column in self.dates if has_days(days[column])]
        return self

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RowInputs:
        """Standardize; infinite or non-numeric cells are refused."""
        self.check_fitted()
        values = self._read(frame)
        missing = np.isnan(values)
        standard, excess = self.standardized(np.where(missing, np.array(self.mean), values))
        places = {column: place for place, column in enumerate(self.columns)}
        flags = missing[:, [places[column] for column in self.flagged]]
        return RowInputs(torch.from_numpy(np.concatenate([standard, flags], axis=1)), excess)

    def calendar(self, frame: pd.DataFrame) -> tuple[list[str], Array]:
        """Names and values ``[n, m]`` of what :func:`calendar_parts` gives of the columns in ``dates``, NaN if missing.

        Hours are a part of columns in ``timed``, days of those in ``monthly``. Without columns of dates, m is 0.

        Raises:
            ValueError: for a frame without the columns, or a cell that is no number or no date that can be told.

        >>> frame = pd.DataFrame({"born": pd.to_datetime(["2024-01-01", "2025-07-02"])})
        >>> names, values = NumberEncoder("born").fit(frame).calendar(frame)
        >>> names[:2], values[:, :2].tolist()
        (['born: month', 'born: weekday'], [[1.0, 0.0], [7.0, 2.0]])
        """
        self.check_fitted()
        self.check_frame(frame)
        names: list[str] = []
        values = [np.zeros((len(frame), 0))]
        for column in self.dates:
            parts = self.calendar_of(column)
            names += [f"{column}: {part}" for part in parts]
            places = [CALENDAR.index(part) for part in parts]
            values.append(calendar_parts(to_numbers(frame[column], column))[:, places])
        return names, np.concatenate(values, axis=1)

    def calendar_of(self, column: str) -> list[str]:
        """The parts of a column of dates."""
        some = {"hour": self.timed, "day": self.monthly}
        return [part for part in CALENDAR if column in some.get(part, self.dates)]

    def _read(self, frame: pd.DataFrame) -> Array:
        self.check_frame(frame)
        table = frame if list(frame.columns) == self.columns else frame[self.columns]  # which takes a millisecond
        if all(isinstance(dtype, np.dtype) and dtype.kind in "iuf" for dtype in table.dtypes):
            values = table.to_numpy(dtype=np.float64)
            if not np.isinf(values).any():
                return values
        return np.stack([to_numbers(frame[column], column) for column in self.columns], axis=1)


@register("encoder", "vectors", "vector", "parameter-free", family="numeric columns")
class VectorEncoder(StandardEncoder):
    """Vectors of one length in the cells of a column, each entry standardized and bounded, in float64.

    Entries count as far beyond those of the training rows as numbers do, see :func:`bounded`.

    Args:
        columns: the column.

    >>> frame = pd.DataFrame({"v": [[1.0, 5.0], [3.0, 5.0]]})
    >>> encoder = VectorEncoder("v").fit(frame)
    >>> encoder.prepare(frame).values
    tensor([[-1.,  0.],
            [ 1.,  0.]], dtype=torch.float64)
    """

    kind = "vector"
    name = "vectors"
    saved = SavedVectors

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        self.check_fitted()
        return len(self.mean)

    def fit(self, frame: pd.DataFrame) -> Self:
        """Take mean, deviation and both ends of each entry."""
        values = to_vectors(self.cells(frame), self.columns[0], None)
        if not len(values):
            raise ColumnError(f"{short_text(self.columns[0])}: expected at least one row, got none")
        self.take_statistics(values)
        return self

    def _read(self, frame: pd.DataFrame) -> Array:
        return to_vectors(self.cells(frame), self.columns[0], self.dim)

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RowInputs:
        """Standardize."""
        standard, excess = self.standardized(self._read(frame))
        return RowInputs(torch.from_numpy(standard), excess)

    def forget(self, gone: pd.DataFrame, left: "Callable[[str], pd.Series[Any]]") -> None:
        """Let both ends be those of the rows that are left, as far as their cells are known: a saved bank has none."""
        if self.cells(gone).notna().all():
            super().forget(gone, lambda name: left(name).dropna())
