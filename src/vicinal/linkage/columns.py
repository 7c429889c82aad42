"""The columns that two tables share, as codes of their distinct cells: each is cleaned and compared once."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from vicinal.linkage.cell_forms import CellForm, cell_form, compared_cell

Ids = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Kind = Literal["number", "code", "name", "text"]

_WORD = re.compile(r"\w+")

_CODES = 0.9
"""Share of the cells of a column that have a digit in each word, from which on it is one of codes."""

_WORDS = 4.0
"""Words of a cell on average, from which on a column is one of texts."""

_JUDGED = 100_000
"""Distinct cells that the kind of a column is judged by, at most."""

_DIGITS = 4
"""Digits of whole numbers from which on they are codes: postal codes, years, telephones, serial numbers."""

_ROUND = 0.5
"""Share of the numbers of a table that end in 00, from which on they are rounded amounts and no codes."""

_DISTINCT, _SPREAD, _SHARED = 0.8, 2.0, 0.02
"""Different numbers for each row of a table, and the ratio of their deciles, from which on they may be amounts; and the
share of them that both tables have beside twice as many as differ by 1, from which on they are codes yet."""


@dataclass(frozen=True)
class CodedColumn:
    """One column of both tables.

    Attributes:
        name: of the column.
        kind: "code" (dates, postal codes, years, model numbers), "number", "name" (a few words) or "text" (many).
        values: its distinct cells as they are compared.
        sides: the code of each left and of each right row, int32 ``[nL]`` and ``[nR]``, -1 where the cell is empty; of
            one table the same array twice.
        form: in which cells are compared.
        like: the column of more rows, by which its values are rare; None: by its own.
    """

    name: str
    kind: Kind
    values: list[str]
    sides: tuple[Ids, Ids]
    form: CellForm = field(default="plain", kw_only=True)
    like: "CodedColumn | None" = field(default=None, kw_only=True)

    @classmethod
    def of_codes(
        cls,
        name: str,
        sides: Sequence[Ids],
        texts: Sequence[str],
        gaps: frozenset[str] = frozenset(),
        *,
        numbers: bool = False,
        like: "CodedColumn | None" = None,
    ) -> "CodedColumn":
        """A column of one table or of two, each distinct cell of which was brought into its normal form once.

        Args:
            name: of the column.
            sides: places of the cells of the left table among ``texts``, and of the right one; of the only one. -1 of
                an empty cell.
            texts: normal forms, some of which may be the same.
            gaps: those that say nothing, beside "".
            numbers: whether the cells are numbers.
            like: the same column of all rows, where these are some of them or new.

        >>> towns = ["ulm", "n/a", "bonn", "ulm"]
        >>> column = CodedColumn.of_codes("town", [np.array([0, 1]), np.array([2, 3])], towns, frozenset({"n/a"}))
        >>> column.kind, column.values, column.sides[0].tolist(), column.sides[1].tolist()
        ('name', ['ulm', 'bonn'], [0, -1], [1, 0])
        """
        of, known = _distinct(texts, gaps)
        kind = like.kind if like else _kind(known, [of[codes] for codes in sides], numbers=numbers)
        form = like.form if like else cell_form(kind, known[: _JUDGED // 5])
        if form != "plain" or not all(map(str.isascii, known)):
            again, known = _distinct([compared_cell(value, form) for value in known])
            of = again[of]
        coded = [of[codes] for codes in sides]
        return cls(name, kind, known, (coded[0], coded[-1]), form=form, like=like)

    @property
    def is_exact(self) -> bool:
        """Whether its cells are codes or whole numbers: the same, or different."""
        return self.kind == "code" or (self.kind == "number" and all(float(each).is_integer() for each in self.values))

    @cached_property
    def places(self) -> "pd.Index[str]":
        """Where each of its values stands; -1 of others."""
        return pd.Index(self.values, dtype=object)

    @cached_property
    def texts(self) -> Ids:
        """Its values, ``[v]``."""
        return np.array(self.values, dtype=object)

    @cached_property
    def ordered(self) -> Ids:
        """Its values with their words in the order of the alphabet, without marks, ``[v]``."""
        return np.array([" ".join(sorted(_WORD.findall(value))) for value in self.values], dtype=object)

    @cached_property
    def has_order(self) -> Ids:
        """Which values are others in that order, ``[v]``."""
        return np.asarray(self.ordered != self.texts, dtype=bool)

    @cached_property
    def frequency(self) -> Floats:
        """Share of the filled cells of all rows that have each value, ``[v]``."""
        tables = self.sides[: 2 - (self.sides[0] is self.sides[1])]
        counts = sum(_counts(side, len(self.values)) for side in tables)
        return np.asarray(counts / max(1.0, float(np.sum(counts))))

    @cached_property
    def equal_by_chance(self) -> float:
        """Probability that two filled cells, of a random left and a random right row, are equal."""
        shares = [_counts(side, len(self.values)) for side in self.sides]
        return float((shares[0] / max(1.0, shares[0].sum())) @ (shares[1] / max(1.0, shares[1].sum())))

    @cached_property
    def rarity(self) -> Floats:
        """What an equal pair of each value adds to log odds, as it is rare: log of u over its share, ``[v + 1]``.

        The last is that of a value that no row has.
        """
        if self.like is not None:
            places = self.like.places.get_indexer(pd.Index([*self.values, ""], dtype=object))
            return self.like.rarity[places]
        least = 1 / max(map(len, self.sides))
        shares = np.maximum(np.append(self.frequency, 0.0), least)
        return np.asarray(np.log(max(self.equal_by_chance, least * least) / shares))


def _distinct(texts: Sequence[str], gaps: frozenset[str] = frozenset()) -> tuple[Ids, list[str]]:
    """Places of texts among the distinct ones, -1 of gaps and at the end, where that of an empty cell stands."""
    places = {text: place for place, text in enumerate(dict.fromkeys(t for t in texts if t and t not in gaps))}
    return np.array([*(places.get(text, -1) for text in texts), -1], dtype=np.int32), list(places)


def _counts(codes: Ids, size: int) -> Floats:
    return np.bincount(codes[codes >= 0], minlength=size).astype(np.float64)


def _are_amounts(values: Sequence[str], each: Sequence[Floats]) -> bool:
    """Whether two tables have equal whole numbers by chance alone: as many as such that differ by one."""
    # others are names: longer ones than an integer holds, and 12², whose digits are no number
    numbers = np.array([int(value) if value.isdecimal() and len(value) < 19 else -1 for value in values])
    left, right = (numbers[(counts > 0) & (numbers > 0)] for counts in each)
    fewest = min(len(left), len(right))
    if not fewest:
        return False
    low, high = np.quantile(numbers[numbers > 0], (0.1, 0.9))
    if any(np.count_nonzero(counts) < _DISTINCT * counts.sum() for counts in each) or high < _SPREAD * low:
        return False
    equal, next_to = (np.isin(left + step, right).sum() for step in (0, 1))
    return bool(equal <= 2 * next_to + _SHARED * fewest)


def _kind(values: Sequence[str], sides: Sequence[Ids], *, numbers: bool) -> Kind:
    """What kind of column distinct values make, weighed by how often they stand."""
    if not values:
        return "name"
    each = [_counts(codes, len(values))[:_JUDGED] for codes in sides]
    often, values = sum(each), values[:_JUDGED]
    if numbers:
        lengths = np.array([len(value) if value.isdigit() else 0 for value in values])
        rounded = np.array([value.endswith("00") for value in values])
        if any(counts @ rounded > _ROUND * counts.sum() for counts in each):
            return "number"
        if np.average(lengths >= _DIGITS, weights=often) < _CODES or (len(each) > 1 and _are_amounts(values, each)):
            return "number"
        return "code"
    words = [value.split() for value in values]
    digits = np.array([all(any(map(str.isdigit, word)) for word in each) for each in words])
    if np.average(digits, weights=often) >= _CODES:
        return "code"
    return "text" if np.average([len(each) for each in words], weights=often) >= _WORDS else "name"
