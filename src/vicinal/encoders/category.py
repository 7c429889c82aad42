"""Columns of categories: one slot for each frequent value."""

import datetime
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from vicinal.core import ColumnError, register, short
from vicinal.core.checks import check_integer, short_text
from vicinal.core.identity import spelled, without_accents
from vicinal.encoders.base import ColumnEncoder, SavedEncoder, refuse
from vicinal.encoders.inputs import RowInputs

OTHER, MISSING = "other", "missing"

NAMES, NAMES_ROOM = 1 << 14, 8 << 20
"""Most categories of a column whose names are remembered, and most bytes of those without a slot, of all columns."""

_BETWEEN = re.compile(r"[\s_.-]+|(?<=[^\W\d_]{4})[*\u2020\u2021]+$")
"""Marks between the letters of a word, and those of a footnote behind a long one: A* is a grade."""

_PLAIN = {str, int, float, bool, type(None)}
"""Types whose cells, if equal and of the same type, are the same category."""


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


def spelling_of(word: str) -> str:
    """What the spellings of one word have in common: its letters in lower case, without accents and marks between them.

    Digits and signs such as + and # are no spelling.

    >>> [spelling_of(word) for word in ("Full-Time", " full_time.", "K\u00f6ln", "B-12", "A+")]
    ['fulltime', 'fulltime', 'koln', 'b-12', 'a+']
    """
    small = spelled(word, loose=True)
    letters = without_accents(_BETWEEN.sub("", small))
    return letters if letters.isalpha() else small


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
    different, rows = _different(series)
    levels: list[str | None] = []
    for row, cell, missing in zip(different.index, different, different.isna(), strict=True):
        if isinstance(cell, list | tuple | dict | set | np.ndarray):
            raise refuse(
                column, row, "one category", short(cell), "join the values to one text, or make columns of them"
            )
        level = None if missing else level_of(cell)
        levels.append(level or None)
    return [levels[row] for row in rows]


def _different(series: "pd.Series[Any]") -> tuple["pd.Series[Any]", Sequence[int]]:
    """The cells of a column each once, and which of them each row has; of other types than ``_PLAIN`` all cells."""
    if isinstance(series.dtype, pd.StringDtype):
        codes, texts = pd.factorize(series, use_na_sentinel=False)
        return pd.Series(texts, dtype=object), codes.tolist()
    cells = [None if missing else cell for cell, missing in zip(series, series.isna(), strict=True)]
    kinds = list(map(type, cells))
    if not _PLAIN.issuperset(kinds):
        return series, range(len(series))
    places: dict[tuple[type, object], int] = {}
    rows = [places.setdefault(key, len(places)) for key in zip(kinds, cells, strict=True)]
    return pd.Series([cell for _, cell in places], dtype=object), rows


def _places_by(meaning: "Callable[[str], Any]", levels: Sequence[str]) -> dict[Any, int]:
    """The place of each number or word that just one of ``levels`` writes; -2 of one that several do: 1.1 and 1.10."""
    places: dict[Any, int] = {}
    for place, level in enumerate(levels):
        if (meant := meaning(level)) is not None:
            places[meant] = -2 if meant in places else place
    return places


