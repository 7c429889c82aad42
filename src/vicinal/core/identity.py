"""Ids and groups of rows in one canonical form, so that they compare by content and not by type.

The same column of ids may be whole numbers in one file, floats in the next (because a cell is missing) and texts in a
third (because one is a word). An id must be the same in all of them, or a row may meet its own label. This module alone
decides which values are the same id:

- a whole number of any numeric type (int, float, Decimal, numpy, pandas nullable) and the text of its plain decimal
  form are one id: 1, 1.0, ``Decimal("1.00")`` and "1". So is "1.0", as Python writes a float. "01", "1e3", "+1", "-0"
  and "1.00" are texts;
- white space around a text does not count;
- texts that only Unicode tells apart are one id, see :func:`spelled`: "Zoë" composed and decomposed, "ab" with a
  zero-width space in it. Case counts. The id that is shown stays as it was written first;
- other floats go by value, as Python writes them: 0.5 is "0.5";
- a bool is the text "True" or "False", also spelled "true" or "TRUE"; it is not 1 or 0;
- dates and times are written in ISO form with a blank between them; midnight is written as the date alone;
- anything else is the text that ``str`` gives;
- None, NaN, ``pandas.NA`` and NaT are not ids, and are refused;
- a float so large that it may stand for several whole numbers (from 2**53 on, in float32 from 2**24 on) is refused.
"""

import datetime
import numbers
import re
import unicodedata
from collections.abc import Iterable, Sequence, Sized
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from vicinal.core.arrays import Array
from vicinal.core.checks import short, short_text, warn_caller

IdsLike = Tensor | Array | Iterable[Any]

_INT64 = np.iinfo(np.int64)
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_WHOLE_FLOAT = re.compile(r"(0|-?[1-9][0-9]*|-0)\.0")
_MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?")
_BOOLS = {"True": "True", "true": "True", "TRUE": "True", "False": "False", "false": "False", "FALSE": "False"}
_ENDS = (".0", *_BOOLS)
"""Endings of texts that may not be in canonical form yet; dates with a time have a colon."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Characters that nobody sees: controls but white space, and Default_Ignorable_Code_Point of Unicode 16."""


class Grouped(Sized):
    """Rows that may have groups and weights; whether they have is asked here, and nowhere below.

    Attributes:
        groups: ``[n]``, or None.
        weights: ``[n]``, or None.
    """

    groups: Any
    weights: Any

    @property
    def grouped(self) -> bool:
        """Whether rows have groups."""
        return self.groups is not None

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self.weights is not None

    @property
    def clusters(self) -> Any:
        """Of what group each row is ``[n]``: of rows without groups their own numbers."""
        return np.arange(len(self)) if self.groups is None else self.groups


def spelled(text: str, *, loose: bool = False) -> str:
    """A text in the one form in which spellings are compared; show the text itself.

    Letters are composed (NFC), characters that nobody sees are left out, and white space is single and within the text.

    Args:
        text: any.
        loose: for cells that are read, not for ids: wide, small and joined characters are plain ones (NFKC), and upper
            and lower case are one.

    >>> spelled("Zoe\u0308\u200b  K") == spelled("Zoë K"), spelled("Straße", loose=True)
    (True, 'strasse')
    """
    if text.isascii() and text.isprintable():
        return " ".join((text.lower() if loose else text).split())
    # What is not seen goes first, as it may stand between a letter and its accent. Folding takes compositions apart.
    form: Literal["NFKC", "NFC"] = "NFKC" if loose else "NFC"
    text = _UNSEEN.sub("", unicodedata.normalize(form, _UNSEEN.sub("", text)))
    return " ".join(unicodedata.normalize(form, text.casefold() if loose else text).split())


def without_accents(text: str) -> str:
    """A text whose letters have no accents.

    >>> without_accents("prénom"), without_accents("Zoë")
    ('prenom', 'Zoe')
    """
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(letter for letter in parts if not unicodedata.combining(letter)))


class IdentityWarning(UserWarning):
    """A row may meet its own label, or that of its group, because the caller gave no ids or groups."""


