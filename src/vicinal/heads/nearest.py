"""The nearest bank rows of each query, found a block at a time without a sort of the bank."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.costs import Block, Costs, Rows
from vicinal.heads.hidden import Hidden
from vicinal.heads.pruning import Pruner


class Nearest(NamedTuple):
    """Lowest products (see :class:`vicinal.heads.costs.Product`) ``[b, k]``, ascending, and their bank rows.

    Where fewer than k rows are admissible, the rest is infinite.
    """

    values: Tensor
    positions: Tensor


def check_reached(near: Tensor) -> None:
    """Check that each query has reached a bank row: that ``near [b]`` is not infinite.

    Raises:
        ValueError: naming the first query that has none.
    """
    lonely = near == torch.inf
    if bool(lonely.any()):
        raise ValueError(
            f"bank: expected a row of another id and group for every query, got none for query "
            f"{int(lonely.nonzero()[0])}; give it a larger bank, or leave that query out"
        )


def nearest(costs: Costs, hidden: Hidden, k: int, pruner: Pruner | None = None) -> Nearest:
    """The ``k`` admissible bank rows of lowest cost, or all if there are fewer, in one pass over the bank.

    A ``pruner`` skips blocks whose rows are all farther than the k-th found so far.
    """
    k = min(k, len(costs.bank))
    values = costs.queries.new_full((len(costs.queries), k), torch.inf)
    positions = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
    for block, rows in costs.everything() if pruner is None else _toward_nearest(pruner, values):
        product = costs.product(rows, block)
        if not bool((product.lowest < values[rows, -1]).any()):
            continue
        entries = hidden.within(block.start, block.stop)
        found = product.values if entries is None else entries.fill(product.values, rows, torch.inf)
        candidates = _below(found, values[rows, -1:], k)
        joined = torch.cat([values[rows], candidates.values], dim=1)
        kept = joined.topk(k, dim=1, largest=False)
        values[rows] = kept.values
        joined_positions = torch.cat([positions[rows], candidates.positions + block.start], dim=1)
        positions[rows] = joined_positions.gather(1, kept.indices)
    return Nearest(values, positions)


def _toward_nearest(pruner: Pruner, values: Tensor) -> Iterator[tuple[Block, Rows]]:
    """First the most promising block of each query, then those that may hold a row nearer than the k-th found."""
    best = pruner.best(far=False)
    pruner.visits.possible += best.numel()
    yield from pruner.visit(lambda number: best[:, number])

    def may_hold(number: int) -> Tensor:
        return (pruner.low[:, number] <= pruner.costs.finish_rows(values[:, -1])) & ~best[:, number]

    yield from pruner.visit(may_hold)


def _below(values: Tensor, limit: Tensor, k: int) -> Nearest:
    """Entries of ``values [r, B]`` below ``limit [r, 1]``, packed to the left, or at least the ``k`` lowest of them."""
    below = values < limit
    counts = below.sum(dim=1)
    most = int(counts.max())
    if most > k + values.shape[1] // 8:
        kept = values.topk(min(k, values.shape[1]), dim=1, largest=False)
        return Nearest(kept.values, kept.indices)
    rows, columns = below.nonzero(as_tuple=True)
    slots = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    packed = values.new_full((len(values), most), torch.inf)
    places = torch.zeros(packed.shape, dtype=torch.int64, device=values.device)
    packed[rows, slots] = values[rows, columns]
    places[rows, slots] = columns
    return Nearest(packed, places)
