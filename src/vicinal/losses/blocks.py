"""Contrast of neighbors against sums over blocks of rows (PamC), in time that grows with edges and blocks."""

import math

import torch
from torch import Tensor

from vicinal.core import check_between, check_matrices, register


@register(
    "regularizer",
    "block_contrast",
    "rotation-invariant",
    paper="arXiv:2209.14067",
    verified="released code, value and gradient in float64; numpy in float64",
)
def block_contrast(embeddings: Tensor, assignment: Tensor, neighbors: Tensor, *, scale: float = 1.0) -> Tensor:
    r"""PamC: $-\overline{\log \sum_j a_{ij} e^{\tau c_{ij}}} + \overline{\log \sum_{k'} e^{\tau C_{kk'}}}$.

    $c_{ij}$ are cosines of rows, $C_{kk'}$ cosines of the sums of rows over blocks, both 0 on the diagonal; a row is in
    the block of its largest assignment. This is no pair loss ``f(scores, relation)``: the second term needs the sums of
    embeddings, which make the negatives cost k^2 instead of n^2, and the first only the scores along edges. Add it to
    others: the paper adds 2 times this to 0.1 times the divergence from :func:`sharpened`.

    Args:
        embeddings: ``[n, d]``.
        assignment: ``[n, k]``, how much each row belongs to each block; passes no gradient.
        neighbors: ``[n, n]``, weights of the neighbors of each row, dense or sparse (COO), such as powers of an
            adjacency with self loops whose rows sum to 1. A row without weight is left out of the first mean.
        scale: $\tau > 0$, multiplies the cosines.

    Returns:
        A number. Blocks without rows are left out; a zero vector has cosine 0 with all.

    Raises:
        ValueError: for other shapes, or negative weights of neighbors.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> block_contrast(x, torch.eye(2)[[0, 0, 1]], torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]]))
    tensor(0.0265)
    """
    check_between("scale", scale, 0, math.inf)
    n = len(embeddings)
    check_matrices(embeddings, embeddings)
    if assignment.ndim != 2 or len(assignment) != n or assignment.shape[1] < 1:
        raise ValueError(f"assignment: expected [{n}, k], a row for each embedding, got {tuple(assignment.shape)}")
    if neighbors.shape != (n, n):
        raise ValueError(f"neighbors: expected [{n}, {n}], got {tuple(neighbors.shape)}")
    with torch.autocast(embeddings.device.type, enabled=False):
        rows = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
        return _against_blocks(rows, assignment, scale) - _along_edges(rows, neighbors, scale)


def _unit(rows: Tensor) -> Tensor:
    """Rows of length 1; a zero row stays zero, with slope 0."""
    square = rows.square().sum(-1, keepdim=True)
    return torch.where(square > 0, rows / torch.where(square > 0, square, 1.0).sqrt(), 0.0)


def _along_edges(rows: Tensor, neighbors: Tensor, scale: float) -> Tensor:
    """The mean over rows of the log of the weighed neighbors, only along the edges."""
    edges = (neighbors if neighbors.is_sparse else neighbors.to_sparse()).coalesce()
    weight = edges.values().to(rows.dtype)
    if not torch.compiler.is_compiling() and bool((weight < 0).any()):
        raise ValueError(f"neighbors: expected weights of at least 0, got {float(weight.min()):g}")
    row, column = edges.indices()
    unit = _unit(rows)
    cosine = torch.where(row == column, 0.0, (unit[row] * unit[column]).sum(-1))
    # cosines are at most 1, so e^(scale * (cosine - 1)) cannot overflow
    mass = rows.new_zeros(len(rows)).index_add(0, row, weight * (scale * (cosine - 1)).exp())
    some = mass > 0
    logs = torch.where(some, torch.where(some, mass, 1.0).log() + scale, 0.0)
    return logs.sum() / some.sum().clamp(min=1)


def _against_blocks(rows: Tensor, assignment: Tensor, scale: float) -> Tensor:
    """The mean over blocks that have rows of the log-sum over such blocks."""
    block = assignment.argmax(dim=-1)
    blocks = assignment.shape[1]
    used = torch.zeros(blocks, dtype=torch.bool, device=rows.device).index_fill(0, block, value=True)
    unit = _unit(rows.new_zeros(blocks, rows.shape[1]).index_add(0, block, rows))
    own = torch.eye(blocks, dtype=torch.bool, device=rows.device)
    cosine = (unit @ unit.T).masked_fill(own, 0.0)
    logs = (scale * cosine).masked_fill(~used, -torch.inf).logsumexp(-1)
    return torch.where(used, logs, 0.0).sum() / used.sum().clamp(min=1)


def sharpened(assignment: Tensor) -> Tensor:
    r"""A target for soft assignments: $t_{ik} \propto q_{ik}^2 / \sum_i q_{ik}$, rows summing to 1, without gradient.

    Its divergence is ``torch.nn.functional.kl_div(assignment.log(), sharpened(assignment), reduction="batchmean")``.

    Args:
        assignment: ``[n, k]``, >= 0.

    Returns:
        ``[n, k]``.

    >>> sharpened(torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]])
    """
    kept = assignment.detach()
    size = kept.sum(dim=0, keepdim=True)
    weight = kept.square() / torch.where(size > 0, size, 1.0)
    total = weight.sum(dim=1, keepdim=True)
    return weight / torch.where(total > 0, total, 1.0)