def warn_of_identity(sentence: str) -> None:
    """Give an :class:`IdentityWarning` at the line of the caller outside vicinal."""
    warn_caller(sentence, IdentityWarning)


def canonical_ids(
    name: str,
    values: IdsLike,
    rows: int | None = None,
    *,
    distinct: bool = False,
    labels: Any = None,
    exact: bool = False,
) -> Array:
    """Ids or groups in canonical form: int64 if all were given as whole numbers, else texts (dtype object).

    A text that is a whole number stays a text, so that ids are returned as they were given; :func:`whole_values` and
    :func:`as_texts` convert between the two forms.

    Args:
        name: of the argument, for errors.
        values: ``[n]``: a list, array, Series, tensor or any other sequence.
        rows: n; None: any number.
        distinct: each may occur only once.
        labels: ``[n]``, names of the rows in errors; None: 0 to n - 1.
        exact: leave texts apart that only Unicode tells apart, as a folder of an earlier version may hold them; others
            get the spelling that stands first.

    Raises:
        TypeError: for a text or a scalar instead of a sequence.
        ValueError: if one is missing, is too large for its float type to be told from another, occurs twice (with
            ``distinct``), or there are not ``rows`` of them.

    >>> canonical_ids("ids", [1.0, 2, np.int8(3)])
    array([1, 2, 3])
    >>> canonical_ids("ids", ["a", 7, 7.0, "7.0", " 07 "]).tolist()
    ['a', '7', '7', '7', '07']
    >>> canonical_ids("ids", [1, "a", "1"], distinct=True)
    Traceback (most recent call last):
    ValueError: ids: expected each id once, got 1 in row 0 and '1' in row 2, which are one id
    """
    cells = _cells(name, values)
    if rows is not None and len(cells) != rows:
        raise ValueError(f"{name}: expected {rows}, one a row, got {len(cells)}")
    at = _Place(name, range(len(cells)) if labels is None else labels)
    if isinstance(cells, np.ndarray):
        ids = _of_floats(cells, at) if cells.dtype.kind == "f" else _of_integers(cells)
    else:
        ids = _of_cells(cells, at)
        ids = ids if exact or ids.dtype == np.int64 else _one_spelling(ids)
    return check_distinct(ids, cells, name) if distinct else ids


def as_texts(ids: Array) -> Array:
    """Canonical ids as texts ``[n]``, dtype object.

    >>> as_texts(np.array([1, -7])).tolist()
    ['1', '-7']
    """
    return _objects(list(map(str, ids.tolist()))) if ids.dtype == np.int64 else ids


def _one_spelling(ids: Array) -> Array:
    """Texts ``[n]`` that are the same but for their spelling as the first of them is written."""
    texts = ids.tolist()
    if all(map(str.isascii, texts)):
        return ids
    first: dict[str, str] = {}
    return _objects([first.setdefault(text if text.isascii() else spelled(text), text) for text in texts])


def whole_values(ids: Array) -> tuple[Array, Array]:
    """Canonical ids as int64 ``[n]``, and which of them are whole numbers that fit into int64 ``[n]``; others are 0.

    >>> whole_values(canonical_ids("ids", ["12", "a", "012"]))
    (array([12,  0,  0]), array([ True, False, False]))
    """
    if ids.dtype == np.int64:
        return ids, np.ones(len(ids), dtype=bool)
    numbers_of = [_whole(text) for text in ids.tolist()]
    known = np.fromiter((number is not None for number in numbers_of), bool, len(numbers_of))
    return np.array([number or 0 for number in numbers_of], dtype=np.int64), known


def whole_ids(name: str, ids: IdsLike) -> Array:
    """The ids of an index as int64 ``[n]``: integers of at least 0.

    >>> whole_ids("ids", range(3))
    array([0, 1, 2])
    """
    if not isinstance(ids, Tensor | np.ndarray):
        listed = list(ids)
        ids = np.asarray(listed) if listed else np.zeros(0, dtype=np.int64)
    if isinstance(ids, Tensor):
        ids = ids.detach().cpu().numpy()
    if ids.ndim != 1:
        raise ValueError(f"{name}: expected a list of ids [n], got shape {ids.shape}")
    whole = canonical_ids(name, ids) if ids.dtype.kind in "iu" else ids
    if whole.dtype != np.int64:
        first = ids.dtype if ids.dtype.kind in "fb" else short(ids[0])
        raise TypeError(f"{name}: expected whole numbers, got {first}; give range(n), or take a NeighborBank of names")
    if len(whole) and whole.min() < 0:
        raise ValueError(f"{name}: expected whole numbers of at least 0, got {int(whole.min())}")
    return whole


