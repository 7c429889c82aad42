"""Several classes or numbers a row: labels as users give them."""

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import ColumnWarning, short
from vicinal.core.checks import warn_caller
from vicinal.data import TableForm
from vicinal.estimators.inputs import Ids, as_table
from vicinal.estimators.labels import label_column, read_numbers

_WRITTEN = (str, datetime.timedelta, np.timedelta64, datetime.time)
_NESTED = (list, tuple, set, frozenset, np.ndarray)


def is_multilabel(y: Any) -> bool:
    """Whether labels are a matrix ``[n, K]``, K > 1, or a list of classes for each row.

    >>> is_multilabel([["a"], []]), is_multilabel([[0, 1], [1, 1]]), is_multilabel(["a", "b"])
    (True, True, False)
    """
    if isinstance(y, pd.DataFrame | np.ndarray) and y.ndim == 2:
        return y.shape[1] > 1
    cells = y if isinstance(y, Sequence | pd.Series | np.ndarray) and not isinstance(y, str) else ()
    return any(isinstance(cell, _NESTED) for cell in cells) and _matrix(cells, least=2) is not False


def read_multilabel(y: Any, classes: Ids | None = None) -> tuple[Ids, Ids]:
    """Classes ``[K]``, sorted, and 0 or 1 of each for every row ``[n, K]``, float64.

    Args:
        y: as :func:`is_multilabel` takes it: of a matrix (also nested lists of 0 and 1 of one length) the classes are
            its columns: their names in a DataFrame, else 0 to K - 1.
        classes: those that there are; None: those of ``y``.

    Raises:
        ValueError: for a cell that is neither 0 nor 1, no list, or holds a class that is not in ``classes``.

    >>> names, table = read_multilabel([["sea", "sun"], [], ["sun"]])
    >>> names.tolist(), table.tolist()
    (['sea', 'sun'], [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    """
    matrix = y if isinstance(y, pd.DataFrame | np.ndarray) and y.ndim == 2 else _matrix(list(y))
    if matrix is None or matrix is False:
        return _of_lists(list(y), classes)
    names = np.array(list(matrix.columns)) if isinstance(matrix, pd.DataFrame) else np.arange(matrix.shape[1])
    values = np.asarray(matrix)
    if classes is None and isinstance(matrix, pd.DataFrame):
        order = np.argsort(names, kind="stable")
        names, values = names[order], values[:, order]
    elif classes is not None:
        if isinstance(matrix, pd.DataFrame) and set(names.tolist()) == set(classes.tolist()):
            values = np.asarray(matrix[classes.tolist()])
        elif isinstance(matrix, pd.DataFrame) or len(names) != len(classes):
            raise ValueError(f"y: expected columns for the {len(classes)} classes of the fit, got {len(names)} others")
    cells = values.astype(object)
    wrong = ~np.isin(np.where(pd.isna(cells), np.array(None), cells), (0, 1))  # pandas.NA compares with nothing
    if wrong.any():
        row, column = (int(place) for place in np.argwhere(wrong)[0])
        raise ValueError(
            f"y: expected 0 or 1 for each class, got {short(values[row, column])} in row {row}; several numbers a row "
            "are no labels (Unknown label type)"
        )
    return names if classes is None else classes, values.astype(np.float64)


def _matrix(cells: Any, least: int = 1) -> Any:
    """Nested sequences of 0 and 1 of one length as an array, which no list of different classes looks like; else None.

    False where they are one value each, fewer than ``least``: a column, not several classes.
    """
    nested = [cell for cell in cells if isinstance(cell, list | tuple | np.ndarray)]
    lengths = {len(cell) for cell in nested}
    if len(nested) < len(cells) or len(lengths) != 1 or not all(_is_flag(one) for cell in nested for one in cell):
        return None
    values = np.asarray([list(cell) for cell in nested])
    if values.shape[1] < least:
        return False
    return values if values.shape[1] > 1 else None


def _is_flag(value: Any) -> bool:
    return isinstance(value, int | float | np.number | np.bool_) and value in (0, 1)


def _of_lists(cells: Sequence[Any], classes: Ids | None = None) -> tuple[Ids, Ids]:
    rows = []
    for row, cell in enumerate(cells):
        if not isinstance(cell, _NESTED):
            raise ValueError(
                f"y: expected a list of classes for each row, empty for none, got {short(cell)} in row {row}"
            )
        rows.append([one.item() if isinstance(one, np.generic) else one for one in cell])
        for one in rows[-1]:
            if not isinstance(one, _NESTED) and pd.isna(one):
                raise ValueError(
                    f"y: expected classes in each list, got {short(one)} in row {row}; an empty list is a row without "
                    "classes (input contains NaN)"
                )
    try:
        names = np.array(sorted({one for cell in rows for one in cell})) if classes is None else classes
        places = {name: place for place, name in enumerate(names.tolist())}
        table = np.zeros((len(rows), len(names)))
        for row, cell in enumerate(rows):
            for one in cell:
                if one not in places:
                    raise ValueError(
                        f"y: expected classes that the model was fitted with, got {short(one)} in row {row}"
                    )
                table[row, places[one]] = 1.0
    except TypeError as wrong:
        raise ValueError("y: expected lists of classes of one type, all text or all numbers, got several") from wrong
    return names, table


