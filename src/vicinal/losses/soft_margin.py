"""Triplets whose margin comes from the distribution of all gaps seen so far."""

from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_integer
from vicinal.losses.contract import PML, PairLoss, pair_loss
from vicinal.losses.pairs import Pairs, prepare
from vicinal.losses.parts import Part
from vicinal.losses.positives import each_positive, first_positives
from vicinal.losses.rowwise import block_rows, parts, replaying


class _GapHistograms(torch.autograd.Function):
    """Counts and sums of the gaps of each row by bin, one related column of each row after the other.

    Each gap is shared between the two edges around it; its sum goes to the bin that it lies in. Nothing is kept for
    the backward pass but the scores: it finds the bins again.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, negative: Tensor, column: Tensor, weight: Tensor, span: float, bins: int
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(scores, negative, column, weight)
        ctx.span, ctx.bins = span, bins
        if replaying():
            return scores.new_zeros(len(scores), bins + 1), scores.new_zeros(len(scores), bins)
        rise = bins / (2 * span)
        every, upper = (scores.new_zeros(len(scores), bins) for _ in range(2))
        for part in _parts(scores):
            for nth in range(column.shape[1]):
                edge, share = _bin(scores[part], column[part, nth, None], span, bins)
                each, against = weight[part, nth, None], negative[part]
                for sums, found in zip((every, upper), _sums(edge, against, share.mul_(against), bins), strict=True):
                    sums[part] += each * found
        counts = torch.nn.functional.pad(every - upper, (0, 1)) + torch.nn.functional.pad(upper, (1, 0))
        number = torch.arange(bins, dtype=scores.dtype, device=scores.device)
        return counts, (number * every + upper) / rise - span * every

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        scores, negative, column, weight = ctx.saved_tensors
        of_bin = slopes[0].diff(dim=-1) * (ctx.bins / (2 * ctx.span)) + slopes[1]  # [b, bins]
        slope = torch.zeros_like(scores)
        within = bool(scores.amax() - scores.amin() <= ctx.span) if scores.numel() else True
        for part in _parts(scores):
            block = scores[part]
            for nth in range(column.shape[1]):
                own = column[part, nth, None]
                edge, _ = _bin(block, own, ctx.span, ctx.bins)
                rise = (of_bin[part] * weight[part, nth, None]).gather(1, edge).mul_(negative[part])
                if not within:
                    rise *= (block - block.gather(1, own)).abs() <= ctx.span
                slope[part] += rise
                slope[part].scatter_add_(1, own, -rise.sum(-1, keepdim=True))
        return slope, None, None, None, None, None


def _parts(scores: Tensor) -> list[slice]:
    """Blocks of rows that stay in the caches of a core."""
    return parts(len(scores), block_rows(len(scores), scores.shape[1], scores.device)) if scores.numel() else []


def _bin(scores: Tensor, own: Tensor, span: float, bins: int) -> tuple[Tensor, Tensor]:
    """Bin of each gap ``[b, N]`` beside the related column ``own [b, 1]``, and the share of the edge above it."""
    place = (scores - scores.gather(1, own)).add_(span).mul_(bins / (2 * span)).clamp_(0, bins)
    edge = place.floor().clamp_(max=bins - 1)
    return edge.long(), place.sub_(edge)


def _sums(edge: Tensor, one: Tensor, other: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Sums of two matrices by bin, ``[b, bins]`` each; on a CPU both are scattered at once, as complex numbers."""
    empty = one.new_zeros(len(edge), bins)
    if edge.device.type != "cpu":
        return empty.scatter_add(1, edge, one), empty.scatter_add(1, edge, other)
    both = torch.complex(empty, empty).scatter_add_(1, edge, torch.complex(one, other))
    return both.real, both.imag


