"""Parts of rows: a matrix as sums of a few parts with weights that are not negative."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vicinal.core import register
from vicinal.core.checks import check_between, check_integer, check_tensor

_TINY = 1e-6
"""Ridge of the parts, and what divisors get."""


class Parts(NamedTuple):
    """``parts [d, rank]`` of any sign, ``weights [n, rank]`` >= 0, and the squared ``error`` of their product."""

    parts: Tensor
    weights: Tensor
    error: float

    def typical(self, count: int) -> Tensor:
        """The rows that hold most of each part, the most first: ``[rank, count]``."""
        return self.weights.topk(check_integer("count", count, 1, len(self.weights)), dim=0).indices.T


@register("factorization", "semi_nmf", paper="arXiv:2506.10920", verified="values of the paper's code")
def semi_nmf(
    rows: Tensor,
    rank: int,
    *,
    share: float = 1.0,
    steps: int = 200,
    patience: int = 20,
    start: Tensor | Literal["svd"] | torch.Generator = "svd",
) -> Parts:
    r"""Rows as sums of parts, $X \approx G F^\top$ with $G \ge 0$, of least $\|X - G F^\top\|^2$ in turn for F and G.

    $F = X^\top G (G^\top G + \epsilon I)^{-1}$, where each column may keep only its ``share`` of largest entries
    (winner takes all); columns of G are scaled to length 1; then, with $P = X F$, $Q = F^\top F$ and $z^\pm = (|z| \pm
    z)/2$, $G \leftarrow G \sqrt{(P^+ + G Q^-) / (P^- + G Q^+ + \epsilon)}$. Without ``share`` the error never rises.

    Args:
        rows: X ``[n, d]``, of any sign.
        rank: number of parts, at most min(n, d).
        share: share of the entries of a part that may be nonzero, in (0, 1].
        steps: at most.
        patience: stop after this many steps without a smaller error.
        start: G ``[n, rank]`` >= 0, where zeros stay 0; "svd", from singular vectors; or a generator, for a random
            start.

    Returns:
        The result of the best step.

    Raises:
        ValueError: for numbers that are not finite, a negative start, or shapes that do not fit.

    >>> rows = torch.tensor([[1.0, -1.0, 0.0], [2.0, -2.0, 0.0], [0.0, 0.0, 3.0]])
    >>> found = semi_nmf(rows, 2)
    >>> round(found.error, 4), found.typical(1).tolist()
    (0.0, [[1], [2]])
    """
    check_between("share", share, 0, math.inf)
    check_between("share", share, 0, 1, closed=True)
    if check_tensor("rows", rows).ndim != 2 or not rows.is_floating_point() or not bool(rows.isfinite().all()):
        raise ValueError(f"rows: expected finite floating numbers [n, d], got {rows.dtype} {tuple(rows.shape)} or nan")
    check_integer("rank", rank, 1, min(rows.shape))
    check_integer("steps", steps)
    check_integer("patience", patience)
    count = math.ceil(share * rows.shape[1])
    weights = _start(rows, rank, start)
    best, since = Parts(rows.new_zeros(rows.shape[1], rank), weights, math.inf), 0
    tiny = _TINY * float(rows.square().mean().clamp(max=1))  # products of small rows are smaller still
    ridge = _TINY * torch.eye(rank).to(rows)
    for _ in range(steps):
        parts = torch.linalg.solve(weights.T @ weights + ridge, weights.T @ rows).T  # [d, r]
        if count < len(parts):
            parts = torch.where(parts.abs() >= parts.abs().topk(count, dim=0).values[-1], parts, 0.0)
        lengths = weights.norm(dim=0).clamp(min=1e-8)
        weights, parts = weights / lengths, parts * lengths
        p, q = rows @ parts, parts.T @ parts
        weights = weights * ((p.relu() + weights @ (-q).relu()) / ((-p).relu() + weights @ q.relu() + tiny)).sqrt()
        error = float((rows - weights @ parts.T).square().sum())
        best, since = (Parts(parts, weights, error), 0) if error < best.error else (best, since + 1)
        if since >= patience:
            break
    return best


def _start(rows: Tensor, rank: int, start: Tensor | Literal["svd"] | torch.Generator) -> Tensor:
    if isinstance(start, Tensor):
        if start.shape != (len(rows), rank) or not bool((start >= 0).all() & (start < torch.inf).all()):
            raise ValueError(f"start: expected finite numbers of at least 0, {(len(rows), rank)}, got others")
        return start.to(rows)
    if isinstance(start, torch.Generator):
        return torch.rand(len(rows), rank, generator=start).to(rows) + _TINY
    if start != "svd":
        raise ValueError(f"start: expected 'svd', a tensor or a generator, got {start!r}")
    left, values, _ = torch.linalg.svd(rows, full_matrices=False)
    return (left[:, :rank] * values[:rank].sqrt()).clamp(min=_TINY)
