"""What processes that each hold a part of the bank combine: sums, least values, the k least, and nothing more.

Before they compute together they make sure that all were asked the same and that none has refused its part.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from vicinal.blockwise.blocks import count
from vicinal.core import process_count, process_rank
from vicinal.core.gathering import Group


class Reducer:
    """One process that holds the whole bank: nothing to combine."""

    alone = True

    def rows(self, local: int) -> int:
        """Rows of the whole bank, of which this process holds ``local``."""
        return local

    def add(self, *values: Tensor) -> list[Tensor]:
        """The sum of each of the ``values``."""
        return list(values)

    def minimum(self, values: Tensor) -> Tensor:
        """The least of each entry."""
        return values

    def maximum(self, values: Tensor) -> Tensor:
        """The largest of each entry."""
        return values

    def mean(self, values: Tensor) -> Tensor:
        """The mean of each entry."""
        return values

    def mean_row(self, rows: Tensor) -> Tensor:
        """The mean ``[d]`` of the rows ``[m, d]`` of all processes."""
        return rows.mean(dim=0)

    def join(self, values: Tensor, width: int, fill: float) -> Tensor:
        """``[b, processes * width]`` from ``[b, <= width]``, process by process; what lacks is ``fill``."""
        return values


LOCAL = Reducer()


class DistributedReducer(Reducer):
    """Combines over the processes of a group; what comes out is equal on all of them, to the last bit.

    Args:
        group: of processes; None: all.
        rows: of the whole bank.
    """

    alone = False

    def __init__(self, group: Group, rows: int) -> None:
        self.group, self.processes, self.total = group, process_count(group), rows

    def rows(self, local: int) -> int:
        """Rows of the whole bank."""
        return self.total

    def add(self, *values: Tensor) -> list[Tensor]:
        """The sum of each, in one message for all of one dtype."""
        if any(value.dtype != values[0].dtype for value in values):
            return [self.add(value)[0] for value in values]
        joined = torch.cat([value.flatten() for value in values])
        self._reduce(joined, dist.ReduceOp.SUM)
        parts = torch.split(joined, [value.numel() for value in values])
        return [part.view_as(value) for part, value in zip(parts, values, strict=True)]

    def minimum(self, values: Tensor) -> Tensor:
        """The least over processes."""
        return self._reduce(values.clone(), dist.ReduceOp.MIN)

    def maximum(self, values: Tensor) -> Tensor:
        """The largest over processes."""
        return self._reduce(values.clone(), dist.ReduceOp.MAX)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over processes."""
        total = self._reduce(values.clone(memory_format=torch.contiguous_format), dist.ReduceOp.SUM)
        return total / self.processes

    def mean_row(self, rows: Tensor) -> Tensor:
        """The mean of the rows of all processes."""
        total = torch.cat([rows.sum(dim=0), rows.new_full((1,), len(rows))])
        self._reduce(total, dist.ReduceOp.SUM)
        return total[:-1] / total[-1]

    def join(self, values: Tensor, width: int, fill: float) -> Tensor:
        """The values of all processes, side by side."""
        padded = values.new_full((len(values), width), fill)
        padded[:, : values.shape[1]] = values
        return torch.cat(_gather(padded, self.group), dim=1)

    def _reduce(self, values: Tensor, by: dist.ReduceOp.RedOpType) -> Tensor:
        _count(values)
        dist.all_reduce(values, by, group=self.group)
        return values


def _count(message: Tensor) -> None:
    count(messages=1, bytes=message.numel() * message.element_size())


def _gather(values: Tensor, group: Group) -> list[Tensor]:
    parts = [torch.empty_like(values) for _ in range(process_count(group))]
    _count(values)
    dist.all_gather(parts, values, group=group)
    return parts


def fingerprint(values: Iterable[Tensor | None]) -> int:
    """A number in [0, 2^31) that depends on every bit of the tensors; equal on all machines.

    >>> fingerprint([torch.tensor([1.0, 2.0])]) == fingerprint([torch.tensor([1.0, 2.5])])
    False
    """
    total = 17
    for value in values:
        if value is None:
            continue
        value = value if value.is_floating_point() else value.long()
        raw = value.detach().contiguous().flatten().view(torch.int16).long()
        places = torch.arange(len(raw), device=raw.device) % 65_521 + 1
        total = (31 * total + int((raw * places).sum())) % 2_147_483_647
    return total


def check_same_on_all_ranks(
    check: Callable[[], None], facts: Callable[[], Mapping[str, object]], rows: int, group: Group
) -> list[int]:
    """Run ``check`` on all processes and compare their ``facts``.

    Args:
        check: raises ValueError or TypeError for wrong input of this process.
        facts: what must be equal on all processes, by the names that error messages give it, in a fixed order; called
            after the check.
        rows: bank rows of this process.
        group: of processes; None: all.

    Returns:
        rows of each process.

    Raises:
        ValueError: on all processes, if a check failed on one of them or a fact differs.
        TypeError: on a process whose check raises it.
    """
    names: list[str] = []
    wrong: Exception | None = None
    codes = []
    try:
        check()
        values = facts()
        names, codes = list(values), [zlib.crc32(repr(value).encode()) for value in values.values()]
    except (TypeError, ValueError) as error:
        wrong = error
    answers = _everywhere([int(wrong is not None), rows], group)
    refused = [rank for rank, answer in enumerate(answers) if answer[0]]
    if wrong is not None:
        raise wrong
    if refused:
        raise ValueError(f"bank: expected all processes to accept their part, got an error on process {refused[0]}")
    for rank, theirs in enumerate(_everywhere(codes, group)):
        for name, here, there in zip(names, codes, theirs, strict=True):
            if here != there:
                raise ValueError(
                    f"{name}: expected the same on all processes, got another on process {rank} than on "
                    f"{process_rank(group)}"
                )
    return [answer[1] for answer in answers]


def _everywhere(numbers: list[int], group: Group) -> list[list[int]]:
    """The ``numbers`` of each process."""
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    local = torch.tensor(numbers, dtype=torch.int64, device=device)
    return [part.tolist() for part in _gather(local, group)]
