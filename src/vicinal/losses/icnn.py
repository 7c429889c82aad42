"""Losses of sets: classes by the nearest neighbors of their rows."""

import torch
from torch import Tensor

from vicinal.blockwise import opaque_op
from vicinal.losses.contract import NUMPY, Pairs, RowTerms, best_score, pair_loss, row_terms
from vicinal.losses.ranges import Count, NonNegative


@pair_loss("icnn", "row-separable", family="nearest neighbors", paper="arXiv:2305.09062", verified=NUMPY)
def icnn(
    pairs: Pairs,
    *,
    k: Count = 5,
    ratio_power: NonNegative = 1.0,
    spread_power: NonNegative = 1.0,
    share_power: NonNegative = 1.0,
    best: float | None = None,
) -> RowTerms:
    r"""Inter and intra class nearest neighbors: the nearest columns related, near and evenly far.

    $1 - \lambda_i^a\, \omega_i^b\, \gamma_i^c$ over the k nearest columns of each row, with distances
    $D = s_{best} - s$.

    $\lambda = \bar D_O / (\bar D_O + \bar D_S)$ compares the mean distances to neighbors of other classes and of the
    same class; $\omega = 1 - 4 \mathrm{Var}(D) / D_{max}^2$, with the largest distance of the row as its unit, is 1 for
    neighbors at equal distances; $\gamma$ is the share of neighbors of the same class, a step function of the scores
    that passes no gradient. This is our reading: the paper's factors are known (a ratio of distances, a variance, a
    share, each with a power), its normalization is not.

    A row whose nearest columns are all of its class has $\lambda = 1$, a row with none of its class $\lambda = 0$; if
    all distances are 0, $\lambda = 1/2$ and $\omega = 1$. Columns tied with the k-th are neighbors too, and a row with
    fewer than k columns uses them all.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        k: neighbors of a row, >= 1.
        ratio_power: a >= 0.
        spread_power: b >= 0.
        share_power: c >= 0.
        best: the score of two equal things: 0 for negative distances, 1 for cosines. None: that of the criterion's
            similarity; for bare scores 1 if any of them is above 0, else 0.

    >>> icnn(torch.tensor([[-1.0, -3.0, -9.0]]), torch.tensor([[1.0, 0.0, 0.0]]), k=2)
    tensor(0.6435)
    """
    top = best_score(pairs, best)
    counted = pairs.weight > 0
    column, is_near = _nearest(pairs.scores, counted, k)  # [b, K]
    distance = (top - pairs.scores.gather(1, column)).clamp(min=0)
    near = torch.where(is_near, pairs.weight.gather(1, column), 0.0)
    same = near * pairs.relation.gather(1, column)
    mass, of_same = near.sum(-1), same.sum(-1)
    of_other = (near - same).sum(-1)
    to_same, to_other = _ratio((same * distance).sum(-1), of_same), _ratio(((near - same) * distance).sum(-1), of_other)
    both = to_same + to_other
    ratio = torch.where(both > 0, to_other / torch.where(both > 0, both, 1.0), 0.5)
    ratio = torch.where(of_other > 0, torch.where(of_same > 0, ratio, 0.0), torch.where(of_same > 0, 1.0, ratio))
    spread = _evenness(distance, near, mass, (top - _lowest(pairs.scores, counted)).clamp(min=0))
    share = _ratio(of_same, mass).detach()
    value = 1 - _power(ratio, ratio_power) * _power(spread, spread_power) * _power(share, share_power)
    return row_terms(value, mass > 0)


def _ratio(total: Tensor, mass: Tensor) -> Tensor:
    return total / torch.where(mass > 0, mass, 1.0)


def _power(base: Tensor, exponent: float) -> Tensor:
    """``base ** exponent`` for a base >= 0, with gradient 0 at 0."""
    if exponent == 1:
        return base
    positive = base > 0
    return torch.where(positive, torch.where(positive, base, 1.0) ** exponent, 0.0**exponent)


def _nearest(scores: Tensor, counted: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Columns ``[b, K]`` of the k highest scores of each row of those kept and of those tied with the k-th.

    A row with fewer such columns has others as well, so which of them are is the second of the two.
    """
    column = _columns(scores.detach(), counted, k)
    near_scores = torch.where(counted.gather(1, column), scores.detach().gather(1, column), -torch.inf)
    near = near_scores > -torch.inf
    return column, near & (near_scores >= near_scores[:, k - 1 : k]) if k < scores.shape[1] else near


def _some_columns(scores: Tensor, counted: Tensor, k: int) -> Tensor:
    number = scores.shape[1] if k >= scores.shape[1] else torch.library.get_ctx().new_dynamic_size(min=k)
    return scores.new_empty((len(scores), number), dtype=torch.int64)


@opaque_op("nearest_columns", _some_columns)
def _columns(scores: Tensor, counted: Tensor, k: int) -> Tensor:
    ranked = torch.where(counted, scores, -torch.inf)
    if k >= scores.shape[1]:
        return ranked.topk(scores.shape[1], dim=-1).indices
    top = ranked.topk(k + 1, dim=-1)
    last = top.values[:, k - 1 : k]
    if bool(((last == top.values[:, k:]) & (last > -torch.inf)).any()):
        most = int((counted & (ranked >= last) & (last > -torch.inf)).sum(-1).max())
        return ranked.topk(max(k, most), dim=-1).indices
    return top.indices[:, :k].contiguous()


def _lowest(scores: Tensor, counted: Tensor) -> Tensor:
    """Lowest score of each row of those kept, ``[b]``, inf where there is none; equal ones share the gradient."""
    if scores.shape[1] == 0:
        return scores.new_full((len(scores),), torch.inf)
    if scores.shape[1] > 1 and not torch.compiler.is_compiling():
        low = torch.where(counted, scores.detach(), torch.inf).topk(2, dim=-1, largest=False)
        if not bool((low.values[:, 0] == low.values[:, 1]).any()):
            return scores.gather(1, low.indices[:, :1])[:, 0]
    return torch.where(counted, scores, torch.inf).amin(-1)


def _evenness(distance: Tensor, near: Tensor, mass: Tensor, farthest: Tensor) -> Tensor:
    """1 - 4 Var / D_max^2 of the distances ``near``; no variance is above a quarter of the square of the farthest."""
    mean = _ratio((near * distance).sum(-1), mass)
    variance = _ratio((near * (distance - mean[:, None]).square()).sum(-1), mass)
    most = farthest.square() / 4
    return torch.where(most > 0, 1 - variance / torch.where(most > 0, most, 1.0), 1.0).clamp(0.0, 1.0)
