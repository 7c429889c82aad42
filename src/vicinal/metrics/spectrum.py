"""How many dimensions embeddings use, by their spectrum or by a bound that needs none."""

import torch
from torch import Tensor

from vicinal.core import register
from vicinal.core.checks import check_between, check_matrices


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
