"""Losses from histograms: average precision, related above unrelated scores, and triplets weighed by the gaps seen."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from vicinal.blockwise import policy
from vicinal.blockwise.blocks import block_rows, row_slices
from vicinal.blockwise.sorting import first_positives, sort_rows
from vicinal.core.checks import check_between, check_integer, check_number
from vicinal.losses.contract import PML, ROWS, PairLoss, Pairs, RowTerms, pair_loss, prepare, row_products, row_terms
from vicinal.losses.ranges import Share

Histogram = tuple[Tensor, Tensor, Tensor]
"""Counts by edge ``[b, bins + 1]``, sums of gaps by bin ``[b, bins]``, and how many gaps are not 0 ``[b]``."""


def gap_histograms(
    scores: Tensor, negative: Tensor, positive: Tensor, span: float, bins: int, *, counting: bool = True
) -> Histogram:
    r"""Of each row, over its pairs of a related column p and another n: the gaps $s_n - s_p$, clamped to the span.

    Each gap is shared between the two edges around it, by nearness; its sum goes to the bin that it lies in. A row is
    sorted once, and a bin is a difference of prefix sums.

    Args:
        scores: ``[b, N]``.
        negative: weights of n ``[b, N]``, >= 0.
        positive: weights of p ``[b, N]``, >= 0.
        span: > 0.
        bins: number of bins between -span and span.
        counting: whether gaps that are 0 are told apart from others in the third; else it counts all.

    >>> counts, gaps, nonzero = gap_histograms(torch.tensor([[1.0, 0.0]]), *torch.eye(2)[[1, 0], None], 2.0, 4)
    >>> counts, gaps, nonzero  # one gap, of -1: at the second of five edges
    (tensor([[0., 1., 0., 0., 0.]]), tensor([[ 0., -1.,  0.,  0.]]), tensor([1.]))
    """
    size = block_rows(len(scores), scores.shape[1], scores.device, entries=policy().sort_entries)
    slices = [slice(0, len(scores))] if torch.compiler.is_compiling() else row_slices(len(scores), size)
    blocks = [_of_block(scores[r], negative[r], positive[r], span, bins, counting=counting) for r in slices]
    counts, gaps, nonzero = (torch.cat(each) for each in zip(*blocks, strict=True))
    return counts, gaps, nonzero


def _of_block(
    scores: Tensor, negative: Tensor, positive: Tensor, span: float, bins: int, *, counting: bool
) -> Histogram:
    weight, column = first_positives(positive.detach())
    related = scores.gather(1, column)
    rising, order = sort_rows(scores)
    among = negative.gather(1, order)
    mass, total = (_prefix(each) for each in (among, among * scores.gather(1, order)))
    edges, place = _places(rising, related.detach(), span, bins)
    below = _taken(mass, place)
    number = below.diff(dim=-1)  # [r, P, bins]
    gaps = _taken(total, place).diff(dim=-1) - related[:, :, None] * number
    upper = (gaps - edges[:-1] * number) * (bins / (2 * span))
    under, over = below[..., :1], mass[:, -1:, None] - below[..., -1:]  # gaps beyond the span count as the span
    counts = pad(number - upper, (0, 1)) + pad(upper, (1, 0)) + pad(under, (0, bins)) + pad(over, (bins, 0))
    gaps = gaps + span * (pad(over, (bins - 1, 0)) - pad(under, (0, bins - 1)))
    apart = mass[:, -1:].expand_as(related)
    if counting:
        ends = [_taken(mass, torch.searchsorted(rising, related.detach(), right=right)) for right in (True, False)]
        apart = apart - (ends[0] - ends[1])
    counts, gaps = ((weight[..., None] * each).sum(1).to(scores.dtype) for each in (counts, gaps))
    return counts, gaps, (weight * apart).sum(1).to(scores.dtype)


def _places(rising: Tensor, related: Tensor, span: float, bins: int) -> tuple[Tensor, Tensor]:
    """Edges ``[bins + 1]``, and how many sorted columns lie below each beside a related column ``[r, P, bins + 1]``."""
    edges = torch.arange(bins + 1, dtype=related.dtype, device=related.device) * (2 * span / bins) - span
    above = related[:, :, None] + edges
    last = above[..., -1]
    above[..., -1] = last.nextafter(torch.full_like(last, torch.inf))  # a gap of just the span is in the last bin
    return edges, torch.searchsorted(rising, above.flatten(1)).view(above.shape)


def _prefix(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., N values of each row ``[b, N + 1]``, in float64: they cancel."""
    return pad(values.cumsum(-1, dtype=torch.float64), (1, 0))


