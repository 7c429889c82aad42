"""The batches of all processes as one, in the order of their ranks, with gradients."""

from typing import Any

import torch
import torch.distributed
from torch import Tensor


class _Gathered(torch.autograd.Function):
    """All rows of all processes; the gradient of each row is summed over the processes that used it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(parts, rows.contiguous())
        ctx.rows = len(rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        slope = slopes[0].contiguous()
        torch.distributed.all_reduce(slope)
        start = ctx.rows * torch.distributed.get_rank()
        return slope[start : start + ctx.rows]


def gather_rows(rows: Tensor) -> Tensor:
    """The rows ``[b, ...]`` of all processes, rank by rank, ``[processes * b, ...]``; of one process: as they are.

    The gradient is the sum over processes, so after the mean that data-parallel training takes it is that of one
    process with the whole batch. All processes must have equally many rows.

    >>> gather_rows(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return rows
    if torch.distributed.get_world_size() == 1:
        return rows
    gathered: Tensor = _Gathered.apply(rows)  # type: ignore[no-untyped-call]
    return gathered
