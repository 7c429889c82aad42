"""What miners share: extremes among some pairs of each row, and the weight of those that were chosen."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from vicinal.ranks import check_relation

Miner = TypeVar("Miner", bound=Callable[..., Tensor])

_HELD = 1 << 18
"""Pairs of a block of rows on a CPU: what is made of them stays in the caches of a core."""

_WIDE = 1 << 24
"""The same on an accelerator, which has to be kept busy."""


def row_blocks(scores: Tensor) -> list[slice]:
    """Slices of rows, so many at a time as a core or an accelerator likes best."""
    held = _HELD if scores.device.type == "cpu" else _WIDE
    size = max(16, held // max(1, scores.shape[1]))
    return [slice(start, start + size) for start in range(0, len(scores), size)]


def by_rows(mine: Miner) -> Miner:
    """A miner that looks at each row alone, a block of rows at a time; matrices among its settings are cut too."""

    @functools.wraps(mine)
    def blocked(scores: Tensor, relation: Tensor, weight: Tensor | None = None, **hyper: Any) -> Tensor:
        check_relation(scores, relation, weight)
        blocks = row_blocks(scores)
        if len(blocks) < 2 or torch.compiler.is_compiling():
            return mine(scores, relation, weight, **hyper)
        made: list[Tensor] = []
        for part in blocks:
            cut = {k: v[part] if isinstance(v, Tensor) and v.shape == scores.shape else v for k, v in hyper.items()}
            one = mine(scores[part], relation[part], None if weight is None else weight[part], **cut)
            if not made:
                made.append(one.new_empty(scores.shape))
            made[0][part] = one
        return made[0]

    return cast(Miner, blocked)


def measured(scores: Tensor) -> Tensor:
    """``scores`` without gradient, in float32 or float64."""
    kept = scores.detach()
    return kept if kept.dtype in (torch.float32, torch.float64) else kept.float()


def highest(scores: Tensor, among: Tensor) -> Tensor:
    """Highest score ``among`` the pairs of each row, ``[b, 1]``; -inf where there is none."""
    if scores.shape[1] == 0:
        return scores.new_full((len(scores), 1), -torch.inf)
    return torch.where(among, scores, -torch.inf).amax(dim=1, keepdim=True)


def lowest(scores: Tensor, among: Tensor) -> Tensor:
    """Lowest score ``among`` the pairs of each row, ``[b, 1]``; inf where there is none."""
    return -highest(-scores, among)


def kept_weight(scores: Tensor, weight: Tensor | None, chosen: Tensor) -> Tensor:
    """``weight`` (1 if None) where ``chosen``, else 0, in the dtype of ``weight`` if that is floating, or of scores.

    >>> kept_weight(torch.zeros(1, 2), None, torch.tensor([[True, False]]))
    tensor([[1., 0.]])
    """
    if weight is None:
        return chosen.to(scores.dtype)
    if weight.dtype == torch.bool:
        return chosen.logical_and(weight).to(scores.dtype)
    dtype = weight.dtype if weight.is_floating_point() else scores.dtype
    return torch.where(chosen, weight.detach().to(dtype), 0.0)


def picked(preference: Tensor, among: Tensor, count: Tensor) -> Tensor:
    """The ``count [b]`` pairs of highest ``preference [b, N]`` ``among`` the pairs of each row; fewer if there are.

    Of pairs tied at the last place those of lower column index are taken.
    """
    columns = among.shape[1]
    most = columns if torch.compiler.is_compiling() else min(int(count.max()) if len(count) else 0, columns)
    if most == 0:
        return torch.zeros_like(among)
    kept = torch.where(among, preference, -torch.inf)
    top = kept.topk(most, dim=1).values
    last = top.gather(1, (count.clamp(max=most) - 1).clamp(min=0)[:, None])  # [b, 1]
    above, tied = among & (kept > last), among & (kept == last)
    left = (count - above.sum(dim=1))[:, None]
    return (above | (tied & (tied.cumsum(dim=1) <= left))) & (count > 0)[:, None]
