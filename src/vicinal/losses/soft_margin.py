"""Triplets whose margin comes from the distribution of all gaps seen so far."""

from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_integer
from vicinal.losses.contract import PML, PairLoss, pair_loss
from vicinal.losses.gaps import gap_histograms
from vicinal.losses.pairs import Pairs, prepare
from vicinal.losses.parts import Part


def _of_rows(pairs: Pairs, *, span: float = 2.0, bins: int = 10, **_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row the counts of its gaps by edge ``[b, bins + 1]``, their sums by bin, and how many are not 0."""
    check_between("span", span, 0, float("inf"))
    check_integer("bins", bins, 2)
    return gap_histograms(pairs.scores, pairs.negative, pairs.positive, float(span), bins, counting=pairs.counting)


@pair_loss(
    "dynamic_soft_margin",
    "score-shift-invariant",
    "soft-relation",
    "stopped-gradient",
    family="triplets",
    paper="Zhang and Rusinkiewicz, ICCV 2019",
    verified=PML,
    across=_of_rows,
    complete=True,
)
def dynamic_soft_margin(
    pairs: Pairs,
    *,
    span: float = 2.0,
    bins: int = 10,
    history: Tensor | None = None,
    momentum: float = 0.01,
    detach: bool = True,
) -> Part:
    r"""Triplets weighted by the share of gaps that are smaller, in place of a margin.

    $F(v) v$ for the gap $v = s_{in} - s_{ip}$ of each triplet, F the share of gaps that are smaller, by histogram.

    The hardest triplets count most, and there is no margin to choose. F is a weight and passes no gradient: through
    it the loss would be lowest where all classes share two opposite places.

    Args:
        pairs: scores, relation and weight.
        span: > 0; gaps are clamped to [-span, span].
        bins: >= 2, of the histogram.
        history: ``[bins + 1]``, a histogram of earlier batches; None: of this batch alone.
        momentum: share of this batch beside the history, between 0 and 1.
        detach: False lets the gradient flow through F too, as pytorch-metric-learning does; harmless only beside a
            history, of which a batch is a small part.

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
    if detach:
        batch = batch.detach()
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
        settings = {
            "span": self.span,
            "bins": self.bins,
            "history": history,
            "momentum": self.momentum,
            "detach": False,
        }
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
