"""What kind each column of a table is of, and why."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import check_choice, short
from vicinal.encoders.base import KIND_NAMES, Kind
from vicinal.encoders.category import to_levels
from vicinal.encoders.numeric import is_date, is_duration

IMAGE_ENDS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")
AUDIO_ENDS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff")
IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"P5", b"P6")
AUDIO_STARTS = (b"fLaC", b"OggS", b"ID3", b"FORM", b"\xff\xfb", b"\xff\xf3")
ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|index|key|row|nr|no)$|^unnamed: \d+$|^(row|record)_?(id|number)$", re.I
)
ID_VALUE = re.compile(r"[A-Za-z]{0,6}[-_:/]?\d+|[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}|[0-9a-f]{16,}")

DATES = "dates, as days since 1970"
DURATIONS = "durations, in seconds"

MOST_CATEGORIES = 50
"""Different values beyond which short texts are read as text."""


@dataclass(frozen=True)
class ColumnKind:
    """What a column was taken for.

    Attributes:
        kind: the kind, or None for a column that is left out.
        reason: why, as half a sentence.
    """

    kind: Kind | None
    reason: str


def infer_kinds(frame: pd.DataFrame, columns: Mapping[str, Kind] | None = None) -> dict[str, ColumnKind]:
    """Take each column for a kind, by its type, its values and its name.

    Args:
        frame: the columns that may be used; the target is not among them.
        columns: kinds of columns that are known.

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
    return {
        str(name): ColumnKind(columns[str(name)], "as asked for")
        if str(name) in columns
        else infer_kind(frame[name], str(name))
        for name in frame.columns
    }


def infer_kind(series: "pd.Series[Any]", name: str) -> ColumnKind:
    """The kind of one column called ``name``."""
    present = series[series.notna()]
    if present.dtype == object or isinstance(present.dtype, pd.StringDtype):
        present = present[[not (isinstance(cell, str) and not cell.strip()) for cell in present]]
    if not len(present):
        return ColumnKind(None, "left out: all missing")
    first = present.iloc[0]
    if isinstance(first, bytes | bytearray | Mapping):
        return _file_kind(present)
    if isinstance(first, list | tuple | np.ndarray):
        return _vector_kind(present)
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
    return _string_kind([str(cell) for cell in present], name, distinct)


def _number_kind(present: "pd.Series[Any]", name: str, distinct: int) -> ColumnKind:
    if pd.api.types.is_integer_dtype(present) and distinct == len(present) and len(present) > 2:
        steps = np.unique(np.diff(present.to_numpy(dtype=np.float64)))
        if ID_NAME.search(name):
            return ColumnKind(None, "left out: looks like an id (whole numbers, all different)")
        if len(steps) == 1 and abs(steps[0]) == 1:
            return ColumnKind(None, "left out: looks like a row number (rises by 1)")
    return ColumnKind("number", f"numbers from {present.min():g} to {present.max():g}")


def _string_kind(values: list[str], name: str, distinct: set[Any]) -> ColumnKind:
    ends = [PurePath(value.split("?")[0]).suffix.lower() for value in values]
    for kind, known, what in (("image", IMAGE_ENDS, "images"), ("audio", AUDIO_ENDS, "sounds")):
        if sum(end in known for end in ends) >= 0.9 * len(ends):
            return ColumnKind(kind, f"paths of {what} ({ends[0] or known[0]})")  # type: ignore[arg-type]
    if all(map(_reads_as_number, values)):
        if any(re.match(r"\s*0\d", value) for value in values):
            return ColumnKind("category", f"digits with leading zeros, {_count(distinct)}")
        return ColumnKind("number", "text that reads as numbers")
    if all(map(is_date, values)):
        return ColumnKind("number", DATES)
    share = len(distinct) / len(values)
    if len(values) > 2 and share > 0.9 and ID_NAME.search(name):
        return ColumnKind(None, f"left out: looks like an id by its name ({_count(distinct)})")
    if len(values) > 2 and share == 1 and all(map(ID_VALUE.fullmatch, values)):
        return ColumnKind(None, "left out: looks like an id (all different)")
    words = sum(len(value.split()) for value in values) / len(values)
    few = len(distinct) <= min(MOST_CATEGORIES, max(2, len(values) // 2))
    if few and words < 4:
        return ColumnKind("category", _count(distinct))
    return ColumnKind("text", f"text of {words:.1f} words on average")


def _file_kind(present: "pd.Series[Any]") -> ColumnKind:
    cell = present.iloc[0]
    data = cell.get("bytes") if isinstance(cell, Mapping) else cell
    if data is None:
        return _string_kind([str(cell.get("path")) for cell in present if isinstance(cell, Mapping)], "", set())
    data = bytes(data[:16])
    if data.startswith(IMAGE_STARTS) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        return ColumnKind("image", "bytes of image files")
    if data.startswith(AUDIO_STARTS) or (data[:4] == b"RIFF" and data[8:12] == b"WAVE"):
        return ColumnKind("audio", "bytes of sound files")
    return ColumnKind(None, f"left out: bytes of an unknown format ({short(data)})")


def _vector_kind(present: "pd.Series[Any]") -> ColumnKind:
    lengths = {len(cell) if isinstance(cell, list | tuple | np.ndarray) else -1 for cell in present}
    try:
        number = np.asarray(present.iloc[0], dtype=np.float64).ndim == 1
    except (TypeError, ValueError):
        number = False
    if number and len(lengths) == 1 and lengths != {0}:
        return ColumnKind("vector", f"lists of {lengths.pop()} numbers")
    return ColumnKind(None, "left out: lists that are no vectors of one length")


def _reads_as_number(value: str) -> bool:
    return re.fullmatch(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*", value) is not None


def _count(distinct: set[Any]) -> str:
    return f"{len(distinct)} different values"
