"""Rows of a file that are no rows of its table: totals, subtotals and notes below it."""

import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core import counted, listed

FEWEST_ROWS, MOST_NOTES = 10, 10
"""Rows of a table that tell what is usual in it, and most rows of notes below it."""

_WORD = (
    r"(?:(?:grand|sub|gesamt|zwischen)[- ]?)?"
    r"(?:totale?s?|summe|sum|gesamt|endsaldo|somme|suma|razem|average|mean|\u5408\u8a08|\u5c0f\u8a08)"
)
_TOTAL = re.compile(rf"^\W*{_WORD}\b|\b{_WORD}\W*$", re.IGNORECASE)
_RUNS = ((re.compile(r"[0-9]+"), "0"), (re.compile(r"[^\W\d_]+"), "a"))


def without_totals(frame: pd.DataFrame, *, end: bool = True) -> tuple[pd.DataFrame, str]:
    """The rows of a table as people export it, without totals and notes, and which were left out as a phrase, or "".

    A row is a total if its first cell says so ("Summe", "North Total") and it has a gap in a column that has none in
    other rows. The first row is of units if it alone has no first cell, and no digit. Rows at the ``end`` are notes if
    at most a third of their cells are there (half of them, without the first), no other row has as few, and their first
    cell is not written as those above.

    >>> rows = pd.DataFrame({"place": [*"abcdefghij", "Total"], "kind": [*"x" * 10, None], "price": range(11)})
    >>> without_totals(rows)[1]
    "1 row of totals, units or notes: 'Total'"
    """
    filled = frame.notna().to_numpy()  # [n, columns]
    odd = np.zeros(len(frame), dtype=bool)
    if len(frame) <= FEWEST_ROWS or frame.shape[1] < 3:
        return frame, ""
    first = frame.iloc[:, 0].tolist()
    units = not filled[0, 0] and filled[1 : FEWEST_ROWS + 1, 0].all() and not re.search("[0-9]", str(frame.values[0]))
    odd[0] = units
    if end:
        odd[_first_note(first[units:], filled[units:]) + units :] = True
    named = np.array([isinstance(cell, str) and _TOTAL.search(cell) is not None for cell in first])
    full = filled[~odd & ~named].all(0)
    odd |= named & ~filled[:, full].all(1)
    if not odd.any() or 2 * odd.sum() > len(frame):
        return frame, ""
    shown = [next((str(cell) for cell in row if not pd.isna(cell)), "") for row in frame[odd].values.tolist()]
    return frame[~odd], f"{counted(len(shown), 'row')} of totals, units or notes: {listed(shown, 80)}"


def _first_note(first: list[Any], filled: NDArray[np.bool_]) -> int:
    """The place of the first row of the notes at the end; the number of rows if there are none."""
    number, width = len(first), int(np.median(filled.sum(1)))
    few = filled.sum(1) <= np.where(filled[:, 0], width / 3, width / 2)  # [n]
    start = number - int(few[::-1].argmin())
    usual = {_shape(cell) for cell in first[:start]}
    new = all(_shape(cell) not in usual for cell in first[start:])
    below = width >= 3 and new and not few[:start].any() and start >= FEWEST_ROWS
    return start if below and number - start <= MOST_NOTES else number


def _shape(cell: Any) -> str:
    """How a cell is written: digits and letters as one each."""
    text = "" if pd.isna(cell) else str(cell)
    for run, sign in _RUNS:
        text = run.sub(sign, text)
    return text
