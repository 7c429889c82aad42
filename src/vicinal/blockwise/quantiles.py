"""Quantiles of the labels that queries attend to, found by bins, without a matrix of weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vicinal.blockwise.attention import Attended

_BINS = 1024
"""Number of runs of bank rows, sorted by label, whose weights are added up in the first pass."""


def attended_quantiles(attended: Sequence[Attended], queries: int, labels: Tensor, levels: Sequence[float]) -> Tensor:
    r"""For each query and level, the smallest label $v$ with $\sum_{j: y_j \le v} p_{ij} \ge$ level.

    One pass finds the run of labels that holds each quantile, another the weights in that run.

    Args:
        attended: evaluations, whose weights are averaged.
        queries: b, their number.
        labels: ``[N]``.
        levels: L numbers from 0 to 1.

    Returns:
        ``[b, L]``, each a label of the bank.
    """
    quantiles = labels.new_zeros(queries, len(levels))
    if queries == 0 or not levels:
        return quantiles
    ordered, order = labels.sort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    size = -(-len(order) // _BINS)
    dtype = attended[0].attention.scores.dtype
    mass = torch.zeros(queries, -(-len(order) // size), dtype=torch.float64, device=order.device)
    with torch.autocast(order.device.type, enabled=False):
        for each in attended:
            for block, rows, weights in each.blocks():
                mass[rows] = mass[rows].index_add_(1, place[block.start : block.stop] // size, weights.double())
        below = mass.cumsum(dim=1)
        share = torch.tensor(levels, dtype=torch.float64, device=order.device) * (1 - 8 * torch.finfo(dtype).eps)
        limits = below[:, -1:] * share  # [b, L]
        bins = torch.searchsorted(below, limits).clamp_(max=below.shape[1] - 1)
        inside = torch.zeros(*bins.shape, size, dtype=torch.float64, device=order.device)
        for each in attended:
            _add_inside(inside, each, place, bins, size)
    for level in range(len(levels)):
        before = (below - mass).gather(1, bins[:, level : level + 1])
        reached = before + inside[:, level].cumsum(dim=1) >= limits[:, level : level + 1]
        reached[:, -1] = True
        at = bins[:, level] * size + reached.int().argmax(dim=1)
        quantiles[:, level] = ordered[at.clamp(max=len(ordered) - 1)]
    return quantiles


def _add_inside(inside: Tensor, attended: Attended, rank: Tensor, runs: Tensor, size: int) -> None:
    """Add the weights of the bank rows in one run of labels for each query and level.

    Args:
        inside: ``[b, L, size]``, by the place of a label in its run; is added to.
        attended: one evaluation.
        rank: place of each bank row among all, sorted by label ``[N]``.
        runs: the number of the run ``[b, L]``.
        size: rows of a run.
    """
    for block, queries, weights in attended.blocks():
        run, place = rank[block.start : block.stop] // size, rank[block.start : block.stop] % size
        sums = inside[queries]  # a copy, where queries are numbers
        for level, chosen in enumerate(runs[queries].unbind(dim=1)):
            query, row = (run == chosen[:, None]).nonzero(as_tuple=True)
            sums[query, level, place[row]] += weights[query, row].double()  # in a run each place is that of one row
        inside[queries] = sums
