"""Columns of categories: one slot for each frequent value."""

import datetime
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor

from vicinal.core import ColumnError, register, short
from vicinal.core.checks import check_integer, short_text
from vicinal.encoders.base import ColumnEncoder, SavedEncoder, refuse
from vicinal.encoders.inputs import RowInputs

OTHER, MISSING = "other", "missing"


def level_of(cell: object) -> str:
    """The name of a category, the same however a table stored it: 1, 1.0 and "1" are one category.

    Texts are taken as they are written: "1.1" and "1.10", or "7" and "007", are different ones.

    >>> level_of(1.0), level_of(Decimal("1.0")), level_of(np.float32(0.1)), level_of(True), level_of("1.0 ")
    ('1', '1', '0.1', 'True', '1.0')
    >>> level_of(datetime.date(2020, 1, 2)), level_of(pd.Timestamp("2020-01-02"))
    ('2020-01-02', '2020-01-02')
    """
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell))
    if isinstance(cell, float | Decimal | np.floating):
        value = Decimal(str(cell))  # of float32 what is printed: 0.1
        whole = value.is_finite() and value == value.to_integral_value()
        return str(int(value)) if whole else str(float(value))
    if isinstance(cell, datetime.datetime | np.datetime64):
        return str(pd.Timestamp(cell)).removesuffix(" 00:00:00")
    return str(cell.item() if isinstance(cell, np.generic) else cell)


def number_of_level(level: str) -> Decimal | None:
    """The number that the name of a category writes, or None: 1.0 and "1.00" have the same."""
    try:
        value = Decimal(level)
    except ArithmeticError:
        return None
    return value if value.is_finite() else None


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


def _places_by_number(levels: Sequence[str]) -> dict[Decimal, int]:
    """The place of each number that just one of ``levels`` writes; -1 for one that several do, as 1.1 and 1.10."""
    places: dict[Decimal, int] = {}
    for place, level in enumerate(levels):
        number = number_of_level(level)
        if number is not None:
            places[number] = -1 if number in places else place
    return places


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
            count = len(self.levels[j])
            other = count if self.has_other[j] else -1
            missing = count + self.has_other[j] if self.has_missing[j] else -1
            places = self._places(j, frame[column])
            slots[:, j] = [missing if place is None else other if place < 0 else place for place in places]
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

    def unseen(self, frame: pd.DataFrame) -> dict[str, list[str]]:
        """The cells of each column whose category no training row had, by the name of the column, in their order.

        Of a column with more categories than slots it is not known which were seen; it is left out.
        """
        self._check_fitted()
        unseen: dict[str, list[str]] = {}
        for j, column in enumerate(self.columns):
            if not self.has_other[j]:
                levels = to_levels(frame[column], column)
                places = self._places(j, frame[column])
                new = [str(level) for level, place in zip(levels, places, strict=True) if place == -1]
                unseen |= {column: new} if new else {}
        return unseen

    def _places(self, j: int, series: "pd.Series[Any]") -> list[int | None]:
        """Which category of column ``j`` each cell is: None if it is missing, -1 if no training row had it.

        A cell that is stored as a number is also the one category that writes this number, such as "1.0" or "007".
        """
        known = {level: k for k, level in enumerate(self.levels[j])}
        by_number: dict[Decimal, int] = {}
        places: list[int | None] = []
        for level, cell in zip(to_levels(series, self.columns[j]), series.tolist(), strict=True):
            if level is None or level in known or isinstance(cell, str):
                places.append(None if level is None else known.get(level, -1))
                continue
            by_number = by_number or _places_by_number(self.levels[j])
            number = number_of_level(str(int(cell)) if isinstance(cell, bool | np.bool_) else level)
            places.append(-1 if number is None else by_number.get(number, -1))
        return places

    def forward(self, batch: Tensor) -> Tensor:
        """Zeros and ones ``[b, dim]`` of slot numbers ``[b, columns]``."""
        columns = [
            batch[:, j, None] == torch.arange(len(slots), device=batch.device) for j, slots in enumerate(self.slots)
        ]
        return torch.cat(columns, dim=1).float()

    def _check_fitted(self) -> None:
        if not self.levels:
            raise ValueError("CategoryEncoder: expected a fitted encoder, got one without categories; call fit first")
