"""What the cells of a column hold: which are missing, and which texts are numbers."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

WRITTEN_MISSING = frozenset({"", "NA", "NaN", "nan"})
"""How programs write a missing number: read as missing wherever the rest of a column are numbers."""

SPELLED_MISSING = WRITTEN_MISSING | {"n/a", "N/A", "#N/A", "na", "null", "NULL", "None", "none", "-", "?"}
"""How people spell one: read as missing in feature columns only, never in a target."""

_CODE = r"[+-]?0\d"  # 007 is a code, not the number 7
_LONG = r"[+-]?\d{16,}"  # more digits than a float keeps apart


def missing_cells(column: pd.Series) -> NDArray[np.bool_]:
    """Which cells of ``column [n]`` are empty: None, NaN, or a text of nothing but white space; ``[n]``.

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
    """A number object of any make (bool, Decimal, numpy) as a float; None for anything else."""
    if isinstance(cell, (bytes, bytearray)) or not hasattr(cell, "__float__") or np.ndim(cell):
        return None
    return float(cell)


def typed_text(column: pd.Series, missing: Collection[str] = WRITTEN_MISSING) -> pd.Series:
    """A column of texts as numbers or bools if every cell that is present is one; else as it was.

    Codes with leading zeros and whole numbers too long for exact arithmetic stay texts, because to read
    them as numbers would merge rows that differ.

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
    text = column.str.strip()
    present = ~(text.isna() | text.isin(list(missing)))
    cells = text[present]
    if cells.empty:
        return pd.Series(np.nan, index=column.index, name=column.name)
    if present.all() and cells.isin(["True", "False", "true", "false", "TRUE", "FALSE"]).all():
        return cells.str.casefold() == "true"
    numbers = pd.to_numeric(cells, errors="coerce")
    exact = pd.api.types.is_signed_integer_dtype(numbers.dtype) and bool(present.all())
    code = cells.str.match(_CODE).any() or (not exact and cells.str.fullmatch(_LONG).any())
    if numbers.isna().any() or code:
        return column.mask(text.fillna("") == "", np.nan)
    return numbers if exact else numbers.astype(np.float64).reindex(column.index)


def exact_text(column: pd.Series) -> pd.Series:
    """A column of ids or groups, each cell as it is written whatever the others are, so that it is one id everywhere.

    Args:
        column: ``[n]`` of str, "" where a cell is empty.

    Returns:
        texts ``[n]``, missing where ``typed_text`` says so; int64 if every one is the plain form of a whole number.

    >>> exact_text(pd.Series(["1", "2"])).tolist(), exact_text(pd.Series(["1", "1e3", "+4", "NA"])).tolist()
    ([1, 2], ['1', '1e3', '+4', nan])
    """
    typed = typed_text(column)
    if pd.api.types.is_integer_dtype(typed.dtype) and bool((column.str.strip() == typed.astype(str)).all()):
        return typed
    return column.mask(typed.isna(), np.nan)


def tidy_features(frame: pd.DataFrame, numbers: Collection[str] = ()) -> pd.DataFrame:
    """``frame`` with columns of numbers in which some cells are spelled-out gaps ("n/a", "-") made numbers.

    Columns of texts without such a gap stay texts, even if all are numbers (codes in a typed file).

    Args:
        frame: any table.
        numbers: columns known to be numbers (at prediction), which may then hold nothing but gaps.

    >>> tidy_features(pd.DataFrame({"area": ["12", "n/a"], "name": ["n/a", "Oslo"]})).to_dict("list")
    {'area': [12.0, nan], 'name': ['n/a', 'Oslo']}
    """
    made: dict[str, pd.Series] = {}
    spelled = list(SPELLED_MISSING - WRITTEN_MISSING)
    for name, column in frame.items():
        if pd.api.types.is_string_dtype(column.dtype) and all(isinstance(cell, str) for cell in column.dropna()):
            known = name in numbers
            typed = typed_text(column, SPELLED_MISSING) if known or column.isin(spelled).any() else column
            if pd.api.types.is_numeric_dtype(typed.dtype) and (known or typed.notna().any()):
                made[str(name)] = typed
    return frame.assign(**made) if made else frame
