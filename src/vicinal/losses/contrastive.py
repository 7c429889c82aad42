"""Losses of single pairs: related pairs above one score, unrelated pairs below another."""

import torch
from torch import Tensor

from vicinal.core import check_between, check_number
from vicinal.losses.contract import PML, pair_loss
from vicinal.losses.logsums import hinge
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms, some


@pair_loss("contrastive", "row-separable", "soft-relation", paper="Hadsell et al., CVPR 2006", verified=PML)
def contrastive(pairs: Pairs, *, pos_margin: float = 1.0, neg_margin: float = 0.0) -> tuple[Part, Part]:
    r"""Related pairs above one score, unrelated pairs below another.

    $[m_+ - s_{ij}]_+$ for related pairs plus $[s_{ij} - m_-]_+$ for unrelated ones, each with a mean of its own.

    The defaults are those of cosine scores. For negative distances use ``pos_margin=0, neg_margin=-1``.

    Args:
        pairs: scores, relation and weight.
        pos_margin: related pairs should score at least this.
        neg_margin: unrelated pairs should score at most this.

    >>> contrastive(torch.tensor([[0.5, 0.25, -1.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(0.6250)
    """
    check_number("pos_margin", pos_margin)
    check_number("neg_margin", neg_margin)
    return (
        pairs.related_terms(lambda own, *_: hinge(pos_margin - own)),
        pairs.terms(hinge(pairs.scores - neg_margin), pairs.negative),
    )


@pair_loss("margin", "row-separable", "soft-relation", paper="arXiv:1706.07567", verified=PML)
def margin(pairs: Pairs, *, margin: float = 0.2, boundary: float | Tensor = 0.3) -> Part:
    r"""Related pairs above a boundary and unrelated ones below it, by a margin; the boundary may be learned.

    $[\beta + m - s_{ij}]_+$ for related pairs plus $[s_{ij} - \beta + m]_+$ for unrelated ones, in all triplets.

    A pair counts once for each triplet of its row: related pairs as often as the row has unrelated ones, and the
    other way round. The boundary may be learned: give a parameter.

    Args:
        pairs: scores, relation and weight.
        margin: >= 0, on both sides of the boundary.
        boundary: the score between related and unrelated; 0.3 of cosine is a distance of 1.2 between directions.

    >>> margin(torch.tensor([[0.4, 0.2]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.1000)
    """
    check_between("margin", margin, 0, float("inf"), closed=True)
    related = pairs.related_terms(lambda own, *_: hinge(boundary + margin - own))
    unrelated = pairs.terms(hinge(pairs.scores - boundary + margin), pairs.negative)
    each = zip(related, unrelated, strict=True)
    return Part(*(one * unrelated.number + other * related.number for one, other in each))


def _sums(pairs: Pairs, **_: float) -> tuple[Tensor, Tensor]:
    """Sums of the scores of related and of unrelated pairs, and of their weights, ``[1, 2]`` each."""
    sides = (pairs.positive, pairs.negative)
    sums = [row_products(pairs.scores, side).sum() for side in sides]
    return torch.stack(sums)[None], torch.stack([side.sum() for side in sides])[None]


def _means(sums: Tensor, numbers: Tensor) -> Tensor:
    total = numbers.sum(0)
    return sums.sum(0) / torch.where(total > 0, total, 1.0)


@pair_loss("intra_pair_variance", "soft-relation", paper="Yu and Tao, ICCV 2019", verified=PML, across=_sums)
def intra_pair_variance(pairs: Pairs, *, pos_eps: float = 0.01, neg_eps: float = 0.01) -> tuple[Part, Part]:
    r"""Related pairs alike in score, and unrelated pairs alike in theirs.

    $[(1-\epsilon_+)\mu_+ - s_{ij}]_+^2$ for related and $[s_{ij} - (1+\epsilon_-)\mu_-]_+^2$ for unrelated pairs.

    Related pairs below the mean $\mu_+$ of all related pairs cost, as do unrelated ones above theirs. It narrows the
    two distributions and does not part them: use it beside another loss. Made for means above 0.

    Args:
        pairs: scores, relation and weight.
        pos_eps: >= 0, the share of the mean that is allowed.
        neg_eps: likewise for unrelated pairs.

    >>> intra_pair_variance(torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([[1.0, 1.0, 0.0]]))
    tensor(0.1225)
    """
    check_between("pos_eps", pos_eps, 0, float("inf"), closed=True)
    check_between("neg_eps", neg_eps, 0, float("inf"), closed=True)
    high, low = _means(*pairs.shared)
    return (
        pairs.related_terms(lambda own, *_: hinge((1 - pos_eps) * high - own).square()),
        pairs.terms(hinge(pairs.scores - (1 + neg_eps) * low).square(), pairs.negative),
    )


@pair_loss("ranked_list", "row-separable", "soft-relation", paper="arXiv:1903.03238", verified=PML)
def ranked_list(
    pairs: Pairs,
    *,
    margin: float = 0.4,
    threshold: float = 0.3,
    imbalance: float = 0.5,
    pos_temperature: float = 0.0,
    neg_temperature: float = 3.0,
    smoothing: float = 0.0,
) -> Part:
    r"""Weighted means of the gaps of hard related and hard unrelated columns of a row.

    Weighted mean of $t + m - s$ over related pairs below $t + m$, and of $s - t$ over unrelated above t.

    In each row the two sides are weighted by $e^{T (t + m - s)}$ and $e^{T (s - t)}$: the higher the temperature, the
    more the hardest pairs count.

    Args:
        pairs: scores, relation and weight.
        margin: >= 0.
        threshold: unrelated pairs should score less; related ones more than ``threshold + margin``.
        imbalance: share of the unrelated side, 0 to 1.
        pos_temperature: >= 0.
        neg_temperature: >= 0.
        smoothing: >= 0, added to the sums of weights that are divided by.

    >>> ranked_list(torch.tensor([[0.5, 0.4]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.1500)
    """
    check_between("margin", margin, 0, float("inf"), closed=True)
    check_between("imbalance", imbalance, 0, 1, closed=True)
    for name, value in (("pos_temperature", pos_temperature), ("neg_temperature", neg_temperature)):
        check_between(name, value, 0, float("inf"), closed=True)
    check_between("smoothing", smoothing, 0, float("inf"), closed=True)
    related = _hard_mean(threshold + margin - pairs.scores, pairs.positive, pos_temperature, smoothing)
    unrelated = _hard_mean(pairs.scores - threshold, pairs.negative, neg_temperature, smoothing)
    return row_terms((1 - imbalance) * related + imbalance * unrelated, some(pairs.weight))


def _hard_mean(gap: Tensor, weight: Tensor, temperature: float, smoothing: float) -> Tensor:
    """Mean ``[b]`` of the gaps above 0, weighted by e^(temperature * gap), stable for any gap."""
    hard = hinge(gap)
    counted = weight * gap.detach().sign().relu_()
    if smoothing or not temperature:  # an absolute amount beside the sum, so it cannot be rescaled by its largest term
        mass = counted * (temperature * hard).exp() if temperature else counted
        total = mass.sum(-1) + smoothing
        return row_products(mass, hard) / torch.where(total > 0, total, 1.0)
    top = (hard.detach() * counted.sign()).amax(-1, keepdim=True) if gap.shape[1] else 0.0
    mass = counted * (temperature * (hard - top)).clamp(max=0.0).exp()
    total = mass.sum(-1)
    return row_products(mass, hard) / torch.where(total > 0, total, 1.0)
