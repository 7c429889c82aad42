"""Rows for training: inputs, labels and identity, and their batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from vicinal.core.gathering import process_rank
from vicinal.core.identity import Grouped

if TYPE_CHECKING:  # scikit-learn's clusters come with the samplers, and take a while to import
    from vicinal.samplers import BatchSampler


def spread(rows: int, most: int) -> Tensor:
    """At most ``most`` positions, spread evenly over so many rows, with the first and the last.

    >>> spread(100, 4)
    tensor([ 0, 33, 66, 99])
    """
    if rows <= most:
        return torch.arange(rows)
    return torch.linspace(0, rows - 1, most, dtype=torch.float64).round().long()


class RowInputs(Protocol):
    """Prepared rows, of which the encoder can read batches."""

    def __len__(self) -> int:
        """Number of rows."""

    def select(self, rows: Tensor) -> Any:
        """The encoder's batch for int64 positions ``[b]``."""


@dataclass(frozen=True)
class RowSubset:
    """Some rows of prepared inputs, by position, without a copy."""

    inputs: RowInputs
    positions: Tensor

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, rows: Tensor) -> Any:
        """The encoder's batch for positions in the subset."""
        return self.inputs.select(self.positions[rows])


@dataclass(frozen=True)
class Rows(Grouped):
    """Prepared rows with their labels and identity.

    Attributes:
        inputs: prepared columns.
        labels: floating ``[n]``, or one-hot ``[n, K]``.
        ids: int64 ``[n]``, all different.
        groups: int64 ``[n]`` or None.
        folds: int64 ``[n]`` from 0: the fold of the members that leave each row out; or None.
        weights: floating ``[n]``, > 0, of mean 1: how many equal rows each row counts as; None: 1.
    """

    inputs: RowInputs
    labels: Tensor
    ids: Tensor
    groups: Tensor | None = None
    folds: Tensor | None = None
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def spread(self, most: int, *, whole: bool = False) -> "Rows":
        """At most ``most`` of the rows, spread evenly over their order; with ``whole`` groups, about as many."""
        if len(self) <= most:
            return self
        if whole and self.groups is not None:
            codes = torch.unique(self.groups)
            some = codes[spread(len(codes), max(1, len(codes) * most // len(self)))]
            return self.take(torch.isin(self.groups, some).nonzero()[:, 0])
        return self.take(spread(len(self), most))

    def take(self, at: Tensor) -> "Rows":
        """The rows at these positions, in their order."""
        more = (None if one is None else one[at] for one in (self.groups, self.folds, self.weights))
        return Rows(RowSubset(self.inputs, at), self.labels[at], self.ids[at], *more)

    def as_bank(self, device: torch.device) -> dict[str, Tensor | None]:
        """Ids, groups and weights as a head takes those of its bank."""
        each = {"bank_ids": self.ids, "bank_groups": self.groups, "bank_weight": self.weights}
        return {name: None if values is None else values.to(device) for name, values in each.items()}

    def select(self, rows: Tensor) -> dict[str, Any]:
        """Batch of these positions: inputs, labels, ids and, if there are any, groups, folds and weights."""
        batch = {"inputs": self.inputs.select(rows), "labels": self.labels[rows], "ids": self.ids[rows]}
        more = {"groups": self.groups, "folds": self.folds, "weights": self.weights}
        return batch | {name: values[rows] for name, values in more.items() if values is not None}


class RowBatches(Sampler[list[int]]):
    """Batches of nearly equal size that cover every row once per epoch, in an order set by seed and epoch.

    The order of an epoch does not depend on earlier epochs, so a resumed run sees the same batches. Leftover rows are
    spread over all batches, since a tiny last batch would hardly have any neighbors.

    Several processes share each batch: their parts, concatenated, are the batch of a single process, and differ in
    length by at most 1.

    Args:
        rows: number of rows.
        batch_size: wanted size.
        seed: of the order; None: rows stay in order, and the last batch may be small, as for prediction.
        processes: how many processes share each batch; this one has the part of its rank in torch.distributed.

    Raises:
        ValueError: if a batch would have fewer rows than processes.

    >>> [len(batch) for batch in RowBatches(70, 32, seed=0)]
    [35, 35]
    """

    def __init__(self, rows: int, batch_size: int, seed: int | None, processes: int = 1) -> None:
        self.rows, self.batch_size, self.seed, self.epoch, self.processes = rows, batch_size, seed, 0, processes
        if processes > 1 and min(rows // len(self), batch_size) < processes:
            raise ValueError(
                f"devices: expected at most one for each row of a batch, got {processes} for batches of {batch_size} "
                f"out of {rows} rows"
            )

    @property
    def sampler(self) -> "RowBatches":
        """Itself, since Lightning sets the epoch of a batch sampler's ``sampler``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that orders the rows; Lightning calls this before each epoch."""
        self.epoch = epoch

    def _order(self, count: int) -> Tensor:
        """So many places ``[count]`` in the order of the epoch, or without a seed in their own."""
        if self.seed is None:
            return torch.arange(count)
        return torch.randperm(count, generator=torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch))

    def __len__(self) -> int:
        if self.seed is None:
            full, rest = divmod(self.rows, self.batch_size)
            return max(1, full + (rest >= self.processes)) if self.rows else 0
        return max(1, round(self.rows / self.batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        # a generator: Lightning makes the iterator of a resumed run's first epoch before it sets the epoch
        ends: Any = len(self)
        if self.seed is None:
            ends = [self.batch_size * (i + 1) for i in range(ends - 1)]  # a rest that is too short joins the last
        blocks = list(self._order(self.rows).tensor_split(ends)) if self.rows else []
        if self.processes > 1:
            blocks = [block.tensor_split(self.processes)[process_rank()] for block in blocks]
        yield from (block.tolist() for block in blocks)


class GroupBatches(RowBatches):
    """Batches of whole groups, two at least, that cover every row once per epoch, in an order set by seed and epoch.

    Args:
        groups: int64 ``[n]``.
        batch_size: rows at which a batch is full; the last group may bring more.
        seed: of the order of groups; None: they stay in order.

    >>> [sorted(batch) for batch in GroupBatches(torch.tensor([0, 1, 0, 2, 2]), 2, seed=None)]
    [[0, 1, 2, 3, 4]]
    """

    def __init__(self, groups: Tensor, batch_size: int, seed: int | None) -> None:
        _, code, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
        self.members = code.argsort(stable=True).split(sizes.tolist())
        super().__init__(len(groups), batch_size, seed)

    def _batches(self) -> list[list[int]]:
        order = self._order(len(self.members))
        batches: list[list[int]] = []
        rows, count = list[int](), 0
        for place, group in enumerate(order.tolist(), start=1):
            rows, count = rows + self.members[group].tolist(), count + 1
            if len(rows) >= self.batch_size and count > 1 and len(order) - place != 1:  # none is left alone
                batches.append(rows)
                rows, count = list[int](), 0
        return [*batches, rows] if rows else batches

    def __len__(self) -> int:
        return len(self._batches())

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._batches()


def _select(rows: Rows, positions: list[int]) -> dict[str, Any]:
    return rows.select(torch.tensor(positions, dtype=torch.int64))


def loader(
    rows: Rows,
    batch_size: int,
    seed: int | None,
    batches: "BatchSampler | RowBatches | None" = None,
    *,
    processes: int = 1,
    lists: bool = False,
) -> DataLoader[Any]:
    """Loader of ``batches`` of ``rows``; None: of this process's part of all rows (see :class:`RowBatches`).

    For a loss of ``lists`` they are of whole groups.
    """
    if lists and rows.grouped:
        batches = GroupBatches(rows.clusters, batch_size, seed)
    return DataLoader(
        range(len(rows)),  # type: ignore[arg-type]  # positions; what they stand for is looked up a whole batch at a time
        batch_sampler=batches or RowBatches(len(rows), batch_size, seed, processes),
        collate_fn=partial(_select, rows),
    )
