"""Reading a table from a file: csv, tsv, parquet, jsonl."""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import ECHO, local_path, nearest, short, short_text, unescape_formula
from vicinal.core.untrusted import open_regular, read_frame
from vicinal.data.cells import exact_text, has_decimal_commas, typed_text, with_decimal_points
from vicinal.data.formats import DELIMITERS, JSON_ARRAY, advice_for, delimiter_of, other_format, text_encoding
from vicinal.encoders.kinds import is_list, read_list

Log = Callable[[str], None]

DEEPEST = 16
"""Lists and objects in one another, from which on a row of JSON is refused."""


def read_table(
    path: str | Path, *, text: Collection[str] = (), ids: Collection[str] = (), log: Log = lambda line: None
) -> pd.DataFrame:
    """The table in the file at ``path``, its rows labelled 1, 2, ... (the header is not counted).

    In csv and tsv a column is read as numbers only if all its cells are (see ``typed_text``); an empty cell is
    missing, and so is "NA" or "NaN" among numbers. A column of lists in JSON
    (``["a.jpg", "b.jpg"]``) is one of lists. Semicolons, tabs or bars between cells, decimal commas (only where
    no comma stands between cells) and other encodings than UTF-8 are found out and said. An apostrophe that keeps a
    cell from being taken for a formula (see :func:`vicinal.core.escape_formula`) is taken off. parquet and jsonl (one
    JSON object a line) carry their own types.

    Args:
        path: a file that ends in .csv, .tsv, .parquet or .jsonl.
        text: columns that csv and tsv leave as texts even if all their cells are numbers (those that a fitted model
            takes for texts or categories: a title "1984", a code "12").
        ids: columns of ids and groups, of which csv and tsv keep each cell as it is written ("1e3", "+1"), so that it
            is the same id in a file whose other cells are words.
        log: gets how the file was read where that is not as its name says.

    Raises:
        ValueError: for a file that is missing, of another format, torn, or with two columns of one name; the
            sentence names the file and, where there is one, the line.
    """
    path = check_table(path)
    frame = with_names(path, READERS[path.suffix.lower()](path, text, ids, log))
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    return frame


def check_table(path: str | Path) -> Path:
    """``path`` if it is a file that can be read as a table, by its ending and its first bytes."""
    path = local_path("data", path)
    reader = READERS.get(path.suffix.lower())
    try:
        check_file(path)
        other = other_format(path)
    except OSError as wrong:
        raise ValueError(f"{short_text(path, ECHO)}: expected a file, got none: {wrong.strerror}") from None
    if other and not (reader is _read_parquet and other.startswith("a parquet file")):
        raise ValueError(f"{path.name}: expected a table, got {other}")
    if reader is None:
        advice = advice_for(path)
        raise ValueError(
            f"{path.name}: expected a file that ends in {', '.join(READERS)}, got "
            f"{short(path.suffix or 'no ending')}{'; ' if advice else ''}{advice}"
        )
    return path


