"""Losses of ranks and of distributions of scores: average precision, positives above negatives, histograms."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice, check_integer, check_number
from vicinal.losses.contract import PAPER_CODE, PML, pair_loss
from vicinal.losses.logsums import softplus
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms
from vicinal.losses.positives import each_positive, first_positives, related_columns
from vicinal.losses.sloped import sloped
from vicinal.losses.sorting import mean_ranks, sort_rows
from vicinal.masks.soft_topk import soft_topk_share, soft_topk_shift

_RANKS = ("row-separable", "soft-relation", "score-shift-invariant")


def _share(scores: Tensor, low: float, high: float, bins: int) -> tuple[Tensor, Tensor]:
    """Bin edge below each score, counted from ``low``, and the share ``[0, 1]`` that falls to the edge above it."""
    place = ((scores - low) * (bins / (high - low))).clamp(0, bins)
    edge = place.detach().floor().clamp(max=bins - 1)
    return edge.long(), place - edge


def _histogram(edge: Tensor, share: Tensor, weight: Tensor, bins: int) -> Tensor:
    """``[b, bins + 1]``: each column is shared between the two edges around its score."""
    empty = weight.new_zeros(len(weight), bins)
    upper = empty.scatter_add(1, edge, weight * share)
    lower = empty.scatter_add(1, edge, weight) - upper
    return torch.nn.functional.pad(lower, (0, 1)) + torch.nn.functional.pad(upper, (1, 0))


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


@pair_loss("fast_ap", "row-separable", "soft-relation", family="ranks", paper="Cakir et al., CVPR 2019", verified=PML)
def fast_ap(pairs: Pairs, *, bins: int = 10, low: float = -1.0, high: float = 1.0) -> Part:
    r"""Average precision of a row from histograms of its scores.

    1 - average precision of a row, from a histogram: $1 - \frac{1}{\sum h^+} \sum_l h^+_l H^+_l / H_l$.

    H are sums from the most similar bin on. Equal bins of cosine are equal bins of squared distance of directions.

    Args:
        pairs: scores, relation and weight.
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


@pair_loss("histogram", "soft-relation", family="ranks", paper="arXiv:1611.00822", verified=PML, across=_of_batch)
def histogram(pairs: Pairs, *, bins: int = 100, low: float = -1.0, high: float = 1.0) -> Part:
    r"""Chance that an unrelated pair scores higher than a related one, from histograms of the batch.

    $\sum_l h^-_l \sum_{k \le l} h^+_k$ with the histograms of unrelated and of related pairs, each summing to 1.

    Args:
        pairs: scores, relation and weight.
        bins: >= 2.
        low: lowest score.
        high: highest score; scores outside are clamped.

    >>> histogram(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.)
    """
    _check_bins(bins, low, high)
    edge, share = _share(pairs.scores, low, high, bins)
    related = pairs.shared[0].sum(0)
    mass = related.detach().sum()  # each pair adds 1 in all, whatever its score
    below = (related / torch.where(mass > 0, mass, 1.0)).cumsum(0)  # [bins + 1], share of related pairs up to an edge
    total = _histogram(edge, share, pairs.negative, bins) @ below
    number = nonzero = pairs.negative.sum(-1)
    if pairs.counting:
        seen = below.detach()
        nonzero = row_products(
            ((seen[edge] * (1 - share) + seen[edge + 1] * share) != 0).to(total.dtype), pairs.negative
        )
    return Part(total, number, nonzero)


