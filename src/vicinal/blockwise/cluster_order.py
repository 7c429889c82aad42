"""An order of the bank in which near rows stand together, so that whole blocks can be skipped."""

import torch
from torch import Tensor

from vicinal.blockwise.blocks import policy, row_slices
from vicinal.core import check_integer, check_matrices

_PIVOTS = 256
"""Most rows that others are gathered around."""

_SAMPLE = 4096
"""Rows that pivots are chosen among."""


def cluster_order(bank: Tensor, block: int = 1024) -> Tensor:
    """An order of the bank in which near rows stand together.

    Rows are gathered around pivots far from one another, the pivots are walked from near to near, and what is still
    longer than a block is split in halves along its longest extent. Predictions do not depend on the order, but
    pruning works only in such a one: keep vectors, labels, ids and groups as ``bank[order]``, ``labels[order]`` and so
    on.

    Args:
        bank: ``[N, d]``, floating.
        block: rows below which a part is not split any more.

    Returns:
        positions ``[N]``, int64.

    >>> cluster_order(torch.tensor([[0.0], [9.0], [0.1], [9.1]]), block=2).tolist()
    [0, 2, 1, 3]
    """
    check_matrices(bank, bank)
    check_integer("block", block)
    if len(bank) <= block:
        return torch.arange(len(bank), device=bank.device)
    pivots = _walk(_pivots(bank, min(_PIVOTS, -(-len(bank) // block))))
    nearest = torch.cat(
        [torch.cdist(bank[part].float(), pivots).argmin(dim=1) for part in row_slices(len(bank), policy().bank_rows)]
    )
    order = nearest.sort(stable=True).indices
    ends = torch.bincount(nearest, minlength=len(pivots)).cumsum(0).tolist()
    parts = list(zip([0, *ends], ends, strict=False))
    while parts:
        start, stop = parts.pop()
        if stop - start > block:
            rows, half = order[start:stop], start + (stop - start) // 2
            order[start:stop] = rows[_extent(bank, rows).sort(stable=True).indices]
            parts += [(start, half), (half, stop)]
    return order


def _pivots(bank: Tensor, count: int) -> Tensor:
    """Rows ``[count, d]``, each the farthest of a sample from those before it."""
    some = bank[:: max(1, len(bank) // _SAMPLE)].float()
    chosen = [0]
    away = (some - some[0]).square().sum(dim=1)
    while len(chosen) < min(count, len(some)):
        chosen.append(int(away.argmax()))
        away = torch.minimum(away, (some - some[chosen[-1]]).square().sum(dim=1))
    return some[chosen]


def _walk(points: Tensor) -> Tensor:
    """``points [n, d]`` in the order of a walk from each to the nearest that has not been visited."""
    apart = torch.cdist(points, points)
    order = [0]
    while len(order) < len(points):
        apart[:, order[-1]] = torch.inf
        order.append(int(apart[order[-1]].argmin()))
    return points[order]


def _extent(bank: Tensor, rows: Tensor) -> Tensor:
    """Place ``[n]`` of each of the ``rows`` along the line between two of them that are far apart."""
    some = bank[rows[:: max(1, len(rows) // _SAMPLE)]].float()
    one = some[(some - some.mean(dim=0)).square().sum(dim=1).argmax()]
    other = some[(some - one).square().sum(dim=1).argmax()]
    parts = row_slices(len(rows), policy().bank_rows)
    return torch.cat([bank[rows[part]].float() @ (other - one) for part in parts])