def check_distinct(ids: Array, cells: Sequence[Any] | Array | None = None, name: str = "ids") -> Array:
    """Return ``ids`` if each occurs once.

    Args:
        ids: canonical ``[n]``.
        cells: the cells ``[n]`` they were made from, so that errors can show two that differ but are one id.
        name: of the argument, for errors.

    >>> check_distinct(np.array([4, 7, 4]))
    Traceback (most recent call last):
    ValueError: ids: expected each id once, got 4 2 times
    """
    if ids.dtype == np.int64:
        ranked = np.sort(ids)
        if not (ranked[1:] == ranked[:-1]).any():
            return ids
    elif len(set(ids.tolist())) == len(ids):
        return ids
    first, again = first_repeat(ids)
    if cells is not None and differ(cells[first], cells[again]):
        raise ValueError(
            f"{name}: expected each id once, got {short(cells[first])} in row {first} and {short(cells[again])} in row "
            f"{again}, which are one id"
        )
    count = int((ids == ids[first]).sum())
    raise ValueError(f"{name}: expected each id once, got {short(ids[first])} {count} times")


def first_repeat(ids: Array) -> tuple[int, int]:
    """Positions of the first id that repeats an earlier one: that of the earlier one, and its own.

    >>> first_repeat(np.array([5, 4, 7, 4, 5]))
    (1, 3)
    """
    seen: dict[Any, int] = {}
    for row, value in enumerate(ids.tolist()):
        if seen.setdefault(value, row) != row:
            return seen[value], row
    raise ValueError("ids: expected one that stands twice, got none")


def differ(one: object, other: object) -> bool:
    """Whether two cells of one id are written differently: 1 and "1" are, 1 and ``np.int8(1)`` are not."""
    return repr(_plain(one)) != repr(_plain(other))


def shown(ids: Array) -> str:
    """The first of ``ids`` as errors show it, and how many others there are."""
    return short(ids[0]) if len(ids) == 1 else f"{short(ids[0])} and {len(ids) - 1} more"


def _plain(value: object) -> object:
    """A cell as an error shows it: numpy's scalars as Python's."""
    return value.item() if isinstance(value, np.generic) else value


class _Place(NamedTuple):
    """Names of an argument and its rows in errors."""

    name: str
    labels: Any

    def missing(self, row: int) -> ValueError:
        return ValueError(f"{self.name}: expected one for every row, got none in row {short_text(self.labels[row])}")

    def too_large(self, row: int, value: Any) -> ValueError:
        return ValueError(
            f"{self.name}: expected floats below {_limit(type(value)):.0f}, as larger ones stand for several whole "
            f"numbers, got {value:.17g} in row {short_text(self.labels[row])}; give integers or texts"
        )


