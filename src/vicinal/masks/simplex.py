"""Simplex maps: a row of scores to weights >= 0 that sum to 1; a row that is -inf throughout gets weights 0."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vicinal.blockwise.step_weights import mapped, scores_gradient
from vicinal.blockwise.thresholds import Simplex, ranked_threshold
from vicinal.core import entry, register
from vicinal.core.checks import check_integer

SimplexMap = Callable[[Tensor], Tensor]


def _rows_with_mass(scores: Tensor, mapped: SimplexMap) -> Tensor:
    """Apply ``mapped`` to rows that have a finite score; the others get weights 0, with gradient 0."""
    some = (scores > -torch.inf).any(dim=-1, keepdim=True)  # [b, 1]
    return torch.where(some, mapped(torch.where(some, scores, 0.0)), 0.0)


_simplex = functools.partial(register, "simplex", family="simplex maps", verified="numpy in float64")


@_simplex("softmax", "score-shift-invariant", "permutation-invariant")
def softmax(scores: Tensor) -> Tensor:
    r"""$p_j = e^{s_j} / \sum_k e^{s_k}$ along the last dimension.

    >>> softmax(torch.tensor([[0.0, 0.0, -torch.inf]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return _rows_with_mass(scores, lambda rows: rows.softmax(dim=-1))


@_simplex("sparsemax", "hard-rejection", "score-shift-invariant", "permutation-invariant", paper="arXiv:1602.02068")
def sparsemax(scores: Tensor) -> Tensor:
    r"""$\arg\min_{p \in \Delta} \|p - s\|^2$: many weights are exactly 0.

    $p_j = (s_j - \tau)_+$; Newton's method finds $\tau$ much faster than sorting does.

    >>> sparsemax(torch.tensor([[1.0, 0.5, -1.0]]))
    tensor([[0.7500, 0.2500, 0.0000]])
    """
    return _SparseMap.apply(scores, "sparsemax")  # type: ignore[no-untyped-call]


@_simplex("entmax15", "hard-rejection", "score-shift-invariant", "permutation-invariant", paper="arXiv:1905.05702")
def entmax15(scores: Tensor) -> Tensor:
    r"""1.5-entmax, between softmax and sparsemax: smooth, with some weights exactly 0.

    $p_j = (s_j / 2 - \tau)_+^2$, found as for :func:`sparsemax`.

    >>> entmax15(torch.tensor([[1.0, 1.0, -9.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return _SparseMap.apply(scores, "entmax15")  # type: ignore[no-untyped-call]


class _SparseMap(torch.autograd.Function):
    """Sparsemax or 1.5-entmax of ``scores [..., N]`` along the last dimension, in float32 at least."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, simplex: Simplex) -> Tensor:
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        weights = mapped(simplex, wide.reshape(-1, wide.shape[-1]).clone()).reshape(wide.shape)
        ctx.simplex, ctx.dtype = simplex, scores.dtype
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return scores_gradient(ctx.simplex, ctx.saved_tensors[0], gradients[0]).to(ctx.dtype), None


def k_sparsemax(scores: Tensor, k: int) -> Tensor:
    r"""$\arg\min \|p - s\|^2$ over $p \in \Delta$ with at most k weights that are not 0, for rows of any shape.

    The k highest scores are mapped by sparsemax and the others get 0. Of equal scores the one with the highest index is
    kept first; with ``k >= N`` this is sparsemax. As a simplex map of a head: ``NONA(simplex=partial(k_sparsemax,
    k=5))``.

    Args:
        scores: ``[..., N]``; -inf gets weight 0, and a row of -inf only has weights 0.
        k: at least 1.

    Returns:
        Weights, of the shape of the scores, in float32 at least.

    Paper: arXiv:2209.15466, proposition 1.

    >>> k_sparsemax(torch.tensor([[0.4, 0.5, 0.3]]), 2)
    tensor([[0.4500, 0.5500, 0.0000]])
    """
    check_integer("k", k)
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))

    def mapped(rows: Tensor) -> Tensor:
        ranked, behind = rows.flip(-1).sort(dim=-1, descending=True, stable=True)
        ranked, places = ranked[..., :k] - ranked.detach()[..., :1], rows.shape[-1] - 1 - behind[..., :k]
        weights = (ranked - ranked_threshold(ranked)).relu()
        return torch.zeros_like(rows).scatter(-1, places, weights)

    return _rows_with_mass(wide, mapped) if wide.shape[-1] else wide


def of_repeated(simplex: SimplexMap, scores: Tensor, counts: Tensor) -> Tensor:
    r"""Weights of rows each of which stands for ``counts`` equal ones, of which it gets the sum.

    .. math::
        \text{softmax: } p_j = \frac{c_j e^{s_j}}{\sum_k c_k e^{s_k}} \qquad
        \text{sparsemax: } p_j = c_j (s_j - \tau)_+ \qquad
        \text{entmax15: } p_j = c_j (s_j / 2 - \tau)_+^2

    with $\tau$ such that $\sum_j p_j = 1$. For whole counts it is the map of the scores in which each stands so many
    times, exactly; counts between them lie between. Softmax does not change where all counts are multiplied by one
    number; the sparse maps give weight to fewer rows then, as they do where every row stands there twice.

    Args:
        simplex: :func:`softmax`, :func:`sparsemax` or :func:`entmax15`.
        scores: ``[b, N]``; -inf gets weight 0, and a row of -inf only has weights 0.
        counts: ``[N]``, > 0.

    Raises:
        ValueError: for another map.

    >>> of_repeated(sparsemax, torch.tensor([[0.5, 0.25]]), torch.tensor([2.0, 1.0]))
    tensor([[0.8333, 0.1667]])
    """
    counts = counts.to(scores)
    if simplex is softmax:
        return softmax(scores + counts.log())
    if simplex not in (sparsemax, entmax15):
        raise ValueError(f"simplex: expected softmax, sparsemax or entmax15 for rows with weights, got {simplex!r}")
    there = scores > -torch.inf
    counts = counts.expand_as(scores) * there
    wide = torch.where(there, scores, 0.0).to(torch.promote_types(scores.dtype, torch.float32))
    best = wide.detach().masked_fill(~there, -torch.inf).amax(dim=-1, keepdim=True)
    relative = torch.where(there, wide - torch.where(best > -torch.inf, best, 0.0), 0.0)
    relative = relative if simplex is sparsemax else relative / 2
    return _of_counts(relative, counts, squared=simplex is entmax15) * there


def _of_counts(scores: Tensor, counts: Tensor, *, squared: bool) -> Tensor:
    """The sparse maps of finite scores ``[b, N]`` that stand ``counts [b, N]`` times; see :func:`of_repeated`."""
    with torch.no_grad():  # which rows have weight: of the first k by score, all those above their threshold
        order = scores.masked_fill(counts == 0, -torch.inf).argsort(dim=-1, descending=True)
        ranked, each = scores.gather(-1, order), counts.gather(-1, order)
        mass, first = each.cumsum(-1), (each * ranked).cumsum(-1)
        if squared:
            mean = first / mass
            spread = ((each * ranked.square()).cumsum(-1) - mass * mean.square()).clamp(min=0)
            threshold = mean - ((1 - spread) / mass).clamp(min=0).sqrt()
        else:
            threshold = (first - 1) / mass
        size = ((ranked > threshold) & (each > 0)).sum(-1, keepdim=True)
        first_rows = torch.arange(order.shape[-1], device=order.device) < size
        inside = torch.zeros_like(counts).scatter(-1, order, first_rows.to(counts)) * counts
    total = inside.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
    mean = (inside * scores).sum(-1, keepdim=True) / total
    if not squared:
        return inside * (scores - mean + 1 / total).clamp(min=0)
    spread = (inside * (scores - mean).square()).sum(-1, keepdim=True)
    return inside * (scores - mean + ((1 - spread).clamp(min=0) / total).sqrt()).clamp(min=0).square()


def resolve_simplex(simplex: str | SimplexMap) -> SimplexMap:
    """The simplex map of that name, or the callable itself.

    Raises:
        ValueError: for an unknown name.
        TypeError: for something that is neither a name nor callable.
    """
    if isinstance(simplex, str):
        return entry("simplex", simplex).factory
    candidate: object = simplex
    if not callable(candidate):
        raise TypeError(f"simplex: expected a name or a callable, got {candidate!r}")
    return simplex
