"""How the dates of a column are written: order of day and month, century, months, days of spreadsheets."""

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import short
from vicinal.data.cell_reading import days_in, read_column
from vicinal.data.column_form import (
    DAYS,
    DOTTED,
    FAR_YEARS,
    MONTHS,
    ORDINALS,
    PARTIAL_DATES,
    SEASONS,
    SECONDS,
    SPAN,
    YEARS,
    ColumnForm,
    days_of,
    is_number,
)
from vicinal.data.date_spelling import Day, day_of, month_of, serial_of, span_of, year_day_of
from vicinal.data.placeholders import AT_ONCE, OFTEN
from vicinal.data.spelling import plain_text

MOST_ODD, FEWEST_READ = 0.05, 10
"""Most cells, as a share, that may be no numbers in a column of numbers, and different numbers that it needs then."""

MOST_YEARS = 16
"""Years that months such as 06/23 lie within: the days of months are more."""

DOUBT = "{} may be a day or a month of a year; write 2019-01 for a month, 2000-01-19 for a day"

LATE_IN_MONTH = 27
"""A day up to which days of a year go on, and years of two digits do not."""

WIDE = 200
"""Days of a year between the first and the last of those that are days at least."""

_COMPACT = re.compile(r"(?:19|20)[0-9]{2}(?:\.?(?:0[1-9]|1[0-2])|[0-9]{4}|[0-9]{10})")
_MONTHLY = re.compile(r"month|mon\b|monat|mois|mes\b|mese|expir|exp\b|valid|period|mm.?yy", re.IGNORECASE)
"""Names of columns of months."""
_DAILY = re.compile(r"dat[eu]|day|tag|jour|d\u00eda|fecha|giorno|dzie\u0144|birth", re.IGNORECASE)
"""Names of columns of days."""
_STAMPED = re.compile(r"time|stamp|epoch|date|created|updated|(?:^|[^a-z])(?:ts|at)(?:$|[^a-z])", re.IGNORECASE)
_EPOCHS = 946_684_800, 2_208_988_800
"""Names of columns of times, and seconds from 1970 to the years 2000 and 2040."""
_TWO_DIGITS = re.compile(r"(?:[^\W\d_]+\.?[ /-]?)?([0-9]{2})(?:[ /-]?[^\W\d_]+\.?)?")


def compact_dates(cells: Sequence[Any]) -> ColumnForm | None:
    """Of numbers that are all days such as 20240131, times or months, at least ``FEWEST_READ`` different ones."""
    if len(cells) < FEWEST_READ or not all(_COMPACT.fullmatch(str(cell)) for cell in cells):
        return None
    return ColumnForm(kind="date") if all(day_of(str(cell)) is not None for cell in cells) else None


