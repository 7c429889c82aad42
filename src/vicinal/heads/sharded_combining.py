"""Combining what processes have found, each in its shard of the bank; and what that sends."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from vicinal.core import process_count
from vicinal.core.gathering import Group
from vicinal.heads.attending import Sums
from vicinal.heads.combining import Combine
from vicinal.heads.extremes import Extreme, Range
from vicinal.heads.maps import exp_


@dataclass
class Traffic:
    """What one process has handed in to be combined with others.

    Attributes:
        bytes: of all messages.
        messages: their number.
    """

    bytes: int = 0
    messages: int = 0

    def add(self, message: Tensor) -> None:
        """Count one."""
        self.bytes += message.numel() * message.element_size()
        self.messages += 1


class OverProcesses(Combine):
    """Combines over the processes of a group; what comes out is equal on all of them, to the last bit."""

    alone = False

    def __init__(self, group: Group, traffic: Traffic, rows: int) -> None:
        self.group, self.traffic, self.count = group, traffic, process_count(group)
        self._rows = rows

    def rows(self, own: int) -> int:
        """Rows of the whole bank."""
        return self._rows

    def center(self, sample: Tensor) -> Tensor:
        """Mean of the samples of all processes."""
        total = torch.cat([sample.sum(dim=0), sample.new_full((1,), len(sample))])
        self._reduce(total)
        return total[:-1] / total[-1]

    def range(self, found: Range) -> None:
        """Widen each end; where one bank row alone has it, only the process that holds the row keeps its count."""
        ends = [found.near] if found.first is found.near else [found.near, found.first]
        ends += [] if found.far is None else [found.far]
        before = [end.value for end in ends]
        joined = torch.stack([end.value * end.sign for end in ends])
        self._reduce(joined, dist.ReduceOp.MIN)
        for end, value in zip(ends, joined, strict=True):
            end.value = value * end.sign
        if found.near.tracked:
            self._count(ends, before)

    def _count(self, ends: list[Extreme], before: list[Tensor]) -> None:
        own = [torch.where(end.value == local, end.count, 0) for end, local in zip(ends, before, strict=True)]
        everywhere = torch.stack(own)
        self._reduce(everywhere)
        for end, count, here in zip(ends, everywhere, own, strict=True):
            end.count = torch.where((count == 1) & (here == 0), 0, count)

    def nearest(self, values: Tensor, k: int) -> Tensor:
        """The k lowest of the k lowest of each process."""
        return self._gather(values, k, torch.inf).topk(k, dim=1, largest=False).values

    def nearest_rows(self, values: Tensor, positions: Tensor, k: int, offset: int) -> tuple[Tensor, Tensor]:
        """The same with the ``positions`` of the rows, to which ``offset`` is added."""
        found = self._gather(values, k, torch.inf).topk(k, dim=1, largest=False)
        return found.values, self._gather(positions + offset, k, 0).gather(1, found.indices)

    def _gather(self, values: Tensor, k: int, fill: float) -> Tensor:
        """``[b, processes * k]`` from ``[b, <= k]``, process by process; what lacks is ``fill``."""
        padded = values.new_full((len(values), k), fill)
        padded[:, : values.shape[1]] = values
        parts = [torch.empty_like(padded) for _ in range(self.count)]
        self.traffic.add(padded)
        dist.all_gather(parts, padded, group=self.group)
        return torch.cat(parts, dim=1)

    def online(self, best: Tensor, sums: Sums) -> Tensor:
        """Lowest costs of all; sums are scaled to them and added up."""
        lowest = best.clone()
        self._reduce(lowest, dist.ReduceOp.MIN)
        scale = torch.where(best < torch.inf, exp_(lowest - best), 0.0)
        sums.total.mul_(scale)
        sums.labels.mul_(scale)
        self.sums(sums)
        return lowest

    def sums(self, sums: Sums) -> None:
        """Add up sums, in place, in one message."""
        total = torch.cat([sums.total, sums.labels], dim=1)
        self._reduce(total)
        sums.total.copy_(total[:, :1])
        sums.labels.copy_(total[:, 1:])

    def add(self, *values: Tensor) -> list[Tensor]:
        """The sum of each, in one message for all of one dtype."""
        if any(value.dtype != values[0].dtype for value in values):
            return [self.add(value)[0] for value in values]
        joined = torch.cat([value.flatten() for value in values])
        self._reduce(joined)
        parts = torch.split(joined, [value.numel() for value in values])
        return [part.view_as(value) for part, value in zip(parts, values, strict=True)]

    def most(self, value: Tensor) -> Tensor:
        """The largest over processes."""
        largest = value.clone()
        self._reduce(largest, dist.ReduceOp.MAX)
        return largest

    def mean(self, gradient: Tensor) -> Tensor:
        """Mean over processes."""
        total = gradient.clone(memory_format=torch.contiguous_format)
        self._reduce(total)
        return total / self.count

    def _reduce(self, values: Tensor, by: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
        self.traffic.add(values)
        dist.all_reduce(values, by, group=self.group)
