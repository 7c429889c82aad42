"""Exact scores of single pairs of a query and a row."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vicinal.core import entries
from vicinal.similarity import Cosine, Dot, NegativeL1, NegativeL2, NegativeSquaredL2
from vicinal.similarity.products import l2_normalize

_BLOCK = 1 << 19
"""Elements of pairs that are computed with at a time."""

PairScore = Callable[[Tensor, Tensor], Tensor]


def pair_score(similarity: nn.Module) -> PairScore | None:
    """Scores ``[p]`` of rows ``[p, d]`` against rows ``[p, d]`` in float64, or None for a module of somebody else."""
    kind = type(similarity)
    if kind is NegativeL2:
        return lambda q, x: -(q - x).square().sum(dim=-1).sqrt()
    if kind is NegativeSquaredL2:
        return lambda q, x: -(q - x).square().sum(dim=-1)
    if kind is NegativeL1:
        return lambda q, x: -(q - x).abs().sum(dim=-1)
    if kind is Cosine:
        return lambda q, x: (l2_normalize(q) * l2_normalize(x)).sum(dim=-1)
    if isinstance(similarity, Dot) and kind is Dot:
        divisor = similarity.scaled
        return lambda q, x: (q * x).sum(dim=-1) / (q.shape[-1] if divisor else 1)
    return None


def exact_scores(score: PairScore, queries: Tensor, rows: Tensor, at: Callable[[slice], Tensor]) -> Tensor:
    """Scores ``[p]`` of pairs, computed in float64 and rounded to float32 once, so that equal rows have equal scores.

    ``rows [p]`` says which query each pair is of; ``at`` gives the vectors of a run of pairs.

    Returns:
        ``[p]``, float32.
    """
    scores = torch.empty(len(rows), device=queries.device)
    step = max(1, _BLOCK // max(1, queries.shape[1]))
    for start in range(0, len(rows), step):
        run = slice(start, min(start + step, len(rows)))
        scores[run] = score(queries[rows[run]].double(), at(run).to(queries.device).double()).float()
    return scores + 0.0  # no negative zero


def similarity_name(similarity: nn.Module) -> str | None:
    """The name under which a similarity is registered, or None if it is a module of somebody else.

    >>> similarity_name(Dot(scaled=True))
    'scaled_dot'
    """
    for item in entries("similarity"):
        module = item.factory()
        if type(module) is type(similarity) and repr(module) == repr(similarity):
            return item.name
    return None
