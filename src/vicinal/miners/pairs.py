"""Miners that choose pairs one by one: hard pairs, hard pairs within bounds, nearest columns and hash buckets."""

import functools
import math
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_number
from vicinal.miners.selection import ScoredPairs, highest, lowest, measured, pair_miner, picked

Reference = Literal["min", "mean"]
_FACTS = ("permutation-invariant", "row-separable")
_PML = "numpy in float64; pytorch-metric-learning (stored values)"


_pair_miner = functools.partial(pair_miner, family="single pairs")


@_pair_miner("multi_similarity", *_FACTS, "score-shift-invariant", paper="arXiv:1904.06627", verified=_PML)
def multi_similarity(pairs: ScoredPairs, *, epsilon: float = 0.1) -> Tensor:
    r"""Pairs that are hard, with a slack, next to the other side of their query.

    Related pairs with $s_{ap} - \epsilon < \max_n s_{an}$ and unrelated pairs with $s_{an} + \epsilon > \min_p s_{ap}$.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        epsilon: slack in units of the scores.

    >>> multi_similarity(torch.tensor([[0.9, 0.4, 0.6, 0.1]]), torch.tensor([[1, 1, 0, 0]]))
    tensor([[0., 1., 1., 0.]])
    """
    slack = check_number("epsilon", epsilon)
    s, related, unrelated = pairs
    return (related & (s - slack < highest(s, unrelated))) | (unrelated & (s + slack > lowest(s, related)))


@_pair_miner("pair_margin", *_FACTS, verified=_PML)
def pair_margin(pairs: ScoredPairs, *, positive: float = 0.8, negative: float = 0.2) -> Tensor:
    r"""Related pairs below one score and unrelated pairs above another: $s_{ap} < m_+$ and $s_{an} > m_-$.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        positive: $m_+$; related pairs that reach it are close enough.
        negative: $m_-$; unrelated pairs that do not exceed it are far enough.

    >>> pair_margin(torch.tensor([[0.9, 0.4, 0.6, 0.1]]), torch.tensor([[1, 1, 0, 0]]))
    tensor([[0., 1., 1., 0.]])
    """
    above, below = check_number("positive", positive), check_number("negative", negative)
    s, related, unrelated = pairs
    return (related & (s < above)) | (unrelated & (s > below))


def _references(scores: Tensor, related: Tensor, reference: str) -> Tensor:
    """Lowest or mean related score of each row, ``[b, 1]``; inf where nothing is related."""
    if reference == "min":
        return lowest(scores, related)
    count = related.sum(dim=1, keepdim=True)
    mean = torch.where(related, scores, 0.0).sum(dim=1, keepdim=True) / count.clamp(min=1)
    return torch.where(count > 0, mean, torch.inf)


def _suspect(scores: Tensor, related: Tensor, reference: Reference, margin: float, relative: float | None) -> Tensor:
    """Pairs that score too near the reference, or above it, to be trusted as unrelated."""
    check_choice("reference", reference, get_args(Reference))
    level = _references(scores, related, reference)
    suspect = scores + check_number("margin", margin) > level
    if relative is None:
        return suspect
    # level (1 - m) would rise above a negative level; a margin that is a share of its size does not
    return suspect | (scores > level - check_between("relative", relative, 0, 1, closed=True) * level.abs())


@_pair_miner("topk_hard", *_FACTS, paper="arXiv:2407.15831", verified="numpy in float64")
def topk_hard(
    pairs: ScoredPairs,
    *,
    k: int | None = 10,
    margin: float = 0.0,
    relative: float | None = None,
    max_score: float | None = None,
    min_score: float | None = None,
    reference: Reference = "min",
) -> Tensor:
    r"""The ``k`` hardest unrelated pairs of each query, without those that look like false negatives.

    With the reference $\rho$ (the lowest or the mean score of the query's related pairs) an unrelated pair is left out
    if $s + m > \rho$, if $s > \rho - m_r |\rho|$, if $s > s_{max}$ or if $s < s_{min}$; of the rest the ``k`` highest
    are kept. Related pairs are always kept. A query without related pairs has no reference, so only $s_{max}$,
    $s_{min}$ and ``k`` apply. Of pairs tied at the ``k``-th place the ones with lower column index are kept.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        k: unrelated pairs to keep, >= 1, or None for all that pass.
        margin: absolute margin $m$.
        relative: relative margin $m_r$ in [0, 1], or None. For $\rho > 0$ this is the usual rule $s > \rho (1 - m_r)$.
        max_score: upper bound of kept unrelated scores, or None.
        min_score: lower bound of kept unrelated scores, or None.
        reference: "min" (safe) or "mean".

    >>> topk_hard(torch.tensor([[0.8, 0.85, 0.78, 0.6, 0.1]]), torch.tensor([[1, 0, 0, 0, 0]]), k=1, relative=0.05)
    tensor([[1., 0., 0., 1., 0.]])
    """
    s, related, unrelated = pairs
    usable = unrelated & ~_suspect(s, related, reference, margin, relative)
    if max_score is not None:
        usable = usable & (s <= check_number("max_score", max_score))
    if min_score is not None:
        usable = usable & (s >= check_number("min_score", min_score))
    if k is not None:
        usable = picked(s, usable, torch.full((len(s),), check_integer("k", k), device=s.device))
    return related | usable


