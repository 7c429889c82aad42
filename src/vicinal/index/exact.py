"""Exact search: every row is scanned, and memory does not grow with the rows."""

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.core import as_tensor, register
from vicinal.core.arrays import Array
from vicinal.core.folders import read_whole
from vicinal.core.identity import shown, whole_ids
from vicinal.index.bank import NeighborBank
from vicinal.index.base import Hits, Index
from vicinal.index.index_files import check_rows, opened, sealed
from vicinal.index.scanning import BLOCK, scan

_SAMPLE = 1024
"""Rows whose mean is the center of distances."""


@register("index", "exact", "exact-search", verified="numpy in float64")
class ExactIndex(Index):
    """Search through all rows in blocks, by any similarity; nothing is missed.

    Args:
        dim: width of the vectors.
        similarity: see :class:`Index`.
        bank: search the rows of this bank, by their keys, instead of keeping any. Change the bank by its own methods;
            :meth:`add` and :meth:`remove` then only check that this was done.

    >>> index = ExactIndex(1)
    >>> index.add([10, 20, 30], torch.tensor([[1.0], [2.0], [4.0]]))
    >>> index.search(torch.tensor([[1.4]]), 2)
    Hits(ids=tensor([[10, 20]]), scores=tensor([[-0.4000, -0.6000]]))
    """

    exact: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        similarity: str | nn.Module = "l2",
        *,
        bank: NeighborBank | None = None,
    ) -> None:
        super().__init__(dim, similarity)
        if bank is not None and bank.dim != self.dim:
            raise ValueError(f"bank: expected vectors of width {self.dim}, got {bank.dim}")
        self.shared = bank is not None
        self.bank = NeighborBank(self.dim) if bank is None else bank

    def __len__(self) -> int:
        return len(self.bank)

    def has(self, ids: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """See :meth:`Index.has`."""
        return self.bank.positions_of_keys(as_tensor("ids", ids)).numpy() >= 0

    def add(self, ids: Any, vectors: Any) -> None:
        """See :meth:`Index.add`."""
        if not self.shared:
            super().add(ids, vectors)
        elif len(lost := self._of_bank(ids, there=False)):
            expected = "rows of the bank that is searched"
            raise ValueError(f"ids: expected {expected}, got {shown(lost)}; add them to the bank")

    def remove(self, ids: Any) -> None:
        """See :meth:`Index.remove`."""
        if not self.shared:
            super().remove(ids)
        elif len(left := self._of_bank(ids, there=True)):
            expected = "rows that the bank that is searched has no more"
            raise ValueError(f"ids: expected {expected}, got {shown(left)}; remove them from the bank")

    def _of_bank(self, ids: Any, *, there: bool) -> Array:
        """Those of ``ids`` that the bank has, or has not."""
        numbers = whole_ids("ids", ids)
        return numbers[self.has(numbers) == there]

    def _add(self, ids: Array, vectors: Tensor) -> None:
        self.bank.add(ids, vectors)

    def _remove(self, ids: Array) -> None:
        self.bank.remove(ids)

    def _search(self, queries: Tensor, k: int) -> Hits:
        sample = torch.arange(0, len(self), max(1, len(self) // _SAMPLE))
        return scan(
            self.similarity,
            queries,
            k,
            self.bank.blocks(BLOCK),
            self.bank.keys,
            self.bank.vectors_at(sample).mean(dim=0),
        )

    def save(self, folder: str | Path) -> None:
        """See :meth:`Index.save`; of a shared bank, all of it."""
        with sealed(self, Path(folder), "exact") as stage:
            self.bank.write(stage)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """See :meth:`Index.load`; rows are mapped as :meth:`vicinal.index.NeighborBank.load` maps them."""
        config, bank = read_whole(Path(folder), lambda place: (opened(place, "exact"), NeighborBank.load(place)))
        check_rows(config, len(bank))
        index = cls(config.dim, config.similarity, bank=bank)
        index.shared = False
        return index
