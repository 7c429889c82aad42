"""Reading a table from a file: csv, tsv, parquet, jsonl."""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet

from vicinal.core import nearest
from vicinal.data.cells import exact_text, typed_text


def read_table(path: str | Path, *, text: Collection[str] = (), ids: Collection[str] = ()) -> pd.DataFrame:
    """The table in the file at ``path``, its rows labelled 1, 2, ... (the header is not counted).

    In csv and tsv a column is read as numbers only if all its cells are (see ``typed_text``); an empty cell is
    missing, and so is "NA" or "NaN" among numbers. parquet and jsonl (one JSON object a line) carry their own types.

    Args:
        path: a file that ends in .csv, .tsv, .parquet or .jsonl.
        text: columns that csv and tsv leave as texts even if all their cells are numbers (those that a fitted model
            takes for texts or categories: a title "1984", a code "12").
        ids: columns of ids and groups, of which csv and tsv keep each cell as it is written ("1e3", "+1"), so that it
            is the same id in a file whose other cells are words.

    Raises:
        ValueError: for a file that is missing, of another format, torn, or with two columns of one name; the
            sentence names the file and, where there is one, the line.
    """
    path = Path(path)
    if not path.is_file():
        siblings = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
        got = "a folder" if path.is_dir() else "none" + nearest(path.name, siblings)
        raise ValueError(f"{path}: expected a file, got {got}")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(
            f"{path.name}: expected a file that ends in {', '.join(READERS)}, got {path.suffix or 'no ending'!r}"
        )
    frame = reader(path, text, ids)
    frame.columns = pd.Index([str(name).strip() for name in frame.columns], dtype=object)
    twice = [name for name, count in Counter(frame.columns).items() if count > 1]
    if twice:
        raise ValueError(f"{path.name}: expected columns of different names, got {twice[0]!r} twice; rename one")
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    return frame


def _read_comma(path: Path, text: Collection[str], ids: Collection[str]) -> pd.DataFrame:
    return _read_delimited(path, ",", text, ids)


def _read_tab(path: Path, text: Collection[str], ids: Collection[str]) -> pd.DataFrame:
    return _read_delimited(path, "\t", text, ids)


def _read_delimited(path: Path, separator: str, text: Collection[str], ids: Collection[str]) -> pd.DataFrame:
    """Every cell as text first, then each column as what all its cells are."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            options: dict[str, Any] = {"sep": separator, "dtype": str, "keep_default_na": False}
            options["encoding"] = "utf-8-sig"
            header = pd.read_csv(path, header=None, nrows=1, **options).iloc[0]
            frame = pd.read_csv(path, index_col=False, **options)
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path.name}: expected a header and rows, got an empty file") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path.name}: expected text in UTF-8, got other bytes at position {error.start}; save it as UTF-8"
        ) from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        detail = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise ValueError(f"{path.name}: expected as many cells in each row as in the header, got: {detail}") from None
    frame.columns = pd.Index([str(cell).strip() or str(name) for cell, name in zip(header, frame.columns, strict=True)])
    columns = [
        exact_text(column)
        if name in ids
        else column.mask(column.str.strip() == "", np.nan)
        if name in text
        else typed_text(column)
        for name, column in frame.items()
    ]
    typed: pd.DataFrame = pd.concat(columns, axis="columns")
    return typed


def _read_parquet(path: Path, *_: Collection[str]) -> pd.DataFrame:
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        detail = " ".join(str(error).split())
        raise ValueError(f"{path.name}: expected a whole parquet file, got: {detail}") from None
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame.drop(columns=[name for name in frame.columns if str(name).startswith("__index_level_")])


def _read_lines(path: Path, *_: Collection[str]) -> pd.DataFrame:
    rows = []
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
            if not line.strip():
                continue
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(
                    f"{path.name}: expected a JSON object in each line, got a {type(row).__name__} in line {number}"
                )
            rows.append(row)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: expected text in UTF-8, got other bytes at position {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path.name}: expected a JSON object in each line, got none in line {number}: {error.msg}"
        ) from None
    if not rows:
        raise ValueError(f"{path.name}: expected a JSON object in each line, got an empty file")
    return pd.DataFrame(rows)


READERS: dict[str, Callable[[Path, Collection[str], Collection[str]], pd.DataFrame]] = {
    ".csv": _read_comma,
    ".tsv": _read_tab,
    ".parquet": _read_parquet,
    ".jsonl": _read_lines,
}
"""The reader of each file ending."""
