"""Equiangular basis vectors: fixed class vectors, as far apart as they can be, in place of a learned last layer."""

import math
import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vicinal.core import check_between, check_integer

_SLACK = 1e-4
"""By how much the largest |cosine| may exceed a threshold that counts as met."""


@dataclass(frozen=True)
class Basis:
    """Unit vectors ``[C, d]``, the largest |cosine| between two of them, and whether that met its threshold.

    Where it did not, they are the best that searches with larger thresholds found.
    """

    vectors: Tensor
    largest_cosine: float
    converged: bool


def welch_bound(classes: int, dim: int) -> float:
    r"""The least possible largest |cosine| of C unit vectors in d dimensions: $\sqrt{(C-d)/(d(C-1))}$; 0 for C <= d.

    >>> round(welch_bound(4, 3), 4)
    0.3333
    """
    check_integer("classes", classes, 2), check_integer("dim", dim, 2)
    return math.sqrt((classes - dim) / (dim * (classes - 1))) if classes > dim else 0.0


def coherence(vectors: Tensor, threshold: float = 0.0) -> Tensor:
    r"""$\sum_{i \ne j} [|b_i \cdot b_j| - t]_+$ over unit vectors ``[C, d]``: what :func:`equiangular_basis` minimizes.

    >>> coherence(torch.eye(3))
    tensor(0.)
    """
    cosines = (vectors @ vectors.T).abs()
    return (cosines - torch.eye(len(vectors), dtype=vectors.dtype, device=vectors.device) - threshold).relu().sum()


