"""Regularizers of the shape that embeddings have together: spread, of full rank, or collapsed class by class."""

import functools
import math
import warnings

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vicinal.blockwise.spanning_tree import minimum_spanning_tree
from vicinal.core import register
from vicinal.core.checks import check_between, check_matrices, check_tensor
from vicinal.losses.regularizers import wide_rows


def tree_length(embeddings: Tensor) -> Tensor:
    r"""The length of the shortest tree that joins all rows, $E(Z) = \sum_{(i, j)} \|z_i - z_j\|$ over its edges.

    The gradient flows through the lengths of the edges, not through the choice of the tree. Edges are found by
    :func:`minimum_spanning_tree` of ``vicinal.blockwise``, without a matrix of all distances. Equal rows have gradient
    0.

    Args:
        embeddings: ``[n, d]``, finite.

    Raises:
        ValueError: if an embedding is not finite.

    >>> tree_length(torch.tensor([[0.0], [3.0], [1.0]]))
    tensor(3.)
    """
    rows = wide_rows(embeddings)
    if not bool(rows.isfinite().all()):
        raise ValueError("embeddings: expected finite numbers, got some that are not")
    with torch.autocast(rows.device.type, enabled=False):
        ends = minimum_spanning_tree(rows)
        length: Tensor = torch.linalg.vector_norm(rows[ends[:, 0]] - rows[ends[:, 1]], dim=1).sum()
    return length


_regularizer = functools.partial(register, "regularizer", family="embedding shape")


@_regularizer(
    "t_regs",
    "rotation-invariant",
    paper="Mordacq et al., NeurIPS 2025",
    verified="tree lengths of scipy in float64; reconstructed: the two factors are from memory of the paper",
)
def t_regs(embeddings: Tensor, *, factor: float = 1.0, sphere: float = 1.0) -> Tensor:
    r"""Rows far from one another on the unit sphere, by the shortest tree that joins them (T-REGS).

    $-\gamma\, E(Z)/n + \lambda\, \overline{(\|z\| - 1)^2}$ with the length E of :func:`tree_length`.

    Reconstructed: the two factors are from memory of the paper and need tuning for the batch. Use it on both views,
    together with a loss that keeps the views close. Unlike a covariance it also notices rows that fill a space of few
    dimensions.

    Args:
        embeddings: ``[n, d]``, n >= 2; fewer have loss 0, with a warning.
        factor: $\gamma \ge 0$.
        sphere: $\lambda \ge 0$.

    Raises:
        ValueError: if an embedding is not finite.

    >>> t_regs(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    tensor(-1.)
    """
    for name, value in (("factor", factor), ("sphere", sphere)):
        check_between(name, value, 0, math.inf, closed=True)
    rows = wide_rows(embeddings)
    if len(rows) < 2:
        warnings.warn(f"embeddings: expected at least 2 rows for a tree, got {len(rows)}; the loss is 0", stacklevel=2)
        return rows.sum() * 0.0
    lengths = torch.linalg.vector_norm(rows, dim=1)
    off_sphere: Tensor = (lengths - 1).square().mean()
    return sphere * off_sphere - factor * tree_length(rows) / len(rows)


def _half_log_volume(rows: Tensor, scale: Tensor | float) -> Tensor:
    r"""$\frac12 \log\det(I + c Z^\top Z)$ of ``rows [..., n, d]``, by the smaller of both sides."""
    side = rows if rows.shape[-1] >= rows.shape[-2] else rows.mT
    matrix = scale * (side @ side.mT)
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    volume: Tensor = torch.linalg.slogdet(matrix + eye).logabsdet
    return volume / 2


@_regularizer(
    "coding_rate", "rotation-invariant", paper="arXiv:2006.08558", verified="values of public code in float64"
)
def coding_rate(embeddings: Tensor, *, eps: float = 0.5) -> Tensor:
    r"""How many nats it takes to code the rows up to an error: large where they fill all dimensions.

    $\frac12 \log\det(I + \frac{d}{n \epsilon} Z^\top Z)$; some papers write $\epsilon^2$ for our $\epsilon$.

    Made for rows of length 1. To spread them, subtract it from a loss.

    Args:
        embeddings: Z, ``[n, d]``, n >= 1.
        eps: $\epsilon > 0$.

    >>> coding_rate(torch.eye(2))
    tensor(1.0986)
    """
    check_between("eps", eps, 0, math.inf)
    rows = wide_rows(embeddings)
    if not len(rows):
        raise ValueError("embeddings: expected at least one row, got none")
    with torch.autocast(rows.device.type, enabled=False):
        return _half_log_volume(rows, rows.shape[1] / (len(rows) * eps))


