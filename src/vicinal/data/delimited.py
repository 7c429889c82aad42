"""Reading csv and tsv files: encoding, delimiter, lines before the header, quotes, totals."""

import csv
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import counted, listed
from vicinal.core.checks import ECHO, short_text
from vicinal.core.formulas import unescape_formula
from vicinal.core.progress import Log
from vicinal.data.cells import exact_text
from vicinal.data.formats import (
    ALIGNED,
    BLANKS,
    DELIMITERS,
    RULE,
    aligned_spans,
    check_names,
    decoding,
    delimiter_of,
    full_names,
    header_of,
    text_encoding,
)
from vicinal.data.totals import MOST_NOTES, without_totals

MOST_OF_A_NAME = 500
"""Columns of one name, at most, that a csv file may have."""


@dataclass(frozen=True)
class Delimited:
    """How a csv or tsv file is read: its encoding, delimiter, lines before the header, and columns."""

    path: Path
    encoding: str
    separator: str
    before: int
    names: Sequence[str]
    header: Sequence[str] = ()
    above: Sequence[str] = ()
    shifted: bool = False

    @classmethod
    def of(cls, path: Path) -> "Delimited":
        """As found out from the file at ``path``."""
        encoding = text_encoding(path)
        separator = delimiter_of(path, encoding, _usual(path))
        before, above, shifted = 0, list[str](), False
        with suppress(csv.Error):  # the file is read, and refused, by pandas
            if separator != ALIGNED:
                before, above, shifted = header_of(path, encoding, separator)
        bare = cls(path, encoding, separator, before, ())
        header = next(bare.pieces(header=None, nrows=1)).iloc[0].map(_unescaped)
        names = ["rownames"] * shifted + ["" if cell is np.nan else str(cell) for cell in header]
        if max(Counter(names).values(), default=0) > MOST_OF_A_NAME:  # all rows in one line
            check_names(path.name, [name.strip() for name in names if name.strip()])
        return replace(
            bare, names=full_names(names, above), header=[name.strip() for name in names], above=above, shifted=shifted
        )

    def frames(self, size: int | None = None) -> Iterator[pd.DataFrame]:
        """The cells as texts, ``size`` rows at a time or all at once."""
        count = 0
        options: dict[str, Any] = {"names": self.names, "header": 0} if self.shifted else {}
        while True:
            try:
                for place, frame in enumerate(self.pieces(index_col=False, chunksize=size, **options)):
                    if place == count:
                        names = zip(self.names, frame.columns, strict=True)
                        yield frame.set_axis([name or str(other) for name, other in names], axis="columns")
                        count += 1
            except ValueError:
                if options or self.separator == ALIGNED or not self._ends_are_empty():
                    raise
                options = {"usecols": range(len(self.names))}  # which takes no notice of further cells
            else:
                return

    def check_quotes(self) -> None:
        """Refuse an opening quote that no quote closes before the next opening one: the lines between are no cell."""
        line = ""

        def lines() -> Iterator[str]:
            nonlocal line
            for each in file:
                line = each
                yield each

        with self.path.open(encoding=self.encoding, errors="replace", newline="") as file:
            rows = csv.reader(lines(), delimiter=self.separator, strict=True)
            while True:
                start = rows.line_num + 1
                try:
                    next(rows)
                except StopIteration:
                    return
                except csv.Error as wrong:
                    if "expected after" not in str(wrong):  # a cell of more text than this reader takes; pandas does
                        return
                    place = line.find('"')
                    if rows.line_num > start and (place == 0 or line[place - 1 : place] == self.separator):
                        raise ValueError(
                            f'{self.path.name}: expected a closing " for each opening one, got none in the row of line '
                            f'{start} before the next opening one in line {rows.line_num}; remove the " there, or '
                            "write it twice"
                        ) from None

    def _ends_are_empty(self) -> bool:
        """Whether all cells beyond those of the header are empty, as marks at the end of some lines make them."""
        with self.path.open(encoding=self.encoding, errors="replace", newline="") as file, suppress(csv.Error):
            rows = csv.reader(file, delimiter=self.separator)
            return not any(any(map(str.strip, row[len(self.names) :])) for row in rows)
        return False

    def pieces(self, **options: Any) -> Iterator[pd.DataFrame]:
        """The frames of ``pandas.read_csv`` with ``options``, cells as texts."""
        options |= {"dtype": str, "keep_default_na": False, "encoding": self.encoding, "skiprows": self.before}
        with self._refusals():
            if self.separator == ALIGNED:
                with self.path.open(encoding=self.encoding, errors="replace") as file:
                    spans = aligned_spans(file)
                read = pd.read_fwf(self.path, colspecs=spans, **options)
            else:  # a wide table is put together piece by piece, for minutes, with low memory
                sep = r"\s+" if self.separator == BLANKS else self.separator
                read = pd.read_csv(self.path, sep=sep, low_memory=False, **options)
        pieces = iter([read] if isinstance(read, pd.DataFrame) else read)
        while True:
            with self._refusals():
                frame = next(pieces, None)
            if frame is None:
                return
            yield frame

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turns pandas' errors into ours."""
        name = self.path.name
        try:
            with warnings.catch_warnings(), decoding(self.path, self.encoding):
                warnings.simplefilter("error", pd.errors.ParserWarning)
                yield
        except pd.errors.EmptyDataError:
            raise ValueError(f"{name}: expected a header and rows, got an empty file") from None
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            detail = short_text(error, ECHO).removeprefix("Error tokenizing data. C error: ")
            if (row := _OPEN_QUOTE.search(detail)) is not None:
                place = f"row {int(row[1]) + 1}, counted from the first line of the file"
                raise ValueError(
                    f'{name}: expected a closing " for each opening one, got none for that in {place}; remove the " '
                    "there, or write it twice"
                ) from None
            raise ValueError(f"{name}: expected as many cells in each row as in the header, got: {detail}") from None

    def tell(self, log: Log) -> None:
        """Log how the file is read, if that differs from what its name suggests."""
        usual = self.separator == _usual(self.path)
        taken = [f"{DELIMITERS.get(self.separator, 'blanks')} between cells"] * (not usual)
        taken += [f"the encoding {self.encoding}"] * (self.encoding not in ("utf-8", "utf-8-sig"))
        if taken:
            log(f"{self.path.name} was read with {' and '.join(taken)}")
        if self.before:
            log(f"{self.path.name}: skipped {counted(self.before, 'line')} before the header")
        if self.shifted:
            log(f"{self.path.name}: the first column has no name; read as 'rownames'")
        if twice := [name for name in self.names if _TWICE.search(name)]:
            log(f"{self.path.name}: several columns have one name; read as {listed(twice, 80)}, too")


