"""Reading a table a batch of rows at a time, so that its length does not matter for memory."""

import hashlib
import itertools
from collections.abc import Collection, Iterator
from pathlib import Path

import pandas as pd

from vicinal.core.folders import sha256
from vicinal.core.progress import Log
from vicinal.core.untrusted import open_regular
from vicinal.data.reading import table_pieces
from vicinal.data.sources import source_files

_PIECE = 1 << 16
"""Rows of a text file that are read at a time."""


def stream_table(
    path: str | Path,
    size: int,
    *,
    need: Collection[str] = (),
    ids: Collection[str] = (),
    log: Log = lambda line: None,
) -> Iterator[pd.DataFrame]:
    """The table that :func:`vicinal.data.read_cells` reads, in batches of ``size`` rows; the last may have fewer.

    Cells are as they are stored, those of csv texts; a fitted model reads them by its ``form_``. A table without rows
    is one batch. Excel, JSON arrays, databases and folders are read whole.

    Args:
        path: see :func:`vicinal.data.read_table`.
        size: rows of a batch.
        need: columns that each batch has if the file has them in any row: the lines of jsonl may leave some out.
        ids: columns of ids and groups.
        log: called with how the file is read.
    """
    pieces = table_pieces(path, _PIECE, need=need, ids=ids, log=log)
    first, rest = 1, next(pieces)
    for piece in itertools.chain(pieces, [None]):
        while len(rest) >= size or (piece is None and (len(rest) or first == 1)):
            batch, rest = rest.iloc[:size], rest.iloc[size:]
            yield batch.set_axis(pd.RangeIndex(first, first + len(batch)))
            first += max(1, len(batch))
        if piece is not None:
            rest = pd.concat([rest, piece], ignore_index=True) if len(rest) else piece


def table_checksum(path: str | Path) -> str:
    """A checksum of all files of a table."""
    files, part = source_files(path)
    inside = (sorted(p for p in file.rglob("*") if p.is_file()) if file.is_dir() else [file] for file in files)
    lines = [part, *(f"{file.name} {sha256(file)}" for group in inside for file in group)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def row_count(path: str | Path) -> int | None:
    """The number of rows of a table, approximate for text files; None if it is not known without reading the cells."""
    counts = [_rows_of(file) for file in source_files(path)[0]]
    return None if None in counts else sum(count for count in counts if count is not None)


def _rows_of(path: Path) -> int | None:
    ending = path.suffix.lower()
    if ending == ".parquet":
        from pyarrow import parquet

        with open_regular(path) as stream:
            return int(parquet.read_metadata(stream).num_rows)
    if ending not in (".csv", ".tsv", ".txt", ".jsonl") or path.is_dir():
        return None
    with path.open("rb") as file:
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return lines - (ending != ".jsonl")