def equiangular_basis(
    classes: int, dim: int, *, threshold: float | None = None, steps: int = 2000, rows: int = 1024, seed: int = 0
) -> Basis:
    """Unit vectors for classes with |cosine| <= ``threshold`` between any two.

    Orthonormal, by a QR decomposition, where ``classes`` <= ``dim``; else found by gradient descent on
    :func:`coherence`, in blocks of ``rows``. Shen et al., *Equiangular Basis Vectors*, CVPR 2023 (arXiv:2303.11637).

    Args:
        classes: C, at least 2.
        dim: d, at least 2.
        threshold: t in [0, 1); default 0 where C <= d, else 1.6 times the Welch bound plus 0.02.
        steps: at most so many steps of a search; :attr:`Basis.converged` says whether the threshold was met.
        rows: vectors whose cosines with all are held at once.
        seed: of the start.

    Raises:
        ValueError: if no vectors can meet the threshold (Welch's bound).

    >>> equiangular_basis(10, 16).largest_cosine < 1e-6
    True
    >>> equiangular_basis(8, 4).converged
    True
    """
    bound = welch_bound(classes, dim)
    if threshold is None:
        threshold = 0.0 if classes <= dim else min(1.6 * bound + 0.02, 0.999)
    if not 0 <= check_between("threshold", threshold, 0, 1, closed=True) < 1:
        raise ValueError(f"threshold: expected a number from 0 to below 1, got {threshold}")
    if threshold < bound - 1e-9:
        raise ValueError(
            f"threshold: expected at least {bound:.4f} (Welch's bound for {classes} vectors in {dim} dimensions), "
            f"got {threshold}; take more dimensions or a larger threshold"
        )
    check_integer("steps", steps, 0), check_integer("rows", rows)
    source = torch.Generator().manual_seed(seed)
    start = torch.randn(classes, dim, generator=source, dtype=torch.float64)
    if classes <= dim:
        vectors = torch.linalg.qr(start.T).Q.T.contiguous()
    else:
        start = F.normalize(start, dim=1)
        vectors = _spread(start, threshold, steps, rows)
        if _largest(vectors, rows) > threshold + _SLACK:
            vectors = _best_spread(start, threshold, max(steps // 5, min(steps, 200)), rows)
    largest = _largest(vectors, rows)
    return Basis(vectors.float(), largest, largest <= threshold + _SLACK)


def _best_spread(start: Tensor, low: float, steps: int, rows: int) -> Tensor:
    """Of searches with thresholds between ``low``, which was not met, and 1 the one whose vectors are farthest apart.

    A search for too small a threshold lets some vectors meet, to the good of the others; they then push one another no
    more, so what it found is no start for another.
    """
    best, least, high = start, _largest(start, rows), 1.0
    near = (high - low) / 10
    while high - low > near:
        middle = (low + high) / 2
        vectors = _spread(start, middle, steps, rows)
        largest = _largest(vectors, rows)
        if largest < least:
            best, least = vectors, largest
        low, high = (low, min(middle, least)) if largest <= middle + _SLACK else (middle, high)
    return best


def _spread(vectors: Tensor, threshold: float, steps: int, rows: int) -> Tensor:
    """Descent on the squared excess, which has a smooth end, with a step that shrinks when it does not help."""
    pace, best, kept, direction = 0.5, math.inf, vectors, vectors
    for _ in range(steps):
        slope, loss = torch.zeros_like(vectors), 0.0
        for start in range(0, len(vectors), rows):
            cosines = vectors[start : start + rows] @ vectors.T
            cosines.diagonal(start).zero_()
            excess = (cosines.abs() - threshold).clamp_(min=0)
            loss += float(excess.square().sum())
            slope[start : start + rows] = (excess * cosines.sign()) @ vectors
        if loss < best:
            best, kept, direction, pace = loss, vectors, slope, pace * 1.2
        else:
            pace *= 0.5
        if loss == 0 or pace < 1e-9:
            break
        vectors = F.normalize(kept - pace * direction, dim=1)
    return kept


def _largest(vectors: Tensor, rows: int) -> float:
    largest = 0.0
    for start in range(0, len(vectors), rows):
        cosines = (vectors[start : start + rows] @ vectors.T).abs()
        cosines.diagonal(start).zero_()
        largest = max(largest, float(cosines.max()))
    return largest


class EquiangularHead(nn.Module):
    """Class logits from fixed vectors: the cosines of an embedding with a :class:`Basis`, divided by a temperature.

    Args:
        classes: at least 2.
        dim: width of the embeddings.
        temperature: above 0.
        threshold, seed: see :func:`equiangular_basis`.

    Raises:
        ValueError: for a threshold that is not met. For the default one it is a warning, and the vectors are as far
            apart as was found.

    >>> head = EquiangularHead(4, 8)
    >>> head(torch.randn(2, 8)).shape, sum(p.numel() for p in head.parameters())
    (torch.Size([2, 4]), 0)
    """

    basis: Tensor

    def __init__(
        self, classes: int, dim: int, *, temperature: float = 0.07, threshold: float | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        self.temperature = check_between("temperature", temperature, 0, math.inf)
        found = equiangular_basis(classes, dim, threshold=threshold, seed=seed)
        if not found.converged:
            least = math.ceil(1e4 * found.largest_cosine) / 1e4
            of = f"the least that was found for {classes} vectors in {dim} dimensions"
            if threshold is not None:
                raise ValueError(
                    f"threshold: expected at least {least:.4f}, {of}, got {threshold}; take more dimensions or a "
                    "larger threshold"
                )
            warnings.warn(f"two classes have a cosine of {least:.4f}, {of}; take more dimensions", stacklevel=2)
        self.register_buffer("basis", found.vectors)
        self.largest_cosine = found.largest_cosine

    def forward(self, embeddings: Tensor) -> Tensor:
        """Logits ``[b, C]`` of embeddings ``[b, d]``: give them to cross-entropy; the largest is the prediction."""
        if embeddings.ndim != 2 or embeddings.shape[1] != self.basis.shape[1]:
            raise ValueError(f"embeddings: expected [b, {self.basis.shape[1]}], got {tuple(embeddings.shape)}")
        return F.normalize(embeddings, dim=1) @ self.basis.T.to(embeddings.dtype) / self.temperature
