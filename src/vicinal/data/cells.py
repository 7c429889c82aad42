"""The cells of a column: which are missing, and which texts are numbers."""

import re
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import short, short_text
from vicinal.encoders.numeric import as_float

WRITTEN_MISSING = frozenset({"", "NA", "NaN", "nan"})
"""How programs write a missing number: read as missing if all other cells of a column are numbers."""

SPELLED_MISSING = WRITTEN_MISSING | {"n/a", "N/A", "#N/A", "na", "null", "NULL", "None", "none", "-", "?"}
"""How people write one: read as missing in feature columns only, never in a target."""

_CODE = re.compile(r"^[+-]?0\d", re.MULTILINE)  # 007 is a code, not the number 7
_LONG = re.compile(r"^[+-]?\d{16,}$", re.MULTILINE)  # more digits than a float keeps apart
_TRUTH = {"True": True, "true": True, "TRUE": True, "False": False, "false": False, "FALSE": False}


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
    """The cells of ``column [n]`` as float64 ``[n]``, NaN where a cell is not a number.

    >>> as_numbers(pd.Series(["1.5", " 2 ", "n/a"])).tolist()
    [1.5, 2.0, nan]
    """
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
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        dates = pd.to_datetime(column, utc=True)
    else:
        numbers = as_numbers(column)
        if not np.isnan(numbers).all():
            _refuse_times(column, ~np.isfinite(numbers), "a finite number, as other rows have it")
            return numbers
        dates = pd.to_datetime(column.map(str).str.strip(), format="ISO8601", utc=True, errors="coerce")
    _refuse_times(column, dates.isna().to_numpy(), "a number, or a date as 2024-05-31 or 2024-05-31 14:30")
    return dates.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]")


def _refuse_times(column: pd.Series, wrong: NDArray[np.bool_], expected: str) -> None:
    if wrong.any():
        place = int(np.argmax(wrong))
        cell, more = column.iloc[place], f" (and {int(wrong.sum()) - 1} more such rows)" if wrong.sum() > 1 else ""
        got = "an empty cell" if missing_cells(column.iloc[[place]])[0] else short(cell)
        where = f"row {short_text(column.index[place])}, column {short_text(column.name)}"
        raise ValueError(f"{where}: expected {expected}, got {got}{more}")


def typed_text(column: pd.Series, missing: Collection[str] = WRITTEN_MISSING) -> pd.Series:
    """A column of texts as numbers or bools if all its cells that are not missing are; else unchanged.

    Codes with leading zeros and whole numbers too long for exact arithmetic stay texts, because reading
    them as numbers would merge different rows.

    Args:
        column: ``[n]`` of str, "" where a cell is empty.
        missing: texts that mean "no value" when all other cells are numbers.

    Returns:
        int64, float64 (NaN where missing) or bool ``[n]``; or texts, with only empty cells missing.

    >>> typed_text(pd.Series(["1", "NA", "2.5"])).tolist()
    [1.0, nan, 2.5]
    >>> typed_text(pd.Series(["007", "012"])).tolist()
    ['007', '012']
    >>> typed_text(pd.Series(["Oslo", "NA", ""])).tolist()
    ['Oslo', 'NA', nan]
    """
    text = [cell.strip() if isinstance(cell, str) else "" for cell in column.tolist()]  # lists: faster than arrays here
    present = np.fromiter((cell not in missing for cell in text), bool, len(text))
    cells = [cell for cell in text if cell not in missing]
    if not cells:
        return pd.Series(np.nan, index=column.index, name=column.name)
    if present.all() and set(cells) <= _TRUTH.keys():
        return pd.Series([_TRUTH[cell] for cell in cells], index=column.index, name=column.name)
    numbers = np.asarray(pd.to_numeric(np.array(cells, dtype=object), errors="coerce"))
    exact = numbers.dtype.kind == "i" and bool(present.all())
    code = _CODE.search("\n".join(cells)) or (not exact and _LONG.search("\n".join(cells)))
    if numbers.dtype.kind not in "iuf" or np.isnan(numbers).any() or code:
        return column.mask(np.array([not cell for cell in text], dtype=bool), np.nan)
    if exact:
        return pd.Series(numbers, index=column.index, name=column.name)
    values = np.full(len(text), np.nan)
    values[present] = numbers
    return pd.Series(values, index=column.index, name=column.name)