def epoch_form(name: str, numbers: Iterable[Any]) -> ColumnForm | None:
    """Of numbers that all are times since 1970, from 2000 to 2040, in a column that is called so."""
    if not _STAMPED.search(name):
        return None
    values = np.unique(pd.to_numeric(pd.Series(numbers, dtype=object), errors="coerce").to_numpy(np.float64))
    if len(values) < FEWEST_READ or np.isnan(values[-1]) or values[0] < 1:
        return None
    seconds = values / 1000.0 ** (np.floor(np.log10(values)) // 3 - 3)  # of 10, 13, 16 or 19 digits
    within = (_EPOCHS[0] <= seconds) & (seconds < _EPOCHS[1])
    return ColumnForm(kind="date", sign=SECONDS) if within.all() else None


def whole_days(column: "pd.Series[Any]") -> list[int]:
    """The different numbers of a column if all may be days such as 20240131, or months such as 202401."""
    values = column.dropna().to_numpy(dtype=np.float64)
    if not len(values):
        return []
    days = values // 1e6 if values.min() > 1e13 else values  # with times, as 20240131143000
    days = 100 * days + 1 if values.max() < 1e6 else days
    within = ((days >= 19000101) & (days < 21000101) & (values == np.round(values))).all()
    return np.unique(values).astype(np.int64).tolist() if within else []


def month_form(name: str, plain: Sequence[str]) -> ColumnForm | None:
    """Of months such as 06/23: as the column's name says, or as each of several months stands beside a few years.

    06/23 may also be the 23rd of June, and 1/19 one of 19: months are written 01 to 12 then, and years lie within
    ``MOST_YEARS``. Of 1/2021 and 2/2021 some month is no half of a year, and no quarter.
    """
    days = [month_of(text) for text in plain]
    dates = {day.day_first for day in days if day is not None and day.day_first is not None}
    if None in days or len(dates) < FEWEST_READ:
        return None
    months = {date.month for date in dates}
    form = ColumnForm(kind="date", sign=MONTHS, first_year=_first_year(days))
    short = any(day.short for day in days if day is not None)
    if (not short and max(months) > 6) or (short and _MONTHLY.search(name)):
        return form
    first = form.first_year or min(date.year for date in dates)
    years = {(date.year - first) % 100 for date in dates}
    padded = all(text[:2].isdecimal() for text in plain) and any(text[0] == "0" for text in plain)
    return form if short and padded and max(years) < MOST_YEARS and 2 * len(dates) >= 3 * len(months) > 15 else None


def partial_form(name: str, plain: Sequence[str], *, day_first: bool | None) -> ColumnForm | None:
    """Of days without a year such as 19-Jan, 19/01 or 19.1., or months with a year such as Jan 19; or None.

    Numbers beside names of several months are days if one has a single digit or a time, or if they go on to the end of
    a month; they are years if one is no day, or if they lie within ``MOST_YEARS`` beside half of the months. Of others
    nobody knows; only Jan-19, as spreadsheets write a month, is read as one with a doubt. 19/01 may also be a fraction:
    it is a day if the column's name says so, or if its numbers go on to the end of a month.
    """
    if (whole := _short_form(plain)) is not None:
        return whole
    if len(plain) < FEWEST_READ or (year_day_of(plain[0]) or month_of(plain[0])) is None:
        return None
    days, months = [each for each in map(year_day_of, plain) if each], [each for each in map(month_of, plain) if each]
    are_days = len(days) == len(plain)
    if not any(map(str.isalpha, plain[0])):
        return _days_form(days, day_first=day_first) if are_days and _are_numeric_days(name, plain) else None
    numbers = [int(text[1]) for text in map(_TWO_DIGITS.fullmatch, plain) if text is not None]
    late = max(numbers, default=0) >= LATE_IN_MONTH and max(numbers) - min(numbers) >= MOST_YEARS
    if are_days and (late or len(numbers) < len(plain)):
        several = len({day.day_first.month for day in days if day.day_first}) > 1
        return _days_form(days, day_first=day_first) if several else None
    if len(months) < len(plain):
        return None
    named = {month.day_first.month for month in months if month.day_first}
    is_open = are_days and (len(named) < 6 or max(numbers) - min(numbers) >= MOST_YEARS)
    if day_of(plain[0]) is None:
        return None if is_open else ColumnForm(kind="date", sign=MONTHS, first_year=_first_year(months))
    doubt = DOUBT.format(short(plain[0]))
    return ColumnForm(kind="date", first_year=_first_year(months), doubt=doubt) if is_open else None


def span_form(plain: Sequence[str]) -> ColumnForm | None:
    """Of texts that are two days each, or one, at least ``FEWEST_READ``, as a first day and how many follow it."""
    if len(plain) < FEWEST_READ or span_of(plain[0]) is None or sum(day_of(text) is None for text in plain) < OFTEN:
        return None
    spans = [span for text in plain if (span := span_of(text)) is not None]
    order = _order([day for span in spans for day in span], day_first=None)
    if order is None or len(spans) < (1 - MOST_ODD) * len(plain):
        return None
    days = np.array([each for text in plain if (each := days_in(text, day_first=order[0])) is not None])
    typical = dict(enumerate(np.median(days, axis=0).tolist()))
    return ColumnForm(kind="parts", sign=SPAN, day_first=order[0], typical=typical) if len(days) else None


def _short_form(plain: Sequence[str]) -> ColumnForm | None:
    """Of days such as 24-01-31 or 3.4.21, or of years such as 1998-99 of which some is no month; or None.

    24-01-31 may also be the 24th of a month, and 3.4.21 a version: their days go on to the end of a month, and their
    years are fewer, or no days. 2024-032 may be the 32nd of that year's invoices: days lie in all of the year.
    """
    for sign in (YEARS, DOTTED, SEASONS, ORDINALS):
        read = PARTIAL_DATES[sign][1]
        days = [read(text) for text in plain] if len(plain) > 2 and read(plain[0]) else [None]
        dates = [day.day_first for day in days if day and day.day_first]
        if len(dates) < len(days):
            continue
        few = len({date.year for date in dates}) < len({date.day for date in dates})
        late = max(date.day for date in dates) >= LATE_IN_MONTH and len(plain) >= FEWEST_READ
        no_days = None in map(day_of, plain)
        wide = len(plain) >= FEWEST_READ and np.ptp([date.timetuple().tm_yday for date in dates]) >= WIDE
        sure = {YEARS: late and (few or no_days), DOTTED: late and few and no_days, SEASONS: no_days, ORDINALS: wide}
        if sure[sign]:
            return ColumnForm(kind="date", sign=sign, first_year=_first_year(days))
    return None


def _days_form(days: Sequence[Day], *, day_first: bool | None) -> ColumnForm | None:
    order = _order(days, day_first=day_first)
    return None if order is None else ColumnForm(kind="date", sign=DAYS, day_first=order[0], open=order[2])


def _are_numeric_days(name: str, plain: Sequence[str]) -> bool:
    """Whether texts such as 19/01 are surely days: 19.1., or as the column's name or its last days say."""
    numbers = [sorted(map(int, re.findall("[0-9]+", text))) for text in plain]
    late = max(last for _, last in numbers) >= LATE_IN_MONTH and len({first for first, _ in numbers}) > 1
    padded = len({len(text) for text in plain}) == 1 and any(text[0] == "0" for text in plain)
    return plain[0][-1] == "." or _DAILY.search(name) is not None or (late and padded)


def date_draft(
    column: "pd.Series[Any]",
    plain: Sequence[str],
    others: Sequence[Any],
    *,
    day_first: bool | None,
    gaps: tuple[str, ...],
    beside: tuple[str, ...],
) -> ColumnForm | None:
    """Of dates in texts or other cells, and of days as spreadsheets count them if these lie among them; or None."""
    days: list[Day] = []
    serial: set[str] = set()
    for text in (*plain, *(str(cell) for cell in others if is_number(cell))):
        if (day := day_of(text)) is not None:
            days.append(day)
        elif serial_of(text) is None:
            return None
        else:
            serial.add(text)
    if not all(isinstance(cell, datetime.date | np.datetime64 | pd.Period) or is_number(cell) for cell in others):
        return None
    order = _order(days, day_first=day_first)
    if order is None or (serial and len(days) + len(others) < FEWEST_READ):
        return None
    form = ColumnForm(
        kind="date",
        day_first=order[0],
        turned=order[1],
        first_year=_first_year(days),
        gaps=gaps,
        beside=beside,
        serial=bool(serial),
    )
    dates = read_column(form, column)
    if serial and not _is_within(dates, column.map(lambda cell: plain_text(str(cell)) in serial).to_numpy(dtype=bool)):
        return None
    form = form.model_copy(update={"doubt": _swapped(plain, dates)})
    return date_form(form, dates, is_open=order[2])


def _is_within(dates: "pd.Series[Any]", some: NDArray[np.bool_]) -> bool:
    """Whether ``some`` dates lie within the others, or no farther from them than these from one another."""
    others, near = dates[~some].dropna(), dates[some]
    if others.nunique() < 3:
        return False
    low, high = others.min(), others.max()
    return bool(((near >= low - (high - low)) & (near <= high + (high - low))).all())


def _swapped(plain: Sequence[str], dates: "pd.Series[Any]") -> str:
    """A sentence if a program has probably swapped day and month of some dates, and left as texts what it could not."""
    ordered = {text: day for text in plain if (day := day_of(text)) is not None and day.day_first != day.month_first}
    known = {date for day in ordered.values() for date in (day.day_first, day.month_first)}
    rest = {date for date in dates.dropna().tolist() if date not in known}
    fewest = min(len(ordered), len(rest))
    if fewest < FEWEST_READ or any(day.is_open for day in ordered.values()) or any(date.day > 12 for date in rest):
        return ""
    return (
        f"{len(rest)} dates are up to the 12th of a month, and all others, written as {short(next(iter(ordered)))}, "
        "later: a spreadsheet has probably swapped day and month of the former; correct them in the file"
    )


def _order(days: Sequence[Day], *, day_first: bool | None) -> tuple[bool | None, str, bool] | None:
    """Whether the day comes first, the marks of dates in which it is the other way, and whether that is assumed.

    None if the dates of one mark are of different orders; a few of the other one are no dates.
    """
    tells: dict[str, Counter[bool]] = {}
    for each in days:
        if (each.month_first is None) != (each.day_first is None):
            tells.setdefault(each.mark, Counter())[each.month_first is None] += 1
    if any(
        count[not first] > MOST_ODD * count.total()
        for count in tells.values()
        for first in (count[True] > count[False],)
    ):
        return None
    orders = {mark: count[True] > count[False] for mark, count in tells.items()}
    if len(set(orders.values())) > 1:
        first = sum(tells.values(), Counter[bool]()).most_common(1)[0][0]
        turned = "".join(mark for mark, order in orders.items() if order != first)
        return None if any(each.is_open and each.mark not in orders for each in days) else (first, turned, False)
    if orders:  # as one order fails for some date
        return next(iter(orders.values())), "", False
    if not any(each.is_open for each in days):
        return None, "", False
    if day_first is not None:
        return day_first, "", False
    return not any(each.is_open and each.mark == "/" for each in days), "", True


def _first_year(days: Iterable[Day | None]) -> int | None:
    """The first of the hundred years in which the years of two digits lie closest together; None: as in POSIX.

    Births in 35 to 99 and 00 to 05 are of 1935 to 2005: no one of them is of 2035.
    """
    years = np.unique([date.year for day in days if day and day.short and (date := day.day_first or day.month_first)])
    if len(years) < 2:
        return None
    later = np.sort(years % 100)
    gaps = np.diff(later, append=later[0] + 100)
    if 100 - gaps.max() >= years[-1] - years[0]:
        return None
    first = int(later[(gaps.argmax() + 1) % len(later)])
    return 1900 + first


def date_form(form: ColumnForm, dates: "pd.Series[Any]", *, is_open: bool = False) -> ColumnForm:
    """The form of dates with the years beyond which a date means "no beginning" or "no end", and the days of gaps.

    Such a date that few rows have is a gap: one row far out would pull at the slopes of all. So is a first of January,
    or 1899-12-30 of spreadsheets, which several rows have, if it lies as far before all others as these lie apart, or
    is there ``AT_ONCE`` times as often.
    """
    counts = dates.value_counts()
    if (
        len(counts) > FEWEST_READ
        and counts[low := counts.index.min()] >= OFTEN
        and ((low.month, low.day) == (1, 1) or low.year == 1899)
    ):
        others = counts.drop(low)
        far = others.index.min() - low > others.index.max() - others.index.min()
        if far or counts[low] >= AT_ONCE * others.median():
            form = form.model_copy(update={"placeholder": float(days_of(pd.Series([low]))[0])})
            dates = dates[dates != low]
    dates = dates.dropna()
    years, span = dates.dt.year.to_numpy(), None
    near = years[(years >= FAR_YEARS[0]) & (years <= FAR_YEARS[1])]
    odd = len(years) - len(near)
    if len(near) > OFTEN > odd > 0:
        days = days_of(dates[(dates.dt.year < FAR_YEARS[0]) | (dates.dt.year > FAR_YEARS[1])])
        form = form.model_copy(update={"placeholder": (*form.placeholders, *sorted(set(days.tolist())))})
    elif len(near) > odd > 0:
        low, high = int(near.min()), int(near.max())  # years and not days, which would be those of single rows
        more = (high - low) // 2 + 1
        span = low - more, high + more
    return form.model_copy(update={"open": is_open, "span": span})
