"""What all samplers share: epochs, seeds, processes, and dealing rows of different kinds into batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vicinal.core.checks import check_integer

Rows = NDArray[np.int64]


class EpochOrder(TypedDict, total=False):
    """What all samplers take by name: see :class:`BatchSampler`."""

    seed: int
    processes: int
    process: int


class BatchSampler(ABC):
    """Chooses the rows of each batch: pass it to a ``DataLoader`` as ``batch_sampler``.

    Each pass over it is an epoch with a new order, drawn from the seed and the number of the epoch: the same two give
    the same batches. The number is counted up automatically; :meth:`set_epoch` sets it, for example after a restart.

    Args:
        seed: whole number >= 0.
        processes: number of processes that share the batches; each gets the same number of them.
        process: rank of this process, from 0.
    """

    def __init__(self, *, seed: int = 0, processes: int = 1, process: int = 0) -> None:
        self.seed = check_integer("seed", seed, 0)
        self.processes = check_integer("processes", processes)
        self.process = check_integer("process", process, 0)
        if self.process >= self.processes:
            raise ValueError(f"process: expected a number below {self.processes}, got {process}")
        self.epoch = 0

    @abstractmethod
    def batches(self, random: np.random.Generator) -> list[list[int]]:
        """All batches of the current epoch."""

    @property
    def sampler(self) -> "BatchSampler":
        """The sampler itself: Lightning sets the epoch of a batch sampler's ``sampler``, not of the batch sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass."""
        self.epoch = check_integer("epoch", epoch, 0)

    def __iter__(self) -> Iterator[list[int]]:
        mine = self._mine()
        self.epoch += 1
        yield from mine

    def __len__(self) -> int:
        """Batches of the next pass on this process."""
        return len(self._mine())

    def _mine(self) -> list[list[int]]:
        batches = self.batches(np.random.default_rng([self.seed, self.epoch]))
        even = len(batches) // self.processes * self.processes
        return batches[self.process : even : self.processes]


class LongEpochs(BatchSampler):
    """Passes over another sampler until there are at least ``fewest`` batches, as an epoch of few rows is too short.

    Args:
        batches: the other sampler, for one process; its seed is used.
        fewest: batches of an epoch, >= 1.

    >>> from vicinal.samplers import ClassBatches
    >>> len(LongEpochs(ClassBatches([0, 0, 1, 1], classes=2, per_class=2), fewest=5))
    5
    """

    def __init__(self, batches: BatchSampler, fewest: int = 20) -> None:
        super().__init__(seed=batches.seed)
        self.inner, self.fewest = batches, check_integer("fewest", fewest)

    def batches(self, random: np.random.Generator) -> list[list[int]]:
        """All batches of an epoch."""
        self.inner.set_epoch(self.epoch)
        drawn: list[list[int]] = []
        while len(drawn) < self.fewest:
            more = self.inner.batches(random)
            if not more:
                raise ValueError("batches: expected a sampler that gives a batch, got none; lower its batch_size")
            drawn += more
        return drawn


def as_labels(name: str, labels: Any) -> NDArray[Any]:
    """``labels`` (tensor, array or list) as an array ``[n]``.

    Raises:
        ValueError: if it is empty or not of one dimension, or a row has none.

    >>> as_labels("labels", ["b", "a"]).shape
    (2,)
    """
    values = without_gaps(name, labels)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"{name}: expected a list of at least one label, got shape {values.shape}")
    return values


def without_gaps(name: str, labels: Any) -> NDArray[Any]:
    """``labels`` as an array.

    Raises:
        ValueError: for a row whose label is missing (None, NaN, NaT, NA, masked): rows without a label are not alike.

    >>> without_gaps("labels", ["b", None])
    Traceback (most recent call last):
    ValueError: labels: expected one for each row, got none in row 1; leave such rows out
    """
    values = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    missing = np.broadcast_to(labels.mask if isinstance(labels, np.ma.MaskedArray) else False, values.shape)
    if values.dtype.kind in "fcmM":
        missing = missing | (values != values)
    elif values.dtype.kind not in "biu":
        import pandas as pd  # slow to import

        cells = np.asarray(labels, dtype=object)  # in an array of texts NaN is one of them
        missing = missing | pd.isna(cells)
    if missing.any():
        row = np.argwhere(missing)[0, 0]
        raise ValueError(f"{name}: expected one for each row, got none in row {row}; leave such rows out")
    return values


def members(labels: NDArray[Any]) -> list[Rows]:
    """Rows of each label, by label."""
    _, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    ordered = place.argsort(kind="stable")
    return np.split(ordered, sizes.cumsum()[:-1])


def pieces(rows: Rows, size: int, random: np.random.Generator, *, fill: bool) -> list[Rows]:
    """``rows`` in random order, ``size`` at a time.

    With ``fill`` the last piece is completed with other rows, none of them twice; a single piece may stay smaller.

    >>> [len(piece) for piece in pieces(np.arange(5), 3, np.random.default_rng(0), fill=True)]
    [3, 3]
    """
    order = random.permutation(rows)
    cut = [order[start : start + size] for start in range(0, len(order), size)]
    lacking = size - len(cut[-1])
    if fill and lacking and len(cut) > 1:
        others = order[: len(order) - len(cut[-1])]
        cut[-1] = np.concatenate([cut[-1], random.choice(others, lacking, replace=False)])
    return cut


def deal(
    hands: Sequence[list[Rows]], together: int, random: np.random.Generator, *, drop_last: bool
) -> list[list[Rows]]:
    """Batches of ``together`` pieces of different kinds; each piece is used at most once.

    Kinds with more pieces left are taken more often, so that all run out at about the same time.

    Args:
        hands: pieces of each kind.
        together: kinds in a batch.
        random: source of random numbers.
        drop_last: leave out batches of fewer kinds, which occur at the end.
    """
    left = np.array([len(hand) for hand in hands])
    dealt: list[list[Rows]] = []
    while (present := int((left > 0).sum())) >= (together if drop_last else 1):
        noise = random.gumbel(size=len(left))
        preference = np.where(left > 0, np.log(np.maximum(left, 1)) + noise, -np.inf)
        take = min(together, present)
        chosen = np.argpartition(-preference, take - 1)[:take]
        left[chosen] -= 1
        dealt.append([hands[kind][left[kind]] for kind in chosen])
    return dealt


def joined(batch: Sequence[Rows], random: np.random.Generator) -> list[int]:
    """The rows of some pieces, in random order."""
    return random.permutation(np.concatenate(batch)).tolist()