@pair_loss(
    "smooth_ap",
    "row-separable",
    "soft-relation",
    "score-shift-invariant",
    family="ranks",
    paper="arXiv:2007.12163",
    verified=PML,
)
def smooth_ap(pairs: Pairs, *, temperature: float = 0.01) -> Part:
    r"""Average precision of a row with smooth ranks.

    1 - average precision of a row, with ranks $1 + \sum_k \sigma((s_{ik} - s_{ip})/\tau)$ of related columns p.

    Args:
        pairs: scores, relation and weight.
        temperature: divides differences of scores, > 0.

    >>> smooth_ap(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.)
    """
    check_between("temperature", temperature, 0, float("inf"))

    def terms(own: Tensor, scores: Tensor, positive: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        ahead = torch.sigmoid((scores - own) / temperature)
        return 1 + (ahead * positive).sum(-1), 1 + (ahead * weight).sum(-1)

    own, among, overall = each_positive(terms, pairs.scores, pairs.positive, pairs.positive, pairs.weight)
    total = own + _rest(pairs, own)  # the weight of the column itself, which is not ahead of itself
    precision = (among - own / 2) / (overall - total / 2)
    mass = own.sum(-1)
    return row_terms(1 - (own * precision).sum(-1) / torch.where(mass > 0, mass, 1.0), mass > 0)


def _rest(pairs: Pairs, own: Tensor) -> Tensor:
    """How much the same columns as in ``own`` count as unrelated."""
    column = pairs.positive.topk(own.shape[1], dim=-1).indices
    return torch.where(own > 0, pairs.negative.gather(1, column), 0.0)


@pair_loss("pnp", *_RANKS, family="ranks", paper="arXiv:2102.04640", verified=PML)
def pnp(
    pairs: Pairs,
    *,
    variant: Literal["Ds", "Dq", "Iu", "Ib", "O"] = "Ds",
    temperature: float = 0.01,
    alpha: float = 1.0,
    b: float = 2.0,
) -> Part:
    r"""A penalty for the number of unrelated columns ranked above each related one.

    Mean over related columns p of a function of $R_p = \sum_n \sigma((s_{in} - s_{ip})/\tau)$, the unrelated ahead.

    Functions: "O" $R$; "Ds" $\log(1+R)$; "Dq" $1 - (1+R)^{-\alpha}$; "Iu" $(1+R)\log(1+R)$; "Ib"
    $(bR - \log(1+bR))/b^2$.

    Args:
        pairs: scores, relation and weight.
        variant: which function.
        temperature: divides differences of scores, > 0.
        alpha: > 0, of "Dq".
        b: > 0, of "Ib".

    >>> pnp(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]), variant="O")
    tensor(0.5000)
    """
    check_choice("variant", variant, ("Ds", "Dq", "Iu", "Ib", "O"))
    for name, value in (("temperature", temperature), ("alpha", alpha), ("b", b)):
        check_between(name, value, 0, float("inf"))

    def cost(ahead: Tensor) -> Tensor:
        return {
            "O": lambda: ahead,
            "Ds": lambda: ahead.log1p(),
            "Dq": lambda: 1 - (1 + ahead) ** -alpha,
            "Iu": lambda: (1 + ahead) * ahead.log1p(),
            "Ib": lambda: (b * ahead - (b * ahead).log1p()) / b**2,
        }[variant]()

    if torch.compiler.is_compiling() or pairs.negative.requires_grad:

        def terms(own: Tensor, scores: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
            sums = _sums_ahead(scores, own, negative, temperature)
            return sums, sums

        weight, ahead, _ = each_positive(terms, pairs.scores, pairs.positive, pairs.negative)
    else:
        weight, column = first_positives(pairs.positive)
        ahead = _Ahead.apply(pairs.scores, pairs.negative, column, temperature)  # type: ignore[no-untyped-call]
    mass = weight.sum(-1)
    return row_terms((weight * cost(ahead)).sum(-1) / torch.where(mass > 0, mass, 1.0), mass > 0)


def _sums_ahead(scores: Tensor, own: Tensor, negative: Tensor, temperature: float) -> Tensor:
    return (torch.sigmoid((scores - own) / temperature) * negative).sum(-1)


class _Ahead(torch.autograd.Function):
    """How many unrelated columns are ahead of each related one, smoothly; one related column of each row at a time."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, negative: Tensor, column: Tensor, temperature: float) -> Tensor:
        ctx.save_for_backward(scores, negative, column)
        ctx.temperature = temperature
        own, share = scores.gather(1, column), torch.empty_like(scores)
        sums = torch.empty_like(own)
        for nth, each in enumerate(own.unbind(1)):
            torch.sub(scores, each[:, None], out=share).div_(temperature).sigmoid_()
            sums[:, nth] = row_products(share, negative)
        return sums

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        scores, negative, column = ctx.saved_tensors
        own = scores.gather(1, column)
        if torch.is_grad_enabled():  # a gradient of the gradient is wanted
            sums = _sums_ahead(scores[:, None, :], own[:, :, None], negative[:, None, :], ctx.temperature)
            return torch.autograd.grad(sums, scores, slope, create_graph=True)[0], None, None, None
        of_scores, share, rest = torch.zeros_like(scores), torch.empty_like(scores), torch.empty_like(scores)
        of_own = torch.empty_like(own)
        for nth, each in enumerate(own.unbind(1)):
            torch.sub(scores, each[:, None], out=share).div_(ctx.temperature).sigmoid_()
            torch.mul(share, share, out=rest)
            share.sub_(rest).mul_(negative).mul_(slope[:, nth, None] / ctx.temperature)
            of_scores += share
            of_own[:, nth] = -share.sum(-1)
        return of_scores.scatter_add_(1, column, of_own), None, None, None


@pair_loss(
    "soft_topk",
    "row-separable",
    "soft-relation",
    "score-shift-invariant",
    family="ranks",
    paper="arXiv:2310.10636",
    verified=PAPER_CODE,
)
def soft_topk(pairs: Pairs, *, k: int | None = None, alpha: float = 2.0) -> Part:
    r"""Related columns among a smooth choice of the k highest scores.

    $-\frac{1}{\sum_j r_{ij}} \sum_j r_{ij} \log m_{ij}$ with the values $m$ of :func:`vicinal.masks.soft_topk`.

    Args:
        pairs: scores, relation and weight.
        k: how many columns are chosen; None: as many as the row has related ones. A row with no more columns than
            that has them all, and loss 0.
        alpha: > 0, sharpness of the choice; 2 to 10 for scores of some units.

    >>> soft_topk(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    check_between("alpha", alpha, 0, math.inf)
    weight = None if pairs.full else pairs.weight
    return _soft_topk(pairs.scores, pairs.positive, weight, 0 if k is None else check_integer("k", k), float(alpha))


@sloped("soft_topk")
def _soft_topk(
    scores: Tensor,
    positive: Tensor,
    weight: Tensor | None,
    k: int,
    alpha: float,
    wanted: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mass = positive.sum(-1)
    if not scores.numel():
        return *row_terms(mass.clone(), mass > 0), scores[:, : scores.shape[1] * wanted].clone()
    related, column = related_columns(positive)
    kept = torch.ones_like(scores, dtype=torch.bool) if weight is None else weight > 0
    count = torch.full_like(mass, k) if k else (related > 0).sum(-1).to(mass.dtype)
    logits = soft_topk_shift(scores, kept, count[:, None], alpha).add(scores).mul_(alpha)
    related /= torch.where((mass > 0) & (count < kept.sum(-1)), mass, torch.inf)[:, None]  # else all are chosen
    own = logits.gather(1, column)
    slope = scores[:, :0].clone()
    if wanted:
        pull = related * alpha * own.neg().sigmoid_()
        slope = soft_topk_share(logits, kept).mul_(pull.sum(-1, keepdim=True)).scatter_add_(1, column, -pull)
    return *row_terms(row_products(related, softplus(-own)), mass > 0), slope


@pair_loss(
    "adore",
    "row-separable",
    "soft-relation",
    "score-shift-invariant",
    family="ranks",
    paper="arXiv:2104.08051",
    verified="released code, value and gradient in float64",
)
def adore(pairs: Pairs, *, cut: int | None = None, temperature: float = 1.0) -> Part:
    r"""Each related column above each unrelated one, weighed by what their order is worth in reciprocal rank.

    The mean over related p and unrelated n of a row of $|1/r_p - 1/r_n| \log(1 + e^{(s_{in} - s_{ip})/\tau})$.

    The ranks r are those of the scores in the row, 1 = highest, the mean rank for ties, and pass no gradient; beyond
    ``cut`` 1/r counts as 0. The columns may be other things for each row, such as what an index finds for it now: see
    :func:`vicinal.samplers.with_relevant`. The static negatives of the same paper (STAR), which
    :func:`vicinal.samplers.draw_negatives` draws, are trained with ``triplet(margin=0, smooth=True)`` beside the batch.

    Args:
        pairs: scores, relation and weight.
        cut: rank from which on order is worth nothing, >= 1; None: no such rank.
        temperature: divides the scores, > 0.

    >>> adore(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.6566)
    """
    if cut is not None:
        check_integer("cut", cut)
    check_between("temperature", temperature, 0, math.inf)
    weight = None if pairs.full else pairs.weight
    return _order_costs(pairs.scores, pairs.positive, weight, cut or 0, float(temperature))


@sloped("order_costs")
def _order_costs(
    scores: Tensor,
    positive: Tensor,
    weight: Tensor | None,
    cut: int,
    temperature: float,
    wanted: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One related column after the other, with the slope taken on the way."""
    total, slope = scores.new_zeros(len(scores)), torch.zeros_like(scores[:, : scores.shape[1] * wanted])
    negative = 1 - positive if weight is None else weight - positive
    mass = positive.sum(-1) * negative.sum(-1)
    if not scores.numel():
        return total, *row_terms(total, mass > 0)[1:], slope
    worth = _worth(scores, weight, cut)
    share, column = related_columns(positive)
    share /= torch.where(mass > 0, mass, torch.inf)[:, None]
    costs = _Costs(scores / temperature)
    for nth in range(column.shape[1]):
        own = column[:, nth, None]
        weights = (worth - worth.gather(1, own)).abs_().mul_(negative).mul_(share[:, nth, None])
        cost, rise = costs.above(own)
        total += row_products(weights, cost)
        if wanted:
            weights *= rise()
            slope += weights
            slope.scatter_add_(1, own, -weights.sum(-1, keepdim=True))
    return *row_terms(total, mass > 0), slope.div_(temperature)


class _Costs:
    """log(1 + e^x) and its slope for what each logit of a row is above one of them.

    Logits that are not far apart share one exp; of others it would overflow.
    """

    def __init__(self, logits: Tensor) -> None:
        high, low = logits.amax(-1, keepdim=True), logits.amin(-1, keepdim=True)
        self.logits, self.near = logits, bool((high - low < 60).all())
        if self.near:
            self.ratios = (logits - (high + low) / 2).exp_()

    def above(self, own: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
        """Of the columns ``own [b, 1]``; the slope is computed when it is asked for."""
        if self.near:
            ratio = self.ratios / self.ratios.gather(1, own)
            return ratio.log1p(), lambda: ratio.div_(ratio + 1)
        gap = self.logits - self.logits.gather(1, own)
        return softplus(gap), gap.sigmoid_


def _worth(scores: Tensor, weight: Tensor | None, cut: int) -> Tensor:
    """1 / rank of each column that counts, ``[b, N]``, 0 beyond ``cut``; of no meaning for one that does not."""
    falling = -scores
    if weight is not None:
        falling.masked_fill_(weight <= 0, torch.inf)
    ordered, column = sort_rows(falling)
    rank = mean_ranks(ordered)
    worth = 1 / rank
    if cut:
        worth.masked_fill_(rank > cut, 0.0)
    return falling.scatter_(1, column, worth)
