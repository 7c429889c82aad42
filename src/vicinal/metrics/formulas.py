r"""Retrieval metrics as formulas of the ranks of the related columns.

Throughout, ``ranks [b, R]`` rises in each row and is padded with inf; $R_i$ is the number of related columns of query
$i$ and $r_{im}$ the rank of the $m$-th of them. The functions give ``[b]``, NaN where $R_i = 0$.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Formula = Callable[[Tensor, Tensor, int | None], Tensor]


def _precision(ranks: Tensor, count: Tensor, k: int | None) -> Tensor:
    return (ranks <= (k or 1)).sum(dim=1, dtype=ranks.dtype) / (k or 1)


def _hit(ranks: Tensor, count: Tensor, k: int | None) -> Tensor:
    return (ranks <= (k or 1)).any(dim=1).to(ranks.dtype)


def _recall(ranks: Tensor, count: Tensor, k: int | None) -> Tensor:
    return (ranks <= (k or 1)).sum(dim=1) / count


def _r_precision(ranks: Tensor, count: Tensor, k: int | None) -> Tensor:
    return (ranks <= count[:, None]).sum(dim=1) / count


def _precisions(ranks: Tensor) -> Tensor:
    """Precision at the rank of each related column, ``[b, R]``; 0 at the padding."""
    return torch.arange(1, ranks.shape[1] + 1, device=ranks.device) / ranks


def _map_at_r(ranks: Tensor, count: Tensor, k: int | None) -> Tensor:
    return torch.where(ranks <= count[:, None], _precisions(ranks), 0.0).sum(dim=1) / count


def _average_precision(ranks: Tensor, count: Tensor, k: int | None) -> Tensor:
    kept = ranks if k is None else torch.where(ranks <= k, ranks, torch.inf)
    return _precisions(kept).sum(dim=1) / count


def _reciprocal_rank(ranks: Tensor, count: Tensor, k: int | None) -> Tensor:
    if ranks.shape[1] == 0:
        return torch.zeros_like(count)
    first = ranks[:, 0]
    return (1 / first if k is None else torch.where(first <= k, 1 / first, 0.0)).clone()


def _ndcg(ranks: Tensor, count: Tensor, k: int | None) -> Tensor:
    last = ranks.shape[1] if k is None else min(k, ranks.shape[1])
    kept = ranks if k is None else torch.where(ranks <= k, ranks, torch.inf)
    places = torch.arange(1, last + 1, device=ranks.device, dtype=ranks.dtype)
    ideal = torch.cat([ranks.new_zeros(1), (1 / (places + 1).log2()).cumsum(0)])  # of 0, 1, ... last related columns
    return (1 / (kept + 1).log2()).sum(dim=1) / ideal[count.clamp(max=last).long()]


FORMULAS: dict[str, Formula] = {
    "precision_at_k": _precision,
    "hit_at_k": _hit,
    "recall_at_k": _recall,
    "r_precision": _r_precision,
    "map_at_r": _map_at_r,
    "average_precision": _average_precision,
    "reciprocal_rank": _reciprocal_rank,
    "ndcg": _ndcg,
}


def from_ranks(formula: str, ranks: Tensor, *, k: int | None = None, empty: float = math.nan) -> Tensor:
    """The metric called ``formula`` of each row of ``ranks [b, R]``; ``empty`` for a row without related columns.

    >>> from_ranks("average_precision", torch.tensor([[1.0, 4.0], [torch.inf, torch.inf]]))
    tensor([0.7500,    nan])
    """
    count = ranks.isfinite().sum(dim=1)
    return value_of(formula, ranks, count, k=k, empty=empty)


def value_of(formula: str, ranks: Tensor, count: Tensor, *, k: int | None, empty: float) -> Tensor:
    """As :func:`from_ranks` where ranks too far to matter were replaced by inf: ``count [b]`` is given."""
    count = count.to(ranks.dtype)
    return torch.where(count > 0, FORMULAS[formula](ranks, count, k), empty).to(ranks.dtype)
