"""Triplets whose margin comes from the distribution of all gaps seen so far."""

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_integer
from vicinal.losses.pairs import PML, PairLoss, Pairs, Part, pair_loss, prepare
from vicinal.losses.positives import each_positive


@pair_loss(
    "dynamic_soft_margin",
    "score-shift-invariant",
    "soft-relation",
    paper="Zhang and Rusinkiewicz, ICCV 2019",
    verified=PML,
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
    check_between("span", span, 0, float("inf"))
    check_integer("bins", bins, 2)
    check_between("momentum", momentum, 0, 1, closed=True)
    weight, counts, sums = _histograms(pairs, span, bins)
    nonzero = (weight * sums[..., -1]).sum(1)
    own = (weight[..., None] * counts).sum(1)  # [b, bins + 1]
    gaps = (weight[..., None] * sums[..., :-1]).sum(1)  # [b, bins + 1], sum of the gaps of each bin
    batch = own.sum(0)
    mass = batch.sum()
    batch = batch / torch.where(mass > 0, mass, 1.0)
    if history is not None:
        if history.shape != batch.shape:
            raise ValueError(f"history: expected shape {tuple(batch.shape)}, got {tuple(history.shape)}")
        batch = (1 - momentum) * history.to(batch.dtype) + momentum * batch
        batch = batch / torch.where(mass > 0, batch.sum(), 1.0)
    return Part((gaps * batch.cumsum(0)).sum(-1), own.detach().sum(-1), nonzero)


def _histograms(pairs: Pairs, span: float, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each related column its weight ``[b, P]``, counts and sums of its gaps by bin ``[b, P, bins + 1]``.

    The sums have one more entry, the weight of the gaps that are not 0.
    """

    def terms(own: Tensor, scores: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        gap = (scores - own).clamp(-span, span)
        place = (gap + span) * (bins / (2 * span))
        edge = place.detach().floor().clamp(max=bins - 1)
        share, edge = place - edge, edge.long()
        weight = negative.expand_as(gap)
        empty = gap.new_zeros(*gap.shape[:-1], bins + 1)
        counts = empty.scatter_add(-1, edge, weight * (1 - share)).scatter_add(-1, edge + 1, weight * share)
        sums = empty.scatter_add(-1, edge, weight * gap)
        return counts, torch.cat([sums, torch.where(gap != 0, weight, 0.0).sum(-1, keepdim=True)], -1)

    return each_positive(terms, pairs.scores, pairs.positive, pairs.negative)


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
        of_column, counts, _ = _histograms(pairs, self.span, self.bins)
        batch: Tensor = (of_column[..., None] * counts).sum((0, 1))
        mass = batch.sum()
        if mass > 0:
            share = self.momentum if int(self.batches) else 1.0
            self.history = (1 - share) * self.history + share * (batch / mass).to(self.history.dtype)
            self.batches += 1
