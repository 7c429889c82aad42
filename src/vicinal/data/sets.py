"""Columns of sets, made from several columns or from the chunks of long texts."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from vicinal.core import listed, nearest, short
from vicinal.core.checks import short_text
from vicinal.encoders.kinds import infer_kind

CHUNK_WORDS = 180
"""Most words of a chunk: about 250 tokens of English; MiniLM reads 256."""

_SHARE = 0.05
"""Share of longer texts from which a column counts as one of long texts."""


def join_columns(frame: pd.DataFrame, sets: Mapping[str, Sequence[str]], *, of_one_kind: bool = False) -> pd.DataFrame:
    """``frame`` with groups of columns replaced by columns of lists; missing cells are left out later.

    A table that already has the column of lists, and none of the columns that make it up, is not changed.

    Args:
        frame: the table.
        sets: by the name of a column of sets, the columns whose cells are its elements.
        of_one_kind: check that the columns of a set are of one kind; texts and categories count as one.

    Raises:
        ValueError: for a column that does not exist, or is grouped twice, a name that another column has, or columns
            of several kinds.

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


def long_texts(cells: "pd.Series[Any]") -> float:
    """Share of the texts with more than ``CHUNK_WORDS`` words; 0 if it is below 5 %.

    >>> long_texts(pd.Series(["word " * 200, "word"])), long_texts(pd.Series(["word"]))
    (0.5, 0.0)
    """
    present = cells.dropna()
    share = sum(len(str(cell).split()) > CHUNK_WORDS for cell in present) / max(len(present), 1)
    return share if share >= _SHARE else 0.0


def split_texts(frame: pd.DataFrame, columns: Collection[str]) -> pd.DataFrame:
    """``frame`` with the texts of ``columns`` cut into lists of chunks of about equal length, <= ``CHUNK_WORDS`` words.

    >>> [len(chunk.split()) for chunk in split_texts(pd.DataFrame({"x": ["word " * 300]}), ["x"])["x"][0]]
    [150, 150]
    """
    for name in columns:
        chunks = [_chunks(str(cell)) if isinstance(cell, str) or pd.notna(cell) else None for cell in frame[name]]
        frame = frame.assign(**{name: pd.Series(chunks, index=frame.index, dtype=object)})
    return frame


def _chunks(text: str) -> list[str]:
    words = text.split()
    count = max(1, -(-len(words) // CHUNK_WORDS))
    ends = [round(part * len(words) / count) for part in range(count + 1)]
    return [" ".join(words[low:high]) for low, high in pairwise(ends)]
