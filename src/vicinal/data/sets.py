"""Columns of a table put together as one column of sets."""

from collections.abc import Mapping, Sequence

import pandas as pd

from vicinal.core import listed, nearest, short, short_text
from vicinal.encoders.kinds import infer_kind


def join_columns(frame: pd.DataFrame, sets: Mapping[str, Sequence[str]], *, of_one_kind: bool = False) -> pd.DataFrame:
    """``frame`` with columns of lists in the place of the columns that are grouped; a missing cell is left out later.

    A table that has the column of lists already, and none of those that make it, stays as it is.

    Args:
        frame: the table.
        sets: by the name of a column of sets, the columns whose cells are its elements.
        of_one_kind: check that the columns of a set are of one kind; texts and categories are.

    Raises:
        ValueError: for a column that is not there, or is grouped twice, a name that another column has, or columns of
            several kinds.

    >>> join_columns(pd.DataFrame({"a": ["x.jpg"], "b": ["y.jpg"]}), {"photos": ["a", "b"]})["photos"].tolist()
    [['x.jpg', 'y.jpg']]
    """
    for name, columns in sets.items():
        if name in frame.columns and not set(columns) & set(frame.columns):
            continue
        for column in columns:
            if column not in frame.columns:
                where = f"data: expected the column {short(column)} of the set {short(name)}"
                raise ValueError(f"{where}, got none{nearest(column, map(str, frame.columns))}")
        if len(set(columns)) < len(columns):
            raise ValueError(f"sets: expected each column of {short(name)} once, got {listed(columns)}")
        if name in frame.columns and name not in columns:
            raise ValueError(f"sets: expected a new name for a set of columns, got {short(name)}, which is a column")
        if of_one_kind:
            _check_kinds(frame, name, columns)
        joined = pd.Series(frame[list(columns)].astype(object).to_numpy().tolist(), index=frame.index, dtype=object)
        frame = frame.drop(columns=list(columns)).assign(**{name: joined})
    return frame


def _check_kinds(frame: pd.DataFrame, name: str, columns: Sequence[str]) -> None:
    kinds = {column: infer_kind(frame[column], column).kind for column in columns}
    words = {column: "text" if kind == "category" else kind for column, kind in kinds.items() if kind is not None}
    first = next(iter(words), "")
    odd = next((column for column in words if words[column] != words[first]), None)
    if odd is not None:
        two = " and ".join(f"{short(column)} ({kinds[column]})" for column in (first, odd))
        raise ValueError(f"{short_text(name)}: expected a set of columns of one kind, got {two}")
