"""How the cells of a column are read by the form that it has."""

import contextlib
import datetime
import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype, is_timedelta64_dtype

from vicinal.core import ColumnError, listed, short
from vicinal.data.column_form import (
    CLOCK,
    CODE,
    FAR_YEARS,
    PARTIAL_DATES,
    SPAN,
    VERSION,
    ColumnForm,
    date_of,
    days_of,
    in_unit,
    is_missing,
    is_number,
    is_written_gap,
)
from vicinal.data.date_spelling import STOPWATCH, day_of, duration_of, serial_of, span_of
from vicinal.data.parts_spelling import (
    is_start,
    listed_in,
    parts_of,
    values_of,
    version_of,
    worded_number,
    words_beside,
)
from vicinal.data.scales import middle_of, step_of
from vicinal.data.spelling import GAPS, SURE_GAPS, as_truth, converted, feet_of, number_of, plain_text
from vicinal.encoders.base import refuse
from vicinal.encoders.calendar import moments_of
from vicinal.encoders.category import spelling_of
from vicinal.encoders.kinds import is_list, read_list
from vicinal.encoders.numeric import as_float

Dates = NDArray[np.datetime64]
T = TypeVar("T")
_NOTE = re.compile(r"(.*[0-9]) ?([^\W\d_]{1,4})")
_ITEM = re.compile(r"^(?:[-*\u2022\u00b7\u25aa]|[0-9]{1,2}[.)])(?: |$)")
_EPOCH, _A_DAY = datetime.datetime(1970, 1, 1), datetime.timedelta(days=1)
_ISO = r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}"


def read_column(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any]":
    """The cells of ``column`` as they were meant; see :meth:`TableForm.read`."""
    cells = _READING[form.kind](form, column)
    numbers = days_of(cells) if form.kind == "date" and form.placeholder is not None else cells
    return cells if form.placeholder is None else cells.mask(numbers.isin(form.placeholders))


def is_gap(form: ColumnForm, cell: Any) -> bool:
    """Whether a cell says that its value is missing, in a column of this form."""
    if is_written_gap(cell) or (isinstance(cell, str) and plain_text(cell).casefold() in form.gaps):
        return True
    if form.placeholder is None:
        return False
    if form.kind == "date":
        return _one_date(form, cell) in [pd.Timestamp(date_of(day)) for day in form.placeholders]
    return _one_number(form, cell) in form.placeholders


def _each(column: "pd.Series[Any]", reading: Callable[[Any], T]) -> list[T]:
    """``reading`` of each cell, once for each different text."""
    once = functools.cache(reading)
    return [once(cell) if isinstance(cell, str) else reading(cell) for cell in column.tolist()]


def _with_index(cells: Any, column: "pd.Series[Any]", dtype: Any = None) -> "pd.Series[Any]":
    return pd.Series(cells, index=column.index, name=column.name, dtype=dtype)


def _read_numbers(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any]":
    dtype = column.dtype
    if is_bool_dtype(dtype):
        return column.astype(np.float64)
    if is_numeric_dtype(dtype):
        return _finite(column) if dtype.kind == "f" else column
    plain = _plain_numbers(form, column)
    if plain is not None:
        return plain
    _refuse_open(form, column)
    cells = _unrefused(column, _each(column, lambda cell: _one_number(form, cell)), np.nan)
    if not all(isinstance(cell, float | int) for cell in cells):
        return _with_index(cells, column, object)  # what reads the numbers says which cell is none
    if cells and all(isinstance(cell, int) and abs(cell) < 1 << 63 for cell in cells):
        return _with_index(cells, column, np.int64)
    return _finite(_with_index([as_float(cell) for cell in cells], column, np.float64))


