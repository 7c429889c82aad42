"""Writing a table to a file, with a mark on cells that a spreadsheet program would run as formulas."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from vicinal.core import replaced_file
from vicinal.core.checks import ECHO, short_text
from vicinal.core.formulas import escape_formula

Frames = Callable[[], Iterable[pd.DataFrame]]

ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl", ".sqlite")
"""Endings of files that tables are written to."""


def write_table(table: pd.DataFrame, path: Path, *, escape: bool = True) -> None:
    """Write ``table`` in the format of the file's ending, whole or not at all.

    Args:
        table: the rows; its index is not written.
        path: ends in .csv, .tsv, .parquet, .jsonl or .sqlite; a database holds one table, with the file's name.
        escape: in csv and tsv, mark cells that might be run as formulas (see

    Raises:
        ValueError: for another ending, or a folder that does not exist.
    """
    write_frames(lambda: [table], path, escape=escape)


def write_frames(frames: Frames, path: Path, *, escape: bool = True) -> None:
    """:func:`write_table` for a table in pieces, one of which is in memory at a time.

    Args:
        frames: gives the pieces, all with the same columns and types; it may be called twice.
        path: see :func:`write_table`.
        escape: see :func:`write_table`.
    """
    check_table_name(path)
    writers: dict[str, Callable[[Path], object]] = {
        ".csv": lambda aside: _write_text(aside, csv_texts(frames, escape=escape)),
        ".tsv": lambda aside: _write_text(aside, csv_texts(frames, "\t", escape=escape)),
        ".parquet": lambda aside: _write_parquet(aside, frames),
        ".jsonl": lambda aside: _write_text(aside, map(_json_lines, frames())),
        ".sqlite": lambda aside: _write_database(aside, frames, path.stem),
    }
    with replaced_file(path) as aside:
        writers[path.suffix](aside)


def check_table_name(path: Path) -> Path:
    """Return ``path`` if a table can be written there, by its ending and folder."""
    if path.suffix not in ENDINGS:
        raise ValueError(f"out: expected a name that ends in {', '.join(ENDINGS)}, got {short_text(path)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ValueError(f"out: expected a file in a folder that is there, got {short_text(path, 200)}")
    return path


def csv_texts(frames: Frames, separator: str = ",", *, escape: bool = True) -> Iterator[str]:
    """A table in pieces as csv; the first piece has the column names; ``escape``: see :func:`write_table`."""
    torn = any("\r" in cell for table in frames() for _, column in _words(table) for cell in map(str, column))
    quoting: Literal[0, 2] = 2 if torn else 0  # all texts, as a \r outside of quotes ends a line; or where needed
    for number, piece in enumerate(frames()):
        table = piece
        if escape:
            marked = {name: column.map(_escaped) for name, column in _words(table)}
            table = table.assign(**marked).rename(columns=_escaped)
        yield table.to_csv(index=False, header=number == 0, sep=separator, lineterminator="\n", quoting=quoting)


def _words(table: pd.DataFrame) -> Iterator[tuple[str, "pd.Series[Any]"]]:
    for name, column in table.items():
        if not pd.api.types.is_numeric_dtype(column.dtype):
            yield str(name), column


def _escaped(cell: Any) -> Any:
    return escape_formula(cell) if isinstance(cell, str) else cell


def _write_text(path: Path, texts: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(texts)


def _write_parquet(path: Path, frames: Frames) -> None:
    writer = None
    for frame in frames():
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table.cast(writer.schema))
    if writer is not None:
        writer.close()


def storable(frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` with columns of mixed types, such as ids that are words and numbers, as words."""
    mixed = [n for n, c in frame.items() if c.dtype == object and len({type(cell) for cell in c.dropna()}) > 1]
    return frame.assign(**{str(name): frame[name].map(str, na_action="ignore") for name in mixed})


def _json_lines(frame: pd.DataFrame) -> str:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return "".join(json.dumps(row, ensure_ascii=False, default=_plain) + "\n" for row in rows)


def _plain(cell: Any) -> Any:
    """A cell that JSON cannot hold: an array as a list, a numpy number as a number, anything else as text."""
    return cell.tolist() if hasattr(cell, "tolist") else str(cell)


def _write_database(path: Path, frames: Frames, name: str) -> None:
    try:
        with closing(sqlite3.connect(path)) as database:
            for frame in frames():
                lists = {str(n): c.map(_json_cell) for n, c in frame.items() if c.dtype == object}
                frame.assign(**lists).to_sql(name, database, index=False, if_exists="append")
    except (sqlite3.Error, pd.errors.DatabaseError, OverflowError) as wrong:  # as names that differ only in their case
        raise ValueError(f"out: expected a table that SQLite can hold, got: {short_text(wrong, ECHO)}") from None


def _json_cell(cell: Any) -> Any:
    plain = cell is None or isinstance(cell, str | int | float | bytes)
    return cell if plain else json.dumps(cell, ensure_ascii=False, default=_plain)
