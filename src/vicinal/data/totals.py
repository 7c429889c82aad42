"""Rows of a file that are no rows of its table: totals, subtotals and notes below it."""

import math
import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import counted, listed
from vicinal.data.spelling import number_of, plain_text

FEWEST_ROWS, MOST_NOTES = 10, 10
"""Rows of a table that tell what is usual in it, and most rows of notes below it."""

_WORD = (
    r"(?:(?:grand|sub|gesamt|zwischen)[- ]?)?"
    r"(?:totale?s?|summe|sum|gesamt|endsaldo|somme|suma|razem|average|mean|\u5408\u8a08|\u5c0f\u8a08)"
)
_TOTAL = re.compile(rf"^\W*{_WORD}\b|\b{_WORD}\W*$", re.IGNORECASE)
_ALONE = re.compile(rf"^\W*{_WORD}\W*(?:[:(].*)?$", re.IGNORECASE | re.DOTALL)
_RUNS = ((re.compile(r"[0-9]+"), "0"), (re.compile(r"[^\W\d_]+"), "a"))


def without_totals(frame: pd.DataFrame, *, start: bool = True, end: bool = True) -> tuple[pd.DataFrame, str]:
    """The rows of a table as people export it, without totals and notes, and which were left out as a phrase, or "".

    A row is a total if its first cell says so and it has a gap in a column that has none in other rows: "Summe" in one,
    "North Total" in a quarter of them; or if "Subtotal" is all that stands there, beside the sum of a column. The row
    at the ``start`` is of units if words stand above numbers in it and nothing above names, or if it alone has no first
    cell. Rows at the ``end`` are notes if at most half of their cells are there and no other row has as few, and if
    their first cell is written as none above, or is not there and another is the sum of its column.

    >>> rows = pd.DataFrame({"place": [*"abcdefghij", "Total"], "kind": [*"x" * 10, None], "price": range(11)})
    >>> without_totals(rows)[1]
    "1 row of totals, units or notes: 'Total'"
    """
    if len(frame) <= FEWEST_ROWS or frame.shape[1] < 3:
        return frame, ""
    filled = frame.notna().to_numpy()  # [n, columns]
    first = frame.iloc[:, 0].tolist()
    odd = np.arange(len(frame)) < (start and max(_has_units(frame), _import_ids(frame)))
    open_rows = np.flatnonzero(~filled.all(1)).tolist()  # a total has a gap
    named = np.isin(np.arange(len(frame)), [row for row in open_rows if _says(_TOTAL, first[row])])
    full = filled[~odd & ~named & ~_few(filled)].all(0)
    gaps = (~filled[:, full]).sum(1)
    alone = np.array([_says(_ALONE, cell) if here else False for cell, here in zip(first, named, strict=True)])
    odd[_sums(frame, first)] = True
    odd |= named & (gaps > 0) & (alone | (4 * gaps >= full.sum()))  # one unknown cell makes no total of "Total Recall"
    if end:
        rows = np.flatnonzero(~odd)
        odd[rows[_first_note(frame.iloc[rows], filled[rows]) :]] = True
    if not odd.any() or 2 * odd.sum() > len(frame):
        return frame, ""
    shown = [next((str(cell) for cell in row if not pd.isna(cell)), "") for row in frame[odd].to_numpy().tolist()]
    return frame[~odd], f"{counted(len(shown), 'row')} of totals, units or notes: {listed(shown, 80)}"


def _says(what: re.Pattern[str], cell: Any) -> bool:
    return isinstance(cell, str) and what.search(cell) is not None


def _has_units(frame: pd.DataFrame) -> bool:
    """Whether words stand above numbers in the first row, and nothing above names, or at least not above the first."""
    columns = [[_shape(cell) for cell in cells] for cells in frame.iloc[: FEWEST_ROWS + 1].T.to_numpy().tolist()]
    words = ["a" in one and any(below) and not any("a" in cell for cell in below) for one, *below in columns]
    alone = not columns[0][0] and all(columns[0][1:])
    return any(words) and (alone or all(word or not one for word, (one, *_) in zip(words, columns, strict=True)))


def _import_ids(frame: pd.DataFrame) -> int:
    """How many of the first rows repeat the questions above the ids of these, as exports of Qualtrics do."""
    few = frame.iloc[:3].map(lambda cell: "ImportId" in str(cell)).all(axis=1).tolist()
    return few.index(True) + 1 if True in few else 0


def _few(filled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows ``[n]`` have at most half of the usual number of cells."""
    return 2 * filled.sum(1) <= int(np.median(filled.sum(1)))


def _first_note(frame: pd.DataFrame, filled: NDArray[np.bool_]) -> int:
    """The place of the first row of the notes at the end; the number of rows if there are none."""
    number, width = len(frame), int(np.median(filled.sum(1)))
    few = _few(filled)  # [n]
    start = number - int(few[::-1].argmin())
    if width < 3 or few[:start].any() or start < FEWEST_ROWS or not 0 < number - start <= MOST_NOTES:
        return number
    usual = {_shape(cell) for cell in frame.iloc[:start, 0].tolist()}
    below: list[Any] = frame.iloc[start:, 0].tolist()
    new = all(
        _is_sum(frame[: start + n + 1]) if pd.isna(one) else _shape(one) not in usual for n, one in enumerate(below)
    )
    return start if new else number


def _sums(frame: pd.DataFrame, first: list[Any]) -> list[int]:
    """Places of the rows whose first cell is a word of totals alone, with the sum of the rows since the one before.

    The last may be the sum of all others.
    """
    words = {cell for cell in set(first) if _says(_ALONE, cell)}
    places = [place for place, cell in enumerate(first) if cell in words] if words else []
    starts = [0, *(place + 1 for place in places)]
    sums = [end for start, end in zip(starts, places, strict=False) if _is_sum(frame.iloc[start : end + 1], 3)]
    if places and places[-1] not in sums and _is_sum(frame[: places[-1] + 1].drop(frame.index[places[:-1]]), 3):
        sums.append(places[-1])
    return sums


def _is_sum(frame: pd.DataFrame, fewest: int = FEWEST_ROWS + 1) -> bool:
    """Whether a number of the last row is the sum of those of its column above."""
    for name in range(1, frame.shape[1]):
        read = [number_of(plain_text(str(cell))) for cell in frame.iloc[:, name].tolist()]
        for decimal in (".", ",") * (read[-1] is not None):
            values = [value for one in read if one is not None and (value := one.value(decimal)) is not None]
            if len(values) >= fewest and math.isclose(sum(values[:-1]), values[-1], rel_tol=1e-6):
                return True
    return False


def _shape(cell: Any) -> str:
    """How a cell is written: a number as "0"; digits and letters of other texts as one each."""
    text = "" if pd.isna(cell) else plain_text(str(cell))
    if number_of(text) is not None:
        return "0"
    for run, sign in _RUNS:
        text = run.sub(sign, text)
    return text