@_pair_miner("guided", *_FACTS, paper="arXiv:2402.16829", verified="numpy in float64")
def guided(
    pairs: ScoredPairs,
    *,
    guide: Tensor,
    margin: float = 0.0,
    relative: float | None = None,
    reference: Reference = "min",
) -> Tensor:
    r"""Leaves out unrelated pairs that a guide, such as a larger model, finds as alike as the related ones.

    With the guide's scores $g$ and its reference $\rho$ (lowest or mean $g$ of the query's related pairs) an unrelated
    pair is left out if $g + m > \rho$ or if $g > \rho - m_r |\rho|$. Related pairs are always kept.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        guide: ``[b, N]``, scores of the guide, higher = more alike.
        margin: absolute margin $m$.
        relative: relative margin $m_r$ in [0, 1], or None.
        reference: "min" (safe) or "mean".

    >>> guided(torch.zeros(1, 3), torch.tensor([[1, 0, 0]]), guide=torch.tensor([[0.7, 0.9, 0.2]]))
    tensor([[1., 0., 1.]])
    """
    scores, related, unrelated = pairs
    if not isinstance(guide, Tensor) or guide.shape != scores.shape:
        shape = tuple(guide.shape) if isinstance(guide, Tensor) else guide
        raise ValueError(f"guide: expected {tuple(scores.shape)} as the scores, got {shape}")
    return related | (unrelated & ~_suspect(measured(guide), related, reference, margin, relative))


@_pair_miner(
    "adaptive_margin", "permutation-invariant", "row-separable", paper="arXiv:2506.07438", verified="numpy in float64"
)
def adaptive_margin(
    pairs: ScoredPairs,
    *,
    factor: float = 0.1,
    k: int = 10,
    low: float = 0.0,
    high: float = 0.2,
    reference: str = "min",
) -> Tensor:
    r"""Leaves out unrelated pairs within a margin of the related score that is made for each query.

    With the reference $\rho$ (the lowest or the mean score of the query's related pairs) and the mean $\mu$ of its
    ``k`` highest unrelated scores, the margin is $m = \mathrm{clamp}(m_0 (\rho - \mu), m_{lo}, m_{hi})$, and an
    unrelated pair is left out if $s + m > \rho$. A query whose hard pairs score far below its related ones can afford a
    wide margin; if they are close, a wide margin would leave nothing to learn from. Related pairs are always kept; a
    query without related pairs keeps all. ``low = high`` is the fixed margin of :func:`topk_hard`.

    The paper says that its margins are adaptive, but not how; the rule above is our reading. Its soft labels need no
    function of their own: ``supcon`` with ``relation=(teacher_scores / T).softmax(-1)`` has the gradient of the
    divergence between the teacher's softmax and the student's.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        factor: $m_0 \ge 0$, share of the gap.
        k: number of unrelated scores in the mean, >= 1; fewer if there are fewer.
        low: $m_{lo} \ge 0$.
        high: $m_{hi}$, at least ``low``.
        reference: "min" (safe) or "mean".

    >>> adaptive_margin(torch.tensor([[0.8, 0.85, 0.78, 0.6, 0.1]]), torch.tensor([[1, 0, 0, 0, 0]]), k=4)
    tensor([[1., 0., 0., 1., 1.]])
    """
    check_choice("reference", reference, ("min", "mean"))
    check_between("factor", factor, 0, float("inf"), closed=True)
    check_between("low", low, 0, float("inf"), closed=True)
    if check_between("high", high, 0, float("inf"), closed=True) < low:
        raise ValueError(f"high: expected at least low = {low:g}, got {high!r}")
    s, related, unrelated = pairs
    target = _references(s, related, reference)  # [b, 1], inf where nothing is related
    hardest = torch.where(unrelated, s, -torch.inf).topk(min(check_integer("k", k), s.shape[1]), dim=1).values
    there = hardest > -torch.inf
    mean = torch.where(there, hardest, 0.0).sum(dim=1, keepdim=True) / there.sum(dim=1, keepdim=True).clamp(min=1)
    gap = torch.where(target.isfinite(), target - mean, 0.0)
    margin = (factor * gap).clamp(low, high)
    return related | (unrelated & ~(s + margin > target))


@_pair_miner("nearest", "permutation-invariant", "row-separable", paper="arXiv:2401.18064", verified="numpy in float64")
def nearest(
    pairs: ScoredPairs,
    *,
    k: int | None = 10,
    min_score: float | None = None,
) -> Tensor:
    """The k pairs of highest score of each query, related or not: the candidates of a blocking.

    Pairs tied at the k-th place are all kept, so the order of the columns does not matter.

    Args:
        pairs: ``scores``, ``relation`` and ``weight``; see :func:`vicinal.miners.selection.pair_miner`.
        k: pairs of each query, >= 1, or None for all.
        min_score: lower bound of kept scores (the negative radius, for negative distances), or None.

    >>> nearest(torch.tensor([[0.9, 0.4, 0.6]]), torch.zeros(1, 3), k=2)
    tensor([[1., 0., 1.]])
    """
    s, counted = pairs.scores, pairs.related | pairs.unrelated
    usable = counted if min_score is None else counted & (s >= check_number("min_score", min_score))
    if k is not None and check_integer("k", k) < s.shape[1]:
        last = torch.where(usable, s, -torch.inf).topk(k, dim=1).values[:, -1:]
        usable = usable & (s >= last)
    return usable


@torch.no_grad()
def bucket_pairs(codes: Tensor, bank_codes: Tensor | None = None, *, radius: float = 0.5) -> Tensor:
    r"""Pairs that share a bucket $\lfloor h_m / R \rfloor$ of at least one of their hash values.

    This is not a miner: it returns pairs and never makes a matrix ``[b, N]``, so it works on tables of millions of
    rows. Time and memory grow with the rows and the pairs found. :func:`vicinal.relation.from_pairs` takes the pairs,
    as ids.

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
    matches = [_joined((codes[:, m] / width).floor(), (bank[:, m] / width).floor()) for m in range(codes.shape[1])]
    pairs = torch.cat([codes.new_zeros(0, 2, dtype=torch.int64), *matches])
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