def _in_one_graph(pairs: Pairs, span: float, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`_of_rows`, all triplets at once: a loop over related columns would need their number."""

    def terms(own: Tensor, scores: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        gap = (scores - own).clamp(-span, span)
        place = (gap + span) * (bins / (2 * span))
        edge = place.detach().floor().clamp(max=bins - 1)
        share, edge, weight = place - edge, edge.long(), negative.expand_as(gap)
        empty = gap.new_zeros(*gap.shape[:-1], bins + 1)
        counts = empty.scatter_add(-1, edge, weight * (1 - share)).scatter_add(-1, edge + 1, weight * share)
        sums = empty.scatter_add(-1, edge, weight * gap)[..., :-1]
        return counts, torch.cat([sums, ((gap != 0) * weight).sum(-1, keepdim=True)], -1)

    weight, counts, sums = each_positive(terms, pairs.scores, pairs.positive, pairs.negative)
    counts, sums = ((weight[..., None] * each).sum(1) for each in (counts, sums))
    return counts, sums[:, :-1], sums[:, -1]


def _of_rows(pairs: Pairs, *, span: float = 2.0, bins: int = 10, **_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row the counts of its gaps by edge ``[b, bins + 1]``, their sums by bin, and how many are not 0."""
    check_between("span", span, 0, float("inf"))
    check_integer("bins", bins, 2)
    if torch.compiler.is_compiling():
        return _in_one_graph(pairs, span, bins)
    weight, column = first_positives(pairs.positive)
    counts, gaps = _GapHistograms.apply(pairs.scores, pairs.negative, column, weight, span, bins)  # type: ignore[no-untyped-call]
    nonzero = counts.detach().sum(-1)
    if pairs.counting and column.shape[1]:
        own = pairs.scores.gather(1, column)
        same = [((pairs.scores == each[:, None]) * pairs.negative).sum(-1) for each in own.unbind(1)]
        nonzero = nonzero - (weight * torch.stack(same, 1)).sum(1)
    return counts, gaps, nonzero


@pair_loss(
    "dynamic_soft_margin",
    "score-shift-invariant",
    "soft-relation",
    paper="Zhang and Rusinkiewicz, ICCV 2019",
    verified=PML,
    across=_of_rows,
    complete=True,
)
def dynamic_soft_margin(
    pairs: Pairs, *, span: float = 2.0, bins: int = 10, history: Tensor | None = None, momentum: float = 0.01
) -> Part:
    r"""Triplets weighted by the share of gaps that are smaller, in place of a margin.

    $F(v) v$ for the gap $v = s_{in} - s_{ip}$ of each triplet, F the share of gaps that are smaller, by histogram.

    The hardest triplets count most, and there is no margin to choose. The gradient also flows through F.

    Args:
        pairs: scores, relation and weight.
        span: > 0; gaps are clamped to [-span, span].
        bins: >= 2, of the histogram.
        history: ``[bins + 1]``, a histogram of earlier batches; None: of this batch alone.
        momentum: share of this batch beside the history, between 0 and 1.

    >>> dynamic_soft_margin(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(-0.5000)
    """
    check_between("momentum", momentum, 0, 1, closed=True)
    counts, gaps, nonzero = pairs.shared
    batch = counts.sum(0)
    mass = batch.sum()
    batch = batch / torch.where(mass > 0, mass, 1.0)
    if history is not None:
        if history.shape != batch.shape:
            raise ValueError(f"history: expected shape {tuple(batch.shape)}, got {tuple(history.shape)}")
        batch = (1 - momentum) * history.to(batch.dtype) + momentum * batch
        batch = batch / torch.where(mass > 0, batch.sum(), 1.0)
    return Part((gaps * batch.cumsum(0)[:-1]).sum(-1), counts.detach().sum(-1), nonzero)


class DynamicSoftMargin(nn.Module):
    """:func:`dynamic_soft_margin` that remembers: a histogram of all batches so far, which is saved with its state.

    Args:
        span: see :func:`dynamic_soft_margin`, as are the two below.
        bins: of the histogram.
        momentum: share of a new batch.

    >>> loss = DynamicSoftMargin()
    >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(-0.5000)
    """

    def __init__(self, span: float = 2.0, bins: int = 10, momentum: float = 0.01) -> None:
        super().__init__()
        self.span, self.bins, self.momentum = span, check_integer("bins", bins, 2), momentum
        self.register_buffer("history", torch.zeros(bins + 1))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.history: Tensor
        self.batches: Tensor

    def forward(
        self, scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
    ) -> Tensor:
        """The loss; in training the histogram is then updated."""
        loss: PairLoss = dynamic_soft_margin
        history = self.history if int(self.batches) else None
        settings = {"span": self.span, "bins": self.bins, "history": history, "momentum": self.momentum}
        value = loss(scores, relation, weight, reduction=reduction, **settings)
        if self.training:
            self._update(scores.detach(), relation, weight)
        return value

    @torch.no_grad()
    def _update(self, scores: Tensor, relation: Tensor, weight: Tensor | None) -> None:
        pairs = prepare(scores, relation, weight)
        batch = _of_rows(pairs, span=self.span, bins=self.bins)[0].sum(0)
        mass = batch.sum()
        if mass > 0:
            share = self.momentum if int(self.batches) else 1.0
            self.history = (1 - share) * self.history + share * (batch / mass).to(self.history.dtype)
            self.batches += 1
