"""Clicks: some related things were never shown, some that were not clicked are related, and ranks are long."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_tensor, warn_caller
from vicinal.losses.contract import RowTerms, check_reduction, prepare


def exposed_relevance(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    propensity: Tensor,
    clip: float = 0.1,
    unclicked: float = 1.0,
    form: str = "squared",
    nonnegative: bool = False,
    reduction: str = "mean",
) -> Tensor:
    r"""Relevance out of clicks that need exposure: each counts for $1/\theta$, and what it says too much is taken off.

    $\sum_{ij} \bigl[\tfrac{y}{\theta} \ell(1, p) + w (1 - \tfrac{y}{\theta}) \ell(0, p)\bigr] / \sum [y + w (1 - y)]$
    with $p = \sigma(s)$, $\theta$ not below ``clip``, and $\ell(1, p) = (1 - p)^2$, $\ell(0, p) = p^2$, or logarithms.
    With clip 0, and if the chance of a click is $\theta$ times the relevance, its expectation is the loss on the
    relevance itself. Terms of clicks may be negative. A good default for $\theta$ is the square root of the item's
    clicks divided by the most clicks of any item.

    Args:
        scores: ``[b, N]``, logits of relevance.
        relation: y ``[b, N]``, 1 where there was a click, else 0.
        weight: ``[b, N]``; 0 leaves a pair out.
        propensity: theta in (0, 1], ``[N]`` or ``[b, N]``, the chance of being seen.
        clip: in [0, 1]; 1 treats clicks as relevance.
        unclicked: w > 0.
        form: "squared" or "log".
        nonnegative: raise the terms of pairs that are below 0 to 0.
        reduction: "mean", "sum", or "none", a sum for each row.

    Raises:
        ValueError: for clicks that are not 0 or 1, a propensity outside (0, 1], or shapes that do not fit.

    Paper: arXiv:1909.03601.

    >>> clicks = torch.tensor([[1.0, 0.0]])
    >>> exposed_relevance(torch.zeros(1, 2), clicks, propensity=torch.tensor([0.5, 0.5]))
    tensor(0.2500)
    """
    pairs = prepare(scores, relation, weight)
    check_reduction(reduction)
    check_between("clip", clip, 0, 1, closed=True)
    check_between("unclicked", unclicked, 0, math.inf)
    seen = _check_propensity(propensity, pairs.scores, clip)
    clicks = pairs.relation
    if not bool(((clicks == 0) | (clicks == 1)).all()):
        raise ValueError("relation: expected clicks that are 0 or 1, got others")
    with torch.autocast(scores.device.type, enabled=False):
        if check_choice("form", form, ("squared", "log")) == "squared":
            hit, miss = pairs.scores.neg().sigmoid().square(), pairs.scores.sigmoid().square()
        else:
            hit, miss = -logsigmoid(pairs.scores), -logsigmoid(-pairs.scores)
        terms = clicks / seen * hit + unclicked * (1 - clicks / seen) * miss
        terms = terms.relu() if nonnegative else terms
        mass = pairs.weight * (clicks + unclicked * (1 - clicks))
        part = RowTerms((pairs.weight * terms).sum(-1), mass.sum(-1), (mass * (terms.detach() != 0)).sum(-1))
    return pairs.reduced((part,), reduction)


def _check_propensity(propensity: Tensor, scores: Tensor, clip: float) -> Tensor:
    if check_tensor("propensity", propensity).shape not in (scores.shape, scores.shape[1:]):
        raise ValueError(f"propensity: expected {tuple(scores.shape)} or one a column, got {tuple(propensity.shape)}")
    if not bool(((propensity > 0) | (clip > 0) & (propensity == 0)).all() & (propensity <= 1).all()):
        raise ValueError("propensity: expected numbers above 0 and at most 1, got others; clip > 0 allows 0")
    return propensity.to(scores).clamp(min=clip)


def warp(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    margin: float = 0.5,
    columns: int | None = None,
    by_rank: bool = True,
    reduction: str = "mean",
) -> Tensor:
    r"""Each related column above the hardest unrelated one by a margin, weighed by how many are in its way (CML).

    $\log(1 + R_{ip}) \, [\max_n s_{in} - s_{ip} + m]_+$ with $R_{ip}$ the share of unrelated columns that are not below
    $s_{ip}$ by the margin, times ``columns``; the logarithm passes no gradient. Scores are negated squared distances in
    the paper, which keeps all vectors in the unit ball: :func:`clip_rows` after each step.

    Args:
        scores: ``[b, N]``: a related column and some that were drawn, or all.
        relation: ``[b, N]``; above 0 is related.
        weight: ``[b, N]``; 0 leaves a pair out. Give drawn columns that are related weight 0.
        margin: m > 0.
        columns: number of columns to draw from; None: as many as count in the row, so that R is a plain count.
        by_rank: False: leave out the factor of the logarithm.
        reduction: "mean" over related columns, "sum", "none", a sum for each row, or "mean_nonzero".

    Rows without an unrelated column are left out, and a warning says how many.

    Paper: Hsieh et al. 2017; arXiv:1803.00202.

    >>> warp(torch.tensor([[-1.0, -1.2, -2.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(0.2079)
    """
    pairs = prepare(scores, relation, weight)
    check_reduction(reduction)
    check_between("margin", margin, 0, math.inf)
    if columns is not None:
        check_integer("columns", columns)
    unrelated = pairs.negative > 0
    count = unrelated.sum(-1, keepdim=True)
    empty = int(((count[:, 0] == 0) & (pairs.positive.sum(-1) > 0)).sum())
    if empty:
        warn_caller(f"warp: expected an unrelated column in each row, got none in {empty} rows, which are left out")
    against = torch.where(unrelated, pairs.scores, -torch.inf)
    hardest = torch.where(count > 0, against.amax(-1, keepdim=True), 0.0)
    positive = pairs.positive * (count > 0)
    row, column = positive.nonzero(as_tuple=True)  # related pairs are few
    related, mass = pairs.scores[row, column], positive[row, column]
    terms = (hardest[row, 0] - related + margin).relu()
    if by_rank:
        above = _count_above(against.detach(), row, related.detach() - margin) / count[row, 0]
        rank = above * (count[row, 0] if columns is None else columns)
        terms = terms * rank.log1p()
    zeros = torch.zeros_like(hardest[:, 0])
    counted = zeros.index_add(0, row, mass * (terms.detach() != 0))
    part = RowTerms(zeros.index_add(0, row, mass * terms), positive.sum(-1), counted)
    return pairs.reduced((part,), reduction)


def _count_above(scores: Tensor, row: Tensor, least: Tensor) -> Tensor:
    """How many scores of its row are at least ``least``, for each of some entries in the order of their rows."""
    counts = torch.bincount(row, minlength=len(scores))
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    packed = scores.new_zeros(len(scores), int(counts.max()) if len(row) else 0)
    packed[row, place] = least
    on_processor = scores.device.type == "cpu"  # where numpy sorts many times as fast
    ordered = torch.from_numpy(np.sort(scores.numpy(), axis=-1)) if on_processor else scores.sort(dim=-1).values
    below = torch.searchsorted(ordered, packed, right=True)
    return scores.shape[1] - below[row, place]


@torch.no_grad()
def clip_rows(vectors: Tensor, length: float = 1.0) -> Tensor:
    """Scale the rows that are longer than ``length`` to it, in place, as after a step of an optimizer.

    >>> clip_rows(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    """
    check_between("length", length, 0, math.inf)
    if check_tensor("vectors", vectors).ndim != 2 or not vectors.is_floating_point():
        raise ValueError(f"vectors: expected floating numbers [n, d], got {vectors.dtype} {tuple(vectors.shape)}")
    lengths = vectors.norm(dim=1, keepdim=True)
    return vectors.mul_(torch.where(lengths > length, length / lengths, 1.0))
