"""Rows that are labelled together, so that near rows agree, by bound updates of a regularized assignment."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.nearest import NearestRows
from vicinal.core import register
from vicinal.core.checks import check_between, check_integer, check_matrices, check_tensor
from vicinal.similarity import class_means


class Transduction(NamedTuple):
    """``shares [n, K]`` of the classes, rows sum to 1, and the energy after each step."""

    shares: Tensor
    energies: list[float]


@register(
    "clustering", "transductive", paper="arXiv:2106.09516, arXiv:2006.15486", verified="values of the papers' code"
)
def transductive(
    unary: Tensor,
    affinity: Tensor,
    *,
    strength: float = 0.7,
    symmetric: bool = True,
    labels: Tensor | None = None,
    steps: int = 20,
    tolerance: float = 1e-6,
) -> Transduction:
    r"""Classes of rows together, so that near rows agree.

    $\min_Y \sum Y \log Y + \sum u Y - \frac\lambda2 \sum_{ij} w_{ij} \, y_i \cdot y_j$, each row in the simplex. Each
    step $Y \leftarrow \mathrm{softmax}(-u + \lambda W Y)$, from $\mathrm{softmax}(-u)$, minimizes a bound, so it never
    rises if W is symmetric without negative eigenvalues. The returned energies have $\lambda$ instead of $\lambda / 2$,
    as in the papers' code, and may rise a little.

    Args:
        unary: u ``[n, K]``, cost of each class: squared distances to prototypes, or negated scores.
        affinity: W ``[n, n]`` >= 0, dense or sparse; see :func:`neighbor_affinity`.
        strength: $\lambda \ge 0$; at 0 the result is the softmax.
        symmetric: use $(W + W^\top)/2$; False: W as it is, as in the papers' code.
        labels: whole numbers ``[n]``, the classes of labelled rows, which keep them; -1 for the others.
        steps: at most.
        tolerance: stop when the energy changes by at most this share of itself, after three steps at the earliest.

    Raises:
        ValueError: for numbers that are not finite, negative affinities, or shapes that do not fit.

    >>> unary = torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    >>> transductive(unary, torch.tensor([[0.0, 1.0], [1.0, 0.0]]), strength=2.0).shares.argmax(dim=1)
    tensor([0, 0])
    """
    costs = _check_unary(unary)
    check_between("strength", strength, 0, math.inf, closed=True)
    check_integer("steps", steps)
    between = _check_affinity(affinity, costs)
    between = (between + between.T) / 2 if symmetric else between
    ends = None if labels is None else _one_hot(labels, costs)

    def fixed(shares: Tensor) -> Tensor:
        return shares if ends is None else torch.where(ends.sum(1, keepdim=True) > 0, ends, shares)

    shares, energies = fixed((-costs).softmax(1)), []
    pull = between @ shares
    for step in range(steps):
        shares = fixed((strength * pull - costs).softmax(1))
        pull = between @ shares
        energies.append(float((torch.xlogy(shares, shares) + costs * shares - strength * shares * pull).sum()))
        if step > 1 and abs(energies[-1] - energies[-2]) <= tolerance * abs(energies[-2]):
            break
    return Transduction(shares, energies)


def neighbor_affinity(rows: Tensor, k: int = 3) -> Tensor:
    """A sparse matrix ``[n, n]``: 1 where j is one of the k nearest other rows of i, else 0; not symmetric.

    >>> neighbor_affinity(torch.tensor([[0.0], [1.0], [3.0]]), 1).to_dense()
    tensor([[0., 1., 0.],
            [1., 0., 0.],
            [0., 1., 0.]])
    """
    check_matrices(rows, rows)
    if not bool(rows.isfinite().all()):
        raise ValueError("rows: expected finite numbers, got nan or inf")
    check_integer("k", k, 1, len(rows) - 1)
    near = NearestRows(rows).search(rows, rows, k + 1).positions  # [n, k + 1]
    itself = near == torch.arange(len(rows), device=rows.device)[:, None]
    itself[:, -1] |= ~itself.any(dim=1)  # of rows with many copies
    at = torch.stack([torch.arange(len(rows), device=rows.device).repeat_interleave(k), near[~itself]])
    return torch.sparse_coo_tensor(at, torch.ones(at.shape[1]).to(rows), (len(rows), len(rows)), check_invariants=False)


def transductive_classes(
    rows: Tensor,
    support: Tensor,
    labels: Tensor,
    *,
    neighbors: int = 3,
    strength: float = 0.7,
    rounds: int = 10,
) -> Transduction:
    r"""Classes of rows from a few labelled ones: prototypes and :func:`transductive` assignments in turn.

    $u_{ik} = \|z_i - c_k\|^2$, with $c_k$ first the mean of the support rows of class k, then of these and all rows,
    weighted by their shares: $c_k = (\sum_{y_j = k} s_j + \sum_i y_{ik} z_i) / (n_k + \sum_i y_{ik})$.

    Args:
        rows: z ``[n, d]``, usually all of the same length.
        support: s ``[m, d]``.
        labels: of the support ``[m]``, 0 to K - 1, each occurring.
        neighbors: k of :func:`neighbor_affinity`.
        strength: of :func:`transductive`.
        rounds: of prototypes and assignments, at least 1.

    Returns:
        Shares of the last round, and the energies of all rounds.

    Paper: arXiv:2106.09516.

    >>> rows, support = torch.tensor([[0.0], [0.5], [1.0], [4.0], [4.5]]), torch.tensor([[0.2], [5.0]])
    >>> transductive_classes(rows, support, torch.tensor([0, 1]), neighbors=1).shares.argmax(dim=1)
    tensor([0, 0, 0, 1, 1])
    """
    check_matrices(rows, support)
    check_integer("rounds", rounds)
    sums = prototypes = class_means(support, labels)
    counts = torch.bincount(labels, minlength=len(prototypes)).to(prototypes)
    sums = sums * counts[:, None]
    affinity, wide = neighbor_affinity(rows, neighbors), rows.to(prototypes)
    energies = []
    for _ in range(rounds):
        unary = torch.cdist(wide, prototypes, compute_mode="donot_use_mm_for_euclid_dist").square()
        shares, values = transductive(unary, affinity, strength=strength)
        energies += values
        prototypes = (sums + shares.T @ wide) / (counts + shares.sum(0))[:, None]
    return Transduction(shares, energies)


def _check_unary(unary: Tensor) -> Tensor:
    if check_tensor("unary", unary).ndim != 2 or not unary.is_floating_point() or 0 in unary.shape:
        raise ValueError(f"unary: expected floating numbers [n, K], got {unary.dtype} {tuple(unary.shape)}")
    if not bool(unary.isfinite().all()):
        raise ValueError("unary: expected finite numbers, got nan or inf")
    return unary.to(torch.promote_types(unary.dtype, torch.float32))


def _check_affinity(affinity: Tensor, costs: Tensor) -> Tensor:
    if check_tensor("affinity", affinity).shape != (len(costs), len(costs)):
        raise ValueError(f"affinity: expected {(len(costs), len(costs))} as the rows, got {tuple(affinity.shape)}")
    between = affinity.coalesce().to(costs.dtype) if affinity.is_sparse else affinity.to(costs.dtype)
    values = between.values() if affinity.is_sparse else between
    if not bool((values >= 0).all() & (values < torch.inf).all()):
        raise ValueError("affinity: expected finite numbers of at least 0, got others")
    return between


def _one_hot(labels: Tensor, costs: Tensor) -> Tensor:
    """Rows of labels; a row of zeros for -1."""
    classes = costs.shape[1]
    if (
        labels.is_floating_point()
        or labels.shape != costs.shape[:1]
        or not -1 <= int(labels.min()) <= int(labels.max()) < classes
    ):
        raise ValueError(f"labels: expected classes 0 to {classes - 1}, or -1, for each row, got others")
    return torch.nn.functional.one_hot(labels.long() + 1, classes + 1)[:, 1:].to(costs)
