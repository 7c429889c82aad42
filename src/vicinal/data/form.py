"""How a table was written: which columns are numbers, money, dates or truth values, and by which marks."""

import operator
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pandas as pd
from pydantic import ConfigDict, Field

from vicinal.core import CellWarning, check_choice, listed, short
from vicinal.core.checks import short_text, warn_caller
from vicinal.core.progress import Log
from vicinal.core.untrusted import Saved
from vicinal.data.cell_reading import is_gap, is_odd, read_column, written
from vicinal.data.cells import missing_cells
from vicinal.data.column_form import PARTIAL_DATES, ColumnForm, date_of
from vicinal.data.drafts import draft_of, why_text
from vicinal.encoders.base import Kind

Advice = Callable[[str, str, Any], str]
"""How a reader of sentences sets something of a column: of a setting, the column's name and the value."""

_RANGE = re.compile(r"[^#]*#[^#\d]{0,4}( ?- ?| to )[^#\d]{0,4}#[^#]*")


def as_option(setting: str, column: str, value: Any) -> str:
    """What a user of the command line says of a column.

    >>> as_option("missing", "the age", (-9.0, -1.0)), as_option("kind", "age", ["text"]), as_option("decimal", "", ",")
    ("say --missing 'the age=-9,-1' or leave them empty", '--text', '--decimal ,')
    """
    if setting == "missing":
        return f"say --missing {shlex.quote(f'{short_text(column)}={_listed(value)}')} or leave them empty"
    if setting == "kind":
        return " or ".join(f"--{kind}" for kind in value)
    return f"--{setting} {value}" if setting == "decimal" else "--day-first" if value else "--month-first"


def as_argument(setting: str, column: str, value: Any) -> str:
    """The same as an argument of an estimator in Python.

    >>> as_argument("missing", "age", (-9.0, -1.0)), as_argument("kind", "age", ["text"])
    ("say form=TableForm.of(X, missing={'age': [-9, -1]}) or leave them empty", "columns={'age': 'text'}")
    """
    if setting == "kind":
        return " or ".join(f"columns={{{short(column)}: {kind!r}}}" for kind in value)
    if setting == "missing":
        return f"say form=TableForm.of(X, missing={{{short(column)}: [{_listed(value, ', ')}]}}) or leave them empty"
    return f"form=TableForm.of(X, {setting}={value!r})"


def _listed(numbers: Sequence[float], comma: str = ",") -> str:
    return comma.join(f"{number:.12g}" for number in numbers)


