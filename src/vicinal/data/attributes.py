"""Attributes of people, such as sex and age: the groups between which predictions may be unfair."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core.checks import plain, short_text
from vicinal.data.cells import as_numbers, missing_cells
from vicinal.data.target import class_names

MOST_GROUPS = 20
_FEW = 10
_PARTS = 4

Codes = NDArray[np.int64]


def attribute_groups(values: "pd.Series[Any]", *, least: int = 2) -> tuple[Codes, list[str]]:
    """Group of each row by an attribute ``[n]``, and the names of the groups.

    Numbers with more than 10 different values are cut at their quartiles; missing cells are a group of their own.

    Raises:
        ValueError: for more than 20 different values that are not numbers, or fewer than ``least`` groups.

    >>> attribute_groups(pd.Series(["f", "m", None, "f"], name="sex"))
    (array([0, 1, 2, 0]), ['f', 'm', 'missing'])
    >>> attribute_groups(pd.Series(range(100), name="age"))[1]
    ['0 to 24', '25 to 49', '50 to 74', '75 to 99']
    """
    name, there = short_text(values.name), ~missing_cells(values)
    present = values[there]
    numbers = as_numbers(present)
    if len(np.unique(numbers)) > _FEW and not np.isnan(numbers).any():
        cuts = np.quantile(numbers, np.arange(1, _PARTS) / _PARTS)
        used, codes = np.unique(np.searchsorted(cuts, numbers), return_inverse=True)
        ends = [(numbers[codes == part].min(), numbers[codes == part].max()) for part in range(len(used))]
        names = [f"{plain(low, 6)} to {plain(high, 6)}" if low < high else plain(low, 6) for low, high in ends]
    else:
        values_there, codes = np.unique(class_names(present, numbers).astype(str), return_inverse=True)
        names = [str(value) for value in values_there]
    count = len(names) + (not there.all())
    if count < least or len(names) > MOST_GROUPS:
        raise ValueError(
            f"fair: expected an attribute of {least} to {MOST_GROUPS} different values, or numbers, got {count} "
            f"in column {name}"
        )
    every = np.full(len(values), len(names), dtype=np.int64)
    every[there] = codes
    return every, [*names, *(["missing"] if not there.all() else [])]