def _taken(sums: Tensor, place: Tensor) -> Tensor:
    return sums.gather(1, place.flatten(1)).view(place.shape)


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
    family="histograms",
    paper="Zhang and Rusinkiewicz, ICCV 2019",
    verified=PML,
    batch_stats=_of_rows,
)
def dynamic_soft_margin(
    pairs: Pairs,
    *,
    span: float = 2.0,
    bins: int = 10,
    history: Tensor | None = None,
    momentum: Share = 0.01,
    detach: bool = True,
) -> RowTerms:
    r"""Triplets weighted by the share of gaps that are smaller, in place of a margin.

    $F(v)\, v$ for the gap $v = s_{in} - s_{ip}$ of each triplet, F the share of smaller gaps, from a histogram.

    The hardest triplets count most, and there is no margin to choose. F is a weight and passes no gradient: with one,
    the loss would be lowest where all classes share two opposite points.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        span: > 0; gaps are clamped to [-span, span].
        bins: >= 2, of the histogram.
        history: ``[bins + 1]``, a histogram of earlier batches; None: of this batch alone.
        momentum: share of this batch in the histogram, the rest being the history; between 0 and 1.
        detach: False lets the gradient flow through F too, as pytorch-metric-learning does; harmless only with a
            history, of which a batch is a small part.

    >>> dynamic_soft_margin(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(-0.5000)
    """
    counts, gaps, nonzero = pairs.stats
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
    block = slice(pairs.start, pairs.start + len(pairs.raw_scores))
    return RowTerms((gaps[block] * batch.cumsum(0)[:-1]).sum(-1), counts[block].detach().sum(-1), nonzero[block])


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


def _share(scores: Tensor, low: float, high: float, bins: int) -> tuple[Tensor, Tensor]:
    """Bin edge below each score, counted from ``low``, and the share ``[0, 1]`` that falls to the edge above it."""
    place = ((scores - low) * (bins / (high - low))).clamp(0, bins)
    edge = place.detach().floor().clamp(max=bins - 1)
    return edge.long().clamp_(min=0), place - edge  # NaN is the least of whole numbers


def _histogram(edge: Tensor, share: Tensor, weight: Tensor, bins: int) -> Tensor:
    """``[b, bins + 1]``: each column is shared between the two edges around its score."""
    empty = weight.new_zeros(len(weight), bins)
    upper = empty.scatter_add(1, edge, weight * share)
    lower = empty.scatter_add(1, edge, weight) - upper
    return pad(lower, (0, 1)) + pad(upper, (1, 0))


def _of_batch(pairs: Pairs, *, bins: int = 100, low: float = -1.0, high: float = 1.0) -> tuple[Tensor]:
    """Histogram of the related pairs of all rows, ``[1, bins + 1]``."""
    _check_bins(bins, low, high)
    if not pairs.masks or torch.compiler.is_compiling():
        edge, share = _share(pairs.scores, low, high, bins)
        return (_histogram(edge, share, pairs.positive, bins).sum(0, keepdim=True),)
    place = pairs.positive.reshape(-1).nonzero()[:, 0]  # few
    edge, share = _share(pairs.scores.reshape(-1)[place][None], low, high, bins)
    return (_histogram(edge, share, torch.ones_like(share), bins),)


def _check_bins(bins: int, low: float, high: float) -> None:
    check_integer("bins", bins, 2)
    check_number("low", low)
    check_between("high", high, low, float("inf"))


@pair_loss("fast_ap", *ROWS, family="histograms", paper="Cakir et al., CVPR 2019", verified=PML)
def fast_ap(pairs: Pairs, *, bins: int = 10, low: float = -1.0, high: float = 1.0) -> RowTerms:
    r"""Average precision of a row from histograms of its scores.

    1 - average precision of a row, from a histogram: $1 - \frac{1}{\sum h^+} \sum_l h^+_l H^+_l / H_l$.

    H are cumulative sums from the most similar bin on. Equal bins of the cosine are equal bins of the squared distance
    between unit vectors.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        bins: >= 2.
        low: lowest score.
        high: highest score; scores outside are clamped.

    >>> fast_ap(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.)
    """
    _check_bins(bins, low, high)
    edge, share = _share(-pairs.scores, -high, -low, bins)  # from the most similar on
    related = _histogram(edge, share, pairs.positive, bins)
    every = _histogram(edge, share, pairs.weight, bins).cumsum(-1)
    some = every > 0
    precision = torch.where(some, related.cumsum(-1) / torch.where(some, every, 1.0), 0.0)
    mass = pairs.positive.sum(-1)
    return row_terms(1 - (related * precision).sum(-1) / torch.where(mass > 0, mass, 1.0), mass > 0)


@pair_loss(
    "histogram", "soft-relation", family="histograms", paper="arXiv:1611.00822", verified=PML, batch_stats=_of_batch
)
def histogram(pairs: Pairs, *, bins: int = 100, low: float = -1.0, high: float = 1.0) -> RowTerms:
    r"""Chance that an unrelated pair scores higher than a related one, from histograms of the batch.

    $\sum_l h^-_l \sum_{k \le l} h^+_k$ with the histograms of unrelated and of related pairs, each summing to 1.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        bins: >= 2.
        low: lowest score.
        high: highest score; scores outside are clamped.

    >>> histogram(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.)
    """
    _check_bins(bins, low, high)
    edge, share = _share(pairs.scores, low, high, bins)
    related = pairs.stats[0].sum(0)
    mass = related.detach().sum()  # each pair adds 1 in all, whatever its score
    below = (related / torch.where(mass > 0, mass, 1.0)).cumsum(0)  # [bins + 1], share of related pairs up to an edge
    total = _histogram(edge, share, pairs.negative, bins) @ below
    number = nonzero = pairs.negative.sum(-1)
    if pairs.counting:
        seen = below.detach()
        nonzero = row_products(
            ((seen[edge] * (1 - share) + seen[edge + 1] * share) != 0).to(total.dtype), pairs.negative
        )
    return RowTerms(total, number, nonzero)
