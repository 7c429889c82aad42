"""Numbers that stand for missing ones: -999 among ages, 99 among rooms, -1 among incomes."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Numbers = NDArray[np.floating[Any]]

OFTEN, FAR = 3, 3
"""Rows at least that a word or number for missing values is in, and its distance from the others, in their ranges."""

FEW = 5
"""Different numbers at least that tell what is usual; as many below zero, all of them codes, are not few any more."""

AT_ONCE = 10
"""How many times as often as the others 99 has to be there, where it is not far from them, to be asked about."""


def placeholders_of(column: "pd.Series[float]") -> tuple[tuple[float, ...], tuple[float, ...], str]:
    """The numbers that surely stand for missing ones, those that may, and a sentence on these, or "".

    Sure are numbers of nines in several rows each, if they lie far beyond all others or are the only ones below zero,
    and codes such as 888 beside them. Asked about are those that are not as far but stand out, and a few whole numbers
    down to -9 as the only ones below zero, unless -1 goes on where 0 and 1 began; and 0 far below all others.

    >>> ages = [float(age) for age in range(20, 60)]
    >>> placeholders_of(pd.Series([*ages, -999, -999, -999], name="age"))
    ((-999.0,), (), '')
    >>> placeholders_of(pd.Series([*ages, 0, 0, 0], name="age"))
    ((), (0.0,), '3 cells are 0, all others 20 to 59')
    """
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    values = values[np.isfinite(values)]
    if not len(values) or not (_is_nines(high := values.max()) or -9 <= (low := values.min()) <= 0 or _is_nines(low)):
        return (), (), ""
    numbers, counts = np.unique(values, return_counts=True)
    sure: list[float] = []
    for end in (numbers[0], high):
        codes = _codes(end, numbers) & (counts >= OFTEN)
        if codes.any() and codes[numbers == end].all() and _is_sure(end, numbers[~codes]):
            sure += numbers[codes].tolist()
            numbers, counts = numbers[~codes], counts[~codes]
    odd = _unsure(numbers, counts)
    if not odd.any():
        return tuple(sure), (), ""
    doubtful, others = tuple(numbers[odd].tolist()), numbers[~odd]
    named = " or ".join(f"{number:.12g}" for number in doubtful)
    doubt = f"{counts[odd].sum():,} cells are {named}, all others {others[0]:,.12g} to {others[-1]:,.12g}"
    return tuple(sure), doubtful, doubt


def _is_nines(number: float) -> bool:
    """Whether a number is -9, or of two nines or more."""
    return set(f"{abs(number):.12g}") == {"9"} and not 0 < number < 10


def _codes(end: float, numbers: Numbers) -> NDArray[np.bool_]:
    """Which numbers are ``end``, if it is one of nines, or a code of as many digits beside it: 888, or 998."""
    size = f"{abs(end):.0f}"
    near = [abs(end) - 2, abs(end) - 1, *(float(digit * len(size)) for digit in "6789" * (len(size) > 1))]
    return np.isin(numbers, np.copysign([abs(end), *near * (len(size) > 1)], end)) & _is_nines(end)


def _is_sure(end: float, others: Numbers) -> bool:
    """Whether numbers of nines as far away as ``end`` are surely none of the ``others``."""
    if len(others) < 2:
        return False
    low, high = others[0], others[-1]
    if max(low - end, end - high) > FAR * (high - low):
        return True
    return bool(end < 0 <= low or (end <= -999 and low - end > high - low))


def _unsure(numbers: Numbers, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which numbers may stand for missing ones."""
    odd = np.zeros(len(numbers), dtype=bool)
    below = int((numbers < 0).sum())
    if len(numbers) - 1 > FEW and _is_nines(numbers[-1]) and counts[-1] >= OFTEN:
        others = numbers[:-1]
        odd[-1] = numbers[-1] - others[-1] > others[-1] - others[0] or counts[-1] >= AT_ONCE * np.median(counts[:-1])
    if 0 < below < FEW and len(numbers) - below > 2 * FEW and numbers[0] >= -9 and counts[:below].min() >= OFTEN:
        whole = (numbers[:below] == np.round(numbers[:below])).all()
        joined = numbers[below - 1] == -1 and below == -numbers[0]
        slope = joined and (below > 1 or (numbers[1] == 0 and counts[0] <= counts[1] <= counts[2]))
        odd[:below] = whole and not slope
    elif numbers[0] == 0 and counts[0] >= OFTEN and len(numbers) > 2 * FEW:
        odd[0] = _is_far_zero(numbers[1:], counts[1:]) and counts[0] < counts[1:].sum()
    return odd


def _is_far_zero(others: Numbers, counts: NDArray[np.int64]) -> bool:
    """Whether 0 lies far below all others: by most of a standard deviation, and by ``FAR`` of them below their mean.

    Counts begin with 1 or a few more, and their logarithms with ln 2: a 0 below them is honest.
    """
    mean = np.average(others, weights=counts)
    spread = np.sqrt(np.average((others - mean) ** 2, weights=counts))
    whole = (others == np.round(others)).all()
    return bool(others[0] >= 0.75 * spread and mean >= FAR * spread and others[0] > (AT_ONCE if whole else 1))
