"""What kind each column of a table is of, and why."""

import ast
import contextlib
import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import check_choice, short
from vicinal.core.checks import plain
from vicinal.encoders.base import KIND_NAMES, Kind, refuse
from vicinal.encoders.calendar import is_date, is_duration
from vicinal.encoders.category import NAMES, to_levels

IMAGE_ENDS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")
AUDIO_ENDS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff")
IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"P5", b"P6")
AUDIO_STARTS = (b"fLaC", b"OggS", b"ID3", b"FORM", b"\xff\xfb", b"\xff\xf3")
ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|index|key|row|nr|no)\.?$|(?-i:[a-z](Id|ID)$)|"
    r"^unnamed: 0(\.\d+)*$|^(row|record)_?(id|number)$",
    re.I,
)
_NUMBERED = re.compile(
    r"(#|\.{3}1|row[_.]?names?|obs|observation|case(_?(id|no))?|s_?no|subject|respondent|participant)\.?|"
    r"(ticket|order|invoice|claim|booking|listing|transaction|sku|ean|upc|gtin|isbn)([\s_-]?(number|num|code))?|"
    r"(account|client|customer|employee|member|patient|phone|policy|reference|serial)[\s_-]?num(ber)?|"
    r"(artikel|auftrags|bestell|kunden|rechnungs|vertrags)[\s_-]?(nr\.?|nummer)",
    re.I,
)
ID_VALUE = re.compile(r"[A-Za-z]{0,6}[-_:/]?\d+|[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}|[0-9a-f]{16,}")

_ADDRESS, _DIGITS, FEW = re.compile(r"[^@\s]+@[^@\s]+\.\w+"), re.compile(r"\d+"), 20
"""What is the name of one thing; texts that are names by their digits are more than ``FEW``."""

LIKE_ID = "left out: looks like an id"
"""How reasons of columns begin that name rows."""

_NUMBER = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*")
_ARRAY = re.compile(r"\[\s*(?:(?:[-+]?[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?|nan)(?:\s+|(?=\])))+\]")
_SCALAR = re.compile(r"\bnp\.[a-z]+[0-9_]*\(([^()]*)\)")
_BETWEEN = re.compile(r"(['\"])\s+(['\"])")
"""Arrays of numbers as numpy writes them, and what is between texts there."""

_CODE = re.compile(r"(?=\S*\d)\S{1,24}")
"""One short word with a digit, such as the tail number of a plane; if such repeat, their spelling says little."""

DATES = "dates, as days since 1970"
DURATIONS = "durations, in seconds"

LONGEST_CODE = 8
"""Digits from which on codes with leading zeros are no postal codes, whose neighbors are near."""

MOST_CATEGORIES = 50
"""Different values beyond which short texts are read as text."""

LONGEST_LIST = 10_000
"""Characters of a list of Python, at most, that is read as one."""

OFTEN, OFTEN_NAMES = 20, 3
"""Rows of each on average from which on short texts, and names, are categories, however many there are: letters of the
name of a country say less than which it is. Names have less than two words on average."""


@dataclass(frozen=True)
class ColumnKind:
    """What a column was taken for.

    Attributes:
        kind: the kind, or None for a column that is left out.
        reason: why, as a phrase.
    """

    kind: Kind | None
    reason: str


def infer_kinds(frame: pd.DataFrame, columns: Mapping[str, Kind] | None = None) -> dict[str, ColumnKind]:
    """Take each column for a kind, by its type, its values and its name.

    Args:
        frame: the columns that may be used; the target is not among them.
        columns: kinds of columns that are already known.

    Raises:
        ValueError: for an override of an unknown column or to an unknown kind.

    >>> found = infer_kinds(pd.DataFrame({"age": [31, 52, 40], "x": [1, 1, 1]}))
    >>> found["age"].kind, found["x"].reason
    ('number', 'left out: 1 in every row')
    """
    columns = columns or {}
    names = [str(name) for name in frame.columns]
    known = set(names)
    for column, kind in columns.items():
        if column not in known:
            check_choice("columns", column, names)
        check_choice(f"columns[{short(column)}]", kind, KIND_NAMES)
    kinds = {}
    for label in frame.columns:
        name = str(label)
        if columns.get(name) == "set":
            kinds[name] = ColumnKind("set", set_kind(frame[label], name).reason)
        elif name in columns:
            kinds[name] = ColumnKind(columns[name], "as asked for")
        else:
            kinds[name] = infer_kind(frame[label], name)
    return kinds