def target_names(y: Any) -> list[str] | None:
    """Names of several targets: columns of a table, else y0, y1 and so on; None of one number a row.

    Raises:
        ValueError: for two columns of one name.

    >>> target_names(pd.DataFrame({"price": [1.0], "size": [2.0]})), target_names([[1, 2, 3]]), target_names([1, 2])
    (['price', 'size'], ['y0', 'y1', 'y2'], None)
    """
    table = as_table("y", y, listed=False)
    if isinstance(table, pd.DataFrame):
        names = [str(name) for name in table.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"y: expected columns of different names, got {short(names)}")
        return names if len(names) > 1 else None
    if isinstance(table, list | tuple):
        width = len(table[0]) if len(table) and isinstance(table[0], list | tuple | np.ndarray) else 1
    else:
        width = table.shape[1] if getattr(table, "ndim", 1) == 2 else 1
    return [f"y{place}" for place in range(width)] if width > 1 else None


def label_table(y: Any, names: Sequence[str]) -> pd.DataFrame:
    """Labels of several targets, a column each, in the order of ``names [T]``.

    Raises:
        ValueError: for other columns, or another number of them.
    """
    table = as_table("y", y, listed=False)
    if isinstance(table, pd.DataFrame):
        table = table.rename(columns=str)
        if sorted(table.columns) != sorted(names):
            raise ValueError(f"y: expected the columns {short(list(names))}, got {short(list(table.columns))}")
        return table[list(names)]
    table = pd.DataFrame(table if isinstance(table, np.ndarray) and table.ndim == 2 else list(table))
    if table.shape[1] != len(names):
        raise ValueError(f"y: expected {len(names)} numbers a row, [n, {len(names)}], got shape {table.shape}")
    return table.set_axis(pd.Index(names), axis="columns")


def several_numbers(y: Any, names: Sequence[str], rows: int | None = None, form: TableForm | None = None) -> Ids:
    """Numbers of several targets ``[n, T]``, float64, in the order of ``names [T]``, written as ``form`` says.

    Raises:
        ValueError: see :func:`label_table`; or for a cell that is no number, see
            :func:`vicinal.estimators.labels.read_numbers`.
    """
    forms, columns = {} if form is None else form.columns, []
    for name, column in label_table(y, names).items():
        try:
            columns.append(read_numbers(column, rows, forms.get(str(name))))
        except ValueError as wrong:
            raise ValueError(f"{wrong} (target {short(name)})") from None
    return np.stack(columns, axis=1)


def _as_labels(setting: str, column: str, value: Any) -> str:
    """How labels in Python are to be changed where they were read in a wrong way."""
    del column, value
    return "leave out their rows" if setting == "missing" else "give numbers"


def number_form(y: Any, names: Sequence[str] | None) -> TableForm:
    """How labels that are texts or lengths of time write numbers, found in all of them as in the column of a file.

    Args:
        y: labels as users write them.
        names: of several targets; None: one, which the form calls "y".

    Raises:
        ValueError: for texts such as "1,234" alone, which are 1234 to one reader and 1.234 to another.

    >>> number_form(["950 €", *(f"{thousands}.250 €" for thousands in range(10, 22))], None).columns["y"].decimal
    ','
    >>> number_form([1.5, 2.0], None).columns
    {}
    """
    table = label_table(y, names) if names is not None else pd.DataFrame({"y": label_column(y)})
    plain = [name for name, column in table.items() if not any(isinstance(cell, _WRITTEN) for cell in column)]
    table = table.drop(columns=plain).reset_index(drop=True)
    notes: list[str] = []
    form = TableForm.of(table, targets=names or ["y"], log=notes.append, advice=_as_labels)
    for name in table.columns:
        form = form.of_target(name)
    columns = {name: each for name, each in form.columns.items() if each.kind in ("number", "duration", "parts")}
    for name, each in list(columns.items()):
        if each.kind == "parts" and len(each.typical) > 1 and not each.middle:
            del columns[name]
        elif each.open:
            _check_open(table[name])
            del columns[name]
    for note in notes:
        if any(note.startswith(f"{name}: ") and not form.columns[name].open for name in columns):
            warn_caller(note, ColumnWarning)
    return TableForm(columns=columns)


def _check_open(column: "pd.Series[Any]") -> None:
    """Refuse texts whose marks may be of decimals or of thousands, unless Python reads all as numbers."""
    odd = pd.to_numeric(column, errors="coerce").isna().to_numpy()
    if odd.any():
        row = int(np.argmax(odd))
        raise ValueError(
            f"{column.name}: expected labels of one meaning, got {short(column.iloc[row])} in row {row}, and no label "
            "tells whether its mark is of thousands or decimals; give numbers, such as "
            "pandas.to_numeric(y.str.replace(',', '')) where it is of thousands"
        )
