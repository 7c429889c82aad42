"""The arithmetic between a block's products and its sums, fused by torch.compile where that was asked for.

Nothing here is used, and no compiler is looked for, unless a head is told ``compiled=True``. The first call takes
seconds. Blocks with hidden entries, with pairs that lost digits, or of other settings are computed as always.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from vicinal.masks.weighing import S1Weigher, S2Weigher, Weigher

_LEAST = 1e-30

_LOG2E = 1.4426950408889634

Sum = tuple[Tensor, Tensor]
"""Of the weights of a block: their sum ``[r]``, and that of weight times label ``[r]``."""


def _summed(weights: Tensor, labels: Tensor) -> Sum:
    return weights.sum(dim=1), (weights * labels).sum(dim=1)


def _lead(values: Tensor, first: Tensor, rooted: bool) -> Tensor:  # noqa: FBT001
    return first - (values.clamp_min(_LEAST).sqrt() if rooted else values)


def _plain(values: Tensor, first: Tensor, labels: Tensor, rooted: bool) -> Sum:  # noqa: FBT001
    return _summed((_lead(values, first, rooted) * _LOG2E).exp2(), labels)


def _s2(
    values: Tensor,
    first: Tensor,
    labels: Tensor,
    rooted: bool,  # noqa: FBT001
    scale: Tensor,
    offset: Tensor,
    power: Tensor,
) -> Sum:
    lead = _lead(values, first, rooted)
    rest = (lead * scale + offset).clamp(-1, 0)
    return _summed((lead * _LOG2E + rest * torch.log(1 + rest) * power).exp2(), labels)


def _s1(
    values: Tensor,
    first: Tensor,
    labels: Tensor,
    rooted: bool,  # noqa: FBT001
    scale: Tensor,
    offset: Tensor,
    power: Tensor,
) -> Sum:
    lead = _lead(values, first, rooted)
    place = (lead * scale + offset).clamp(0, 1)
    mass = torch.sigmoid(torch.log(1 / place - 1) * -power)
    return _summed((lead * _LOG2E).exp2() * mass, labels)


@cache
def _fused(function: Callable[..., Sum]) -> Callable[..., Sum]:
    return torch.compile(function, dynamic=True)


def _call(function: Callable[..., Sum], *arguments: Tensor | bool) -> Sum:
    try:
        return _fused(function)(*arguments)
    except RuntimeError as error:
        raise ValueError(
            "compiled: expected a C++ compiler that torch.compile can use, got an error from it "
            f"({str(error).strip().splitlines()[0]}); install g++ or clang, or leave compiled out"
        ) from error


def can_fuse(short: Weigher | None, labels: Tensor) -> bool:
    """Whether sums of blocks with such weights and ``labels [N, T]`` can be had from :func:`fused_sums`."""
    return labels.shape[1] == 1 and not (isinstance(short, S2Weigher) and short.shift is not None)


def fused_sums(values: Tensor, first: Tensor, labels: Tensor, short: Weigher | None, *, rooted: bool) -> Sum:
    """Sums of the weights of a block.

    Args:
        values: ``[r, B]``, products of the block.
        first: ``[r, 1]``, cost that leads are measured from.
        labels: ``[B]``, of the dtype of ``values``.
        short: weights under SoftStep for these rows, or None for none.
        rooted: costs are roots of products.

    Raises:
        ValueError: if torch.compile finds no compiler.
    """
    if short is None:
        return _call(_plain, values, first, labels, rooted)
    function = _s1 if isinstance(short, S1Weigher) else _s2
    return _call(function, values, first, labels, rooted, short.scale, short.offset, short.power)
