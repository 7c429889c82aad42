"""What users pass as X, y, ids and groups, checked and in one form: a table with one kind for each column."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, StratifiedShuffleSplit
from sklearn.utils.validation import validate_data

from vicinal.core import check_between
from vicinal.encoders import Kind, infer_kinds
from vicinal.estimators.bank import Ids

FEWEST_ROWS = 10
"""Fewer labelled rows than this are refused: nothing can be held out of them."""


def as_frame(estimator: BaseEstimator, x: Any, *, reset: bool) -> pd.DataFrame:
    """``x`` as a table, with scikit-learn's checks of names and number of columns.

    A DataFrame may hold columns of any kind; anything else must be a finite numeric matrix.

    Raises:
        ValueError: as scikit-learn words it.
    """
    if isinstance(x, pd.DataFrame):
        validate_data(estimator, x, reset=reset, skip_check_array=True)
        if len(x) == 0:
            raise ValueError("X: expected at least one row, got a table of 0 rows")
        frame = x.copy(deep=False)
        frame.columns = [str(name) for name in x.columns]
        return frame
    values = validate_data(estimator, x, reset=reset, dtype=np.float64)
    return pd.DataFrame(values, columns=[f"x{i}" for i in range(values.shape[1])])


def kinds_of(frame: pd.DataFrame, x: Any, columns: Mapping[str, Kind] | None) -> dict[str, Kind]:
    """Kind of each column that is used: those of ``columns``, the rest by what they hold; all numbers for an array."""
    if not isinstance(x, pd.DataFrame):
        return {str(name): "number" for name in frame.columns}
    found = infer_kinds(frame, dict(columns or {}))
    used: dict[str, Kind] = {name: column.kind for name, column in found.items() if column.kind is not None}
    if not used:
        reasons = "; ".join(f"{name}: {column.reason}" for name, column in found.items())
        raise ValueError(f"X: expected at least one column to learn from, got none ({reasons})")
    return used


def check_rows(rows: int) -> None:
    """Raise ValueError for fewer than ``FEWEST_ROWS`` rows."""
    if rows < FEWEST_ROWS:
        raise ValueError(f"X: expected at least {FEWEST_ROWS} rows to train on, got n_samples={rows}")


@dataclass(frozen=True)
class HeldOut:
    """Positions of the rows that are trained on, which become the bank, and of those held out for early stopping."""

    train: Ids
    validation: Ids


def hold_out(
    rows: int, validation: Any, fraction: float, groups: Ids | None, classes: Ids | None, seed: int
) -> HeldOut:
    """Which rows are held out: those asked for, or a seeded ``fraction``, whole groups if there are groups.

    Raises:
        ValueError: if the positions are wrong, or one group holds nearly everything.
    """
    everything = np.arange(rows)
    if validation is not None:
        held = np.unique(np.asarray(validation, dtype=np.int64))
        if len(held) == 0 or held[0] < 0 or held[-1] >= rows or len(held) > rows - 2:
            raise ValueError(
                f"validation: expected positions from 0 to {rows - 1} that leave at least 2 rows to train on, "
                f"got {len(held)} positions"
            )
        return HeldOut(np.setdiff1d(everything, held), held)
    check_between("validation_fraction", fraction, 0, 1)
    count = min(rows - 2, max(1, round(fraction * rows)))
    if groups is not None:
        if len(set(groups.tolist())) < 2:
            raise ValueError("groups: expected at least two groups, got one group that holds every row")
        splitter: Any = GroupShuffleSplit(1, test_size=fraction, random_state=seed)
    elif classes is not None and _can_stratify(classes, count):
        splitter = StratifiedShuffleSplit(1, test_size=count, random_state=seed)
    else:
        splitter = ShuffleSplit(1, test_size=count, random_state=seed)
    train, held = next(splitter.split(everything, classes, groups))
    if len(train) < 2:
        raise ValueError(f"groups: expected groups that leave at least 2 rows to train on, got {len(train)}")
    return HeldOut(np.sort(train), np.sort(held))


def _can_stratify(classes: Ids, held: int) -> bool:
    counts = np.unique(classes, return_counts=True)[1]
    return bool(counts.min() >= 2 and held >= len(counts) and len(classes) - held >= len(counts))