def infer_kind(series: "pd.Series[Any]", name: str) -> ColumnKind:
    """The kind of one column called ``name``."""
    present = series[series.notna()]
    if present.dtype == object or isinstance(present.dtype, pd.StringDtype):
        present = present[[not (isinstance(cell, str) and not cell.strip()) for cell in present.tolist()]]
    if not len(present):
        return ColumnKind(None, "left out: all missing")
    first = present.iloc[0]
    if isinstance(first, bytes | bytearray | Mapping):
        return _file_kind(present)
    if is_list(first):
        return _list_kind(present, name, empty=len(series) - len(present))
    numeric = pd.api.types.is_numeric_dtype(present) and not pd.api.types.is_bool_dtype(present)
    dates = pd.api.types.is_datetime64_any_dtype(present)
    durations = pd.api.types.is_timedelta64_dtype(present) or all(map(is_duration, present))
    distinct = set(present.unique()) if numeric or dates or durations else set(to_levels(present, name))
    if len(distinct) == 1 and len(present) == len(series) and len(series) > 1:
        return ColumnKind(None, f"left out: {short(first)} in every row")
    if isinstance(present.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(present):
        return ColumnKind("category", f"{_count(distinct)}")
    if dates:
        return ColumnKind("number", DATES)
    if durations:
        return ColumnKind("number", DURATIONS)
    if numeric:
        return _number_kind(present, name, len(distinct))
    return _string_kind([str(cell) for cell in present.tolist()], name, distinct)


def _number_kind(present: "pd.Series[Any]", name: str, distinct: int) -> ColumnKind:
    # By values and name, never by the order of rows: a part of the table, or the table sorted otherwise, has the same
    # columns. Years that rise by 1 are numbers; a row number has a name that says so.
    whole = pd.api.types.is_integer_dtype(present)
    if whole and distinct == len(present) and len(present) > 2 and (ID_NAME.search(name) or _NUMBERED.fullmatch(name)):
        return ColumnKind(None, f"{LIKE_ID} (whole numbers, all different)")
    return ColumnKind("number", f"numbers from {plain(present.min(), 6)} to {plain(present.max(), 6)}")


def _string_kind(values: list[str], name: str, distinct: set[Any]) -> ColumnKind:
    often = Counter(values)  # many rows of a long table have the same few texts
    paths = _path_kind(often, len(values))
    if paths is not None:
        return paths
    share = len(distinct) / len(values)
    numbers, dates = all(map(_NUMBER.fullmatch, often)), all(map(is_date, often))
    codes = numbers and any(re.match(r"\s*0\d", value) for value in often)
    if (codes or not (numbers or dates)) and len(values) > 2 and share > 0.9 and ID_NAME.search(name):
        return ColumnKind(None, f"{LIKE_ID} by its name ({_count(distinct)})")
    if codes and share == 1 and len(values) > FEW and min(map(len, map(str.strip, often))) >= LONGEST_CODE:
        return ColumnKind(None, f"{LIKE_ID} (long codes, all different)")
    if codes:  # as categories of few rows each they would tell nothing
        kind: Kind = "number" if 2 * len(distinct) > len(values) > FEW else "category"
        return ColumnKind(kind, f"digits with leading zeros, {_count(distinct)}")
    if numbers or dates:
        return ColumnKind("number", DATES if dates else "text that reads as numbers")
    if len(values) > 2 and share == 1 and (all(map(ID_VALUE.fullmatch, often)) or _are_names(values)):
        return ColumnKind(None, f"{LIKE_ID} (all different)")
    words = sum(len(value.split()) * count for value, count in often.items()) / len(values)
    often_enough = min(NAMES, len(values) // (OFTEN_NAMES if words < 2 else OFTEN))
    few = len(distinct) <= max(min(MOST_CATEGORIES, max(2, len(values) // 2)), often_enough)
    if few and (words < 4 or len(values) >= OFTEN * len(distinct)):
        return ColumnKind("category", _count(distinct))
    coded = sum(any(one.fullmatch(str(value)) for one in (_CODE, ID_VALUE)) for value in distinct)
    if len(distinct) <= min(NAMES, 2 * len(values) // 3) and coded >= 0.9 * len(distinct):
        return ColumnKind("category", f"codes, {_count(distinct)}")
    return ColumnKind("text", f"text of {words:.1f} words on average")


def _are_names(values: Sequence[str]) -> bool:
    """Whether texts are e-mail addresses, or differ in digits alone, such as URLs with a number."""
    if all(map(_ADDRESS.fullmatch, values)):
        return True
    around = {_DIGITS.sub("0", value) for value in values[:FEW]}
    return len(values) > FEW and len(around) == 1 and len({_DIGITS.sub("0", value) for value in values}) == 1


def _path_kind(often: Mapping[str, int], rows: int) -> ColumnKind | None:
    """Of texts that stand so often, if most rows have one with the end of a file."""
    ends = Counter[str]()
    for value, count in often.items():
        ends[PurePath(value.split("?")[0]).suffix.lower() if "." in value else ""] += count
    first = next(iter(ends), "")
    for kind, known, what in (("image", IMAGE_ENDS, "images"), ("audio", AUDIO_ENDS, "sounds")):
        if sum(ends[end] for end in known) >= 0.9 * rows:
            return ColumnKind(kind, f"paths of {what} ({first or known[0]})")  # type: ignore[arg-type]
    return None


def is_file(cell: Mapping[Any, Any]) -> bool:
    """Whether an object is a file: its bytes or its path, with what else data sets keep of one."""
    return bool(cell.keys() & {"bytes", "path"}) and cell.keys() <= {"bytes", "path", "array", "sampling_rate"}


def _file_kind(present: "pd.Series[Any]") -> ColumnKind:
    cell = present.iloc[0]
    if isinstance(cell, Mapping) and not is_file(cell):
        return ColumnKind(None, "left out: objects; make their parts columns")
    data = cell.get("bytes") if isinstance(cell, Mapping) else cell
    if not isinstance(data, bytes | bytearray):
        return _string_kind([str(cell.get("path")) for cell in present if isinstance(cell, Mapping)], "", set())
    data = bytes(data[:16])
    if data.startswith(IMAGE_STARTS) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        return ColumnKind("image", "bytes of image files")
    if data.startswith(AUDIO_STARTS) or (data[:4] == b"RIFF" and data[8:12] == b"WAVE"):
        return ColumnKind("audio", "bytes of sound files")
    return ColumnKind(None, f"left out: bytes of an unknown format ({short(data)})")


def _list_kind(present: "pd.Series[Any]", name: str, empty: int) -> ColumnKind:
    """Vectors, if all are lists of as many numbers; else sets, of which missing ones are ``empty``."""
    lengths = {len(cell) if is_list(cell) else -1 for cell in present}
    try:
        number = np.asarray(present.iloc[0], dtype=np.float64).ndim == 1
    except (TypeError, ValueError, OverflowError):
        number = False
    if number and len(lengths) == 1 and lengths != {0}:
        return ColumnKind("vector", f"lists of {lengths.pop()} numbers")
    if -1 in lengths:
        return ColumnKind(None, "left out: some cells are lists, some are not")
    return set_kind(present, name, empty)


def set_kind(series: "pd.Series[Any]", name: str, empty: int = 0) -> ColumnKind:
    """What the sets of a column consist of, how many elements they have, and how many are empty, ``empty`` more."""
    sets = [[value for _, value in elements_of(cell, name, row)] for row, cell in series.items()]
    counts = [0] * empty + [len(elements) for elements in sets]
    elements = [value for members in sets for value in members]
    kind = element_kind(elements) if elements else None
    if kind is None:
        return ColumnKind(None, f"left out: lists {'of what no encoder reads' if elements else 'without elements'}")
    what = "texts" if isinstance(elements[0], str) and kind == "category" else plural(kind)  # fit says which it is
    low, high = min(filter(None, counts)), max(counts)
    none = f", {counts.count(0)} empty" if 0 in counts else ""
    return ColumnKind("set", f"sets of {low if low == high else f'{low} to {high}'} {what}{none}")


def element_kind(elements: Sequence[Any]) -> Kind | None:
    """The kind of the elements of sets, by the first of them; texts by all. None if no encoder reads it.

    >>> element_kind([1, 2]), element_kind(["a.jpg"]), element_kind(["red", "red"]), element_kind([[1, 2]])
    ('number', 'image', 'category', 'vector')
    """
    first = elements[0]
    if isinstance(first, bytes | bytearray | Mapping):
        return _file_kind(pd.Series(elements, dtype=object)).kind
    if is_list(first):
        return "vector"
    if isinstance(first, str):
        values = [str(value) for value in elements]
        return _string_kind(values, "", set(values)).kind or "text"
    if isinstance(first, bool | np.bool_):
        return "category"
    return "number" if hasattr(first, "__float__") or is_date(first) or is_duration(first) else None


def elements_of(cell: Any, column: str, row: object) -> Iterator[tuple[int, Any]]:
    """Position, from 1, and value of each element of a cell; missing ones are left out.

    Raises:
        ValueError: for what is neither a list nor text that is one in JSON.

    >>> list(elements_of(["a", None, "b"], "tags", 7)), list(elements_of("[1, 2]", "sizes", 7))
    ([(1, 'a'), (3, 'b')], [(1, 1), (2, 2)])
    """
    if is_gap(cell):
        return
    members: Any = read_list(cell) if isinstance(cell, str) else cell
    if isinstance(members, set | frozenset):
        members = sorted(members, key=repr)
    if not is_list(members):
        raise refuse(column, row, "a list", short(cell), "a column of no lists is of another kind than a set")
    for position, value in enumerate(members, start=1):
        if not is_gap(value):
            yield position, value


def is_list(cell: object) -> bool:
    """Whether a cell is a list, or what stands for one."""
    return isinstance(cell, list | tuple | set | frozenset) or (isinstance(cell, np.ndarray) and cell.ndim > 0)


def is_gap(value: Any) -> bool:
    """Whether a cell or an element is missing; blank text is, too.

    >>> is_gap(None), is_gap(float("nan")), is_gap(" "), is_gap([])
    (True, True, True, False)
    """
    return (isinstance(value, str) and not value.strip()) or (pd.api.types.is_scalar(value) and pd.isna(value) is True)


def read_list(text: str) -> list[Any] | None:
    """The list that a text is in JSON or, of texts and numbers, in Python or as numpy writes it; or None.

    >>> read_list('["a", 2]'), read_list("['a', 'it''s']"), read_list("[see page 3]")
    (['a', 2], ['a', 'its'], None)
    >>> read_list("[ 0.5 -1.]"), read_list("['a' 'b c']")  # as numpy writes arrays
    ([0.5, -1.0], ['a', 'b c'])
    >>> read_list("[np.float64(0.5), np.str_('a')]"), read_list('{Wifi,"Free parking"}')  # as Postgres writes arrays
    ([0.5, 'a'], ['Wifi', 'Free parking'])
    """
    text = text.strip()
    braced = text[:1] == "{" and text[-1:] == "}" and ":" not in text
    if not (braced or (text[:1] == "[" and text[-1:] == "]")):
        return None
    try:
        value = _braced(text[1:-1]) if braced else json.loads(text)
    except (ValueError, RecursionError):  # as Python writes a list: ['a', 2]
        value = _python_list(text)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # a whole number of more digits than Python reads, half of a character
        return None
    return value if isinstance(value, list) else None


def _braced(text: str) -> Any:
    """The elements of a set of Python, or of an array of Postgres, whose words need no quotes."""
    if (value := _python_list(f"[{text}]")) is None:
        with contextlib.suppress(csv.Error):  # a line end in a word
            value = next(csv.reader([text]), [])
    return value


def _python_list(text: str) -> Any:
    if _ARRAY.fullmatch(text):
        return [float(number) for number in text.strip(" []\n").split()]
    text = _BETWEEN.sub(r"\1, \2", text) if "," not in text else _SCALAR.sub(r"\1", text)
    try:
        return ast.literal_eval(text.strip()) if len(text) <= LONGEST_LIST else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def plural(kind: Kind) -> str:
    """What the things of a kind are called.

    >>> plural("category"), plural("audio")
    ('categories', 'sounds')
    """
    return {"category": "categories", "audio": "sounds"}.get(kind, f"{kind}s")


def told_kinds(kinds: Iterable[Any]) -> str:
    """How many columns are of each kind, the most frequent first.

    >>> told_kinds(["category", "number", "number"])
    '2 numbers, 1 category'
    """
    return ", ".join(f"{n} {kind if n == 1 else plural(kind)}" for kind, n in Counter(kinds).most_common())


def _count(distinct: set[Any]) -> str:
    return f"{len(distinct)} different values"
