"""One of two tables that are matched: its rows and ids, which of them are equal, and the columns that both have."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import check_choice, listed, short
from vicinal.core.identity import as_texts, canonical_ids
from vicinal.data.cell_reading import read_column
from vicinal.data.column_form import SPAN, ColumnForm, is_written_gap
from vicinal.data.form import TableForm
from vicinal.data.same_columns import same_columns, sources_of, with_points_apart, with_sources
from vicinal.encoders import Kind, infer_kinds
from vicinal.encoders.kinds import is_list
from vicinal.estimators.inputs import as_table
from vicinal.linkage.block_keys import Hashes, mixed, text_hashes
from vicinal.linkage.cell_forms import normal_text, shown_text
from vicinal.linkage.columns import Ids

SIDES, _NAMED_TABLES = ("left", "right"), ("the left table", "the right one")
"""Names of the two tables, in files and in sentences."""

ROW, CODED = "\0row", "\0codes"
"""Stand for all columns together, where codes are looked for without the amounts of shared numbers: they would count
twice. No column of a table is called so."""

LONG = 4
"""Letters of a code that is looked for within the other row, at least."""

_TIMES = re.compile(r"(?<=\d) ?[x\u00d7] ?(?=\d)")
"""Between the lengths of a size, which is one code: M3 x 20 and M3x20."""

_FEW = 100
"""Cells that are not worth a look for distinct ones, at most."""

_JUDGED = 20_000
"""Rows of a table that the form and the kinds of its columns are judged by, at most."""


@dataclass
class MatchTable:
    """One of the two tables. Rows that are equal in all cells are one thing: only its first row is compared.

    Attributes:
        name: "left" or "right".
        frame: its rows, without the ids.
        ids: in canonical form, ``[n]``.
        vectors: unit vectors of the things ``[t, d]``; of no width without an encoder.
        root: folder that paths of images and sounds start from.
        form: how its columns are written.
        sources: columns of the user's table that others are made from; new rows have them, too.
        keys: a number that rows of one thing have in common, ``[n]``; None: a hash of the cells, when it is needed.
    """

    name: str
    frame: pd.DataFrame
    ids: Ids
    vectors: Tensor
    root: Path | None = None
    form: TableForm = field(default_factory=TableForm)
    sources: dict[str, list[str]] = field(default_factory=dict)
    keys: Hashes | None = None
    _cells: dict[str, tuple[Ids, Ids]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.places = {text: place for place, text in enumerate(as_texts(self.ids).tolist())}

    @cached_property
    def thing(self) -> Ids:
        """The thing of each row ``[n]``, numbered in the order of their first rows."""
        return np.asarray(pd.factorize(self.row_keys)[0])

    @cached_property
    def first(self) -> Ids:
        """The first row of each thing."""
        return np.asarray(np.unique(self.thing, return_index=True)[1])

    def __len__(self) -> int:
        return len(self.frame)

    def cells(self, name: str) -> tuple[Ids, Ids]:
        """Codes ``[n]`` of the cells of a column, and the normal form of each distinct one, the last of which is ""."""
        if name not in self._cells:
            column = self.frame[name]
            if column.dtype == object:  # objects may be equal and not the same
                column = pd.Series([_text(cell) for cell in column.tolist()], dtype=object)
            codes, distinct = pd.factorize(column) if len(column) > _FEW else (np.arange(len(column)), column)
            values = np.array([*map(normal_text, distinct.tolist()), ""], dtype=object)
            self._cells[name] = (codes % len(values)).astype(np.int32), values  # -1 is an empty cell
        return self._cells[name]

    def texts(self, name: str, rows: Ids, *, shown: bool = False) -> list[str]:
        """A column in some rows, in its normal form or as it is ``shown``; "" where nothing is."""
        if name not in self.frame.columns:
            return [""] * len(rows)
        if shown:
            return [shown_text(cell) for cell in self.frame[name].iloc[rows].tolist()]
        codes, values = self.cells(name)
        return list(values[codes[rows]])

    @cached_property
    def row_keys(self) -> Hashes:
        """The keys, or a hash of the cells of each row, the same in every process; texts in their normal form."""
        if self.keys is not None:
            return self.keys
        keys = np.zeros(len(self.frame), dtype=np.uint64)
        for name in self.frame.columns:
            codes, values = self.cells(name)
            keys = mixed([keys, text_hashes(values.tolist())[codes]])
        return keys

    def positions(self, ids: Any, name: str = "pairs") -> Ids:
        """Positions ``[n]`` of rows; raises ValueError for an id that is not there."""
        texts = as_texts(canonical_ids(self.name, ids)).tolist()
        lost = list(dict.fromkeys(text for text in texts if text not in self.places))
        if lost:
            raise ValueError(f"{name}: expected ids of the {self.name} table, got {listed(lost, 60)}, which it has not")
        return np.array([self.places[text] for text in texts], dtype=np.int64)

    def more(self, rows: Any, id_column: str | None, numbers: Sequence[str]) -> "MatchTable":
        """Further rows of this table, read as its own, without vectors; rows that are numbered are numbered on.

        Raises:
            ValueError: as :func:`read_tables`, and for an id that is there, or no number in a column of ``numbers``.
        """
        is_numbered = self.ids.dtype != object and self.ids.max() + 1 == len(self)
        frame, ids = _rows(self.name, rows, id_column if is_numbered else id_column or "id", len(self.places))
        there = [text for text in as_texts(ids).tolist() if text in self.places]
        if there:
            raise ValueError(f"{self.name}: expected ids that the table has not yet, got {listed(there, 60)}")
        frame = with_sources(with_points_apart(frame, self.frame.columns), self.sources)
        frame = self.form.read(frame).reindex(columns=self.frame.columns)
        for name in numbers:
            cells = pd.to_numeric(frame[name], errors="coerce")
            if bool((cells.isna() & frame[name].notna()).any()):
                raise ValueError(f"{self.name}: expected numbers in the column {short(name)}, got others")
            frame[name] = cells
        return replace(self, frame=frame, ids=ids, vectors=torch.zeros(0), keys=None)

    def joined(self, others: Sequence["MatchTable"]) -> "MatchTable":
        """This table with the rows of others behind its own, whose new things have no vectors yet."""
        every = [self, *others]
        ids = canonical_ids(self.name, [name for each in every for name in each.ids.tolist()])
        frame = pd.concat([each.frame for each in every], ignore_index=True)
        return replace(self, frame=frame, ids=ids, keys=np.concatenate([each.row_keys for each in every]))

    def rows(self, places: Ids) -> "MatchTable":
        """The rows at ``places``."""
        frame, keys = self.frame.iloc[places].reset_index(drop=True), self.row_keys[places]
        vectors = self.vectors[pd.unique(self.thing[places])]
        return replace(self, frame=frame, ids=self.ids[places], vectors=vectors, keys=keys)

    def without(self, places: Ids) -> "MatchTable":
        """This table without the rows at ``places``."""
        keep = np.setdiff1d(np.arange(len(self)), places)
        if len(keep) == 0:
            raise ValueError(f"{self.name}: expected rows to be left in the table, got the ids of all")
        return self.rows(keep)


def _rows(name: str, table: Any, id_column: str | None, first: int = 0) -> tuple[pd.DataFrame, Ids]:
    """The cells of a table of the user, and its ids; numbers from ``first`` if no column is named, and none is "id"."""
    frame = as_table(name, table)
    if not isinstance(frame, pd.DataFrame) or len(frame) == 0:
        got = "none" if isinstance(frame, pd.DataFrame) else short(frame)
        raise ValueError(f"{name}: expected a table of at least one row, got {got}")
    frame = frame.rename(columns=str).reset_index(drop=True)
    if id_column is None and "id" not in frame.columns:
        return frame, np.arange(first, first + len(frame))
    id_column = check_choice(f"id_{name}", id_column or "id", list(frame.columns))
    ids = canonical_ids(f"id_{name}", frame[id_column], distinct=True, labels=list(range(1, len(frame) + 1)))
    return frame.drop(columns=id_column), ids


def read_tables(
    tables: Sequence[Any], id_columns: Sequence[str | None], roots: Sequence[Any]
) -> tuple[list[MatchTable], list[str]]:
    """One table of the user or two, not encoded yet, and what is to be told of their columns.

    Columns that hold the same get one name (:func:`vicinal.data.same_columns.same_columns`). Rows are numbered from 0
    where no column of ids is named or there.

    Raises:
        ValueError: for no rows, no such column, or an id that is missing or stands twice.
    """
    rows = [_rows(*each) for each in zip(SIDES, tables, id_columns, strict=False)]
    frames, notes = [frame for frame, _ in rows], []
    if len(frames) > 1:  # a point in one table may be two columns of the other
        frames = [with_points_apart(one, other.columns) for one, other in itertools.permutations(frames)]
    same = same_columns(*frames) if len(frames) > 1 else {}
    sources = sources_of(same)
    if same:
        pairs = ", ".join(f"{' + '.join(one)} = {' + '.join(other)}" for one, other in same.items())
        notes.append(f"columns of two names: {pairs}; to change that, rename or drop columns")
        frames = [with_sources(*each) for each in zip(frames, sources, strict=True)]
    alone = [[name for name in one if name not in other] for one, other in itertools.permutations(frames, 2)]
    if alone and all(alone):
        only = "; ".join(
            f"only {side} has {listed(each, 100)}" for side, each in zip(_NAMED_TABLES, alone, strict=True)
        )
        notes.append(f"not compared: {only}. Columns that hold the same need the same name")
    read = []
    for name, frame, (_, ids), root, theirs in zip(SIDES, frames, rows, roots, sources, strict=False):
        form, frame = _as_typed(frame)
        read.append(MatchTable(name, frame, ids, torch.zeros(0), None if root is None else Path(root), form, theirs))
    return read, notes


def _judged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sample(_JUDGED, random_state=0) if len(frame) > _JUDGED else frame


def _as_typed(frame: pd.DataFrame) -> tuple[TableForm, pd.DataFrame]:
    """The form of a table, and its cells; one that is none of its column, as by a typo, stays as it was typed."""
    forms, read = dict[str, ColumnForm](), {}
    for name, one in TableForm.of(_judged(frame)).columns.items():
        if one.sign == SPAN:  # beside spans of days there are days
            one = one.model_copy(update={"kind": "date", "sign": "", "typical": {}})
        if one.kind in (
            "parts",
            "worded",
            "fields",
            "scale",
            "list",
        ):  # words are compared as texts, with numbers in them
            continue
        cells, typed, forms[name] = read_column(one, frame[name]), frame[name], one
        odd = np.array(cells.isna() & (one.kind in ("number", "date", "duration")))
        odd[odd] = [not is_written_gap(cell) for cell in typed[odd].tolist()]
        if not odd.any():
            read[name] = cells
        elif one.kind == "date":
            codes, days = pd.factorize(cells)
            read[name] = typed.where(odd, np.array([*map(shown_text, days), ""], dtype=object)[codes])
    return TableForm(columns={name: forms[name] for name in read}), frame.assign(**read)


def _text(cell: Any) -> str | None:
    """A cell of any kind as a text; None if it is empty."""
    if is_list(cell) and not isinstance(cell, str):
        return repr(cell.tolist() if isinstance(cell, np.ndarray) else cell)
    return cell if isinstance(cell, str) else normal_text(cell) or None


@dataclass(frozen=True)
class MatchColumns:
    """How the columns that both tables have are compared.

    Attributes:
        texts: as texts.
        numbers: as numbers.
        media: images, sounds and vectors, by their vectors, with their kinds.
    """

    texts: list[str]
    numbers: list[str]
    media: dict[str, Kind]

    @classmethod
    def shared(cls, left: pd.DataFrame, right: pd.DataFrame) -> Self:
        """The columns of both tables.

        Raises:
            ValueError: if there is none, or none has a value.
        """
        names = [name for name in left.columns if name in right.columns]
        if not names:
            raise ValueError(
                f"right: expected columns that the left table has, too, got {listed(right.columns, 60)} beside "
                f"{listed(left.columns, 60)}; give the same thing the same name"
            )
        some = [_judged(each) for each in (left, right)]
        joined = pd.DataFrame({name: pd.concat([each[name] for each in some], ignore_index=True) for name in names})
        kinds = infer_kinds(joined)
        media: dict[str, Kind] = {n: kind for n in names if (kind := kinds[n].kind) in ("image", "audio", "vector")}
        filled = [n for n in names if n not in media and left[n].notna().any() and right[n].notna().any()]
        if not filled and not media:
            raise ValueError(f"right: expected a shared column with values in both, got {listed(names, 60)} without")
        numbers = [name for name in filled if _is_number(left[name]) and _is_number(right[name])]
        return cls([name for name in filled if name not in numbers], numbers, media)

    @property
    def compared(self) -> list[str]:
        """The columns that are compared cell by cell."""
        return [*self.texts, *self.numbers]

    def texts_of(self, table: MatchTable, column: str, rows: Ids, *, shown: bool = False) -> list[str]:
        """A column in some rows; :data:`ROW`: all of a row, the shared ones first; :data:`CODED`: without amounts."""
        if column not in (ROW, CODED):
            return table.texts(column, rows, shown=shown)
        names = [*self.texts, *(name for name in table.frame.columns if name not in {*self.texts, *self.media})]
        cells = [table.texts(name, rows, shown=shown) for name in names]
        for place, name in enumerate(names if column == CODED else ()):
            if name in self.numbers:  # years and keys are codes
                cells[place] = [cell if cell.isdigit() and len(cell) >= LONG else "" for cell in cells[place]]
        whole = [" ".join(filter(None, row)) for row in zip([""] * len(rows), *cells, strict=True)]
        return whole if column == ROW else [_TIMES.sub("x", row) for row in whole]


def _is_number(cells: "pd.Series[Any]") -> bool:
    """Whether cells are measured: whole numbers that a float cannot tell apart are compared as they are written."""
    if not cells.notna().any():
        return True
    if pd.api.types.is_integer_dtype(cells) and max(abs(int(cells.min())), abs(int(cells.max()))) >= 2**53:
        return False
    return pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells)
