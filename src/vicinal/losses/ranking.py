"""Losses of ranks and of distributions of scores: average precision, positives above negatives, histograms."""

from typing import Any, Literal

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice, check_integer, check_number
from vicinal.losses.contract import PML, pair_loss
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms
from vicinal.losses.positives import each_positive, first_positives

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


@pair_loss("fast_ap", "row-separable", "soft-relation", paper="Cakir et al., CVPR 2019", verified=PML)
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


@pair_loss("histogram", "soft-relation", paper="arXiv:1611.00822", verified=PML, across=_of_batch)
def histogram(pairs: Pairs, *, bins: int = 100, low: float = -1.0, high: float = 1.0) -> Part:
    r"""Chance that an unrelated pair scores higher than a related one, from histograms of the batch.

    Chance that an unrelated pair scores higher than a related one, from histograms of the whole batch.

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
    "smooth_ap", "row-separable", "soft-relation", "score-shift-invariant", paper="arXiv:2007.12163", verified=PML
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


@pair_loss("pnp", *_RANKS, paper="arXiv:2102.04640", verified=PML)
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
