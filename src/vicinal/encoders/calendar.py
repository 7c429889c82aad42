"""Cells that are dates or lengths of time, and what a calendar says of dates, for metrics that split on columns."""

import contextlib
import datetime
import re
from typing import Any

import numpy as np
import pandas as pd

Array = np.ndarray[Any, np.dtype[np.float64]]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")

CALENDAR = ("month", "weekday", "year sine", "year cosine", "hour", "day")
"""Names of the parts of a date; the last two only where times of day, or days of the month, differ."""

FEWEST_DAYS = 8
"""Different days of the month from which on they are a part: rents and wages come on some, other dates on any."""

LAST_DAY = 1e8
"""Days before and after 1970 that can be told: those of dates in microseconds."""


def calendar_parts(days: Array) -> Array:
    r"""Month, day of the week, day of the year on a circle, hour and day of the month: ``[n, 6]``.

    Months are 1 to 12, days of the week 0 (Monday) to 6, hours 0 to below 24 with their fraction, days of the month 1
    to 31, all in UTC. Day d of a year of N days, counted from 0, is $\sin(2 \pi d / N)$ and $\cos(2 \pi d / N)$.

    Args:
        days: days since 1970 ``[n]``, as :func:`vicinal.encoders.numeric.to_numbers` gives; a row of NaN is all NaN.

    Raises:
        ValueError: for days of another shape, or more than 1e8 from 1970.

    >>> calendar_parts(np.array([0.75, np.nan]))
    array([[ 1.,  3.,  0.,  1., 18.,  1.],
           [nan, nan, nan, nan, nan, nan]])
    """
    if days.ndim != 1:
        raise ValueError(f"days: expected [n], got {days.shape}; give one column at a time")
    far = np.abs(days) > LAST_DAY
    if far.any():
        raise ValueError(f"days: expected days within 1e8 of 1970, got {days[far][0]}; correct the date")
    missing = np.isnan(days)
    number = np.floor(np.where(missing, 0.0, days)).astype(np.int64)
    dates = number.astype("datetime64[D]")
    years = dates.astype("datetime64[Y]")
    first, following = years.astype("datetime64[D]"), (years + np.timedelta64(1, "Y")).astype("datetime64[D]")
    angle = 2 * np.pi * ((dates - first) / (following - first))
    months = dates.astype("datetime64[M]")
    parts: list[Any] = [months.astype(np.int64) % 12 + 1, (number + 3) % 7]  # 1970 began with a Thursday
    parts += [np.sin(angle), np.cos(angle), (days - number) * 24, (dates - months).astype(np.int64) + 1]
    return np.where(missing[:, None], np.nan, np.stack(parts, axis=1).astype(np.float64))


def has_times(days: Array) -> bool:
    """Whether the times of day of ``days [n]`` since 1970 differ, by a second or more.

    >>> has_times(np.array([1.5, 2.5, np.nan])), has_times(np.array([1.5, 2.25]))
    (False, True)
    """
    times = days[~np.isnan(days)] % 1.0
    return bool(len(times) and np.ptp(times) > 1 / 86_401)


def has_days(days: Array) -> bool:
    """Whether ``days [n]`` since 1970 are of ``FEWEST_DAYS`` different days of the month or more.

    >>> has_days(np.arange(40.0)), has_days(np.array([0.0, 31.0, 59.0]))
    (True, False)
    """
    return len(np.unique(calendar_parts(days[~np.isnan(days)])[:, CALENDAR.index("day")])) >= FEWEST_DAYS


def is_date(cell: object) -> bool:
    """Whether a cell is a date, or text that is one: 2026-11-20, with or without a time of day.

    >>> is_date("2026-11-20 07:30"), is_date("20.11.2026"), is_date("2026-13-01")
    (True, False, False)
    """
    if isinstance(cell, str):
        with contextlib.suppress(ValueError):  # the 30th of February
            return bool(_DATE.fullmatch(cell.strip()) and datetime.datetime.fromisoformat(cell.strip()))
        return False
    return isinstance(cell, datetime.date) and not pd.isna(cell)


def moments_of(times: "pd.Series[Any]") -> np.ndarray[Any, np.dtype[np.datetime64]]:
    """Dates in UTC without a zone, in microseconds: nanoseconds would end in 2262."""
    if getattr(times.dtype, "tz", None) is not None:
        times = times.dt.tz_convert("UTC").dt.tz_localize(None)
    return times.to_numpy(dtype="datetime64[us]")


def days_of(times: "pd.Series[Any]") -> Array:
    """Days since 1970."""
    moments = moments_of(times)
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 86_400e6)


def moment_of(cell: str | datetime.date) -> datetime.datetime:
    """A date, or text of one, in UTC without a zone."""
    moment = datetime.datetime.fromisoformat(str(cell).strip())
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def is_duration(cell: object) -> bool:
    """Whether a cell is a length of time or a time of day.

    >>> is_duration(datetime.timedelta(hours=1)), is_duration(datetime.time(7, 30)), is_duration("1:00")
    (True, True, False)
    """
    return isinstance(cell, datetime.timedelta | datetime.time)


def seconds_of(cell: datetime.timedelta | datetime.time) -> float:
    """A length of time or a time of day in seconds."""
    if isinstance(cell, datetime.time):
        return cell.hour * 3600 + cell.minute * 60 + cell.second + cell.microsecond / 1e6
    return cell.total_seconds()
