"""The one door for labels: what users write in the place of a number or of a class, one a row."""

import datetime
import numbers
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from vicinal.core import short
from vicinal.core.identity import warn_of_identity
from vicinal.data.cell_reading import is_gap, read_column
from vicinal.data.cells import as_numbers
from vicinal.data.column_form import ColumnForm
from vicinal.data.target import LARGEST
from vicinal.encoders.numeric import as_float
from vicinal.estimators.inputs import Ids, as_table

_NAMED = (str, pd.Interval, pd.Period, UUID)
"""What is a class by the text that it is written as."""

_MOMENTS: dict[type, str] = {
    np.datetime64: "dates",
    np.timedelta64: "durations",
    datetime.timedelta: "durations",
    datetime.time: "times of day",
    datetime.date: "dates",
    pd.Period: "dates (periods)",
    pd.Interval: "bands, as pandas.cut makes them,",
}
"""What has no number of its own; pandas has subclasses of these."""


def label_cells(y: Any, rows: int | None = None) -> Ids:
    """One label a row ``[n]``, none missing: numbers or bools of numpy, or else objects of Python, as they were given.

    Args:
        y: a list, array, tensor, Series or table of one column, of any library that narwhals reads.
        rows: n; None: any number.

    Raises:
        TypeError: for what holds no rows.
        ValueError: for another number of labels, several columns, or a missing label, whatever stands for it.

    >>> label_cells(pd.Series(["a", "b"], dtype="category")).tolist(), label_cells([1, True]).tolist()
    (['a', 'b'], [1, True])
    >>> label_cells(["a", None])
    Traceback (most recent call last):
    ValueError: y: expected a label in each row, got None in row 1; leave out rows without one (input contains NaN)
    """
    cells = label_column(y)
    check_length(cells, rows)
    if cells.dtype == object:
        missing = np.flatnonzero(pd.isna(cells))
        if len(missing):
            raise ValueError(
                f"y: expected a label in each row, got {short(cells[missing[0]])} in row {missing[0]}; leave out rows "
                "without one (input contains NaN)"
            )
    return cells


def read_numbers(y: Any, rows: int | None = None, form: ColumnForm | None = None) -> Ids:
    """Numbers, one a row, as float64 ``[n]``.

    Numbers may be of any type (Decimal, Fraction, bool, big-endian), also as text; other texts, and lengths of time
    (in seconds), by the ``form`` in which the labels of a fit were written.

    Raises:
        ValueError: naming the row of what is missing, infinite, above ``LARGEST``, or no number, such as a date.

    >>> read_numbers([Decimal("0.5"), True, "3"]).tolist()
    [0.5, 1.0, 3.0]
    >>> read_numbers([datetime.date(2024, 1, 31)])
    Traceback (most recent call last):
    ValueError: y: expected numbers, got dates (datetime.date(2024, 1, 31) in row 0); dates and the like are no numbers until you choose a unit, such as days
    """  # noqa: E501
    cells = label_cells(y, rows)
    if cells.dtype == object and form is not None:
        cells = _read_by(form, cells)
    elif cells.dtype == object:
        cells = np.array([_number(cell, row) for row, cell in enumerate(cells.tolist())], dtype=np.float64)
    values = cells.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"y: expected finite numbers, got {values[row]} in row {row}; leave out rows without one (input contains "
            "NaN or infinity)"
        )
    large = np.flatnonzero(np.abs(values) > LARGEST)
    if len(large):
        row = int(large[0])
        raise ValueError(
            f"y: expected numbers of at most {LARGEST:g}, whose squares can be summed, got {values[row]:g} in row "
            f"{row}; give them in a larger unit"
        )
    return values


def read_classes(y: Any, rows: int | None = None) -> Ids:
    """Classes, one a row ``[n]``: bools, whole numbers (int64), numbers (float64) or texts (objects), all of one type.

    Bands (of ``pandas.cut``), periods and UUIDs are classes by their text.

    Raises:
        ValueError: naming the row of a class that is missing, a date, of another type than that of the first row, or a
            float so large that it may stand for several whole numbers.

    >>> read_classes([Decimal(1), 2]).tolist(), read_classes(pd.cut(pd.Series([1, 9]), [0, 5, 10])).tolist()
    ([1, 2], ['(0, 5]', '(5, 10]'])
    >>> read_classes(["high", 3])
    Traceback (most recent call last):
    ValueError: y: expected classes of one type, got 3 (a number) in row 1 and 'high' (a text) in row 0
    """
    cells = label_cells(y, rows)
    if cells.dtype != object:
        return cells if cells.dtype.kind == "b" else _numbered(cells)
    values = cells.tolist()
    kinds = [_class_kind(cell, row) for row, cell in enumerate(values)]
    for row, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ValueError(
                f"y: expected classes of one type, got {short(values[row])} ({kind}) in row {row} and "
                f"{short(values[0])} ({kinds[0]}) in row 0"
            )
    if kinds[:1] == ["true or false"]:
        return cells.astype(bool)
    if kinds[:1] == ["a number"]:
        return _numbered(cells)
    return np.array([str(cell) for cell in values], dtype=object)


def check_length(y: Any, rows: int | None) -> None:
    """Raise ValueError unless there are ``rows`` labels; None: any number."""
    if rows is not None and len(y) != rows:
        raise ValueError(f"y: expected {rows} labels, one a row of X (inconsistent numbers of samples), got {len(y)}")


