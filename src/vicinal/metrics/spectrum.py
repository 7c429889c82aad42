"""How many dimensions embeddings use, by their spectrum or by a bound that needs none."""

import torch
from torch import Tensor

from vicinal.core import register
from vicinal.core.checks import check_between, check_integer, check_matrices


def _rows(embeddings: Tensor) -> Tensor:
    check_matrices(embeddings, embeddings)
    if len(embeddings) < 2:
        raise ValueError(f"embeddings: expected at least 2 rows, got {len(embeddings)}")
    if not bool(embeddings.isfinite().all()):
        raise ValueError("embeddings: expected finite numbers, got some that are not")
    wide = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
    return wide - wide.mean(dim=0)


@register(
    "metric",
    "nuclear_surrogate",
    "embeddings",
    "common-shift-invariant",
    family="spectrum",
    paper="arXiv:2410.10672",
    verified="values of the paper's code in float64; its division by n from memory",
)
@torch.no_grad()
def nuclear_surrogate(embeddings: Tensor, *, columns: int | None = None, exact: bool = False) -> Tensor:
    r"""The sum of the longest columns of centered directions, in place of their singular values.

    $\frac1n \sum_{j \le D} \|R_{\cdot j}\|$, longest columns first; R holds the rows, centered at their mean and then
    scaled to length 1.

    With all d columns it is at least the nuclear norm over n, and equal to it for orthogonal columns; with fewer it may
    be below. It is not a test of rank: rows on an oblique line have a large value too.

    Args:
        embeddings: ``[n, d]``, n >= 2, finite.
        columns: D; None: the smaller of n and d.
        exact: the nuclear norm over n itself, by singular values.

    Returns:
        scalar, higher for rows that use more dimensions. A row that equals the mean counts as 0.

    >>> nuclear_surrogate(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    tensor(0.7071)
    """
    centered = _rows(embeddings)
    unit = torch.nn.functional.normalize(centered, dim=1, eps=torch.finfo(centered.dtype).tiny)
    if exact:
        value: Tensor = torch.linalg.svdvals(unit).sum() / len(unit)
        return value
    most = min(unit.shape) if columns is None else check_integer("columns", columns, 1, unit.shape[1])
    lengths: Tensor = torch.linalg.vector_norm(unit, dim=0)
    return lengths.sort(descending=True).values[:most].sum() / len(unit)


@register(
    "metric",
    "pca_dimension",
    "embeddings",
    "common-shift-invariant",
    "rotation-invariant",
    family="spectrum",
    paper="arXiv:2504.15927",
    verified="scikit-learn 1.9.1",
)
@torch.no_grad()
def pca_dimension(embeddings: Tensor, *, share: float = 0.99) -> int:
    r"""How many principal axes hold a share of the variance.

    The smallest r with $\sum_{j \le r} \lambda_j \ge \eta \sum_j \lambda_j$ of the sorted variances.

    Args:
        embeddings: ``[n, d]``, n >= 2, finite.
        share: $\eta$ in (0, 1].

    Returns:
        from 1 to the smaller of n - 1 and d; 1 where all rows are equal.

    >>> pca_dimension(torch.tensor([[1.0, 0.1], [-1.0, 0.1], [2.0, -0.1]]), share=0.9)
    1
    """
    check_between("share", share, 0, 1 + 1e-12)
    variances = torch.linalg.svdvals(_rows(embeddings).double()).square()
    total = float(variances.sum())
    if total == 0:
        return 1
    reached = variances.cumsum(0) >= share * total * (1 - 1e-12)
    return min(int((~reached).sum()) + 1, max(1, len(embeddings) - 1), embeddings.shape[1])
