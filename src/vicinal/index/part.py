"""Some columns of a bank's vectors, as a bank of its own that holds no rows."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from vicinal.index.bank import NeighborBank
from vicinal.index.bank_storage import IdMap

_SHARED = ("_columns", "_id_names", "_group_names", "_table", "_form", "_distrusted", "_source")


class BankPart(NeighborBank):
    """The rows of ``bank`` with the columns ``start`` to ``stop`` of their vectors; it reads, and follows, the bank.

    Rows are added, changed and removed in the bank itself.

    Args:
        bank: the bank.
        start: first column.
        stop: the column behind the last.

    >>> bank = NeighborBank(3)
    >>> bank.add([7], torch.tensor([[1.0, 2.0, 3.0]]))
    >>> BankPart(bank, 1, 3).vectors
    tensor([[2., 3.]])
    """

    def __init__(self, bank: NeighborBank, start: int, stop: int) -> None:
        if not 0 <= start < stop <= bank.dim:
            raise ValueError(f"stop: expected columns among {bank.dim}, got {start} to {stop}")
        super().__init__(stop - start)
        self._bank, self._part = bank, slice(start, stop)
        for name in _SHARED:
            self.__dict__.pop(name)

    def __getattr__(self, name: str) -> object:
        if name in _SHARED:
            return getattr(self.__dict__["_bank"], name)
        raise AttributeError(name)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    @property
    def vectors(self) -> Tensor:
        """``[N, d]`` float32; read only."""
        return self._bank.vectors[:, self._part]

    def vectors_at(self, positions: Tensor) -> Tensor:
        """See :meth:`NeighborBank.vectors_at`."""
        return self._bank.vectors_at(positions)[:, self._part]

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """See :meth:`NeighborBank.blocks`."""
        for start, rows in self._bank.blocks(size):
            yield start, rows[:, self._part].contiguous()

    def id_map(self) -> IdMap:
        """See :meth:`NeighborBank.id_map`."""
        return self._bank.id_map()


def bank_part(bank: NeighborBank, start: int, stop: int) -> NeighborBank:
    """The columns ``start`` to ``stop`` of a bank: the bank itself if these are all."""
    return bank if (start, stop) == (0, bank.dim) else BankPart(bank, start, stop)


def part_of(vectors: Tensor, start: int, stop: int) -> Tensor:
    """The same columns of vectors ``[n, d]``, in one stretch of memory."""
    return vectors[:, start:stop].contiguous() if vectors.shape[1] != stop - start else torch.as_tensor(vectors)
