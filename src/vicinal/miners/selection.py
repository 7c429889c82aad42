"""What miners share: extremes among some pairs of each row, and the weight of those that were chosen."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from vicinal.blockwise import opaque_op, policy
from vicinal.blockwise.blocks import block_rows, row_slices
from vicinal.core import register
from vicinal.ranks.pairs import check_relation, split_pairs

Miner = TypeVar("Miner", bound=Callable[..., Tensor])


def row_blocks(scores: Tensor, share: int = 1) -> list[slice]:
    """Slices of rows, so many at a time as a core or an accelerator likes best, or only a ``share`` of them."""
    rows, columns = scores.shape
    size = block_rows(rows, columns * share, scores.device, entries=policy().sort_entries, least=16)
    return row_slices(rows, size)


def by_rows(mine: Miner) -> Miner:
    """A miner that looks at each row alone, a block of rows at a time; matrices among its settings are cut too."""

    @functools.wraps(mine)
    def blocked(scores: Tensor, relation: Tensor, weight: Tensor | None = None, *others: Any, **hyper: Any) -> Tensor:
        check_relation(scores, relation, weight)
        blocks = row_blocks(scores)
        if len(blocks) < 2 or torch.compiler.is_compiling():
            return mine(scores, relation, weight, *others, **hyper)
        results: list[Tensor] = []
        for part in blocks:
            cut = {k: v[part] if isinstance(v, Tensor) and v.shape == scores.shape else v for k, v in hyper.items()}
            one = mine(scores[part], relation[part], None if weight is None else weight[part], *others, **cut)
            if not results:
                results.append(one.new_empty(scores.shape))
            results[0][part] = one
        return results[0]

    return cast(Miner, blocked)


class ScoredPairs(NamedTuple):
    """What a miner chooses among, ``[b, N]`` each; a pair of weight 0 is neither related nor unrelated.

    Attributes:
        scores: higher = more alike, without gradient, in float32 or float64.
        related: boolean.
        unrelated: boolean.
    """

    scores: Tensor
    related: Tensor
    unrelated: Tensor


def pair_miner(name: str, *facts: str, **entry: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Make and register a miner of a formula ``(pairs, **settings)``, which says where a pair is chosen, ``[b, N]``.

    The miner is ``f(scores, relation, weight=None, **settings)`` of ``scores [b, N]``, ``relation [b, N]``, above 0 =
    related, and ``weight [b, N]``, where pairs of weight 0 are ignored. It gives ``[b, N]``: the weight, or 1 without
    any, where a pair is chosen, else 0. One that is "row-separable" is asked a block of rows at a time.

    Args:
        name: how users name it.
        facts: what it declares.
        entry: family, paper, and what it was checked against.
    """

    def make(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(formula)
        def mine(scores: Tensor, relation: Tensor, weight: Tensor | None = None, **settings: Any) -> Tensor:
            pairs = ScoredPairs(measured(scores), *split_pairs(scores, relation, weight))
            return kept_weight(scores, weight, formula(pairs, **settings))

        common = [p for p in inspect.signature(mine, follow_wrapped=False).parameters.values() if p.name != "settings"]
        settings = list(inspect.signature(formula).parameters.values())[1:]
        miner = torch.no_grad()(by_rows(mine) if "row-separable" in facts else mine)
        miner.__signature__ = inspect.Signature([*common, *settings], return_annotation=Tensor)  # type: ignore[attr-defined]
        return register("miner", name, *facts, **entry)(miner)

    return make


def measured(scores: Tensor) -> Tensor:
    """``scores`` without gradient, in float32 or float64."""
    measured_scores = scores.detach()
    return measured_scores if measured_scores.dtype in (torch.float32, torch.float64) else measured_scores.float()


def some(among: Tensor) -> Tensor:
    """Rows with a pair ``among`` them, ``[b, 1]``; of bytes this is quicker than of booleans."""
    if among.shape[1] == 0:
        return among.any(dim=1, keepdim=True)
    return among.view(torch.uint8).amax(dim=1, keepdim=True).view(torch.bool)


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

    Pairs whose score is NaN are kept, so that the loss tells of them.

    >>> kept_weight(torch.zeros(1, 2), None, torch.tensor([[True, False]]))
    tensor([[1., 0.]])
    """
    dtype = kept_dtype(scores, weight)
    chosen = chosen.logical_or(scores.isnan())
    if weight is None:
        return chosen.to(dtype)
    if weight.dtype == torch.bool:
        return chosen.logical_and(weight).to(dtype)
    return torch.where(chosen, weight.detach().to(dtype), 0.0)


def kept_dtype(scores: Tensor, weight: Tensor | None) -> torch.dtype:
    """The dtype of a miner's result."""
    return weight.dtype if weight is not None and weight.is_floating_point() else scores.dtype


def kept_like(scores: Tensor, relation: Tensor, weight: Tensor | None, *_: Any) -> Tensor:
    """Room for a miner's result."""
    return scores.new_empty(scores.shape, dtype=kept_dtype(scores, weight))


def picked(preference: Tensor, among: Tensor, count: Tensor) -> Tensor:
    """The ``count [b]`` pairs of highest ``preference [b, N]`` ``among`` the pairs of each row; fewer if there are.

    Of pairs tied at the last place those of lower column index are taken.
    """
    return _picked(preference, among, count)


@opaque_op("picked", lambda preference, among, count: torch.empty_like(among))
def _picked(preference: Tensor, among: Tensor, count: Tensor) -> Tensor:
    columns = among.shape[1]
    most = min(int(count.max()) if len(count) else 0, columns)
    chosen = torch.zeros_like(among)
    if most == 0:
        return chosen
    for part in row_blocks(preference):
        rows, number = among[part], count[part, None]
        ranked = torch.where(rows, preference[part], -torch.inf)
        last = ranked.topk(most, dim=1).values.gather(1, (number.clamp(max=most) - 1).clamp(min=0))  # [b, 1]
        is_picked = rows & (ranked >= last) & (number > 0)
        if bool((is_picked.sum(dim=1, keepdim=True) > number).any()):
            tied = rows & (ranked == last)
            above = is_picked & ~tied
            is_picked &= above | (tied.cumsum(dim=1) <= number - above.sum(dim=1, keepdim=True))
        chosen[part] = is_picked
    return chosen