_OPEN_QUOTE = re.compile(r"EOF inside string starting at row ([0-9]+)")
_NO_NAME = re.compile(r"Unnamed: [0-9]+")
_TWICE = re.compile(r" \([0-9]+\)$")


def _usual(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def delimited_pieces(path: Path, size: int | None, ids: Collection[str], log: Log) -> Iterator[pd.DataFrame]:
    """The rows of a csv or tsv file, ``size`` at a time; cells are texts, missing where they are empty."""
    file = Delimited.of(path)
    file.tell(log)
    pieces = file.frames(size)
    piece: pd.DataFrame | None = next(pieces)
    checked = False
    start = True
    while piece is not None:
        later = next(pieces, None)
        if later is not None and len(later) <= MOST_NOTES < (size or 0):  # the end is judged by the rows above
            piece, later = pd.concat([piece, later]), next(pieces, None)
        if not checked and any(cells.str.contains("\n", regex=False).any() for _, cells in piece.items()):
            checked = True
            file.check_quotes()
        if piece.shape[1] > 1 and (again := _of_header(piece, file)).any():
            what = "that repeat the header or are drawn" if again.sum() > 1 else "that repeats the header or is drawn"
            log(f"{path.name}: skipped {counted(int(again.sum()), 'line')} {what}")
            piece = piece[~again]
        cells = piece.apply(_text_cells)
        cells = cells[cells.notna().any(axis=1)] if cells.shape[1] > 1 else cells  # lines of commas alone
        if size is None:
            cells = cells.drop(
                columns=[name for name in cells if _NO_NAME.fullmatch(str(name)) and cells[name].isna().all()]
            )
        rows, left_out = without_totals(cells, start=start, end=later is None)
        if left_out:
            log(f"{path.name}: skipped {left_out}")
        yield rows.assign(**{name: exact_text(rows[name].fillna("")) for name in ids if name in rows})
        piece, start = later, False


def _of_header(piece: pd.DataFrame, file: Delimited) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which lines are the header again; and lines that are drawn below it, as databases print tables."""
    cells = [column.str.strip() for _, column in piece.items()]
    again = np.logical_and.reduce([each == name for each, name in zip(cells, file.header, strict=False)])
    if file.above:
        again |= np.logical_and.reduce([each.isin([name, ""]) for each, name in zip(cells, file.above, strict=False)])
    drawn = np.logical_or.reduce([each.str.fullmatch(RULE, na=False) for each in cells[:2]])
    for row in np.flatnonzero(drawn).tolist():
        drawn[row] = RULE.fullmatch("".join(piece.iloc[row].fillna(""))) is not None
    return np.asarray(again | drawn, dtype=bool)


def _text_cells(column: pd.Series) -> pd.Series:
    marked = column.str.startswith(("'", '="'), na=False).any()
    cells = column.map(_unescaped) if marked else column
    return cells.mask(cells.str.strip() == "", np.nan)


def _unescaped(cell: Any) -> Any:
    """A cell as text: '=1 and, as Excel keeps zeros in front, ="007" are text, not formulas."""
    if not isinstance(cell, str):
        return cell
    return cell[2:-1] if len(cell) > 3 and cell[:2] == '="' and cell[-1] == '"' else unescape_formula(cell)
