"""How alike Gaussians are, rows with a mean and a covariance; and the way from one covariance to another."""

from typing import Any

import torch
from torch import Tensor

from vicinal.core.checks import check_between, check_matrices, check_tensor


def bures_wasserstein(
    means: Tensor, covariances: Tensor, bank_means: Tensor | None = None, bank_covariances: Tensor | None = None
) -> Tensor:
    r"""Scores of Gaussians: the negated cost of transport between them, 0 for equal ones.

    $-\|\mu - \mu'\|^2 - \operatorname{tr} (A + C - 2 (A^{1/2} C A^{1/2})^{1/2})$. The
    roots are those of the eigenvalues of $L^\top C L$ with $A = L L^\top$, whose gradient has no poles where
    eigenvalues are equal.

    Args:
        means: ``[b, d]``.
        covariances: A ``[b, d, d]``, symmetric and positive definite.
        bank_means: ``[N, d]``; None: the same.
        bank_covariances: C ``[N, d, d]``.

    Returns:
        ``[b, N]``, at most 0 but for rounding.

    Raises:
        ValueError: for a matrix that is not symmetric or has an eigenvalue of at most 0, which is named.

    Paper: arXiv:2504.00660.

    >>> eye = torch.eye(2)
    >>> bures_wasserstein(torch.zeros(1, 2), eye[None], torch.ones(1, 2), 4 * eye[None])
    tensor([[-4.]])
    """
    if (bank_means is None) != (bank_covariances is None):
        raise ValueError("bank_covariances: expected both bank_means and bank_covariances, or neither, got one of them")
    if bank_means is None or bank_covariances is None:
        bank_means, bank_covariances = means, covariances
    check_matrices(means, bank_means)
    for name, mean, matrix in (
        ("covariances", means, covariances),
        ("bank_covariances", bank_means, bank_covariances),
    ):
        if not bool(mean.isfinite().all()):
            raise ValueError(f"{name.replace('covariances', 'means')}: expected finite numbers, got nan or inf")
        _check_covariances(name, matrix, (*mean.shape, mean.shape[1]))
    root = torch.linalg.cholesky(covariances)
    inner = root.mT[:, None] @ bank_covariances @ root[:, None]  # [b, N, d, d]
    roots = torch.linalg.eigvalsh(inner).clamp(min=torch.finfo(inner.dtype).tiny).sqrt().sum(-1)
    traces = [matrix.diagonal(dim1=-2, dim2=-1).sum(-1) for matrix in (covariances, bank_covariances)]
    apart = (means[:, None] - bank_means).square().sum(-1)
    return 2 * roots - traces[0][:, None] - traces[1] - apart


def bures_log(base: Tensor, covariances: Tensor) -> Tensor:
    r"""The tangent at one covariance that points to another: $\log_A C = T A + A T - 2 A$.

    $T = A^{-1/2} (A^{1/2} C A^{1/2})^{1/2} A^{-1/2}$ transports the Gaussian of A to that of C, whose mean is the same.
    So covariances become vectors in a flat space, with means and principal components as for any vectors.

    Args:
        base: A ``[d, d]`` or ``[..., d, d]``, symmetric and positive definite.
        covariances: C ``[..., d, d]``.

    Returns:
        Symmetric matrices ``[..., d, d]``.

    Raises:
        ValueError: for a matrix that is not symmetric or has an eigenvalue of at most 0, which is named.

    Paper: arXiv:2504.00660.

    >>> bures_log(torch.eye(2), 4 * torch.eye(2))
    tensor([[2., 0.],
            [0., 2.]])
    """
    moved = _transport(base, covariances) @ base
    return moved + moved.mT - 2 * base


