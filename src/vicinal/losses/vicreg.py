"""A loss of two views of the same rows that needs no related or unrelated pairs."""

import math

import torch
from torch import Tensor

from vicinal.core import check_between, check_matrices


def vicreg(
    embeddings: Tensor,
    other: Tensor,
    *,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    eps: float = 1e-4,
) -> Tensor:
    r"""VICReg: $\lambda \overline{(z - z')^2} + \mu[v(Z) + v(Z')] + \nu[c(Z) + c(Z')]$.

    $v$ is half the mean over dimensions of $[1 - \sqrt{\mathrm{Var} + \epsilon}]_+$, which keeps each dimension
    spread, and c the sum of the squared covariances of different dimensions over d, which keeps them apart.

    Args:
        embeddings: ``[b, d]``, b >= 2.
        other: ``[b, d]``, another view of the same rows in the same order.
        invariance: $\lambda \ge 0$.
        variance: $\mu \ge 0$.
        covariance: $\nu \ge 0$.
        eps: > 0, keeps the slope of the root finite.

    Returns:
        A number.

    Raises:
        ValueError: for shapes that differ or fewer than 2 rows.

    >>> vicreg(torch.eye(2), torch.eye(2))
    tensor(7.8206)
    """
    check_matrices(embeddings, other)
    if embeddings.shape != other.shape or len(other) < 2:
        raise ValueError(
            f"other: expected {tuple(embeddings.shape)} as the embeddings, at least 2 rows, got {tuple(other.shape)}"
        )
    for name, factor in (("invariance", invariance), ("variance", variance), ("covariance", covariance)):
        check_between(name, factor, 0, math.inf, closed=True)
    check_between("eps", eps, 0, math.inf)
    dtype = torch.promote_types(torch.promote_types(embeddings.dtype, other.dtype), torch.float32)
    with torch.autocast(embeddings.device.type, enabled=False):
        mine, theirs = embeddings.to(dtype), other.to(dtype)
        same = (mine - theirs).square().mean()
        value = same * invariance
        for view in (mine, theirs):
            spread = (1 - (view.var(dim=0) + eps).sqrt()).relu().mean() / 2
            value = value + variance * spread + covariance * _covariances(view)
    return value


def _covariances(view: Tensor) -> Tensor:
    centered = view - view.mean(dim=0)
    matrix = centered.T @ centered / (len(view) - 1)
    return (matrix.square().sum() - matrix.diagonal().square().sum()) / view.shape[1]
