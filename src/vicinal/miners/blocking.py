"""Blocking: which pairs of large tables are worth a closer look, by nearest neighbors or by hash buckets."""

import math

import torch
from torch import Tensor

from vicinal.core import check_between, check_integer, check_number, register
from vicinal.miners.selection import by_rows, kept_weight, measured
from vicinal.ranks import check_relation


@register(
    "miner",
    "nearest",
    "permutation-invariant",
    "row-separable",
    family="single pairs",
    paper="arXiv:2401.18064",
    verified="numpy in float64",
)
@torch.no_grad()
@by_rows
def nearest(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    k: int | None = 10,
    min_score: float | None = None,
) -> Tensor:
    """The k pairs of highest score of each query, related or not: the candidates of a blocking.

    Pairs tied at the k-th place are all kept, so the order of the columns does not matter.

    Args:
        scores: ``[b, N]``, higher = more alike.
        relation: ``[b, N]``; only its shape is read.
        weight: ``[b, N]`` or None; pairs of weight 0 are not looked at.
        k: pairs of each query, >= 1, or None for all.
        min_score: lower bound of kept scores (the negative radius, for negative distances), or None.

    Returns:
        ``[b, N]``: ``weight`` where a pair was kept, else 0.

    >>> nearest(torch.tensor([[0.9, 0.4, 0.6]]), torch.zeros(1, 3), k=2)
    tensor([[1., 0., 1.]])
    """
    check_relation(scores, relation, weight)
    counted = torch.ones_like(scores, dtype=torch.bool) if weight is None else weight > 0
    s = measured(scores)
    kept = counted if min_score is None else counted & (s >= check_number("min_score", min_score))
    if k is not None and check_integer("k", k) < scores.shape[1]:
        last = torch.where(kept, s, -torch.inf).topk(k, dim=1).values[:, -1:]
        kept = kept & (s >= last)
    return kept_weight(scores, weight, kept)


@torch.no_grad()
def bucket_pairs(codes: Tensor, bank_codes: Tensor | None = None, *, radius: float = 0.5) -> Tensor:
    r"""Pairs that share a bucket $\lfloor h_m / R \rfloor$ of at least one of their hash values.

    This is no miner: it gives pairs and never a matrix ``[b, N]``, so that it works on tables of millions of rows. Time
    and memory grow with rows and pairs found. :func:`vicinal.relation.from_pairs` takes the pairs, as ids.

    Args:
        codes: ``[b, m]``, m hash values of each row, finite.
        bank_codes: ``[N, m]``, of another table; None: pairs (i, j), i < j, of one table.
        radius: R > 0, width of a bucket.

    Returns:
        whole numbers ``[P, 2]``, positions of rows and bank rows, each pair once, in order.

    Raises:
        ValueError: for other shapes or values that are not finite.

    >>> bucket_pairs(torch.tensor([[0.1], [0.2], [0.9]])).tolist()
    [[0, 1]]
    """
    width = check_between("radius", radius, 0, math.inf)
    bank = codes if bank_codes is None else bank_codes
    for name, value in (("codes", codes), ("bank_codes", bank)):
        if value.ndim != 2 or value.shape[1] != codes.shape[1] or not value.is_floating_point():
            raise ValueError(f"{name}: expected floating [rows, m] hash values, got {value.dtype} {tuple(value.shape)}")
        if not bool(value.isfinite().all()):
            raise ValueError(f"{name}: expected finite numbers, got NaN or inf")
    found = [_joined((codes[:, m] / width).floor(), (bank[:, m] / width).floor()) for m in range(codes.shape[1])]
    pairs = torch.cat([codes.new_zeros(0, 2, dtype=torch.int64), *found])
    if bank_codes is None:
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    place: Tensor = (pairs[:, 0] * max(1, len(bank)) + pairs[:, 1]).unique()  # type: ignore[no-untyped-call]
    return torch.stack([place // max(1, len(bank)), place % max(1, len(bank))], dim=1)


def _joined(keys: Tensor, bank_keys: Tensor) -> Tensor:
    """Positions ``[P, 2]`` of all pairs of equal keys, by sorting one side."""
    ordered, place = bank_keys.contiguous().sort(stable=True)
    first, until = (torch.searchsorted(ordered, keys.contiguous(), right=right) for right in (False, True))
    number = until - first
    row = torch.arange(len(keys), device=keys.device).repeat_interleave(number)
    nth = torch.arange(len(row), device=keys.device) - (number.cumsum(0) - number)[row]
    return torch.stack([row, place[first[row] + nth]], dim=1)