def _finite(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Infinite numbers are missing if finite ones are in the majority; else what reads the numbers refuses them."""
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.isinf(values)
    return column.mask(infinite, np.nan) if 0 < infinite.sum() <= np.isfinite(values).sum() else column


def _plain_numbers(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any] | None":
    """The quick way for texts of plain numbers; None if there are others."""
    if form.decimal != "." or form.sign or not pd.api.types.is_string_dtype(column.dtype):
        return None
    texts = column.tolist()
    if not all(isinstance(cell, str) or is_missing(cell) for cell in texts):
        return None
    present = np.fromiter((isinstance(c, str) and c.strip().casefold() not in GAPS for c in texts), bool, len(texts))
    some = np.array([cell.strip() for cell, there in zip(texts, present, strict=True) if there], dtype=object)
    numbers = np.asarray(pd.to_numeric(some, errors="coerce"))
    if numbers.dtype.kind not in "iuf" or np.isnan(numbers.astype(np.float64)).any():
        return None if len(some) else _with_index(np.nan, column, np.float64)
    if present.all() and numbers.dtype.kind == "i":
        return _with_index(numbers, column)
    values = np.full(len(texts), np.nan)
    values[present] = numbers
    return _finite(_with_index(values, column))


def _refuse_open(form: ColumnForm, column: "pd.Series[Any]") -> None:
    """Refuse a column most of whose cells are written as "14,891" where 14.891 was written before, not 14891."""
    if form.plain:
        texts = [cell for cell in column.tolist() if isinstance(cell, str)]
        numbers = [number_of(plain_text(cell)) for cell in texts if "," in cell]
        is_open = [number is not None and number.is_open for number in numbers]
        if 2 * sum(is_open) > len(texts):
            place = next(place for place, cell in enumerate(column.tolist()) if isinstance(cell, str) and "," in cell)
            raise _other_unit(column, "numbers with a point before decimals", "commas", place)


class _Refused:
    """What stands in the place of a cell of another unit."""

    def __init__(self, expected: str, got: str) -> None:
        self.expected, self.got = expected, got


def _unrefused(column: "pd.Series[Any]", cells: list[Any], gap: Any = None, others: int = 0) -> list[Any]:
    """The cells, with ``gap`` for those that could not be read if they are at most as many as the others; else refused.

    ``others`` were read before.
    One wild cell then stops nothing, and a column of another unit is no column of gaps.
    """
    odd = [place for place, cell in enumerate(cells) if isinstance(cell, _Refused | str)]
    read = others + len(cells) - len(odd) - sum(map(is_missing, cells)) if odd else 0
    for place in odd:
        if len(odd) > read and isinstance(cells[place], _Refused):
            raise _other_unit(column, cells[place].expected, cells[place].got, place)
        cells[place] = gap if len(odd) <= read else cells[place]
    return cells


def _one_number(form: ColumnForm, cell: Any) -> Any:
    if isinstance(cell, str):
        return _number_in(form, cell)
    if is_missing(cell):
        return np.nan
    if isinstance(cell, bool | np.bool_):
        return float(cell)
    for types, unit in ((_DATES, "dates"), (_LENGTHS, "lengths of time")):
        if isinstance(cell, types):
            return _Refused("numbers", unit)
    return (int(cell) if isinstance(cell, int | np.integer) else as_float(cell)) if is_number(cell) else cell


def _number_in(form: ColumnForm, cell: str) -> Any:
    """The number that a text is in this form; the text itself if it is none."""
    text = plain_text(cell)
    worded = worded_number(text, form.sign) if form.kind == "worded" else None  # whichever word it is
    text = _without_words(form, text) if worded is None else worded[1]
    if text.casefold() in GAPS or text.casefold() in form.gaps:
        return np.nan
    if (step := form.steps.get(text.casefold())) is not None:
        return step
    number = number_of(text) or (feet_of(text) if form.sign == "ft" else None)
    if number is None and form.middle:
        number = middle_of(text)
    if number is None and form.kind == "scale":
        step = step_of(text.casefold(), form.steps)
        return _Refused(f"steps such as {listed(form.steps, 80)}", "another word") if step is None else step
    if number is None:
        with contextlib.suppress(ValueError):
            return float(text)  # infinity, which a later check refuses
        return _Refused("numbers", "dates") if day_of(text) is not None else cell
    value = number.value(form.decimal, either=form.either)
    if value is None:
        mark = "a comma" if form.decimal == "," else "a point"
        return _Refused(f"numbers with {mark} before decimals", "other ones")
    # Money without its sign, or with a new one, is the same number; a share of 100 is another one than the number.
    share = "%" in (number.sign, form.sign) and (form.every or number.sign == "%")
    same = converted(value, number.sign, form.sign)
    if same is None and (share or (number.sign and form.sign)):
        return _Refused(in_unit(form.sign), in_unit(number.sign))
    value = value if same is None else same
    value = 100 * value if form.shares and not number.sign else value
    return int(value) if text.lstrip("+-").isdecimal() and abs(value) < 1 << 53 else value


def _without_words(form: ColumnForm, text: str) -> str:
    """A text without the words that stand beside some numbers or dates of its column, or a letter that marks a note."""
    if form.beside and (note := _NOTE.fullmatch(text)) is not None and f"# {note[2].casefold()}" in form.beside:
        return note[1]
    parts = words_beside(text) if form.beside else None
    return text if parts is None or parts[0] not in form.beside else parts[1]


def _other_unit(column: "pd.Series[Any]", expected: str, got: str, place: int) -> ColumnError:
    advice = f"the column held {expected} where the model was fitted"
    return refuse(str(column.name), column.index[place], expected, f"{got}: {short(column.iloc[place])}", advice)


def _read_dates(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any]":
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    dtype = column.dtype
    if is_datetime64_any_dtype(dtype):
        dates = moments_of(column)
        within = _within(form, dates)
        return column if within is dates and dtype == "datetime64[us]" else _with_index(within, column)
    days = np.full(len(column), np.datetime64("NaT"), dtype="datetime64[us]")
    if isinstance(dtype, pd.StringDtype):  # the quick way for most of a million
        plain = column.where(column.str.fullmatch(_ISO), None)
        days = pd.to_datetime(plain, format="%Y-%m-%d", errors="coerce").to_numpy("datetime64[us]").copy()
    others = np.isnat(days)
    rest = column[others]
    form = form if form.day_first is not None else _ordered(form, rest)
    cells = _unrefused(rest, _each(rest, lambda cell: _one_date(form, cell)), others=len(column) - len(rest))
    days[others] = np.array(cells, dtype="datetime64[us]")
    return _with_index(_within(form, days), column)


def _ordered(form: ColumnForm, column: "pd.Series[Any]") -> ColumnForm:
    """The form with the order of day and month that this column shows, as none was seen before: 30/09 after ISO."""
    texts = {cell for cell in column.tolist() if isinstance(cell, str)}
    days = [day for text in texts if (day := day_of(_without_words(form, plain_text(text)))) is not None]
    orders = {day.month_first is None for day in days if None in (day.day_first, day.month_first)}
    return form.model_copy(update={"day_first": orders.pop()}) if len(orders) == 1 else form


def _within(form: ColumnForm, dates: Dates) -> Dates:
    """Dates that mean "no beginning" or "no end" at the ends of the span."""
    if form.span is None:
        return dates
    first, last = (np.datetime64(f"{year:04d}-01-01", "us") for year in form.span)
    far = (dates < np.datetime64(f"{FAR_YEARS[0]}-01-01")) | (dates > np.datetime64(f"{FAR_YEARS[1]}-12-31"))
    return np.where(far, np.clip(dates, first, last), dates) if far.any() else dates


def _one_date(form: ColumnForm, cell: Any) -> Any:
    if is_written_gap(cell) or (isinstance(cell, str) and plain_text(cell).casefold() in form.gaps):
        return None
    if isinstance(cell, str):
        return _date_in(form, _without_words(form, plain_text(cell)))
    cell = cell.to_timestamp() if isinstance(cell, pd.Period) else cell
    if isinstance(cell, np.datetime64):
        return cell.astype("datetime64[us]")
    if isinstance(cell, datetime.datetime):
        moment = cell.to_pydatetime(warn=False) if isinstance(cell, pd.Timestamp) else cell
        return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(cell, datetime.date):
        return datetime.datetime(cell.year, cell.month, cell.day)
    if is_number(cell):  # 20240131
        return _date_in(form, f"{float(cell):.0f}" if float(cell).is_integer() else str(cell))
    return _Refused("dates", "something else")


def _date_in(form: ColumnForm, text: str) -> Any:
    day = (PARTIAL_DATES[form.sign][1](text) if form.sign in PARTIAL_DATES else None) or day_of(text)
    if day is None and form.serial and (serial := serial_of(text)) is not None:
        return serial
    if day is None:
        return _Refused("dates", "a number" if number_of(text) is not None else "no date")
    if form.day_first is None:
        moment = None if day.day_first != day.month_first else day.day_first
    else:
        moment = day.value(day_first=form.day_first != (day.mark != "" and day.mark in form.turned))
    if moment is None:
        order = {None: "without doubt", True: "day first", False: "month first"}[form.day_first]
        return _Refused(f"dates written {order}", "another order")
    if form.first_year is None or not day.short:
        return moment
    with contextlib.suppress(ValueError):  # the 29th of February of a leap year only in the other century
        return moment.replace(year=form.first_year + (moment.year - form.first_year) % 100)
    return moment.replace(year=form.first_year + (moment.year - form.first_year) % 100, day=28)


def _read_durations(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any]":
    if is_timedelta64_dtype(column.dtype):
        return column
    cells = _unrefused(column, _each(column, lambda cell: _one_duration(form, cell)))
    return _with_index(np.array(cells, dtype="timedelta64[us]"), column)


def _one_duration(form: ColumnForm, cell: Any) -> Any:
    if is_gap(form, cell):
        return None
    cell = _without_words(form, plain_text(cell)) if isinstance(cell, str) else cell
    if form.sign == "s" and isinstance(cell, str) and (clock := STOPWATCH.fullmatch(cell)):
        minutes, seconds = clock["minutes"] or 0, clock["seconds"].replace(",", ".")
        return datetime.timedelta(minutes=int(minutes), seconds=float(seconds)) * (-1 if cell[0] == "-" else 1)
    if isinstance(cell, datetime.time):
        day = {"hours": cell.hour, "minutes": cell.minute, "seconds": cell.second, "microseconds": cell.microsecond}
        return datetime.timedelta(**day)
    if form.sign == CLOCK and (isinstance(cell, str) or is_number(cell)):
        text = cell if isinstance(cell, str) else f"{cell:04.0f}"
        cell = re.sub(r"^([0-9]{2})([0-9]{2})(?: ?[a-z]+)?$", r"\1:\2", text.casefold())
    length = duration_of(cell) if isinstance(cell, str) else cell
    other = "numbers" if is_number(length) else "something else"
    return length if isinstance(length, datetime.timedelta | np.timedelta64) else _Refused("lengths of time", other)


def _read_truths(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Truth values however they are written; what is none stays as it is, a value never seen."""
    if column.dtype == bool and form.spelled is None:
        return column
    names: dict[bool, Any] = {value: value if form.spelled is None else form.spelled[value] for value in (False, True)}

    def one(cell: Any) -> Any:
        if is_written_gap(cell):
            return None
        if isinstance(cell, str):
            truth = as_truth(plain_text(cell))
        else:
            truth = bool(cell) if isinstance(cell, bool | np.bool_) or (is_number(cell) and cell in (0, 1)) else None
        return cell if truth is None else names[truth]

    cells = _each(column, one)
    if all(isinstance(cell, bool) for cell in cells) and cells:
        return _with_index(cells, column, bool)
    return _with_index(cells, column, object)


def _read_levels(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Categories whose cells were numbers, as numbers again where texts write them."""
    del form
    dtype = column.dtype
    if is_bool_dtype(dtype):
        return column.astype(object).map(lambda cell: None if is_missing(cell) else int(cell))
    if is_numeric_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype):
        return column

    def one(cell: Any) -> Any:
        if isinstance(cell, bool | np.bool_):
            return int(cell)
        if not isinstance(cell, str):
            return cell
        if plain_text(cell).casefold() in GAPS:
            return None
        number = number_of(plain_text(cell))
        if number is None or number.sign or number.point is None or CODE.search(cell.strip()):
            return cell
        return int(number.point) if number.point.is_integer() else number.point

    return _with_index(_each(column, one), column, object)


def split(cell: str, mark: str) -> list[str]:
    r"""The words between marks in a text, each once; in lines without what itemizes them.

    >>> split("Price; Quality;", ";"), split("- Price\n- Quality\r\n", "\n")
    (['Price', 'Quality'], ['Price', 'Quality'])
    """
    lines = mark == "\n"
    parts = map(plain_text, cell.splitlines()) if lines else plain_text(cell).split(mark)
    words = (_ITEM.sub("", part) if lines else part.strip() for part in parts)
    return [word for word in dict.fromkeys(words) if word]


def _read_lists(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any]":
    def one(cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        elements = read_list(cell)
        if elements is None and form.around:
            return None if is_written_gap(cell) else split(cell, form.around)
        return (cell if cell.strip() else None) if elements is None else elements

    if not any(isinstance(cell, str) for cell in column.tolist()):
        return column
    return _with_index(_each(column, one), column, object)


def _read_parts(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any]":
    """The numbers of each cell that differ between cells: lists of them, or plain numbers if it is one."""
    if is_numeric_dtype(column.dtype) and form.kind == "parts":
        return column

    def one(cell: Any) -> Any:
        numbers = cell if is_list(cell) or is_missing(cell) else _numbers_in(form, cell)
        if not isinstance(numbers, list):
            return None if is_missing(numbers) else numbers
        if form.middle and numbers != sorted(numbers):  # the score of a match is no range
            return _Refused("ranges", "a larger number first")
        return [sum(numbers) / len(numbers)] if form.middle else numbers

    cells = _unrefused(column, _each(column, one))
    if len(form.typical) == 1 or form.middle:
        numbers = [np.nan if cell is None else as_float(cell[0] if isinstance(cell, list) else cell) for cell in cells]
        return _with_index(numbers, column, np.float64)
    return _with_index([list(form.typical.values()) if cell is None else cell for cell in cells], column, object)


def _numbers_in(form: ColumnForm, cell: Any) -> Any:
    """The numbers of a cell of several; what is none as it is, or refused."""
    if form.kind == "worded":
        number = _one_number(form, cell)
        if not isinstance(number, float | int):
            return number
        word = (worded_number(plain_text(cell), form.sign) or ("",))[0] if isinstance(cell, str) else ""
        return [form.typical[0] if np.isnan(number) else number, *(float(word == each) for each in form.beside)]
    if not isinstance(cell, str):
        return cell
    text = plain_text(cell)
    if (step := form.steps.get(text.casefold())) is not None:
        return [step]
    if form.kind == "fields":
        values, usual = _fields_of(form, text), zip(form.beside, form.typical.values(), strict=True)
        return [values.get(name, known) for name, known in usual] if values or not is_written_gap(cell) else None
    if form.sign == SPAN:
        what, numbers = "a first and a last day or time", days_in(text, day_first=form.day_first)
    elif form.sign == VERSION:
        what, numbers = "versions", version_of(text)
    else:
        parts, what = parts_of(text, form.decimal, form.sign), f"texts as {short(form.around)}"
        numbers = parts[1] if parts is not None and is_start(parts[0], form.around) else None
    if numbers is None:
        return None if is_written_gap(cell) else _Refused(what, "another one")
    return [dict(enumerate(numbers)).get(place, 0.0) for place in form.typical]


def written(form: ColumnForm, cell: Any) -> str | None:
    """The numbers of a cell of several as a text that reads as the same; what no cell differs in is "...".

    >>> form = ColumnForm(kind="parts", around="#x# cm", typical={0: 2.0, 1: 3.0})
    >>> written(form, [10.0, 20.5]), written(form, None)
    ('10x20.5 cm', None)
    """
    if not is_list(cell):
        return cell if isinstance(cell, str) else None
    numbers = [f"{number:.15g}".replace(".", form.decimal) for number in cell]
    if form.kind == "fields":
        usual = zip(form.beside, form.typical.values(), cell, numbers, strict=True)
        said = [name.replace("#", number) for name, known, value, number in usual if value != 0 or known != 0]
        return ", ".join(said)
    if form.kind == "worded":
        words = [word for word, said in zip(form.beside, cell[1:], strict=True) if said]
        number = f"{numbers[0]} {form.sign}".strip()
        return words[0].replace("#", number) if words else number
    if form.sign == SPAN:
        ends = [_EPOCH + day * _A_DAY for day in (cell[0], cell[0] + cell[1])]
        return " - ".join(f"{end:%H:%M}" if 0 <= cell[0] < 1 else f"{end.date()}" for end in ends)
    if form.sign == VERSION:
        return ".".join(numbers)
    by_place = dict(zip(form.typical, numbers, strict=True))
    first, *pieces = form.around.split("#")
    return first + "".join(by_place.get(place, "...") + piece for place, piece in enumerate(pieces))


def _fields_of(form: ColumnForm, text: str) -> dict[str, float]:
    """The numbers and words that a text has of those with a name; another text has none, which is no error."""
    listed = listed_in(text, form.decimal, form.sign)
    return {} if listed is None else values_of(listed, form.beside)[0]


def is_odd(form: ColumnForm, cell: Any) -> bool:
    """Whether a cell that counts as missing is none: of numbers in one text whether it has others, else always."""
    if form.kind == "fields":
        return isinstance(cell, str) and not _fields_of(form, plain_text(cell))
    return form.kind != "parts" or isinstance(_numbers_in(form, cell), _Refused)


def days_in(text: str, *, day_first: bool | None) -> list[float] | None:
    """The first day of a span of dates, since 1970, and how many days later the last one is; or None."""
    span = span_of(text)
    first, last = (None, None) if span is None else (day.value(day_first=day_first is not False) for day in span)
    return None if first is None or last is None else [(first - _EPOCH) / _A_DAY, (last - first) / _A_DAY]


def _read_words(form: ColumnForm, column: "pd.Series[Any]") -> "pd.Series[Any]":
    def one(cell: Any) -> Any:
        small = plain_text(cell).casefold() if isinstance(cell, str) else ""
        return None if small in SURE_GAPS else form.spellings.get(spelling_of(small), form.spellings.get(small, cell))

    words = _each(column, one)
    return column if words == column.tolist() else _with_index(words, column, object)


_DATES = (datetime.date, np.datetime64, pd.Period)
_LENGTHS = (datetime.timedelta, datetime.time, np.timedelta64)
_READING: dict[str, Callable[[ColumnForm, "pd.Series[Any]"], "pd.Series[Any]"]] = {
    **dict.fromkeys(("number", "scale"), _read_numbers),
    "date": _read_dates,
    "duration": _read_durations,
    "truth": _read_truths,
    "levels": _read_levels,
    "list": _read_lists,
    **dict.fromkeys(("parts", "worded", "fields"), _read_parts),
    "words": _read_words,
}
