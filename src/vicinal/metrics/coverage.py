"""How well labelled rows cover others: distances to the nearest admissible neighbor, and shares within a radius."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vicinal.blockwise.distances import squared_distances
from vicinal.core import check_between, check_matrices

_HELD = 1 << 22
"""Distances held at a time."""


@torch.no_grad()
def nearest_distances(
    queries: Tensor,
    bank: Tensor | None = None,
    *,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
) -> Tensor:
    """Euclidean distance ``[n]`` of each row to its nearest neighbor; inf where none is admissible.

    Args:
        queries: ``[n, d]``.
        bank: ``[N, d]``; None: the queries, where no row is its own neighbor.
        query_groups: integers ``[n]``; rows of one group are no neighbors.
        bank_groups: integers ``[N]``, with ``query_groups`` if there is a bank.

    >>> nearest_distances(torch.tensor([[0.0], [1.0], [5.0]]))
    tensor([1., 1., 4.])
    """
    rows = queries if bank is None else bank
    check_matrices(queries, rows)
    if bank is None and bank_groups is not None:
        raise ValueError("bank_groups: expected none without a bank, got some; query_groups serve for both")
    others = query_groups if bank is None else bank_groups
    if (query_groups is None) != (others is None):
        raise ValueError("bank_groups: expected groups of queries and bank, or neither")
    for name, groups, number in (("query_groups", query_groups, len(queries)), ("bank_groups", others, len(rows))):
        if groups is not None and groups.shape != (number,):
            raise ValueError(f"{name}: expected [{number}], got {tuple(groups.shape)}")
    step, found = max(1, _HELD // max(len(rows), 1)), []
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        apart = squared_distances(queries[part], rows)
        if bank is None:
            place = torch.arange(len(apart), device=apart.device)
            apart[place, place + start] = torch.inf
        if query_groups is not None and others is not None:
            apart = apart.masked_fill(query_groups[part, None] == others[None], torch.inf)
        none = apart.new_full((len(apart), 1), torch.inf)
        found.append(torch.cat([apart, none], dim=1).amin(1).sqrt())
    return torch.cat(found) if found else queries.new_zeros(0)


def neighbor_coverage(
    queries: Tensor,
    radius: float | Sequence[float],
    bank: Tensor | None = None,
    *,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
) -> Tensor:
    """Share of rows whose nearest admissible neighbor lies within ``radius``: how much of the data has somebody near.

    Args:
        queries: ``[n, d]``, n >= 1.
        radius: >= 0, or several.
        bank: see :func:`nearest_distances`, as for the groups.
        query_groups: integers ``[n]``.
        bank_groups: integers ``[N]``.

    Returns:
        a scalar, or ``[r]`` for several radii.

    >>> neighbor_coverage(torch.tensor([[0.0], [1.0], [5.0]]), [0.5, 1.0, 4.0])
    tensor([0.0000, 0.6667, 1.0000])
    """
    several = isinstance(radius, Sequence)
    asked = list(radius) if isinstance(radius, Sequence) else [radius]
    radii = [check_between("radius", value, 0, math.inf, closed=True) for value in asked]
    if len(queries) == 0:
        raise ValueError("queries: expected at least one row, got none")
    away = nearest_distances(queries, bank, query_groups=query_groups, bank_groups=bank_groups)
    shares = (away[:, None] <= away.new_tensor(radii)).to(away.dtype).mean(0)
    return shares if several else shares[0]
