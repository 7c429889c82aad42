"""The cells of a column: which are missing, and numbers, times and ids among them."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import counted, short
from vicinal.core.checks import short_text
from vicinal.data.date_spelling import day_of
from vicinal.data.spelling import plain_text
from vicinal.encoders.calendar import moments_of
from vicinal.encoders.numeric import as_float

WRITTEN_MISSING = frozenset({"", "NA", "NaN", "nan"})
"""How programs write a missing number: read as missing if all other cells of a column are numbers."""

_WHOLE = r"-?[1-9]\d{0,18}|0"
_EXACT = r"[+-]?(?:0\d|\d{16,}$)"  # codes, and more digits than a float keeps apart


def missing_cells(column: pd.Series) -> NDArray[np.bool_]:
    """Which cells of ``column [n]`` are empty: None, NaN, or a text of only white space; ``[n]``.

    >>> missing_cells(pd.Series(["a", " ", None])).tolist()
    [False, True, True]
    """
    missing = column.isna().to_numpy(dtype=bool).copy()
    if not (pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_datetime64_any_dtype(column.dtype)):
        missing |= np.fromiter((isinstance(cell, str) and not cell.strip() for cell in column), bool, len(column))
    return missing


def as_numbers(column: pd.Series) -> NDArray[np.float64]:
    """The cells of ``column [n]`` as float64 ``[n]``, lengths of time in seconds; NaN where a cell is not a number.

    >>> as_numbers(pd.Series(["1.5", " 2 ", "n/a"])).tolist(), as_numbers(pd.to_timedelta(["1h"]).to_series()).tolist()
    ([1.5, 2.0, nan], [3600.0])
    """
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        return np.asarray(column.dt.total_seconds(), dtype=np.float64)
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    cells = column.astype(object)
    plain = cells.map(lambda cell: cell if isinstance(cell, str) else _plain_number(cell))
    return np.asarray(pd.to_numeric(plain, errors="coerce"), dtype=np.float64)


def _plain_number(cell: Any) -> float | None:
    """A number of any type (bool, Decimal, numpy) as a float; None for anything else."""
    if isinstance(cell, (bytes, bytearray)) or not hasattr(cell, "__float__") or np.ndim(cell):
        return None
    return as_float(cell)


def as_times(column: pd.Series) -> NDArray[Any]:
    """The cells of ``column [n]`` as times: float64 ``[n]``, or datetime64 for dates; its index names rows in errors.

    Dates are written as 2024-05-31 or 2024-05-31 14:30, in UTC unless they have a time zone.

    Raises:
        ValueError: for a cell that is empty, or neither a number nor a date.

    >>> as_times(pd.Series(["2024-05-31", "2024-06"])).astype("datetime64[D]").tolist()
    [datetime.date(2024, 5, 31), datetime.date(2024, 6, 1)]
    """
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        numbers = as_numbers(column)
        if not np.isnan(numbers).all():
            refuse_cells(column, ~np.isfinite(numbers), "a finite number, as other rows have it")
            return numbers
    dates = as_dates(column)
    refuse_cells(column, np.isnat(dates), "a number, or a date as 2024-05-31 or 2024-05-31 14:30")
    return dates


def as_dates(column: pd.Series) -> NDArray[np.datetime64]:
    """The cells of ``column [n]`` as datetime64[us] ``[n]`` in UTC, NaT where a cell is no date of one meaning."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return moments_of(column)
    days = [day_of(plain_text(str(cell))) for cell in column]
    moments = [None if day is None or day.day_first != day.month_first else day.day_first for day in days]
    return np.array(moments, dtype="datetime64[us]")


def refuse_cells(column: pd.Series, wrong: NDArray[np.bool_], expected: str, advice: str = "") -> None:
    """Refuse the first of the cells that are ``wrong [n]``, by its row and column; nothing if none is."""
    if wrong.any():
        place = int(np.argmax(wrong))
        cell, others = column.iloc[place], int(wrong.sum()) - 1
        more = f" (and {counted(others, 'more such row')})" if others else ""
        got = "an empty cell" if missing_cells(column.iloc[[place]])[0] else short(cell)
        where = f"row {short_text(column.index[place])}, column {short_text(column.name)}"
        raise ValueError(f"{where}: expected {expected}, got {got}{more}{advice}")


def exact_text(column: pd.Series) -> pd.Series:
    """A column of ids or groups, each cell kept as written whatever the others are, so that it is one id everywhere.

    Args:
        column: ``[n]`` of str, "" where a cell is empty.

    Returns:
        texts ``[n]``, missing where they are empty, and where they are "NA" or "NaN" among numbers; int64 if all are
        whole numbers in plain form.

    >>> exact_text(pd.Series(["1", "2"])).tolist(), exact_text(pd.Series(["1", "1e3", "+4", "NA"])).tolist()
    ([1, 2], ['1', '1e3', '+4', nan])
    """
    text = column.str.strip()
    whole = bool(text.str.fullmatch(_WHOLE).all())
    if whole and all(abs(int(cell)) < 1 << 63 for cell in text):
        return text.astype(np.int64)
    gaps = text.isin(list(WRITTEN_MISSING))
    others = text[~gaps] if gaps.any() else text[:0]  # with no gap it makes no difference what the others are
    numbers = pd.to_numeric(others, errors="coerce").notna().all() and not others.str.match(_EXACT).any()
    return column.mask(gaps if numbers else text == "", np.nan)
