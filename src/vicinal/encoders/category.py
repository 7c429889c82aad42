"""Columns of categories: one slot for each frequent value."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor

from vicinal.core import ColumnError, check_integer, register, short, short_text
from vicinal.encoders.base import ColumnEncoder, SavedEncoder, refuse
from vicinal.encoders.inputs import RowInputs

OTHER, MISSING = "other", "missing"


def level_of(cell: object) -> str:
    """The name of a category, the same however a table stored it: 1, 1.0 and "1" are one category.

    >>> level_of(1.0), level_of(1), level_of(True), level_of("a ")
    ('1', '1', 'True', 'a')
    """
    if isinstance(cell, str):
        return cell.strip()
    value = cell.item() if isinstance(cell, np.generic) else cell
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def to_levels(series: "pd.Series[Any]", column: str) -> list[str | None]:
    """The name of the category of each row, None where it is missing.

    Raises:
        ValueError: for a cell that holds several values (a list, an array, a dictionary).
    """
    levels: list[str | None] = []
    for row, cell, missing in zip(series.index, series, series.isna(), strict=True):
        if isinstance(cell, list | tuple | dict | set | np.ndarray):
            raise refuse(
                column, row, "one category", short(cell), "join the values to one text, or make columns of them"
            )
        level = None if missing else level_of(cell)
        levels.append(level or None)
    return levels


class SavedCategories(SavedEncoder):
    """See :meth:`CategoryEncoder.config`."""

    largest: PositiveInt
    levels: list[list[str]]
    has_other: list[bool]
    has_missing: list[bool]

    @model_validator(mode="after")
    def _one_a_column(self) -> Self:
        if not len(self.levels) == len(self.has_other) == len(self.has_missing) == len(self.columns):
            raise ValueError(f"categories of {len(self.levels)} columns in place of {len(self.columns)}")
        if not all(0 < len(set(levels)) == len(levels) <= self.largest for levels in self.levels):
            raise ValueError(f"none, repeated or more than {self.largest} categories of a column")
        return self


@register("encoder", "categories", "category", "parameter-free")
class CategoryEncoder(ColumnEncoder):
    """One-hot of the most frequent categories of each column, with slots for other and for missing values.

    The slots "other" (categories beyond the most frequent) and "missing" exist only if training rows fill them. Without
    them an unseen or missing category is a row of zeros, since a slot that no training row filled would be untrained.

    Args:
        columns: one or several columns of categories.
        largest: how many categories of a column get a slot of their own, at least 1.

    >>> frame = pd.DataFrame({"city": ["Bonn", "Rome", "Bonn", None]})
    >>> encoder = CategoryEncoder("city").fit(frame)
    >>> encoder.slots
    [['Bonn', 'Rome', 'missing']]
    >>> encoder(encoder.prepare(pd.DataFrame({"city": ["Rome", "Oslo"]})).select(torch.tensor([0, 1])))
    tensor([[0., 1., 0.],
            [0., 0., 0.]])
    """

    kind = "category"
    name = "categories"
    several = True
    saved = SavedCategories
    statistics = ("levels", "has_other", "has_missing")

    def __init__(self, columns: str | Sequence[str], largest: int = 128) -> None:
        super().__init__(columns)
        self.largest = check_integer("largest", largest)
        self.levels: list[list[str]] = []
        self.has_other: list[bool] = []
        self.has_missing: list[bool] = []

    @property
    def slots(self) -> list[list[str]]:
        """Names of the slots of each column, in their order."""
        self._check_fitted()
        return [
            [*levels, *([OTHER] if other else []), *([MISSING] if missing else [])]
            for levels, other, missing in zip(self.levels, self.has_other, self.has_missing, strict=True)
        ]

    @property
    def dim(self) -> int:
        """Number of slots of all columns."""
        return sum(map(len, self.slots))

    def fit(self, frame: pd.DataFrame) -> Self:
        """Take the most frequent categories, ties in alphabetical order.

        Raises:
            ValueError: for a column that is all missing.
        """
        self.check_frame(frame)
        self.levels, self.has_other, self.has_missing = [], [], []
        for column in self.columns:
            levels = to_levels(frame[column], column)
            counts = Counter(level for level in levels if level is not None)
            if not counts:
                raise ColumnError(
                    f"{short_text(column)}: expected at least one category, got {len(levels)} rows all missing; "
                    "leave the column out"
                )
            ranked = sorted(counts, key=lambda level: (-counts[level], level))
            self.levels.append(ranked[: self.largest])
            self.has_other.append(len(ranked) > self.largest)
            self.has_missing.append(None in levels)
        return self

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RowInputs:
        """The slot of each cell, int64 ``[n, columns]``; -1 for none."""
        del root
        self._check_fitted()
        self.check_frame(frame)
        slots = np.empty((len(frame), len(self.columns)), dtype=np.int64)
        for j, column in enumerate(self.columns):
            place = {level: k for k, level in enumerate(self.levels[j])}
            other = len(place) if self.has_other[j] else -1
            missing = len(place) + self.has_other[j] if self.has_missing[j] else -1
            slots[:, j] = [
                missing if level is None else place.get(level, other) for level in to_levels(frame[column], column)
            ]
        return RowInputs(torch.from_numpy(slots))

    def forget(self, gone: pd.DataFrame, left: "Callable[[str], pd.Series[Any]]") -> None:
        """Take their names from levels that no row has any more; the slots stay, so that no vector changes.

        >>> frame = pd.DataFrame({"city": ["Bonn", "Rome", "Bonn"]})
        >>> encoder = CategoryEncoder("city").fit(frame)
        >>> encoder.forget(frame[1:], lambda column: frame[column][:1])
        >>> encoder.levels
        [['Bonn', ' forgotten 1']]
        """
        for column, levels in zip(self.columns, self.levels, strict=True):
            lost = set(levels) & set(to_levels(gone[column], column))
            if lost:
                cells = left(column)
                different = [cell for _, cell in set(zip(map(type, cells), cells, strict=True))]
                lost -= set(to_levels(pd.Series(different, dtype=object), column))
            for place in [place for place, level in enumerate(levels) if level in lost]:
                levels[place] = f" forgotten {place}"  # no cell is of this level, as names begin without a blank

    def forward(self, batch: Tensor) -> Tensor:
        """Zeros and ones ``[b, dim]`` of slot numbers ``[b, columns]``."""
        columns = [
            batch[:, j, None] == torch.arange(len(slots), device=batch.device) for j, slots in enumerate(self.slots)
        ]
        return torch.cat(columns, dim=1).float()

    def _check_fitted(self) -> None:
        if not self.levels:
            raise ValueError("CategoryEncoder: expected a fitted encoder, got one without categories; call fit first")
