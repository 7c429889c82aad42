"""Rows and sums of all processes together, in the order of their ranks, with gradients.

All gradients here follow one rule: the gradient of a process's input is the **sum** of the gradients that all processes
computed for it. If all of them compute the same loss, parameters get their gradient once per process, and the mean over
processes in data-parallel training makes it that of one process with the whole batch.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def process_count() -> int:
    """The number of processes; 1 if torch.distributed was not started.

    >>> process_count()
    1
    """
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_rank() -> int:
    """The rank of this process, from 0.

    >>> process_rank()
    0
    """
    return dist.get_rank() if process_count() > 1 else 0


class _Gathered(torch.autograd.Function):
    """All rows of all processes; the gradient of each row is summed over the processes that used it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        most, rank = max(counts), process_rank()
        ctx.start, ctx.rows = sum(counts[:rank]), len(rows)
        padded = rows.contiguous()
        if len(rows) < most:
            padded = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])])
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        slope = slopes[0].clone(memory_format=torch.contiguous_format)  # autograd may use it elsewhere too
        dist.all_reduce(slope)
        return slope[ctx.start : ctx.start + ctx.rows], None


def gather_rows(rows: Tensor) -> Tensor:
    """The rows ``[b, ...]`` of all processes, rank by rank, ``[sum of b, ...]``; one process gets its rows as they are.

    The gradient is the sum over processes, so after the mean of data-parallel training it is that of one process with
    the whole batch. Processes may have different numbers of rows, even none.

    >>> gather_rows(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """
    if process_count() == 1:
        return rows
    count = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.empty_like(count) for _ in range(process_count())]
    dist.all_gather(counts, count)
    return _Gathered.apply(rows, [int(count) for count in counts])  # type: ignore[no-untyped-call]


class _Summed(torch.autograd.Function):
    """A tensor of one shape on all processes, added up; its gradient is added up too."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        slope = slopes[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(slope)
        return slope


def sum_over_processes(values: Tensor) -> Tensor:
    """The sum of the ``values`` (of one shape) of all processes, on each of them; one process gets its values back.

    >>> sum_over_processes(torch.ones(2))
    tensor([1., 1.])
    """
    if process_count() == 1:
        return values
    return _Summed.apply(values)  # type: ignore[no-untyped-call]
