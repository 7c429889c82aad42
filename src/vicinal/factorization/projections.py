"""Rows of a graph as vectors: random projections of its transitions, by sparse products alone."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from vicinal.core import check_integer, check_number, register


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
    sparse: $\sqrt{s / dim}$ times 1 or -1 with probability $1/(2s)$ each, else 0, with $s = \sqrt n$. What is computed
    are as many products of a sparse matrix as there are weights.

    Args:
        adjacency: A ``[n, n]``, a sparse matrix of scipy or an array, >= 0.
        dim: width of the vectors.
        weights: $w_1, w_2, \ldots$ of one step, two steps, and so on.
        degree_power: $\beta$; below 0, nodes of many edges count less.
        transition: False: A in the place of P.
        normalize: the vectors of each number of steps to length 1 (0 stays 0); False: the sum is linear in R.
        generator: what R is drawn by.
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
            lengths = np.linalg.norm(rows, axis=1, keepdims=True) if normalize else np.ones((nodes, 1), graph.dtype)
            total += factor * (rows / np.where(lengths > 0, lengths, 1))
    return torch.from_numpy(total)


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
        if projection.shape != (nodes, dim):
            raise ValueError(f"projection: expected {(nodes, dim)}, got {tuple(projection.shape)}")
        return projection.numpy(force=True)
    size = math.sqrt(nodes)
    draws = torch.rand(nodes, dim, generator=generator)
    signs = (draws < 0.5 / size).float() - (draws > 1 - 0.5 / size).float()
    return (math.sqrt(size / dim) * signs).numpy()
