r"""Weights of some rows of a bank, and how much weight the others may have at most.

Of the rows that were not fetched it is known that groups of them, ``counts`` many, score at most ``beyond``; of the
lowest score over all rows, which the unit scores of SoftStep need, only that it lies between two numbers. Both S1 and
S2 rise with the unit score, which falls as the lowest score rises: so every masked score $\ell_j$ lies between
$\ell_j^-$ and $\ell_j^+$, computed at either end. From these follow lower bounds $p_j^-$ of the true weights:

- softmax: $p_j^- = e^{\ell_j^-} / (\sum_k e^{\ell_k^+} + \sum_g n_g e^{\ell_g^+})$;
- sparsemax, 1.5-entmax: with the threshold $\tau^+$ of all $\ell^+$, those beyond taken $n_g$ times,
  $p_j^- = (\ell_j^- - \tau^+)_+$ and $(\ell_j^-/2 - \tau^+)_+^2$, since thresholds rise with every score.

The weights that are used, $\hat p$, are those of scores between the two, over the fetched rows alone, so $\hat p_j \ge
p_j^-$, and half the sum of $|\hat p_j - p_j|$ over the whole bank is at most $\sum_j (\hat p_j - p_j^-) = 1 - \sum_j
p_j^-$. Where the lowest score is known, $\hat p$ are the true weights over their sum, and the bound is one of the
weight that was left out.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.heads.approximate_cells import Ends
from vicinal.heads.maps import Simplex
from vicinal.heads.relative import tied
from vicinal.masks import SoftStep, TopK, log_s1, log_s2, unit_scores
from vicinal.masks.unit import RowRange
from vicinal.similarity.resolution import Resolution

_PASSES = 100


class Beyond(NamedTuple):
    """Groups of rows that were not fetched: ``counts [r, g]`` rows score at most ``scores [r, g]``."""

    scores: Tensor
    counts: Tensor


class Spread(NamedTuple):
    """Masked scores, relative to the best score of each query, between ``low`` and ``high``: ``[r, k]``."""

    low: Tensor
    high: Tensor


class Weighed(NamedTuple):
    """Weights ``[r, k]`` of the fetched rows, summing to 1, and the bound ``[r]`` on what is wrong with them."""

    weights: Tensor
    left_out: Tensor


def weigh_fetched(
    mask: nn.Module | None,
    simplex: Simplex,
    queries: Tensor,
    scores: Tensor,
    groups: tuple[Beyond, ...],
    ends: Ends | None,
    resolution: Resolution,
) -> Weighed:
    """Weights of fetched rows, and the least of the bounds that the ``groups``, each a full account, give.

    Args:
        mask: SoftStep, TopK or None.
        simplex: name of the map.
        queries: ``[r, d]`` float64.
        scores: ``[r, k]`` float64, -inf where there is no row; each query has one.
        groups: ways to account for all other rows.
        ends: of the lowest score, for SoftStep.
        resolution: of the scores, as the head has it.
    """
    best = scores.amax(dim=1, keepdim=True)
    masked = [_masked(mask, queries, scores, best, beyond, ends, resolution) for beyond in groups]
    found = masked[0][0]
    chosen = found.high
    if isinstance(mask, SoftStep):
        chosen = torch.logaddexp(found.low, found.high) - math.log(2)
    weights = _map(simplex, chosen)
    least = [
        _least(simplex, spread, Beyond(high, beyond.counts))
        for (spread, high), beyond in zip(masked, groups, strict=True)
    ]
    total = torch.stack(least).amax(dim=0)
    return Weighed(weights, (1 - total).clamp(0, 1))


def _masked(
    mask: nn.Module | None,
    queries: Tensor,
    scores: Tensor,
    best: Tensor,
    beyond: Beyond,
    ends: Ends | None,
    resolution: Resolution,
) -> tuple[Spread, Tensor]:
    """Masked relative scores of the fetched rows, and the highest that those beyond may have."""
    others = torch.where(beyond.counts > 0, beyond.scores, -torch.inf)
    top = best - tied(resolution.of(best))
    relative, outside = (torch.minimum(values, top) - top for values in (scores, others))
    if isinstance(mask, TopK):
        k = min(mask.k, scores.shape[1])
        kth = scores.topk(k, dim=1).values[:, -1:]
        passed = torch.maximum(kth, others.amax(dim=1, keepdim=True))
        last, surely_last = (score - resolution.of(score, best) for score in (kth, passed))
        kept = relative.masked_fill(scores < last, -torch.inf)
        surely = relative.masked_fill(scores < surely_last, -torch.inf)
        return Spread(surely, kept), outside.masked_fill(others < last, -torch.inf)
    if not isinstance(mask, SoftStep) or ends is None:
        return Spread(relative, relative), outside
    logs = []
    for values, above, end in (
        (scores, relative, ends.high),
        (scores, relative, ends.low),
        (others, outside, ends.low),
    ):
        unit = unit_scores(values, RowRange(end[:, None], best), resolution, inset=mask.inset)
        logs.append(above + _log_step(mask, queries, unit))
    return Spread(logs[0], logs[1]), logs[2]


def _log_step(mask: SoftStep, queries: Tensor, unit: Tensor) -> Tensor:
    shape = mask.shape(queries)
    if mask.family == "s2":
        return log_s2(unit, shape)
    return log_s1(unit, shape, torch.ones_like(unit[:, :1]), mask.eps, mask.floor)


def _map(simplex: Simplex, scores: Tensor) -> Tensor:
    if simplex == "softmax":
        mass = scores.exp()
        return mass / mass.sum(dim=1, keepdim=True)
    made = _above(simplex, scores, _threshold(simplex, scores, torch.ones_like(scores)))
    return made / made.sum(dim=1, keepdim=True)


def _least(simplex: Simplex, spread: Spread, beyond: Beyond) -> Tensor:
    """Sum ``[r]`` of the lower bounds of the weights."""
    if simplex == "softmax":
        outside = (beyond.counts * beyond.scores.exp()).sum(dim=1)
        return spread.low.exp().sum(dim=1) / (spread.high.exp().sum(dim=1) + outside)
    scores = torch.cat([spread.high, beyond.scores], dim=1)
    counts = torch.cat([torch.ones_like(spread.high), beyond.counts.to(spread.high).expand_as(beyond.scores)], dim=1)
    return _above(simplex, spread.low, _threshold(simplex, scores, counts)).sum(dim=1)


def _above(simplex: Simplex, scores: Tensor, threshold: Tensor) -> Tensor:
    if simplex == "sparsemax":
        return (scores - threshold).clamp(min=0)
    return (scores / 2 - threshold).clamp(min=0).square()


def _threshold(simplex: Simplex, scores: Tensor, counts: Tensor) -> Tensor:
    """Threshold ``[r, 1]`` of scores that occur ``counts`` times, by Newton's method from the left."""
    values = scores if simplex == "sparsemax" else scores / 2
    threshold = values.amax(dim=1, keepdim=True) - 1
    for _ in range(_PASSES):
        above = (values - threshold).clamp(min=0)
        if simplex == "sparsemax":
            total = (counts * above).sum(dim=1, keepdim=True)
            slope = (counts * (above > 0)).sum(dim=1, keepdim=True)
        else:
            total = (counts * above.square()).sum(dim=1, keepdim=True).sqrt()
            slope = (counts * above).sum(dim=1, keepdim=True) / total
        rise = (total - 1) / slope
        threshold = threshold + rise
        if bool((rise.abs() <= 1e-15).all()):
            break
    return threshold