def bures_exp(base: Tensor, tangents: Tensor) -> Tensor:
    r"""The covariance that a tangent points to, $\exp_A V = (I + L) A (I + L)$ with $L A + A L = V$.

    It inverts :func:`bures_log`. If $I + L$ is not positive definite, the tangent points beyond the end of the
    geodesic: the result is still a covariance, but its logarithm is a different tangent.

    Args:
        base: A ``[d, d]`` or ``[..., d, d]``, symmetric and positive definite.
        tangents: V ``[..., d, d]``, symmetric.

    Paper: arXiv:2504.00660.

    >>> bures_exp(torch.eye(2), 2 * torch.eye(2))
    tensor([[4., 0.],
            [0., 4.]])
    """
    _check_covariances("base", base, (*base.shape[:-1], base.shape[-1]))
    if check_tensor("tangents", tangents).shape[-2:] != base.shape[-2:] or not _symmetric(tangents):
        raise ValueError(f"tangents: expected symmetric matrices {tuple(base.shape)}, got {tuple(tangents.shape)}")
    step: Tensor = _Lyapunov.apply(*torch.broadcast_tensors(base, tangents))  # type: ignore[no-untyped-call]
    moved = step @ base
    return base + moved + moved.mT + moved @ step


def bures_geodesic(start: Tensor, end: Tensor, share: float) -> Tensor:
    r"""The covariance at a share of the way from A to C, $M A M$ with $M = (1 - t) I + t T$, T as in :func:`bures_log`.

    Args:
        start: A ``[..., d, d]``.
        end: C ``[..., d, d]``.
        share: t, from 0 to 1.

    Paper: arXiv:2504.00660.

    >>> bures_geodesic(torch.eye(1), 9 * torch.eye(1), 0.5)
    tensor([[4.]])
    """
    check_between("share", share, 0, 1, closed=True)
    mixed = (1 - share) * torch.eye(start.shape[-1]).to(start) + share * _transport(start, end)
    return mixed @ start @ mixed


def _transport(base: Tensor, covariances: Tensor) -> Tensor:
    r"""$T = R^{-\top} (R^\top C R)^{1/2} R^{-1}$ with $A = R R^\top$."""
    for name, matrix in (("base", base), ("covariances", covariances)):
        _check_covariances(name, matrix, (*matrix.shape[:-2], base.shape[-1], base.shape[-1]))
    root = torch.linalg.cholesky(base)
    inner: Tensor = _Root.apply(root.mT @ covariances @ root)  # type: ignore[no-untyped-call]
    half = torch.linalg.solve_triangular(root.mT, inner, upper=True)  # R^-T S
    return torch.linalg.solve_triangular(root.mT, half.mT, upper=True)


class _Lyapunov(torch.autograd.Function):
    """X with G X + X G = V; its gradient goes through no eigenvectors, so that equal eigenvalues do no harm."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, right: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        inside = vectors.mT @ right @ vectors / (values[..., None] + values[..., None, :])
        solution: Tensor = vectors @ inside @ vectors.mT
        ctx.save_for_backward(matrix, solution)
        return solution

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        matrix, solution = ctx.saved_tensors
        of_right = _Lyapunov.apply(matrix, (gradient + gradient.mT) / 2)  # type: ignore[no-untyped-call]
        return -(of_right @ solution + solution @ of_right), of_right


class _Root(torch.autograd.Function):
    """The root of symmetric, positive definite matrices."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        root: Tensor = vectors * values.clamp(min=0).sqrt()[..., None, :] @ vectors.mT
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Lyapunov.apply(*ctx.saved_tensors, (gradient + gradient.mT) / 2)  # type: ignore[no-untyped-call]


def _symmetric(matrix: Tensor) -> bool:
    values = matrix.detach()
    return bool(values.isfinite().all()) and torch.allclose(values, values.mT, rtol=1e-4, atol=1e-6)


def _check_covariances(name: str, matrix: Tensor, shape: tuple[int, ...]) -> None:
    if matrix.shape != shape or not bool(matrix.isfinite().all()):
        raise ValueError(f"{name}: expected finite numbers {tuple(shape)}, got {tuple(matrix.shape)}")
    if not _symmetric(matrix):
        raise ValueError(f"{name}: expected symmetric matrices, got others")
    least = float(torch.linalg.eigvalsh(matrix.detach()).min()) if matrix.numel() else 1.0
    if least <= 0:
        raise ValueError(f"{name}: expected eigenvalues above 0, got {least:g}; add a small multiple of the identity")