class SavedCategories(SavedEncoder):
    """See :meth:`CategoryEncoder.config`; encoders that were saved before there was ``further`` have none."""

    largest: PositiveInt
    levels: list[list[str]]
    has_other: list[bool]
    has_missing: list[bool]
    further: list[list[str]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_a_column(self) -> Self:
        if not len(self.levels) == len(self.has_other) == len(self.has_missing) == len(self.columns):
            raise ValueError(f"categories of {len(self.levels)} columns in place of {len(self.columns)}")
        if not all(0 < len(set(levels)) == len(levels) <= self.largest for levels in self.levels):
            raise ValueError(f"none, repeated or more than {self.largest} categories of a column")
        if len(self.further) not in (0, len(self.columns)):
            raise ValueError(f"further categories of {len(self.further)} columns in place of {len(self.columns)}")
        for levels, further in zip(self.levels, self.further, strict=False):
            if len(further) > NAMES or len({*levels, *further}) < len(levels) + len(further):
                raise ValueError(f"repeated or more than {NAMES} further categories of a column")
        return self


@register("encoder", "categories", "category", "parameter-free")
class CategoryEncoder(ColumnEncoder):
    """One-hot of the most frequent categories of each column, with slots for other and for missing values.

    The slots "other" (categories beyond the most frequent) and "missing" exist only if training rows fill them. Without
    them an unseen or missing category is a row of zeros, since a slot that no training row filled would be untrained.
    The next most frequent categories are remembered in ``further``, for :meth:`codes`: those of at least 2 training
    rows, up to 2^14 names of a column with its slots, and 8 MiB of names of all columns, each an equal share.

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
    statistics = ("levels", "has_other", "has_missing", "further")

    def __init__(self, columns: str | Sequence[str], largest: int = 128) -> None:
        super().__init__(columns)
        self.largest = check_integer("largest", largest)
        self.levels: list[list[str]] = []
        self.has_other: list[bool] = []
        self.has_missing: list[bool] = []
        self.further: list[list[str]] = []

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

    @property
    def entries(self) -> list[str]:
        """The column of each slot."""
        return [column for column, slots in zip(self.columns, self.slots, strict=True) for _ in slots]

    def fit(self, frame: pd.DataFrame) -> Self:
        """Take the most frequent categories, ties in alphabetical order.

        Raises:
            ValueError: for a column that is all missing.
        """
        self.check_frame(frame)
        self.levels, self.has_other, self.has_missing, self.further = [], [], [], []
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
            further = [level for level in ranked[self.largest : NAMES] if counts[level] > 1]
            sizes = np.cumsum([len(json.dumps(level)) + 2 for level in further])  # with a comma and a blank
            self.further.append(further[: int((sizes <= NAMES_ROOM // len(self.columns)).sum())])
        return self

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RowInputs:
        """The slot of each cell, int64 ``[n, columns]``; -1 for none."""
        self._check_fitted()
        self.check_frame(frame)
        slots = np.empty((len(frame), len(self.columns)), dtype=np.int64)
        for j, column in enumerate(self.columns):
            count = len(self.levels[j])
            other = count if self.has_other[j] else -1
            missing = count + self.has_other[j] if self.has_missing[j] else -1
            places = self._places(self.levels[j], column, frame[column])
            slots[:, j] = np.select([places == -1, places == -2], [missing, other], places)
        return RowInputs(torch.from_numpy(slots))

    def codes(self, frame: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The place of each cell among ``levels`` and then ``further``, ``[n, columns]``.

        -1 is a missing cell, -2 a category that is in neither: one that no training row had, or too few. A cell that is
        stored as a number is the category of its name, else the only one of all these that writes the number.

        Raises:
            ValueError: for a frame without the columns, or a cell that holds several values.

        >>> frame = pd.DataFrame({"city": ["Bonn", "Rome", "Bonn", "Rome", "Bonn", "Oslo", None]})
        >>> encoder = CategoryEncoder("city", largest=1).fit(frame)
        >>> encoder.levels, encoder.further, encoder.codes(frame).ravel().tolist()
        ([['Bonn']], [['Rome']], [0, 1, 0, 1, 0, -2, -1])
        """
        self._check_fitted()
        self.check_frame(frame)
        each = zip(self.columns, self._names(), strict=True)
        return np.stack([self._places(names, column, frame[column]) for column, names in each], axis=1)

    def _names(self) -> list[list[str]]:
        """``levels`` and ``further`` of each column in one list."""
        further = self.further or [[] for _ in self.levels]
        return [[*levels, *more] for levels, more in zip(self.levels, further, strict=True)]

    def forget(self, gone: pd.DataFrame, left: "Callable[[str], pd.Series[Any]]") -> None:
        """Take their names from levels that no row has any more; all places stay, so that no vector changes.

        >>> frame = pd.DataFrame({"city": ["Bonn", "Rome", "Bonn"]})
        >>> encoder = CategoryEncoder("city").fit(frame)
        >>> encoder.forget(frame[1:], lambda column: frame[column][:1])
        >>> encoder.levels
        [['Bonn', ' forgotten 1']]
        """
        for j, (column, names) in enumerate(zip(self.columns, self._names(), strict=True)):
            lost = set(names) & set(to_levels(gone[column], column))
            if lost:
                cells = left(column)
                different = [cell for _, cell in set(zip(map(type, cells), cells, strict=True))]
                lost -= set(to_levels(pd.Series(different, dtype=object), column))
            for place in [place for place, level in enumerate(names) if level in lost]:
                names[place] = f" forgotten {place}"  # no cell is of this level, as names begin without a blank
            count = len(self.levels[j])
            self.levels[j][:] = names[:count]
            for further in self.further[j : j + 1]:
                further[:] = names[count:]

    def unseen(self, frame: pd.DataFrame) -> dict[str, list[str]]:
        """The cells of each column whose category no training row had, by the name of the column, in their order.

        Of a column with more categories than slots it is not known which were seen; it is left out.
        """
        self._check_fitted()
        unseen: dict[str, list[str]] = {}
        for j, column in enumerate(self.columns):
            if not self.has_other[j]:
                levels = to_levels(frame[column], column)
                places = self._places(self.levels[j], column, frame[column])
                new = [str(level) for level, place in zip(levels, places, strict=True) if place == -2]
                unseen |= {column: new} if new else {}
        return unseen

    @staticmethod
    def _places(names: Sequence[str], column: str, series: "pd.Series[Any]") -> np.ndarray[Any, np.dtype[np.int64]]:
        """Which of the categories ``names`` each cell is ``[n]``: -1 if it is missing, -2 if it is none of them.

        A cell that is stored as a number is also the one category that writes this number, such as "1.0" or "007", and
        another text the one that is spelled alike, such as "Full-time" of "full time".
        """
        known = {level: k for k, level in enumerate(names)}
        by_meaning: dict[Callable[[str], Any], dict[Any, int]] = {}
        different, rows = _different(series)
        places: list[int] = []
        for level, cell in zip(to_levels(different, column), different.tolist(), strict=True):
            if level is None or level in known:
                places.append(-1 if level is None else known[level])
                continue
            meaning = spelling_of if isinstance(cell, str) else number_of_level
            if meaning not in by_meaning:
                by_meaning[meaning] = _places_by(meaning, names)
            meant = meaning(str(int(cell)) if isinstance(cell, bool | np.bool_) else level)
            places.append(by_meaning[meaning].get(meant, -2))
        return np.array(places, dtype=np.int64)[np.array(rows, dtype=np.int64)]

    def forward(self, batch: Tensor) -> Tensor:
        """Zeros and ones ``[b, dim]`` of slot numbers ``[b, columns]``."""
        columns = [
            batch[:, j, None] == torch.arange(len(slots), device=batch.device) for j, slots in enumerate(self.slots)
        ]
        return torch.cat(columns, dim=1).float()

    def _check_fitted(self) -> None:
        if not self.levels:
            raise ValueError("CategoryEncoder: expected a fitted encoder, got one without categories; call fit first")
