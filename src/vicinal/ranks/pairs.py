"""Which pairs of a score matrix are related, which are not, and which do not count."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.core.checks import check_between, check_scores, check_tensor


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


def check_label_chances(missed: float | Tensor, spurious: float | Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Chances that a related pair is not labelled so, and that an unrelated one is, in the dtype of the scores."""
    both = []
    for name, chance in (("missed", missed), ("spurious", spurious)):
        if not isinstance(chance, Tensor):
            chance = torch.as_tensor(check_between(name, chance, 0, 1, closed=True))
        elif not chance.is_floating_point() or not bool(((chance >= 0) & (chance < 1)).all()):
            raise ValueError(f"{name}: expected floating numbers from 0 to below 1, got others")
        if chance.ndim > 2 or any(
            n not in (1, m) for n, m in zip(chance.shape[::-1], scores.shape[::-1], strict=False)
        ):
            raise ValueError(f"{name}: expected one number, one a column or a row, got {tuple(chance.shape)}")
        both.append(chance.to(scores))
    most = float((both[0] + both[1]).detach().max())
    if most >= 1:
        raise ValueError(f"spurious: expected less than 1 - missed, as such labels say nothing, got a sum of {most:g}")
    return both[0], both[1]
