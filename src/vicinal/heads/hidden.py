"""Which entries of a block are not admissible, found without comparing every query with every bank row."""

from typing import NamedTuple

import torch
from torch import Tensor

Keys = tuple[Tensor, Tensor]


class HiddenEntries(NamedTuple):
    """Entries of a block that may not be attended to: ``where [b, m]`` of the block's columns ``columns [m]``."""

    columns: Tensor
    where: Tensor

    def fill(self, values: Tensor, rows: slice | Tensor, value: float) -> Tensor:
        """Write ``value`` over the hidden entries of ``values [r, B]``, which hold the queries ``rows``."""
        if len(self.columns) == values.shape[1]:
            return values.masked_fill_(self.where[rows], value)
        values[:, self.columns] = values[:, self.columns].masked_fill_(self.where[rows], value)
        return values


class Hidden:
    """Bank rows of a query's own id, or of its own group.

    Args:
        keys: pairs of (integers of the queries ``[b]``, integers of the bank ``[N]``); equal integers hide.
    """

    def __init__(self, keys: list[Keys]) -> None:
        self.keys = [(of_queries, of_bank, of_queries.long().sort().values) for of_queries, of_bank in keys]
        self._last: tuple[int, int, HiddenEntries | None] = (0, 0, None)

    def within(self, start: int, stop: int) -> HiddenEntries | None:
        """Hidden entries of bank rows ``start`` to ``stop``, or None if there are none; kept for the next tile."""
        if not self.keys:
            return None
        if self._last[:2] != (start, stop):
            self._last = (start, stop, self._find(start, stop))
        return self._last[2]

    def _find(self, start: int, stop: int) -> HiddenEntries | None:
        touched: Tensor | None = None
        for _, of_bank, known in self.keys:
            part = of_bank[start:stop].long()
            found = known[torch.searchsorted(known, part).clamp_(max=len(known) - 1)] == part
            touched = found if touched is None else touched | found
        if touched is None or not bool(touched.any()):
            return None
        columns = touched.nonzero()[:, 0]
        where: Tensor | None = None
        for of_queries, of_bank, _ in self.keys:
            same = of_queries[:, None] == of_bank[start:stop][columns]
            where = same if where is None else where | same
        return None if where is None else HiddenEntries(columns, where)
