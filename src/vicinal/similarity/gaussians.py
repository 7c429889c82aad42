"""How alike Gaussians are: rows with a mean and a covariance."""

import torch
from torch import Tensor

from vicinal.core.checks import check_matrices


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
        _check_covariances(name, mean, matrix)
    root = torch.linalg.cholesky(covariances)
    inner = root.mT[:, None] @ bank_covariances @ root[:, None]  # [b, N, d, d]
    roots = torch.linalg.eigvalsh(inner).clamp(min=torch.finfo(inner.dtype).tiny).sqrt().sum(-1)
    traces = [matrix.diagonal(dim1=-2, dim2=-1).sum(-1) for matrix in (covariances, bank_covariances)]
    apart = (means[:, None] - bank_means).square().sum(-1)
    scores: Tensor = 2 * roots - traces[0][:, None] - traces[1] - apart
    return scores


def _check_covariances(name: str, means: Tensor, matrix: Tensor) -> None:
    shape = (*means.shape, means.shape[1])
    if matrix.shape != shape or not bool(matrix.isfinite().all()):
        raise ValueError(f"{name}: expected finite numbers {shape} as the means, got {tuple(matrix.shape)}")
    values = matrix.detach()
    if not torch.allclose(values, values.mT, rtol=1e-4, atol=1e-6):
        raise ValueError(f"{name}: expected symmetric matrices, got others")
    least = float(torch.linalg.eigvalsh(values).min()) if matrix.numel() else 1.0
    if least <= 0:
        raise ValueError(f"{name}: expected eigenvalues above 0, got {least:g}; add a small multiple of the identity")
