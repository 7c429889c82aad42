"""Which pairs of a score matrix are related, which are not, and which do not count."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.core import check_scores
from vicinal.core.checks import check_tensor


class Pairs(NamedTuple):
    """Boolean ``[b, N]`` each; a pair that is left out is in neither."""

    related: Tensor
    unrelated: Tensor


def check_relation(scores: Tensor, relation: Tensor, weight: Tensor | None = None) -> None:
    """Check that ``relation`` and ``weight``, if given, have the shape of ``scores [b, N]``, which is floating.

    >>> import torch
    >>> check_relation(torch.zeros(2, 3), torch.zeros(2, 2))
    Traceback (most recent call last):
    ValueError: relation: expected (2, 3) as the scores, got (2, 2)
    """
    check_scores(scores, weight)
    check_tensor("relation", relation)
    if relation.shape != scores.shape:
        raise ValueError(f"relation: expected {tuple(scores.shape)} as the scores, got {tuple(relation.shape)}")


def split_pairs(scores: Tensor, relation: Tensor, weight: Tensor | None = None) -> Pairs:
    """Related pairs (relation above 0) and unrelated ones, of those whose weight is above 0.

    Args:
        scores: ``[b, N]``.
        relation: ``[b, N]``, any dtype.
        weight: ``[b, N]`` or None (all pairs count).

    Raises:
        TypeError, ValueError: see :func:`check_relation`.

    >>> import torch
    >>> split_pairs(torch.zeros(1, 3), torch.tensor([[1, 0, 0]]), torch.tensor([[1.0, 1.0, 0.0]])).unrelated
    tensor([[False,  True, False]])
    """
    check_relation(scores, relation, weight)
    related = _above_0(relation)
    if weight is None:
        return Pairs(related, ~related)
    counted = _above_0(weight)
    return Pairs(related & counted, ~related & counted)


def _above_0(matrix: Tensor) -> Tensor:
    return matrix if matrix.dtype == torch.bool else matrix > 0