def exact_text(column: pd.Series) -> pd.Series:
    """A column of ids or groups, each cell kept as written whatever the others are, so that it is one id everywhere.

    Args:
        column: ``[n]`` of str, "" where a cell is empty.

    Returns:
        texts ``[n]``, missing where they are for ``typed_text``; int64 if all are whole numbers in plain form.

    >>> exact_text(pd.Series(["1", "2"])).tolist(), exact_text(pd.Series(["1", "1e3", "+4", "NA"])).tolist()
    ([1, 2], ['1', '1e3', '+4', nan])
    """
    typed = typed_text(column)
    if pd.api.types.is_integer_dtype(typed.dtype) and bool((column.str.strip() == typed.astype(str)).all()):
        return typed
    return column.mask(typed.isna(), np.nan)


def tidy_features(frame: pd.DataFrame, numbers: Collection[str] = ()) -> pd.DataFrame:
    """``frame`` with text columns made numbers if all their cells are numbers or written gaps ("n/a", "-").

    Text columns without such a gap stay texts, even if all cells are numbers (codes in a typed file).

    Args:
        frame: any table.
        numbers: columns known to be numbers (at prediction), which may then hold only gaps.

    >>> tidy_features(pd.DataFrame({"area": ["12", "n/a"], "name": ["n/a", "Oslo"]})).to_dict("list")
    {'area': [12.0, nan], 'name': ['n/a', 'Oslo']}
    """
    typed_columns: dict[str, pd.Series] = {}
    spelled = list(SPELLED_MISSING - WRITTEN_MISSING)
    for name, column in frame.items():
        if pd.api.types.is_string_dtype(column.dtype) and all(isinstance(cell, str) for cell in column.dropna()):
            known = name in numbers
            typed = typed_text(column, SPELLED_MISSING) if known or column.isin(spelled).any() else column
            if pd.api.types.is_numeric_dtype(typed.dtype) and (known or typed.notna().any()):
                typed_columns[str(name)] = typed
    return frame.assign(**typed_columns) if typed_columns else frame


_PLAIN = r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?(?:[eE][+-]?\d+)?"  # 1.234,5
_SURELY = r".*,(?:\d{1,2}|\d{4,})|[+-]?0,.*|.*\..*,.*"  # 1,234 could be a thousand


def has_decimal_commas(frames: Iterable[pd.DataFrame]) -> bool:
    """Whether numbers in a table of texts are written 1.234,5, judging by columns that allow no other reading.

    Args:
        frames: the rows of the table, in one or more pieces.

    >>> whole = pd.DataFrame({"a": ["1,5", "2"]})
    >>> has_decimal_commas([whole]), has_decimal_commas([whole, pd.DataFrame({"a": ["b"]})])
    (True, False)
    >>> has_decimal_commas([pd.DataFrame({"a": ["1,500", "2"]})])
    False
    """
    plain: set[Any] | None = None
    sure: set[Any] = set()
    for frame in frames:
        plain = set(frame.columns) if plain is None else plain
        for name in list(plain):
            cells = frame[name][~frame[name].str.strip().isin(list(WRITTEN_MISSING))].str.strip()
            if not cells.str.fullmatch(_PLAIN).all():
                plain.remove(name)
            elif cells.str.fullmatch(_SURELY).any():
                sure.add(name)
    return bool(sure & (plain or set()))


def with_decimal_points(column: pd.Series) -> pd.Series:
    """A text column of a table with decimal commas; its commas become points if all its cells are such numbers.

    >>> with_decimal_points(pd.Series(["1.234,5", "", "3"])).tolist()
    ['1234.5', '', '3']
    """
    text = column.str.strip()
    present = ~text.isin(list(WRITTEN_MISSING))
    if not text[present].str.fullmatch(_PLAIN).all():
        return column
    return column.where(~present, text.str.replace(".", "").str.replace(",", "."))
