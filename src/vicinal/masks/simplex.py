"""Simplex maps: a row of scores to weights >= 0 that sum to 1; a row that is -inf throughout gets weights 0."""

from collections.abc import Callable

import entmax
import torch
from torch import Tensor

from vicinal.blockwise.thresholds import ranked_threshold
from vicinal.core import check_integer, entry, register

SimplexMap = Callable[[Tensor], Tensor]


def _rows_with_mass(scores: Tensor, mapped: SimplexMap) -> Tensor:
    """Apply ``mapped`` to rows that have a finite score; the others get weights 0, with gradient 0."""
    some = (scores > -torch.inf).any(dim=-1, keepdim=True)  # [b, 1]
    return torch.where(some, mapped(torch.where(some, scores, 0.0)), 0.0)


@register(
    "simplex",
    "softmax",
    "score-shift-invariant",
    "permutation-invariant",
    family="simplex maps",
    verified="numpy in float64",
)
def softmax(scores: Tensor) -> Tensor:
    r"""$p_j = e^{s_j} / \sum_k e^{s_k}$ along the last dimension.

    >>> softmax(torch.tensor([[0.0, 0.0, -torch.inf]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return _rows_with_mass(scores, lambda rows: rows.softmax(dim=-1))


@register(
    "simplex",
    "sparsemax",
    "hard-rejection",
    "score-shift-invariant",
    "permutation-invariant",
    family="simplex maps",
    paper="arXiv:1602.02068",
    verified="numpy in float64",
)
def sparsemax(scores: Tensor) -> Tensor:
    r"""$\arg\min_{p \in \Delta} \|p - s\|^2$: many weights are exactly 0 (package entmax).

    >>> sparsemax(torch.tensor([[1.0, 0.5, -1.0]]))
    tensor([[0.7500, 0.2500, 0.0000]])
    """
    return _rows_with_mass(scores, lambda rows: _sparse(entmax.sparsemax, rows))


@register(
    "simplex",
    "entmax15",
    "hard-rejection",
    "score-shift-invariant",
    "permutation-invariant",
    family="simplex maps",
    paper="arXiv:1905.05702",
    verified="numpy in float64",
)
def entmax15(scores: Tensor) -> Tensor:
    """1.5-entmax, between softmax and sparsemax: smooth, with some weights exactly 0 (package entmax).

    >>> entmax15(torch.tensor([[1.0, 1.0, -9.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return _rows_with_mass(scores, lambda rows: _sparse(entmax.entmax15, rows))


def k_sparsemax(scores: Tensor, k: int) -> Tensor:
    r"""$\arg\min \|p - s\|^2$ over $p \in \Delta$ with at most k weights that are not 0, for rows of any shape.

    The k highest scores are mapped by sparsemax and the others get 0. Equal scores are taken by index, the highest
    first; with ``k >= N`` it is sparsemax. As a simplex map of a head: ``NONA(simplex=partial(k_sparsemax, k=5))``.

    Args:
        scores: ``[..., N]``; -inf gets weight 0, and a row of nothing else weights 0.
        k: at least 1.

    Returns:
        Weights as the scores, in float32 at least.

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


def _sparse(mapped: Callable[..., Tensor], rows: Tensor) -> Tensor:
    """Run a map of package entmax in at least float32 on rows with -inf replaced by a score that gets weight 0.

    Both maps give weight 0 to whatever lies more than 2 below the maximum, so 4 below it is far enough.
    """
    wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
    shifted = wide - wide.detach().amax(dim=-1, keepdim=True)
    finite = torch.where(shifted > -torch.inf, shifted.clamp(min=-4.0), -4.0)
    weights: Tensor = mapped(finite, dim=-1)
    return weights


def resolve_simplex(simplex: str | SimplexMap) -> SimplexMap:
    """The simplex map of that name, or the callable itself.

    Raises:
        ValueError: for an unknown name.
        TypeError: for what can not be called.
    """
    if isinstance(simplex, str):
        return entry("simplex", simplex).factory
    candidate: object = simplex
    if not callable(candidate):
        raise TypeError(f"simplex: expected a name or a callable, got {candidate!r}")
    return simplex