def with_names(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` of a file with texts as column names, all different, without the index that pandas keeps in columns."""
    names = [str(name).strip() for name in frame.columns]
    _check_names(path, names)
    frame = frame.set_axis(pd.Index(names, dtype=object), axis="columns")
    return frame.drop(columns=[name for name in names if name.startswith("__index_level_")])


def _check_names(path: Path, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path.name}: expected columns of different names, got {short(twice[0])} twice; rename one")


def check_file(path: Path) -> None:
    """Raise ValueError unless ``path`` is a plain file, with the name in its folder that is most like it."""
    if path.is_file():
        return
    siblings = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    got = "a folder" if path.is_dir() else "no plain file" if path.exists() else "none" + nearest(path.name, siblings)
    raise ValueError(f"{short_text(path, ECHO)}: expected a file, got {got}")


@dataclass(frozen=True)
class Delimited:
    """How a file of csv or tsv is read: the encoding, what stands between its cells, and its columns."""

    path: Path
    encoding: str
    separator: str
    names: Sequence[str]

    @classmethod
    def of(cls, path: Path) -> "Delimited":
        """What the file at ``path`` says."""
        encoding = text_encoding(path)
        bare = cls(path, encoding, delimiter_of(path, encoding, _usual(path)), ())
        header = next(bare.pieces(header=None, nrows=1)).iloc[0].map(_unescaped)
        _check_names(path, [str(cell).strip() for cell in header if str(cell).strip()])
        return replace(bare, names=[str(cell).strip() for cell in header])

    def frames(self, size: int | None = None) -> Iterator[pd.DataFrame]:
        """The cells as texts, ``size`` rows at a time or all at once."""
        for frame in self.pieces(index_col=False, chunksize=size):
            names = zip(self.names, frame.columns, strict=True)
            yield frame.set_axis([name or str(other) for name, other in names], axis="columns")

    def pieces(self, **options: Any) -> Iterator[pd.DataFrame]:
        """What ``pandas.read_csv`` gives for ``options``, cells as texts."""
        options |= {"sep": self.separator, "dtype": str, "keep_default_na": False, "encoding": self.encoding}
        options["low_memory"] = False  # else a wide table is put together piece by piece, for minutes
        with self._refusals():
            read = pd.read_csv(self.path, **options)
        pieces = iter([read] if isinstance(read, pd.DataFrame) else read)
        while True:
            with self._refusals():
                frame = next(pieces, None)
            if frame is None:
                return
            yield frame

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Words what pandas finds wrong as ours."""
        name = self.path.name
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                yield
        except pd.errors.EmptyDataError:
            raise ValueError(f"{name}: expected a header and rows, got an empty file") from None
        except UnicodeError as error:
            detail = short_text(error, ECHO)
            raise ValueError(f"{name}: expected text in {self.encoding}, got: {detail}; save it as UTF-8") from None
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            detail = short_text(error, ECHO).removeprefix("Error tokenizing data. C error: ")
            raise ValueError(f"{name}: expected as many cells in each row as in the header, got: {detail}") from None

    def has_decimal_commas(self, frames: Iterable[pd.DataFrame]) -> bool:
        """Whether numbers are written 1.234,5 in the file, all of whose rows are in ``frames``."""
        return self.separator != "," and has_decimal_commas(frames)

    def tell(self, log: Log, *, comma: bool) -> None:
        """Say how the file is read where that is not as its name says."""
        usual = self.separator == _usual(self.path)
        taken = [f"{DELIMITERS[self.separator]} between cells"] * (not usual) + ["decimal commas"] * comma
        taken += [f"the encoding {self.encoding}"] * (self.encoding not in ("utf-8", "utf-8-sig"))
        if taken:
            log(f"{self.path.name} was read with {' and '.join(taken)}")


def _usual(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _read_delimited(path: Path, text: Collection[str], ids: Collection[str], log: Log) -> pd.DataFrame:
    """Every cell as text first, then each column as what all its cells are."""
    file = Delimited.of(path)
    frame = next(file.frames())
    comma = file.has_decimal_commas([frame])
    file.tell(log, comma=comma)
    return typed_cells(frame, text, ids, comma=comma)


def typed_cells(frame: pd.DataFrame, text: Collection[str], ids: Collection[str], *, comma: bool) -> pd.DataFrame:
    """A table of texts with each column as what its cells are; ``comma``: its numbers have decimal commas."""
    columns = []
    for name, column in frame.items():
        marked = any(isinstance(cell, str) and cell.startswith("'") for cell in column.tolist())
        cells = column.map(_unescaped) if marked else column
        if name in ids:
            columns.append(exact_text(cells))
        elif name in text:
            columns.append(cells.mask(cells.str.strip() == "", np.nan))
        else:
            lists = _as_lists(cells)
            columns.append(typed_text(with_decimal_points(cells) if comma else cells) if lists is None else lists)
    typed: pd.DataFrame = pd.concat(columns, axis="columns")
    return typed


def _as_lists(column: pd.Series) -> pd.Series | None:
    """A column of texts of which each that is present is a list in JSON, as lists; else None."""
    lists = []
    for cell in column.tolist():
        blank = not isinstance(cell, str) or not cell.strip()
        lists.append(None if blank else read_list(cell))
        if not blank and lists[-1] is None:
            return None
    return pd.Series(lists, index=column.index, name=column.name, dtype=object) if any(map(is_list, lists)) else None


def _unescaped(cell: Any) -> Any:
    return unescape_formula(cell) if isinstance(cell, str) else cell


def _read_parquet(path: Path, _: Collection[str], __: Collection[str], ___: Log) -> pd.DataFrame:
    with open_regular(path) as file:
        return read_frame(file, path.name, ignore_metadata=True)


def _read_lines(path: Path, _: Collection[str], __: Collection[str], log: Log) -> pd.DataFrame:
    return pd.DataFrame(list(json_rows(path, log)))


def json_rows(path: Path, log: Log) -> Iterator[dict[str, Any]]:
    """The objects in a file that has one a line; ``log`` gets an unusual encoding."""
    encoding = text_encoding(path)
    if encoding not in ("utf-8", "utf-8-sig"):
        log(f"{path.name} was read with the encoding {encoding}")
    empty = True
    prefix = f"{path.name}: expected a JSON object in each line, got"
    try:
        with path.open(encoding=encoding, newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    empty = False
                    yield _row_of(line, f"line {number}", prefix)
    except UnicodeError as error:
        detail = short_text(error, ECHO)
        raise ValueError(f"{path.name}: expected text in {encoding}, got: {detail}; save it as UTF-8") from None
    if empty:
        raise ValueError(f"{prefix} an empty file")


def _row_of(line: str, where: str, prefix: str) -> dict[str, Any]:
    """The row that a line holds."""
    try:
        row = json.loads(line)
        deep = line.count("[") + line.count("{") > DEEPEST and _depth(row) > DEEPEST
    except json.JSONDecodeError as error:
        advice = f"; {JSON_ARRAY}" if line.lstrip().startswith("[") and where == "line 1" else ""
        raise ValueError(f"{prefix} none in {where}: {error.msg}{advice}") from None
    except RecursionError:
        deep = True
    except ValueError as error:  # a whole number of more digits than Python reads
        raise ValueError(f"{prefix} one that cannot be read in {where}: {short_text(error, ECHO)}") from None
    if deep:
        raise ValueError(f"{prefix} one that is nested more than {DEEPEST} deep in {where}; make its parts columns")
    if not isinstance(row, dict):
        raise ValueError(f"{prefix} a {type(row).__name__} in {where}")
    if "\\u" in line and not _is_text(json.dumps(row, ensure_ascii=False)):
        raise ValueError(f"{prefix} one with half of a character (a lone surrogate) in {where}; save it as UTF-8")
    return row


def _depth(value: Any) -> int:
    """How deep lists and objects stand in one another."""
    level, depth = [value], 0
    while level := [part for part in level if isinstance(part, dict | list)]:
        level = [part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer)]
        depth += 1
    return depth


def _is_text(line: str) -> bool:
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


READERS: dict[str, Callable[[Path, Collection[str], Collection[str], Log], pd.DataFrame]] = {
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".parquet": _read_parquet,
    ".jsonl": _read_lines,
}
"""The reader of each file ending."""