def warn_of_order(x: Any, y: Any) -> None:
    """Warn where labels go to rows by position, and pandas' index names the same rows in another order.

    >>> warn_of_order(pd.DataFrame({"a": [1, 2]}), pd.Series([5, 6]))
    """
    if not all(isinstance(one, pd.DataFrame | pd.Series) for one in (x, y)) or x.index.equals(y.index):
        return
    if len(x) == len(y) and x.index.is_unique and x.index.difference(y.index, sort=False).empty:
        warn_of_identity(
            "y: expected the index of X, got its rows in another order; labels are taken by position: give "
            "y.loc[X.index], or y.to_numpy() if the positions are right"
        )


def label_column(y: Any) -> Ids:
    """The labels ``[n]``, some maybe missing, as an array of numpy's numbers or bools, or of objects."""
    y = np.asarray(y) if hasattr(y, "__array__") and not hasattr(y, "__len__") else y
    if isinstance(y, str | bytes | dict) or not (hasattr(y, "__len__") or hasattr(y, "__iter__")):
        raise TypeError(f"y: expected labels, one a row, got {short(y)}")
    if isinstance(y, np.ma.MaskedArray):
        y = np.where(np.ma.getmaskarray(y), np.array(None), y.astype(object).data)
    table = as_table("y", y, listed=False)
    if isinstance(table, pd.DataFrame):
        if table.shape[1] != 1 or isinstance(y, pd.DataFrame):
            column_or_1d(np.zeros(table.shape), warn=True)  # says what scikit-learn says
        table = table.iloc[:, 0]
    elif not isinstance(table, np.ndarray):
        cells = list(table)
        if cells and all(isinstance(cell, list | tuple) and len(cell) == 1 for cell in cells):
            column_or_1d(np.zeros((len(cells), 1)), warn=True)
            cells = [cell[0] for cell in cells]
        table = np.empty(len(cells), dtype=object)
        table[:] = [cell.item() if isinstance(cell, Tensor) and cell.ndim == 0 else cell for cell in cells]
    elif table.ndim != 1:
        table = column_or_1d(table, warn=True)
    if isinstance(table, pd.Series) or table.dtype.kind in "mM":  # numpy makes whole numbers of dates
        plain = isinstance(table.dtype, np.dtype) and table.dtype.kind in "biuf"
        table = table.to_numpy() if plain else pd.Series(table).astype(object).to_numpy()
    if table.dtype.kind == "U":  # numpy writes a missing cell among texts as a text
        table = np.where(table == "nan", None, table)
    return table if table.dtype.kind in "biuf" else table.astype(object)


def _read_by(form: ColumnForm, cells: Ids) -> Ids:
    """Numbers written in a form; a cell that is none of them, or says that its label is missing, is refused."""
    values = as_numbers(read_column(form, pd.Series(cells, name="y", dtype=object)))
    wrong = np.flatnonzero(np.isnan(values))
    if len(wrong):
        cell, row = cells[wrong[0]], int(wrong[0])
        if is_gap(form, cell):
            raise ValueError(f"y: expected a label in each row, got {short(cell)} in row {row}; leave out such rows")
        raise _refused("numbers", cell, row)
    return values


def _number(cell: Any, row: int) -> float:
    """One label as a float."""
    if isinstance(cell, str):
        try:
            return float(cell)
        except ValueError:
            raise _refused("numbers", cell, row) from None
    if not _is_real(cell):
        raise _refused("numbers", cell, row)
    return as_float(cell)


def _is_real(cell: Any) -> bool:
    """Whether a label is a real number of any type; numpy counts durations among its integers."""
    known = isinstance(cell, numbers.Number | np.bool_)
    return known and not isinstance(cell, complex | np.complexfloating | np.timedelta64)


def _class_kind(cell: Any, row: int) -> str:
    """What type of class a label is, in words."""
    if isinstance(cell, bool | np.bool_):
        return "true or false"
    if _is_real(cell):
        return "a number"
    if isinstance(cell, _NAMED):
        return "a text"
    raise _refused("classes (texts, whole numbers, true or false)", cell, row)


def _refused(expected: str, cell: Any, row: int) -> ValueError:
    """The sentence for a label that is none."""
    kind = next((words for kind, words in _MOMENTS.items() if isinstance(cell, kind)), "")
    if not kind:
        advice = "; correct it, or leave out the row (NeighborClassifier predicts classes)"
        advice = advice if isinstance(cell, str) and expected == "numbers" else ""
        return ValueError(f"y: expected {expected}, got {short(cell)} in row {row}{advice}")
    return ValueError(
        f"y: expected {expected}, got {kind} ({short(cell)} in row {row}); dates and the like are no numbers until you "
        "choose a unit, such as days"
    )


def _numbered(cells: Ids) -> Ids:
    """Classes that are numbers: int64 where all are whole numbers by type, else float64 that are exactly what they say.

    From 2**53 on (of float32 from 2**24 on) a float may stand for several whole numbers.
    """
    values = [int(cell) if isinstance(cell, Decimal) and _is_whole(cell) else cell for cell in cells.tolist()]
    exact = all(isinstance(value, numbers.Integral) for value in values)
    digits = np.finfo(cells.dtype).nmant + 1 if cells.dtype.kind == "f" else 53
    most = np.iinfo(np.int64).max if exact else 2**digits
    for row, value in enumerate(values):
        if value != value or value in (np.inf, -np.inf):
            raise ValueError(f"y: expected finite numbers, got {value} in row {row}; input contains NaN or infinity")
        if abs(value) > most or (not exact and abs(value) == most):
            raise ValueError(
                f"y: expected classes that stand for one number each, got {short(value)} in row {row}, which is too "
                "large for its type; make them texts where they are read"
            )
    return np.array(values, dtype=np.int64 if exact else np.float64)


def _is_whole(cell: Decimal) -> bool:
    return cell.is_finite() and cell == cell.to_integral_value()
