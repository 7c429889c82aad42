"""Writing a table to a file, with a mark on cells that a spreadsheet program would take for formulas."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from vicinal.core import escape_formula, replaced_file, short_text

ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl")
"""Endings of files that tables are written to."""


def write_table(table: pd.DataFrame, path: Path, *, escape: bool = True) -> None:
    """Write ``table`` in the form that the name of the file asks for, whole or not at all.

    Args:
        table: the rows; its index is not written.
        path: ends in .csv, .tsv, .parquet or .jsonl.
        escape: in csv and tsv, mark cells that might be run as formulas (see :func:`vicinal.core.escape_formula`).

    Raises:
        ValueError: for another ending, or a folder that is not there.
    """
    check_table_name(path)
    writers: dict[str, Callable[[Path], object]] = {
        ".csv": lambda aside: aside.write_text(csv_text(table, escape=escape), encoding="utf-8", newline=""),
        ".tsv": lambda aside: aside.write_text(csv_text(table, "\t", escape=escape), encoding="utf-8", newline=""),
        ".parquet": lambda aside: table.to_parquet(aside, index=False),
        ".jsonl": lambda aside: table.to_json(aside, orient="records", lines=True),
    }
    with replaced_file(path) as aside:
        writers[path.suffix](aside)


def check_table_name(path: Path) -> Path:
    """``path`` if a table can be written there, by its ending and folder."""
    if path.suffix not in ENDINGS:
        raise ValueError(f"out: expected a name that ends in {', '.join(ENDINGS)}, got {short_text(path)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ValueError(f"out: expected a file in a folder that is there, got {short_text(path, 200)}")
    return path


def csv_text(table: pd.DataFrame, separator: str = ",", *, escape: bool = True) -> str:
    """``table`` as csv, one line a row; ``escape`` as for :func:`write_table`."""
    if escape:
        marked = {str(name): column.map(_escaped) for name, column in table.items() if not _is_number(column)}
        table = table.assign(**marked).rename(columns=_escaped)
    torn = any("\r" in cell for _, column in table.items() if not _is_number(column) for cell in map(str, column))
    quoting: Literal[0, 2] = 2 if torn else 0  # all texts, as a \r outside of quotes ends a line; or where needed
    text: str = table.to_csv(index=False, sep=separator, lineterminator="\n", quoting=quoting)
    return text


def _is_number(column: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column.dtype))


def _escaped(cell: Any) -> Any:
    return escape_formula(cell) if isinstance(cell, str) else cell
