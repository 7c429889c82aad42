r"""How well scores rank related columns first: one value a query.

All functions take ``scores [b, N]`` (higher = more alike), ``relation [b, N]`` (above 0 = related) and ``weight``
(``[b, N]`` or None; columns of weight 0 are taken out) and give ``[b]``. A query without related columns is NaN, so
that ``values.nanmean()`` skips it; ``empty=0`` counts it as a failure. Columns with equal scores are ranked by
``ties``: "worst" (the default) puts unrelated ones first, so a model that gives all rows one score looks as bad as it
is, and the order of the columns does not matter; "best", "first" and "last" are explained in
:func:`vicinal.ranks.rank_order`.

$R_i$ is the number of related columns of query $i$, $r_{im}$ the rank of the $m$-th of them.
"""

import math

from torch import Tensor

from vicinal.core import check_integer, register
from vicinal.metrics.formulas import from_ranks
from vicinal.ranks import Ties, related_ranks

_FACTS = ("bounded", "permutation-invariant", "score-shift-invariant", "score-scale-invariant")
_CHECKED = "numpy in float64; ir_measures and ranx (stored values)"


@register("metric", "precision_at_k", *_FACTS, verified=_CHECKED)
def precision_at_k(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int = 1,
    ties: Ties = "worst",
    empty: float = math.nan,
) -> Tensor:
    r"""Share of the first ``k`` columns that are related, $|\{m : r_{im} \le k\}| / k$.

    Args:
        scores: ``[b, N]``.
        relation: ``[b, N]``.
        weight: ``[b, N]`` or None.
        k: how many columns are looked at, >= 1.
        ties: order of equal scores.
        empty: value of a query without related columns.

    Returns:
        ``[b]`` in [0, 1].

    Raises:
        TypeError, ValueError: for inputs of other shapes or a bad ``k``.

    >>> import torch
    >>> precision_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]), k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    k = check_integer("k", k)
    return from_ranks("precision_at_k", related_ranks(scores, relation, weight, ties=ties), k=k, empty=empty)


@register("metric", "hit_at_k", *_FACTS, verified=_CHECKED)
def hit_at_k(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int = 1,
    ties: Ties = "worst",
    empty: float = math.nan,
) -> Tensor:
    r"""1 if any of the first ``k`` columns is related, else 0; papers on metric learning call it recall@k.

    Arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> hit_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]), k=2)
    tensor([1.], dtype=torch.float64)
    """
    k = check_integer("k", k)
    return from_ranks("hit_at_k", related_ranks(scores, relation, weight, ties=ties), k=k, empty=empty)


@register("metric", "recall_at_k", *_FACTS, verified=_CHECKED)
def recall_at_k(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int = 1,
    ties: Ties = "worst",
    empty: float = math.nan,
) -> Tensor:
    r"""Share of the related columns among the first ``k``, $|\{m : r_{im} \le k\}| / R_i$; see also :func:`hit_at_k`.

    Arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> recall_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]), k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    k = check_integer("k", k)
    return from_ranks("recall_at_k", related_ranks(scores, relation, weight, ties=ties), k=k, empty=empty)


@register("metric", "r_precision", *_FACTS, verified=_CHECKED)
def r_precision(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    ties: Ties = "worst",
    empty: float = math.nan,
) -> Tensor:
    r"""Precision at as many columns as are related, $|\{m : r_{im} \le R_i\}| / R_i$.

    Arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> r_precision(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
    tensor([0.5000], dtype=torch.float64)
    """
    return from_ranks("r_precision", related_ranks(scores, relation, weight, ties=ties), empty=empty)


@register("metric", "map_at_r", *_FACTS, paper="arXiv:2003.08505", verified="numpy in float64; pytorch-metric-learning")
def map_at_r(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    ties: Ties = "worst",
    empty: float = math.nan,
) -> Tensor:
    r"""Average precision over the first $R_i$ ranks, $\frac{1}{R_i} \sum_{m : r_{im} \le R_i} m / r_{im}$.

    Arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> map_at_r(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]))
    tensor([0.2500], dtype=torch.float64)
    """
    return from_ranks("map_at_r", related_ranks(scores, relation, weight, ties=ties), empty=empty)


@register("metric", "average_precision", *_FACTS, verified=_CHECKED + "; scikit-learn")
def average_precision(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int | None = None,
    ties: Ties = "worst",
    empty: float = math.nan,
) -> Tensor:
    r"""Mean over related columns of the precision at their rank, $\frac{1}{R_i} \sum_m m / r_{im}$.

    With a cutoff ``k`` only ranks up to ``k`` enter the sum; it is still divided by $R_i$. Other arguments, result and
    errors as :func:`precision_at_k`.

    >>> import torch
    >>> average_precision(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[1, 0, 1]]))
    tensor([0.8333], dtype=torch.float64)
    """
    k = None if k is None else check_integer("k", k)
    return from_ranks("average_precision", related_ranks(scores, relation, weight, ties=ties), k=k, empty=empty)


@register("metric", "reciprocal_rank", *_FACTS, verified=_CHECKED)
def reciprocal_rank(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int | None = None,
    ties: Ties = "worst",
    empty: float = math.nan,
) -> Tensor:
    r"""One over the rank of the first related column, $1 / r_{i1}$; 0 if that is beyond the cutoff ``k``.

    Its mean over queries is MRR. Other arguments, result and errors as :func:`precision_at_k`.

    >>> import torch
    >>> reciprocal_rank(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]]))
    tensor([0.5000], dtype=torch.float64)
    """
    k = None if k is None else check_integer("k", k)
    return from_ranks("reciprocal_rank", related_ranks(scores, relation, weight, ties=ties), k=k, empty=empty)
