"""Softmax against proxies, with the unrelated pairs of the batch as further competitors of every row."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import check_between
from vicinal.losses.angles import falling_cosine
from vicinal.losses.classes import where_related
from vicinal.losses.contract import pair_loss
from vicinal.losses.logsums import log_sum_exp
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms
from vicinal.losses.softmax import scaled_at, softmax_terms
from vicinal.losses.whisker_mass import whisker_mass
from vicinal.miners import within_whiskers
from vicinal.miners.whiskers import check_reach, whisker_ends

SCALE, REACH = 64.0, 1.5


@pair_loss(
    "unpg",
    "row-separable",
    "soft-relation",
    "proxies",
    "batch-scores",
    family="proxies",
    paper="arXiv:2203.11593",
    verified="values of the paper's code, value and gradient in float64",
)
def unpg(
    pairs: Pairs,
    *,
    margin: float = 0.35,
    scale: float = SCALE,
    angle: float = 0.0,
    reach: float = REACH,
    negatives: Tensor | None = None,
) -> Part:
    r"""Softmax against proxies with a margin, and the unrelated pairs of the batch in every row's denominator.

    Cross-entropy of $\gamma [g(s_{iy}), s_{ic}, S]$, where S are the scores of the unrelated pairs of the batch that
    lie within the whiskers $q_1 - r(q_3 - q_1)$ to $q_3 + r(q_3 - q_1)$, and $g(s) = \cos(\arccos s + \theta) - m$.

    Negatives of classes and of pairs so take part in one denominator. The pairs beyond the whiskers are too easy to
    count or likely mislabelled; see the miner :func:`vicinal.miners.whiskers`. All rows share one sum over the pairs,
    so no matrix is widened. Without pairs it is :func:`cosface`, :func:`arcface` or, without a margin,
    :func:`normalized_softmax`.

    Args:
        pairs: scores, relation and weight.
        margin: m >= 0, in units of score, taken off the related cosine.
        scale: $\gamma > 0$.
        angle: $\theta$, degrees from 0 to 180, added to the related angle.
        reach: r >= 0; 0 keeps the middle half of the pairs, inf all.
        negatives: scores of pairs, of any shape, each pair once; -inf leaves one out. :class:`ProxyLoss` gives those
            of the batch.

    >>> unpg(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]]), margin=0, negatives=torch.zeros(5))
    tensor(2.0794)
    """
    check_between("margin", margin, 0, math.inf, closed=True)
    check_between("scale", scale, 0, math.inf)
    check_between("angle", angle, 0, 180, closed=True)
    length = check_reach(reach)
    if pairs.column is None:
        scores = where_related(pairs, lambda own: falling_cosine(own, math.radians(angle))) if angle else pairs.scores
        logits = scale * torch.add(scores, pairs.relation, alpha=-margin)
    else:
        logits = scaled_at(pairs.scores, pairs.column, scale, lambda own: _with_margin(own, angle, margin))
    own = softmax_terms(logits, pairs)
    if negatives is None:
        return own
    active = own.number > 0
    crowd = _log_sum(negatives.to(logits.dtype), length, scale)
    return row_terms(torch.logaddexp(own.total, crowd - _wanted(logits, pairs)), active)


def _with_margin(own: Tensor, angle: float, margin: float) -> Tensor:
    return (falling_cosine(own, math.radians(angle)) if angle else own) - margin


def _wanted(logits: Tensor, pairs: Pairs) -> Tensor:
    """The mean logit of the related columns, ``[b]``; 0 of none."""
    if pairs.column is not None:
        return logits.gather(1, pairs.column)[:, 0]
    mass = pairs.positive.sum(-1)
    return row_products(logits, pairs.positive) / torch.where(mass > 0, mass, 1.0)


class _LogSumWithin(torch.autograd.Function):
    """Log of the sum of e^(scale * value) over all values from ``low`` to ``high``; keeps one matrix."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, low: Tensor, high: Tensor, scale: float) -> Tensor:
        share = (values * scale).masked_fill_((values < low).logical_or_(values > high), -torch.inf)
        top = share.amax()
        top = torch.where(top > -torch.inf, top, 0.0)
        total = share.sub_(top).exp_().sum()
        ctx.save_for_backward(share, total)
        ctx.scale = scale
        return total.log() + top

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:
        share, total = ctx.saved_tensors
        return share * (slopes[0] * ctx.scale / torch.where(total > 0, total, 1.0)), None, None, None


def _log_sum(values: Tensor, reach: float, scale: float) -> Tensor:
    """Log of the sum of e^(scale * value) over the values within the whiskers; -inf if there is none."""
    values = values if values.ndim == 2 else values.reshape(1, -1)
    among = values.detach() > -torch.inf
    if torch.compiler.is_compiling() or not values.numel():
        kept = within_whiskers(values.detach(), among, reach).reshape(1, -1)
        flat = torch.where(kept, values.reshape(1, -1), 0.0)
        return log_sum_exp(scale * flat, kept.to(flat.dtype))[0]
    far = values.new_tensor(torch.finfo(values.dtype).max)
    ends = (-far, far) if math.isinf(reach) else whisker_ends(values.detach(), among, reach)
    result: Tensor = _LogSumWithin.apply(values, *ends, scale)  # type: ignore[no-untyped-call]
    return result


def negatives_in_blocks(
    similarity: nn.Module,
    rows: Tensor,
    labels: Tensor,
    *,
    size: int,
    scale: float = SCALE,
    reach: float = REACH,
    **_: float,
) -> Tensor:
    """One score that weighs as much in :func:`unpg` as all of :func:`batch_negatives` within the whiskers do.

    Args:
        similarity: without parameters that are learned.
        rows: ``[b, d]``.
        labels: ``[b]`` or ``[b, C]``.
        size: so many rows of scores are made at a time, so that no matrix of all is held.
        scale: see :func:`unpg`.
        reach: likewise.

    >>> from vicinal.similarity import Cosine
    >>> negatives_in_blocks(Cosine(), torch.eye(2), torch.arange(2), size=1)
    tensor([0.])
    """
    check_between("scale", scale, 0, math.inf)
    return whisker_mass(similarity, rows, labels, size=size, scale=scale, reach=check_reach(reach))[None] / scale


def batch_negatives(scores: Tensor, related: Tensor) -> Tensor:
    """The scores of the unrelated pairs of a batch, each once: above the diagonal, -inf elsewhere.

    Args:
        scores: ``[b, b]``.
        related: boolean ``[b, b]``.

    >>> batch_negatives(torch.tensor([[1.0, 0.2], [0.2, 1.0]]), torch.eye(2) > 0)
    tensor([[  -inf, 0.2000],
            [  -inf,   -inf]])
    """
    place = torch.arange(len(related), device=related.device)
    return scores.masked_fill((place[:, None] >= place).logical_or_(related), -torch.inf)