def _cells(name: str, values: Any) -> list[Any] | Array:
    """Integers or floats of one type as an array, anything else as a list."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name}: expected a list, one for each row, got {short(values)}")
    if getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{name}: expected a list [n], one for each row, got shape {tuple(values.shape)}")
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    elif isinstance(values, range):
        values = np.arange(values.start, values.stop, values.step)
    elif isinstance(getattr(values, "dtype", None), np.dtype):  # a Series or Index of numpy's cells
        values = np.asarray(values)
    elif hasattr(values, "to_pylist"):  # Arrow
        values = values.to_pylist()
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.dtype.itemsize <= 8:
        return values
    texts = isinstance(values, np.ndarray) and values.dtype.kind in "OU"
    texts = texts or getattr(values, "dtype", None) == "str"  # of pandas, whose iterator takes ten times as long
    cells: list[Any] = values.tolist() if texts else list(values)
    return np.array(cells) if set(map(type, cells)) == {float} else cells


def _of_integers(cells: Array) -> Array:
    if cells.dtype.kind == "u" and len(cells) and cells.max() > _INT64.max:
        return _objects(list(map(str, cells.tolist())))
    return cells.astype(np.int64)


def _of_floats(cells: Array, at: _Place) -> Array:
    missing = np.isnan(cells)
    if missing.any():
        raise at.missing(int(missing.argmax()))
    large = np.abs(cells) >= _limit(cells.dtype.type)
    if large.any():
        raise at.too_large(int(large.argmax()), cells[int(large.argmax())])
    if (cells == np.floor(cells)).all():
        return cells.astype(np.int64)
    return _objects([str(int(value)) if value.is_integer() else repr(value) for value in cells.astype(float).tolist()])


def _of_cells(cells: list[Any], at: _Place) -> Array:
    kinds = set(map(type, cells))
    if kinds == {str}:
        texts = map(str.strip, cells)
        return _objects(
            [_text(text) if ":" in text or text.endswith(_ENDS) or not text.isascii() else text for text in texts]
        )
    ids = cells if kinds == {int} else [_canonical(cell, at, row) for row, cell in enumerate(cells)]
    if all(type(value) is int for value in ids):
        try:
            return np.array(ids, dtype=np.int64)
        except OverflowError:  # some are beyond int64
            pass
    return _objects(list(map(str, ids)))


def _canonical(cell: Any, at: _Place, row: int) -> int | str:
    """One cell as a whole number or a text."""
    if isinstance(cell, np.ndarray | Tensor) and cell.ndim == 0:
        cell = cell.detach().cpu().numpy()[()] if isinstance(cell, Tensor) else cell[()]
    if isinstance(cell, str):
        return _text(cell.strip())
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell))
    period = isinstance(cell, datetime.timedelta | np.timedelta64)  # numpy counts its own among the integers
    if isinstance(cell, numbers.Rational) and not period and cell.denominator == 1:
        return int(cell.numerator)
    if _is_missing(cell):
        raise at.missing(row)
    if isinstance(cell, float | np.floating):
        if not abs(float(cell)) < _limit(type(cell)):
            raise at.too_large(row, cell)
        return int(cell) if float(cell).is_integer() else repr(float(cell))
    if isinstance(cell, Decimal):
        return _of_decimal(cell)
    if period or isinstance(cell, datetime.date | np.datetime64):
        import pandas as pd

        return _text(str(pd.Timedelta(cell) if period else pd.Timestamp(cell)))
    return _text(str(cell).strip())


def _is_missing(cell: Any) -> bool:
    if cell is None:
        return True
    import pandas as pd

    return bool(pd.api.types.is_scalar(cell) and pd.isna(cell))


def _of_decimal(cell: Decimal) -> int | str:
    if not cell.is_finite() or cell != cell.to_integral_value():
        return f"{cell.normalize():f}"
    return int(cell) if cell.adjusted() < len(str(_INT64.max)) else f"{cell.to_integral_value():f}"


def _text(text: str) -> str:
    """A text without white space around it, in canonical form."""
    if not text.isascii() and _WHOLE.fullmatch(plain := spelled(text)):
        return plain
    if text in _BOOLS:
        return _BOOLS[text]
    if _WHOLE_FLOAT.fullmatch(text):
        return "0" if text == "-0.0" else text[:-2]
    moment = _MOMENT.fullmatch(text)
    if moment is None:
        return text
    day, time, fraction = moment.groups()
    fraction = (fraction or "").rstrip("0")
    return day if time == "00:00:00" and not fraction else f"{day} {time}" + (f".{fraction}" if fraction else "")


def _whole(text: str) -> int | None:
    """The number that a canonical text is, if it is a whole one that fits into int64."""
    if len(text) > 20 or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if _INT64.min <= number <= _INT64.max else None


def _objects(values: list[Any]) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _limit(kind: type) -> float:
    """The number from which floats of this type stand for several whole numbers."""
    return float(2 / np.finfo(kind).eps)
