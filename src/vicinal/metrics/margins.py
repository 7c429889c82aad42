"""Margins of classifiers, and how far two sets of models differ in theirs."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_tensor


@torch.no_grad()
def class_margins(scores: Tensor, labels: Tensor) -> Tensor:
    r"""Log odds of the true class, $s_y - \log \sum_{k \ne y} e^{s_k}$.

    Args:
        scores: ``[..., n, K]``, K >= 2.
        labels: classes ``[n]``.

    Returns:
        ``[..., n]``; the logit of the softmax of the true class.

    >>> class_margins(torch.zeros(1, 3), torch.tensor([0]))
    tensor([-0.6931])
    """
    check_tensor("scores", scores), check_tensor("labels", labels)
    if scores.ndim < 2 or scores.shape[-1] < 2 or labels.shape != scores.shape[-2:-1] or labels.is_floating_point():
        raise ValueError(
            f"labels: expected classes [n] for scores [..., n, K] of at least two, got {tuple(labels.shape)} and "
            f"{tuple(scores.shape)}"
        )
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    true = torch.nn.functional.one_hot(labels, wide.shape[-1]).bool().expand(wide.shape)
    mine = wide.gather(-1, labels[:, None].expand(*wide.shape[:-1], 1))[..., 0]
    return mine - wide.masked_fill(true, -torch.inf).logsumexp(-1)


Direction = Literal["forward", "backward"]


@torch.no_grad()
def klom(
    oracle: Tensor,
    candidate: Tensor,
    *,
    bins: int = 20,
    limit: float = 100.0,
    floor: float = 1e-5,
    direction: Direction = "forward",
) -> Tensor:
    r"""How far margins of models differ from those that they should have, row by row: KLoM.

    $KL(p \| q)$ of two histograms of a row's margins, of the oracles and of the candidates, over bins of equal width
    from the lowest to the highest of both.

    An unlearned model should be like one that never saw the rows: oracles are trained without them, candidates have
    unlearned them. The idea is that of *Attribute-to-Delete*, arXiv:2410.23232; the bins and the limit are from memory.

    Args:
        oracle: margins of N models, ``[N, n]``, N >= 2, such as :func:`class_margins`.
        candidate: likewise, of M models, ``[M, n]``.
        bins: at least 2.
        limit: margins are clipped to this on both sides, > 0.
        floor: > 0, added to the share of each bin before both histograms are normalized.
        direction: "forward" KL(oracle, candidate), or "backward".

    Returns:
        ``[n]``, >= 0; 0 for equal sets of margins. Look at its mean and its quantiles.

    Raises:
        ValueError: for fewer than two models, other rows, or NaN.

    >>> klom(torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [0.0]]))
    tensor([0.])
    """
    check_integer("bins", bins, 2), check_choice("direction", direction, get_args(Direction))
    check_between("limit", limit, 0, math.inf), check_between("floor", floor, 0, math.inf)
    for name, margins in (("oracle", oracle), ("candidate", candidate)):
        if check_tensor(name, margins).ndim != 2 or len(margins) < 2 or bool(margins.isnan().any()):
            raise ValueError(
                f"{name}: expected margins [N, n] of at least 2 models, no NaN, got {tuple(margins.shape)}"
            )
    if oracle.shape[1] != candidate.shape[1]:
        raise ValueError(f"candidate: expected {oracle.shape[1]} rows as the oracles, got {candidate.shape[1]}")
    both = torch.cat([oracle, candidate]).to(torch.promote_types(oracle.dtype, torch.float32)).clamp(-limit, limit)
    low, high = both.aminmax(dim=0)
    width = torch.where(high > low, high - low, 1.0)
    place = ((both - low) / width * bins).long().clamp(max=bins - 1)
    shares = []
    for part in (place[: len(oracle)], place[len(oracle) :]):
        counts = both.new_zeros(bins, both.shape[1]).scatter_add(0, part, torch.ones_like(part, dtype=both.dtype))
        share = counts / len(part) + floor
        shares.append(share / share.sum(0))
    p, q = shares if direction == "forward" else shares[::-1]
    return (p * (p / q).log()).sum(0).clamp(min=0)
