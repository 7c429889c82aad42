"""Rows as training sees them: inputs, labels and identity, and how they are cut into batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler


class RowInputs(Protocol):
    """Prepared rows: their number, and the batch that the encoder takes for some of them."""

    def __len__(self) -> int:
        """Number of rows."""

    def select(self, rows: Tensor) -> Any:
        """The encoder's batch for int64 positions ``[b]``."""


@dataclass(frozen=True)
class RowSubset:
    """Some rows of prepared inputs, by position; nothing is copied."""

    inputs: RowInputs
    positions: Tensor

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, rows: Tensor) -> Any:
        """The encoder's batch for positions in the subset."""
        return self.inputs.select(self.positions[rows])


@dataclass(frozen=True)
class Rows:
    """Prepared rows with their labels and identity.

    Attributes:
        inputs: prepared columns.
        labels: floating ``[n]``, or one-hot ``[n, K]``.
        ids: int64 ``[n]``, one number a row, never twice.
        groups: int64 ``[n]`` or None.
    """

    inputs: RowInputs
    labels: Tensor
    ids: Tensor
    groups: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Tensor) -> dict[str, Any]:
        """Batch of the named positions: inputs, labels, ids and, if there are any, groups."""
        batch = {"inputs": self.inputs.select(rows), "labels": self.labels[rows], "ids": self.ids[rows]}
        if self.groups is not None:
            batch["groups"] = self.groups[rows]
        return batch


class RowBatches(Sampler[list[int]]):
    """Batches of nearly equal size that cover every row once an epoch, in an order set by seed and epoch.

    The order of an epoch depends on nothing that came before it, so a resumed run sees the same batches. Rows left
    over are spread instead of making a last tiny batch, in which nobody would have neighbors.

    Args:
        rows: number of rows.
        batch_size: wanted size.
        seed: of the order; None keeps the rows in order and the last batch small, as prediction wants it.

    >>> [len(batch) for batch in RowBatches(70, 32, seed=0)]
    [35, 35]
    """

    def __init__(self, rows: int, batch_size: int, seed: int | None) -> None:
        self.rows, self.batch_size, self.seed, self.epoch = rows, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        if self.seed is None:
            return (self.rows + self.batch_size - 1) // self.batch_size
        return max(1, round(self.rows / self.batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        if self.seed is None:
            order = torch.arange(self.rows)
            blocks = [order[i : i + self.batch_size] for i in range(0, self.rows, self.batch_size)]
        else:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            blocks = list(torch.randperm(self.rows, generator=generator).tensor_split(len(self)))
        return (block.tolist() for block in blocks)


class _Positions(Dataset[int]):
    """Row positions; what a position stands for is looked up a whole batch at a time."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, position: int) -> int:
        return position


def loader(rows: Rows, batch_size: int, seed: int | None) -> DataLoader[Any]:
    """Loader of batches of ``rows`` (see :class:`RowBatches`)."""
    return DataLoader(
        _Positions(len(rows)),
        batch_sampler=RowBatches(len(rows), batch_size, seed),
        collate_fn=lambda positions: rows.select(torch.tensor(positions)),
    )