class TableForm(Saved):
    """How the columns of a table are written: found once, when a model is fitted, and kept with it.

    The same cells then mean the same in any file: a part of the rows, a csv, a workbook or a table in memory.

    Attributes:
        columns: by name; those whose cells are taken as they are stored are not among them.

    >>> table = pd.DataFrame({"sold": ["31/12/2021", "01/02/2022"], "price": ["$3,750.00", "n/a"], "name": ["a", "b"]})
    >>> form = TableForm.of(table)
    >>> form.columns["sold"].day_first, form.columns["price"].sign, list(form.columns)
    (True, '$', ['sold', 'price'])
    >>> form.read(pd.DataFrame({"sold": ["03/04/2021"], "price": ["$1,250.00"]})).astype(str).iloc[0].tolist()
    ['2021-04-03', '1250.0']
    """

    model_config = ConfigDict(frozen=True)

    columns: dict[str, ColumnForm] = Field(default_factory=dict)

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        *,
        kinds: Mapping[str, Kind] | None = None,
        aside: Collection[str] = (),
        targets: Collection[str] = (),
        decimal: str | None = None,
        day_first: bool | None = None,
        missing: Mapping[str, Sequence[float]] = MappingProxyType({}),
        log: Log = lambda line: None,
        advice: Advice = as_option,
    ) -> Self:
        """The form of the cells of ``frame``.

        A column is of numbers, dates, lengths of time or truth values if all its cells are, except for gaps ("", "n/a",
        "?", "-"). Which mark comes before decimals, and whether day or month comes first, is decided by all cells of
        the column, else by the other columns; if none tells, by ``decimal`` and ``day_first``, else a point, and the
        month first in dates with slashes.

        Args:
            frame: the table; its columns have different names.
            kinds: of columns that are not to be detected; cells of texts and categories are taken as they are stored.
            aside: columns to leave as they are, of ids and groups.
            targets: columns whose texts are one class each, whatever marks are in them.
            decimal: the mark before decimals; None: detected.
            day_first: whether the day comes before the month; None: detected.
            missing: numbers that stand for missing ones, by column; in columns that are not named they are detected.
            log: called with what was assumed.
            advice: how its reader sets what is wrong: :func:`as_option` or :func:`as_argument`.
        """
        if decimal is not None:
            check_choice("decimal", decimal, (".", ","))
        kinds, drafts = kinds or {}, {}
        for name, column in frame.items():
            if str(name) not in aside:
                if sparse := _first_of_groups(column):
                    log(f"{short_text(name)}: {sparse}")
                draft = draft_of(column, kinds.get(str(name)), decimal=decimal, day_first=day_first)
                if str(name) in targets and draft and (draft.is_split or draft.kind == "scale"):
                    draft = None
                if str(name) in missing:
                    draft = _with_missing(str(name), draft, missing[str(name)])
                drafts[str(name)] = draft
                if draft is None and str(name) not in kinds and (why := why_text(column)):
                    log(f"{short_text(name)}: read as texts or categories, not as numbers: {why}")
        columns = _settled({name: draft for name, draft in drafts.items() if draft is not None})
        for name, form in columns.items():
            for line in _assumptions(form, str(name), advice, predicted=str(name) in targets):
                log(f"{short_text(name)}: {line}")
        return cls(columns=columns)

    def read(self, frame: pd.DataFrame, labels: Collection[str] = ()) -> pd.DataFrame:
        """``frame`` with the cells of its known columns as they were meant; a table that was read stays as it is.

        Numbers become int64 (if all are whole and there) or float64, dates datetime64[us] in UTC, lengths of time
        timedelta64[us], truth values bool or the words of the fit. A few cells that are none of these are missing,
        with a warning; in the columns ``labels`` they stay, to be refused.

        Raises:
            ColumnError: for a column of another unit than that of the form, such as dates in place of numbers, or a
                cell that is neither.
        """
        unitless = [name for name in frame.columns if str(name) in self.columns and self.columns[str(name)].unitless]
        shown = type(self).of(frame[unitless]).columns if unitless else {}
        read = {}
        for name, column in frame.items():
            form = shown.get(str(name)) if name in unitless else self.columns.get(str(name))
            if form is not None:
                cells = read_column(form, column)
                if cells is not column and name in labels:
                    cells = cells.where(cells.notna() | column.map(lambda cell, form=form: is_gap(form, cell)), column)
                elif cells is not column:
                    _tell_odd(form, column, cells)
                if cells is not column:
                    read[name] = cells
        if not read:
            return frame
        frame = frame.copy(deep=False)
        for name, cells in read.items():
            frame[name] = cells
        return frame

    def written(self, frame: pd.DataFrame) -> pd.DataFrame:
        """``frame`` as it was read, with cells of several numbers as texts that read as the same."""
        some = [name for name, form in self.columns.items() if len(form.typical) > 1 and name in frame]
        texts: dict[str, Any] = {name: [written(self.columns[name], cell) for cell in frame[name]] for name in some}
        return frame.assign(**texts) if texts else frame

    def of_columns(self, names: Collection[str]) -> Self:
        """The form of some of the columns."""
        return type(self)(columns={name: form for name, form in self.columns.items() if name in names})

    def of_target(self, name: str) -> Self:
        """This form with one number or class in each cell of a column: of ranges such as 10-20 kg their middle."""
        form = self.columns.get(name)
        if form is not None and (form.is_split or form.kind == "scale"):
            return type(self)(columns={other: each for other, each in self.columns.items() if other != name})
        if form is None or len(form.typical) < 2:
            return self
        worded = form.kind == "worded"
        of_one = {"kind": "number", "typical": {}} if worded else {"middle": True}
        columns = {**self.columns, name: form.model_copy(update=of_one)}
        ends = list(form.typical.values())
        if not worded and (len(ends) > 2 or not _RANGE.fullmatch(form.around) or ends[0] >= ends[1]):
            del columns[name]
        return type(self)(columns=columns)

    def widened(self, frame: pd.DataFrame, **settings: Any) -> Self:
        """This form, and that of the columns of ``frame`` that it does not know; for ``settings`` see :meth:`of`."""
        new = type(self).of(frame[[name for name in frame.columns if str(name) not in self.columns]], **settings)
        return type(self)(columns={**self.columns, **new.columns})


def _settled(drafts: Mapping[str, ColumnForm]) -> dict[str, ColumnForm]:
    """The forms of columns, those that are open read as the others if these agree."""
    settled = [each for each in drafts.values() if not each.open]
    marks = {each.decimal for each in settled if each.kind == "number" and each.certain}
    orders = {each.day_first for each in settled if each.kind == "date"} - {None}
    columns = {}
    for name, draft in drafts.items():
        by_others: Mapping[str, Any] = {}
        if draft.open and draft.kind == "number" and len(marks) == 1:
            by_others = {"decimal": next(iter(marks)), "open": False}
        if draft.open and draft.kind == "date" and len(orders) == 1:
            by_others = {"day_first": next(iter(orders)), "open": False}
        columns[name] = draft.model_copy(update=by_others)
    return columns


def _with_missing(name: str, draft: ColumnForm | None, numbers: Sequence[float]) -> ColumnForm:
    """The form of a column with the numbers that were named for missing ones."""
    if draft is None or draft.kind != "number":
        got = "texts or categories" if draft is None else f"one of the kind {draft.kind}"
        raise ValueError(f"missing: expected a column of numbers, got {short(name)}, {got}; leave its cells empty")
    return draft.model_copy(update={"placeholder": tuple(map(float, numbers)), "doubt": ""})


