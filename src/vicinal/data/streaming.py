"""Reading a table a batch of rows at a time, so that one of any length takes the memory of a batch."""

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path

import pandas as pd

from vicinal.core.untrusted import open_regular, parquet_frames
from vicinal.data.reading import Delimited, Log, check_table, json_rows, read_table, typed_cells, with_names

_PIECE = 1 << 16
"""Rows of a text file that are read at a time."""


def stream_table(
    path: str | Path,
    size: int,
    *,
    need: Collection[str] = (),
    text: Collection[str] = (),
    ids: Collection[str] = (),
    log: Log = lambda line: None,
) -> Iterator[pd.DataFrame]:
    """The table that :func:`vicinal.data.read_table` reads, in batches of ``size`` rows; the last may have fewer.

    A cell is what it would be in the whole table, so decimal commas are looked for in the whole file before its first
    batch; but a column of csv is numbers in the batches in which all its cells are. A table without rows is one batch.

    Args:
        path: see :func:`vicinal.data.read_table`, as are ``text``, ``ids`` and ``log``.
        size: rows of a batch.
        need: columns that each batch has if the file has them in any row: the lines of jsonl may leave some out.
        text: columns that stay texts.
        ids: columns of ids and groups.
        log: gets how the file is read.
    """
    path = check_table(path)
    pieces = (with_names(path, frame) for frame in _pieces(path, need, text, ids, log))
    first, rest = 1, next(pieces)
    for piece in itertools.chain(pieces, [None]):
        while len(rest) >= size or (piece is None and (len(rest) or first == 1)):
            batch, rest = rest.iloc[:size], rest.iloc[size:]
            yield batch.set_axis(pd.RangeIndex(first, first + len(batch)))
            first += max(1, len(batch))
        if piece is not None:
            rest = pd.concat([rest, piece], ignore_index=True) if len(rest) else piece


def _pieces(
    path: Path, need: Collection[str], text: Collection[str], ids: Collection[str], log: Log
) -> Iterator[pd.DataFrame]:
    ending = path.suffix.lower()
    if ending in (".csv", ".tsv"):
        file = Delimited.of(path)
        comma = file.has_decimal_commas(file.frames(_PIECE))
        file.tell(log, comma=comma)
        yield from (typed_cells(frame, text, ids, comma=comma) for frame in file.frames(_PIECE))
    elif ending == ".parquet":
        with open_regular(path) as stream:
            yield from parquet_frames(stream, path.name)
    elif ending == ".jsonl":
        yield from _line_pieces(path, need, log)
    else:
        yield read_table(path, text=text, ids=ids, log=log)


def _line_pieces(path: Path, need: Collection[str], log: Log) -> Iterator[pd.DataFrame]:
    missing = dict.fromkeys(need)
    for row in json_rows(path, log):
        for name in row:
            missing.pop(name.strip(), None)
        if not missing:
            break
    rows = json_rows(path, lambda line: None)
    while piece := list(itertools.islice(rows, _PIECE)):
        frame = pd.DataFrame(piece)
        known = {str(name).strip() for name in frame.columns}
        yield frame.assign(**{name: None for name in need if name not in known and name not in missing})


def row_count(path: Path) -> int | None:
    """How many rows a table has, if that can be said without reading their cells; of a text about so many."""
    ending = path.suffix.lower()
    if ending == ".parquet":
        from pyarrow import parquet

        with open_regular(path) as stream:
            return int(parquet.read_metadata(stream).num_rows)
    if ending not in (".csv", ".tsv", ".jsonl"):
        return None
    with path.open("rb") as file:
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return lines - (ending != ".jsonl")
