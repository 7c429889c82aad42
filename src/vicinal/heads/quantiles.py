"""Quantiles of the labels that a query attends to, found a block at a time without a matrix of weights."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_labels, check_matrices
from vicinal.heads.attending import Attention
from vicinal.heads.costs import Block, Rows
from vicinal.heads.streaming import make_attention, step_numbers
from vicinal.masks import softmax
from vicinal.masks.simplex import SimplexMap

_BINS = 1024
"""Runs of bank rows, in the order of their labels, whose weight is added up in the first pass."""


@torch.no_grad()
def streamed_quantiles(
    queries: Tensor,
    bank: Tensor,
    labels: Tensor,
    levels: Sequence[float],
    similarity: nn.Module,
    mask: nn.Module | None = None,
    simplex: SimplexMap = softmax,
    *,
    chunk_size: int | None = None,
    query_ids: Tensor | None = None,
    bank_ids: Tensor | None = None,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
) -> Tensor:
    r"""For each query and level, the smallest label $v$ with $\sum_{j: y_j \le v} p_{ij} \ge$ level.

    As :func:`vicinal.heads.weighted_quantile` of the head's weights, with memory that does not grow with the bank but
    for 16 bytes a row: one pass more than a prediction finds the run of labels in which each quantile lies, another
    the weights in that run.

    Args:
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        labels: ``[N]``, floating.
        levels: L numbers from 0 to 1.
        similarity: see :func:`vicinal.heads.streamed_prediction`, as is all that follows.
        mask: see there.
        simplex: see there.
        chunk_size: see there.
        query_ids: see there.
        bank_ids: see there.
        query_groups: see there.
        bank_groups: see there.

    Returns:
        ``[b, L]``, each a label of the bank.

    >>> from vicinal.similarity import NegativeL2
    >>> bank, labels = torch.tensor([[0.0], [0.1], [9.0]]), torch.tensor([3.0, 1.0, 2.0])
    >>> streamed_quantiles(torch.zeros(1, 1), bank, labels, [0.1, 0.9], NegativeL2())
    tensor([[1., 3.]])
    """
    check_matrices(queries, bank)
    check_labels(labels, bank.shape[0])
    wanted = check_levels(levels)
    identity = (query_ids, bank_ids, query_groups, bank_groups)
    attention = make_attention(queries, bank, similarity, mask, simplex, chunk_size, identity)
    dtype = attention.costs.dtype
    if len(queries):
        with torch.autocast(queries.device.type, enabled=False):
            attention.predict(bank.new_zeros(bank.shape[0], 0, dtype=dtype), step_numbers(mask, queries, dtype))
    return quantiles([attention], len(queries), labels, wanted)


def check_levels(levels: Sequence[float]) -> list[float]:
    """``levels`` if all are from 0 to 1."""
    return [check_between("levels", level, 0, 1, closed=True) for level in levels]


def quantiles(attentions: Sequence[Attention], queries: int, labels: Tensor, levels: Sequence[float]) -> Tensor:
    """Quantiles ``[b, L]`` of the labels ``[N]`` by the mean weights of evaluated attentions."""
    found = labels.new_zeros(queries, len(levels))
    if queries == 0 or not levels:
        return found
    ordered, order = labels.sort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    size = -(-len(order) // _BINS)
    dtype = attentions[0].costs.dtype
    mass = torch.zeros(queries, -(-len(order) // size), dtype=torch.float64, device=order.device)
    with torch.autocast(order.device.type, enabled=False):
        for attention in attentions:
            for block, rows, weights in _weights(attention):
                mass[rows] = mass[rows].index_add_(1, place[block.start : block.stop] // size, weights.double())
        below = mass.cumsum(dim=1)
        share = torch.tensor(levels, dtype=torch.float64, device=order.device) * (1 - 8 * torch.finfo(dtype).eps)
        limits = below[:, -1:] * share  # [b, L]
        bins = torch.searchsorted(below, limits).clamp_(max=below.shape[1] - 1)
        inside = torch.zeros(*bins.shape, size, dtype=torch.float64, device=order.device)
        for attention in attentions:
            _add_inside(inside, attention, place, bins, size)
    for level in range(len(levels)):
        before = (below - mass).gather(1, bins[:, level : level + 1])
        reached = before + inside[:, level].cumsum(dim=1) >= limits[:, level : level + 1]
        reached[:, -1] = True
        at = bins[:, level] * size + reached.int().argmax(dim=1)
        found[:, level] = ordered[at.clamp(max=len(ordered) - 1)]
    return found


def _weights(attention: Attention) -> Iterator[tuple[Block, Rows, Tensor]]:
    """All blocks with their weights ``[r, B]``."""
    if attention.relative is None:
        return
    for block, rows in attention.costs.everything():
        entries = attention.hidden.within(block.start, block.stop)
        product = attention.costs.product(rows, block)
        weights = attention.weigh(attention.relative.leads(attention.costs, product, rows, entries))
        yield block, rows, weights if attention.threshold is not None else weights / attention.sums.total[rows]


def _add_inside(inside: Tensor, attention: Attention, place: Tensor, bins: Tensor, size: int) -> None:
    """Add the weights of the rows in the bins of each query to ``inside [b, L, size]``, ordered by label."""
    for block, rows, weights in _weights(attention):
        own = place[block.start : block.stop]
        numbers = own // size
        for level in range(bins.shape[1]):
            lines, columns = (numbers == bins[rows, level][:, None]).nonzero(as_tuple=True)
            part = inside[rows]
            part[lines, level, own[columns] % size] += weights[lines, columns].double()
            inside[rows] = part
