"""Which entries of a block may not be attended to, without comparing every query with every bank row."""

import operator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

Keys = tuple[Tensor, Tensor]
"""Integers of the queries ``[b]`` and of the bank ``[N]``; a pair with equal ones is excluded."""


class ExcludedEntries(NamedTuple):
    """Entries of a block that may not be attended to: boolean ``where [b, m]`` over the block's ``columns [m]``."""

    columns: Tensor
    where: Tensor

    def fill(self, values: Tensor, rows: slice | Tensor, value: float) -> Tensor:
        """Write ``value`` over the excluded entries of ``values [r, B]`` of the queries ``rows``."""
        if len(self.columns) == values.shape[1]:
            return values.masked_fill_(self.where[rows], value)
        values[:, self.columns] = values[:, self.columns].masked_fill_(self.where[rows], value)
        return values


class Exclusion:
    """Excludes bank rows with a query's own id or group.

    Args:
        keys: ids and groups, if there are any.
    """

    def __init__(self, keys: list[Keys]) -> None:
        self.keys = [(of_queries, of_bank, of_queries.long().sort().values) for of_queries, of_bank in keys]
        self._last: tuple[int, int, ExcludedEntries | None] = (0, 0, None)

    def within(self, start: int, stop: int) -> ExcludedEntries | None:
        """Excluded entries of bank rows ``start`` to ``stop``, or None if there are none; cached for the next tile."""
        if not self.keys:
            return None
        if self._last[:2] != (start, stop):
            self._last = (start, stop, self._entries(start, stop))
        return self._last[2]

    def _entries(self, start: int, stop: int) -> ExcludedEntries | None:
        parts = [(of_queries, of_bank[start:stop], ordered) for of_queries, of_bank, ordered in self.keys]
        shared = [
            ordered[torch.searchsorted(ordered, part.long()).clamp_(max=len(ordered) - 1)] == part
            for _, part, ordered in parts
        ]
        columns = reduce(operator.or_, shared).nonzero()[:, 0]  # [m], of rows that are excluded for some query
        if not len(columns):
            return None
        where = reduce(operator.or_, (of_queries[:, None] == part[columns] for of_queries, part, _ in parts))  # [b, m]
        return ExcludedEntries(columns, where)


def check_some_row(near: Tensor) -> None:
    """Check that each query has a bank row to attend to: its lowest cost ``near [b]`` is not infinite.

    Raises:
        ValueError: naming the first query that has none.
    """
    lonely = near == torch.inf
    if bool(lonely.any()):
        raise ValueError(
            f"bank: expected a row of another id and group for every query, got none for query "
            f"{int(lonely.nonzero()[0])}; give it a larger bank, or leave that query out"
        )
