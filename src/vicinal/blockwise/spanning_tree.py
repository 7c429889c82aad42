"""The minimum spanning tree of rows, without their matrix of distances, by Boruvka's algorithm."""

import torch
from torch import Tensor

from vicinal.blockwise.blocks import block_rows, row_slices
from vicinal.blockwise.distances import squared_distances


@torch.no_grad()
def minimum_spanning_tree(rows: Tensor) -> Tensor:
    """Edges of a minimum spanning tree by Euclidean distance.

    In each round every component takes the shortest edge that leaves it, so there are at most log2 n rounds, and each
    computes all distances, a block of rows at a time. If several trees are equally short, it is any of them.

    Args:
        rows: ``[n, d]``, finite.

    Returns:
        int64 ``[n - 1, 2]``, positions of the two ends; no edges for fewer than two rows.

    >>> minimum_spanning_tree(torch.tensor([[0.0], [10.0], [1.0]])).sort(1).values.tolist()
    [[0, 2], [1, 2]]
    """
    rows = rows.detach()
    component = torch.arange(len(rows), device=rows.device)
    edges: list[Tensor] = []
    while len(rows) and bool((component != component[0]).any()):
        ends, component = _round(rows, component)
        edges.append(ends)
    return torch.cat(edges) if edges else component.new_zeros(0, 2)


def _round(rows: Tensor, component: Tensor) -> tuple[Tensor, Tensor]:
    """The shortest edge out of each component, except those that would close a cycle, and the new components."""
    distance, other = rows.new_empty(len(rows)), torch.empty_like(component)
    for part in row_slices(len(rows), block_rows(len(rows), len(rows), rows.device)):
        block = squared_distances(rows[part], rows)
        block.masked_fill_(component[part, None] == component, torch.inf)
        distance[part], other[part] = block.min(dim=1)
    order = distance.argsort(stable=True)
    order = order[component[order].argsort(stable=True)]  # by component, the nearest first
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = component[order[1:]] != component[order[:-1]]
    leaving = order[first]
    leaving = leaving[distance[leaving].argsort(stable=True)]
    ends = torch.stack([leaving, other[leaving]], dim=1)
    return _joined(ends, component)


def _joined(ends: Tensor, component: Tensor) -> tuple[Tensor, Tensor]:
    names = component[ends].tolist()
    parent = {name: name for pair in names for name in pair}

    def root(name: int) -> int:
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]
        return name

    used = []
    for one, other in names:
        left, right = root(one), root(other)
        used.append(left != right)
        parent[left] = right
    renamed = component.new_zeros(int(component.max()) + 1)
    known = list(parent)
    renamed[known] = component.new_tensor([root(name) for name in known])
    return ends[torch.tensor(used, device=ends.device)], renamed[component]