@_regularizer(
    "mcr2",
    "class-labels",
    "rotation-invariant",
    paper="arXiv:2006.08558; arXiv:2301.01805",
    verified="values of public code, value and gradient in float64",
)
def mcr2(embeddings: Tensor, membership: Tensor, *, eps: float = 0.5, gamma: float = 1.0) -> Tensor:
    r"""Rows that fill all dimensions together and few within each class (maximal coding rate reduction).

    $-R(Z) + \gamma \sum_j \frac{m_j}{2n} \log\det(I + \frac{d}{m_j \epsilon} Z^\top \mathrm{diag}(w_j) Z)$, R as in
    :func:`coding_rate`, and $m_j$ the sum of the memberships $w_j$ of class j, plus 1e-8.

    For $\gamma \le 1$ it is at most 0. Classes may be soft.

    Args:
        embeddings: Z, ``[n, d]``, rows of length 1.
        membership: w, ``[n, k]``, >= 0, rows summing to 1; or whole numbers ``[n]``, a class each.
        eps: $\epsilon > 0$.
        gamma: $\gamma \ge 0$.

    Raises:
        ValueError: for no rows, another shape, or negative memberships.

    >>> mcr2(torch.eye(2), torch.tensor([0, 1]))
    tensor(-0.2939)
    """
    check_between("gamma", gamma, 0, math.inf, closed=True)
    rate = coding_rate(embeddings, eps=eps)
    rows = wide_rows(embeddings)
    shares = _memberships(membership, rows)
    mass = shares.sum(0) + 1e-8  # [k]
    with torch.autocast(rows.device.type, enabled=False):
        roots = torch.where(shares > 0, torch.where(shares > 0, shares, 1.0).sqrt(), 0.0)
        scaled = roots.T[:, :, None] * rows  # [k, n, d]
        volumes = _half_log_volume(scaled, (rows.shape[1] / (mass * eps))[:, None, None])
        return gamma * (mass * volumes).sum() / len(rows) - rate


def _memberships(membership: Tensor, rows: Tensor) -> Tensor:
    check_tensor("membership", membership)
    if membership.ndim == 1 and not membership.is_floating_point() and len(membership) == len(rows):
        classes = torch.unique(membership, return_inverse=True)[1]
        return torch.nn.functional.one_hot(classes).to(rows.dtype)
    if membership.ndim != 2 or len(membership) != len(rows) or not membership.is_floating_point():
        raise ValueError(
            f"membership: expected whole numbers [{len(rows)}] or shares [{len(rows)}, k], got {membership.dtype} "
            f"{tuple(membership.shape)}"
        )
    if bool((membership < 0).any()):
        raise ValueError(f"membership: expected shares of at least 0, got {float(membership.min()):g}")
    return membership.to(rows.dtype)


@_regularizer(
    "neural_collapse",
    "class-labels",
    "common-shift-invariant",
    "rotation-invariant",
    paper="Liu et al., AISTATS 2023",
    verified="values of the paper's code, value and gradient in float64; its weights of both parts from memory",
)
def neural_collapse(
    embeddings: Tensor, labels: Tensor, centers: Tensor, *, within: float = 0.1, between: float = 0.1
) -> Tensor:
    r"""Rows near the learned center of their class, and centers at equal, widest angles: for classes of any size.

    $\frac{\lambda_1}{C} \sum_k \frac{1}{n_k} \sum_{i \in k} \|z_i - m_k\|^2 - \lambda_2\, \overline{\arccos c_k}$ with
    $c_k = \max_{j \ne k} \cos(m_k - \bar m, m_j - \bar m)$.

    Every class counts the same, however many rows it has, so that rare classes keep an angle of their own. Centers at
    the corners of a simplex reach the minimum of the second part, $-\arccos(-1/(C - 1))$.

    Args:
        embeddings: z, ``[b, d]``.
        labels: ``[b]``, 0 to C - 1.
        centers: m, ``[C, d]``, C >= 2, parameters that train with the rest.
        within: $\lambda_1 \ge 0$; 0.1 to 1.
        between: $\lambda_2 \ge 0$; likewise.

    Raises:
        ValueError: for fewer than two classes, or labels out of range.

    >>> neural_collapse(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), between=1.0)
    tensor(-3.1371)
    """
    for name, value in (("within", within), ("between", between)):
        check_between(name, value, 0, math.inf, closed=True)
    check_matrices(embeddings, centers)
    rows = wide_rows(embeddings)
    if len(centers) < 2:
        raise ValueError(f"centers: expected at least two classes, got {len(centers)}")
    if labels.shape != rows.shape[:1] or labels.is_floating_point():
        raise ValueError(f"labels: expected whole numbers [{len(rows)}], got {labels.dtype} {tuple(labels.shape)}")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(centers):
        raise ValueError(f"labels: expected classes 0 to {len(centers) - 1}, got others")
    with torch.autocast(rows.device.type, enabled=False):
        middle = centers.to(rows.dtype)
        count = torch.bincount(labels, minlength=len(middle)).to(rows.dtype)
        spread = (rows - middle[labels]).square().sum(1) / count[labels]
        apart = normalize(middle - middle.mean(0), dim=1)
        cosine = (apart @ apart.T).fill_diagonal_(-torch.inf).amax(1).clamp(-0.99999, 0.99999)
        return within * spread.sum() / len(middle) - between * cosine.arccos().mean()