MEASURED = {"number": "numbers", "date": "dates", "duration": "lengths of time", "scale": "steps of a scale"} | {
    "parts": "numbers among the same words",
    "fields": "numbers by name",
}
"""Kinds of columns whose cells are one of these, or missing."""


def _tell_odd(form: ColumnForm, column: "pd.Series[Any]", cells: "pd.Series[Any]") -> None:
    """Warn of cells that count as missing though they are written."""
    if form.kind not in MEASURED:
        return
    usual = list(form.typical.values())
    gone = cells.isna() | cells.map(lambda cell: cell == usual) if len(usual) > 1 else cells.isna()
    odd = column[gone][[not is_gap(form, cell) and is_odd(form, cell) for cell in column[gone].tolist()]]
    if len(odd):
        shown = ", ".join(f"{short(cell)} in row {short_text(row)}" for row, cell in odd.iloc[:3].items())
        are = f"{len(odd)} of {len(column)} cells read as missing, as the column holds {MEASURED[form.kind]}"
        warn_caller(f"{short_text(column.name)}: {are}: {shown}", CellWarning)


def _first_of_groups(column: "pd.Series[Any]") -> str:
    """A sentence on a column that names a group in its first row alone, as a pivot table does; or ""."""
    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        return ""
    filled = np.flatnonzero(~missing_cells(column))
    if len(filled) < 2 or 3 * len(filled) > len(column) or filled[0] or np.diff(filled).min() == 1:
        return ""
    cells = column.iloc[filled].tolist()
    if not all(isinstance(cell, str) for cell in cells) or any(map(operator.eq, cells, cells[1:])):
        return ""
    return (
        f"{len(filled)} of {len(column)} cells are filled, the first among them; if each holds for the empty cells "
        "below it, fill these in the file"
    )


def _assumptions(form: ColumnForm, name: str, advice: Advice, *, predicted: bool) -> Iterator[str]:
    """What was assumed of how a column is written, in sentences."""

    def wrong(*kinds: str) -> str:
        return f"({advice('kind', name, kinds)} if that is wrong)"

    if form.kind == "date":
        yield from _of_dates(form, name, advice)
    elif form.open:
        mark, option = ("point", ",") if form.decimal == "." else ("comma", ".")
        yield (
            f"no cell tells which mark stands before decimals; read with a {mark} before them "
            f"({advice('decimal', name, option)} if that is wrong)"
        )
    if form.kind == "scale":
        shown = listed([word for word, _ in sorted(form.steps.items(), key=lambda each: each[::-1])], 80)
        yield f"read as steps of a scale, lowest first: {shown} {wrong('category')}"
    if form.kind == "list" and form.around:
        yield f"read as sets of words between {short(form.around)} {wrong('category', 'text')}"
    if form.spellings:
        yield f"several spellings are one category: {listed(dict.fromkeys(form.spellings.values()), 80)}"
    if form.beside:
        yield f"read {_of_words(form, predicted=predicted)} {wrong('category', 'text')}"
    if form.doubt:
        missing = f"; if they stand for missing values, {advice('missing', name, form.doubtful)}"
        yield form.doubt + missing * bool(form.doubtful)
    numbers = [f"{each:g}" if form.kind == "number" else str(date_of(each)) for each in form.placeholders]
    if gaps := [*map(short, form.gaps), *numbers]:
        other = "text" if form.kind == "date" else "number"
        yield f"{', '.join(gaps)} among {form.kind}s reads as missing {wrong(other, 'category')}"


def _of_words(form: ColumnForm, *, predicted: bool) -> str:
    """What the words beside numbers or dates are taken for."""
    numbers = [name for name in form.beside if "#" in name]
    if form.kind == "fields":
        words = [name for name in form.beside if "#" not in name]
        whether = f", and whether it says {listed(words, 80)}" if words else ""
        return f"as the numbers with these words beside them: {listed(numbers, 80)}{whether}"
    shown = listed([words.replace("#", "").strip() for words in form.beside], 80)
    if form.kind == "worded":
        return f"as numbers, {'whichever' if predicted else 'and which'} word is beside each: {shown}"
    return f"without the words beside numbers or dates: {shown}"


def _of_dates(form: ColumnForm, name: str, advice: Advice) -> Iterator[str]:
    first, then = ("day", "month") if form.day_first else ("month", "day")
    if form.open:
        yield (
            f"no cell tells whether the day or the month comes first; read with the {first} before the {then} "
            f"({advice('day_first', name, not form.day_first)} if that is wrong)"
        )
    if form.turned:
        yield f"dates with {' and '.join(form.turned)} have the {then} first, all others the {first}"
    wrong = f"({advice('kind', name, ['category'])} if that is wrong)"
    if form.serial:
        yield f"numbers among dates are years, days of a spreadsheet, 45231 is 2023-11-01, or seconds from 1970 {wrong}"
    if form.sign:
        yield f"read as {PARTIAL_DATES[form.sign][0]} {wrong}"
