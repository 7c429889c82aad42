"""Rows of a graph as vectors: random projections of its transitions, by sparse products alone."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from vicinal.core import register
from vicinal.core.checks import check_integer, check_number


@register(
    "factorization",
    "fastrp",
    "random",
    family="projections",
    paper="arXiv:1908.11512",
    verified="values of public code",
)
def fastrp(
    adjacency: Any,
    dim: int,
    *,
    weights: Sequence[float] = (0.0, 0.0, 1.0, 1.0),
    degree_power: float = -0.5,
    transition: bool = True,
    normalize: bool = True,
    generator: torch.Generator | None = None,
    projection: Tensor | None = None,
) -> Tensor:
    r"""Vectors of the nodes of a graph, $\sum_k w_k \, \mathrm{unit}(P^k L R)$: alike where surroundings are.

    $P = D^{-1} A$ are transitions, $L = \operatorname{diag}(d^\beta)$ with the degrees d, and R ``[n, dim]`` is very
    sparse: $\sqrt{s / dim}$ times 1 or -1 with probability $1/(2s)$ each, else 0, with $s = \sqrt n$. It takes one
    product with a sparse matrix per weight.

    Args:
        adjacency: A ``[n, n]``, a sparse matrix of scipy or an array, >= 0.
        dim: width of the vectors.
        weights: $w_1, w_2, \ldots$ of one step, two steps, and so on.
        degree_power: $\beta$; below 0, nodes with many edges count less.
        transition: False: use A in place of P.
        normalize: scale the vectors of each power to length 1 (0 stays 0); False: the sum is linear in R.
        generator: of the draw of R.
        projection: R itself.

    Returns:
        ``[n, dim]``, float64 if A is, else float32. A node without edges gets 0.

    Raises:
        ValueError: for negative or infinite weights of edges, self loops, or shapes that do not fit.

    >>> path = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> vectors = fastrp(path, 8, generator=torch.Generator().manual_seed(0))
    >>> bool((vectors[0] == vectors[2]).all())  # both ends have one neighbor, the same
    True
    """
    graph = _graph(adjacency)
    nodes = graph.shape[0]
    check_integer("dim", dim)
    factors = [check_number("weights", each) for each in weights]
    if not any(factors):
        raise ValueError("weights: expected numbers, one other than 0, got none; one for each number of steps")
    degrees = graph.sum(axis=1)
    there = np.maximum(degrees, np.finfo(degrees.dtype).tiny)
    scale = np.where(degrees > 0, there ** check_number("degree_power", degree_power), 0)
    rows = scale[:, None] * _projection(nodes, dim, generator, projection).astype(graph.dtype)
    step = sparse.diags_array(np.where(degrees > 0, 1 / there, 0).astype(graph.dtype)) @ graph if transition else graph
    total = np.zeros((nodes, dim), graph.dtype)
    for factor in factors:
        rows = step @ rows
        if factor:
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows)) if normalize else np.ones(nodes, graph.dtype)
            total += rows * (factor / np.where(lengths > 0, lengths, 1)).astype(graph.dtype)[:, None]
    return torch.from_numpy(total)


def common_neighbors(vectors: Tensor, adjacency: Any, pairs: Tensor) -> Tensor:
    r"""The sum of the vectors of the nodes that both of a pair have edges to, $\sum_{u \in N(i) \cap N(j)} h_u$.

    It helps to tell whether an edge is missing; with vectors of ones it counts common neighbors. An edge between the
    two, if there is one, is not used. The gradient flows into the vectors.

    Args:
        vectors: h ``[n, d]``.
        adjacency: ``[n, n]``, sparse or an array, symmetric; edges are what is above 0.
        pairs: whole numbers ``[m, 2]``, two nodes each.

    Returns:
        ``[m, d]``; 0 where they share no neighbor.

    Paper: arXiv:2302.00890.

    >>> square = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    >>> common_neighbors(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), square, torch.tensor([[0, 2], [0, 1]]))
    tensor([[6.],
            [0.]])
    """
    graph = _graph(adjacency)
    nodes = graph.shape[0]
    graph.eliminate_zeros()
    graph.data = np.ones_like(graph.data)
    if (graph != graph.T).nnz:
        raise ValueError(
            "adjacency: expected a symmetric matrix, got another; a common neighbor needs a direction else"
        )
    if vectors.ndim != 2 or len(vectors) != nodes or not bool(vectors.isfinite().all()):
        raise ValueError(f"vectors: expected finite numbers [{nodes}, d], a row a node, got {tuple(vectors.shape)}")
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.is_floating_point():
        raise ValueError(f"pairs: expected whole numbers [m, 2], got {pairs.dtype} {tuple(pairs.shape)}")
    ends = pairs.numpy(force=True)
    if ends.size and not (ends.min() >= 0 and ends.max() < nodes):
        raise ValueError(f"pairs: expected nodes 0 to {nodes - 1}, got {ends.min()} to {ends.max()}")
    if np.any(ends[:, 0] == ends[:, 1]):
        raise ValueError("pairs: expected two different nodes, got one twice")
    both = graph[ends[:, 0]].multiply(graph[ends[:, 1]]).tocoo()
    rows, columns = (torch.from_numpy(each.astype(np.int64)).to(vectors.device) for each in (both.row, both.col))
    return vectors.new_zeros(len(ends), vectors.shape[1]).index_add(0, rows, vectors[columns])


def _graph(adjacency: Any) -> Any:
    """A sparse matrix of rows in float32 or float64."""
    graph = sparse.csr_array(adjacency)
    graph = graph.astype(np.float64 if graph.dtype == np.float64 else np.float32)
    if graph.ndim != 2 or graph.shape[0] != graph.shape[1] or graph.shape[0] == 0:
        raise ValueError(f"adjacency: expected [n, n], got {graph.shape}")
    if not np.all((graph.data >= 0) & (graph.data < np.inf)):
        raise ValueError("adjacency: expected finite weights of at least 0, got others; a power of a degree needs them")
    loops = np.flatnonzero(graph.diagonal())
    if len(loops):
        raise ValueError(f"adjacency: expected no node with an edge to itself, got node {loops[0]}; set its entry to 0")
    return graph


def _projection(nodes: int, dim: int, generator: torch.Generator | None, projection: Tensor | None) -> Any:
    """R ``[nodes, dim]``."""
    if projection is not None:
        if projection.shape != (nodes, dim) or not bool(projection.isfinite().all()):
            raise ValueError(f"projection: expected finite numbers {(nodes, dim)}, got {tuple(projection.shape)}")
        return projection.numpy(force=True)
    size = math.sqrt(nodes)
    draws = torch.rand(nodes, dim, generator=generator)
    signs = (draws < 0.5 / size).float() - (draws > 1 - 0.5 / size).float()
    return (math.sqrt(size / dim) * signs).numpy()
