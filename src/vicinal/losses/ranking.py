"""Losses of ranks and of distributions of scores: average precision, positives above negatives, histograms."""

from typing import Literal

import torch
from torch import Tensor

from vicinal.blockwise.logsums import softplus
from vicinal.blockwise.sorting import each_positive, mean_ranks, sort_rows
from vicinal.core.checks import check_integer
from vicinal.losses.contract import PAPER_CODE, PML, ROWS, Pairs, RowTerms, pair_loss, row_products, row_terms
from vicinal.losses.ranges import Positive
from vicinal.masks.soft_topk import soft_topk_logs

_RANKS = ("row-separable", "soft-relation", "score-shift-invariant")


@pair_loss("smooth_ap", *ROWS, "score-shift-invariant", family="ranks", paper="arXiv:2007.12163", verified=PML)
def smooth_ap(pairs: Pairs, *, temperature: Positive = 0.01) -> RowTerms:
    r"""Average precision of a row with smooth ranks.

    1 - average precision of a row, with ranks $1 + \sum_k \sigma((s_{ik} - s_{ip})/\tau)$ of related columns p.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides differences of scores, > 0.

    >>> smooth_ap(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.)
    """

    def terms(weights: Tensor, scores: Tensor, positive: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        ahead = torch.sigmoid((scores - weights) / temperature)
        return 1 + (ahead * positive).sum(-1), 1 + (ahead * weight).sum(-1)

    weights, among, overall = each_positive(terms, pairs.scores, pairs.positive, pairs.positive, pairs.weight)
    total = weights + _rest(pairs, weights)  # the weight of the column itself, which is not ahead of itself
    precision = (among - weights / 2) / (overall - total / 2)
    mass = weights.sum(-1)
    return row_terms(1 - (weights * precision).sum(-1) / torch.where(mass > 0, mass, 1.0), mass > 0)


def _rest(pairs: Pairs, ahead: Tensor) -> Tensor:
    """How much the same columns as in ``own`` count as unrelated."""
    column = pairs.positive.topk(ahead.shape[1], dim=-1).indices
    return torch.where(ahead > 0, pairs.negative.gather(1, column), 0.0)


@pair_loss("pnp", *_RANKS, family="ranks", paper="arXiv:2102.04640", verified=PML)
def pnp(
    pairs: Pairs,
    *,
    variant: Literal["Ds", "Dq", "Iu", "Ib", "O"] = "Ds",
    temperature: Positive = 0.01,
    alpha: Positive = 1.0,
    b: Positive = 2.0,
) -> RowTerms:
    r"""A penalty for the number of unrelated columns ranked above each related one.

    Mean over related columns p of a function of $R_p = \sum_n \sigma((s_{in} - s_{ip})/\tau)$, a soft count of the
    unrelated columns ahead.

    Functions: "O" $R$; "Ds" $\log(1+R)$; "Dq" $1 - (1+R)^{-\alpha}$; "Iu" $(1+R)\log(1+R)$; "Ib"
    $(bR - \log(1+bR))/b^2$.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        variant: which function.
        temperature: divides differences of scores, > 0.
        alpha: > 0, of "Dq".
        b: > 0, of "Ib".

    >>> pnp(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]), variant="O")
    tensor(0.5000)
    """

    def cost(ahead: Tensor) -> Tensor:
        return {
            "O": lambda: ahead,
            "Ds": lambda: ahead.log1p(),
            "Dq": lambda: 1 - (1 + ahead) ** -alpha,
            "Iu": lambda: (1 + ahead) * ahead.log1p(),
            "Ib": lambda: (b * ahead - (b * ahead).log1p()) / b**2,
        }[variant]()

    def of_related(related: Tensor, scores: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        ahead = (torch.sigmoid((scores - related) / temperature) * negative).sum(-1)
        return cost(ahead), ahead

    weight, costs, _ = each_positive(of_related, pairs.scores, pairs.positive, pairs.negative)
    mass = weight.sum(-1)
    return row_terms((weight * costs).sum(-1) / torch.where(mass > 0, mass, 1.0), mass > 0)


@pair_loss("soft_topk", *ROWS, "score-shift-invariant", family="ranks", paper="arXiv:2310.10636", verified=PAPER_CODE)
def soft_topk(pairs: Pairs, *, k: int | None = None, alpha: Positive = 2.0) -> RowTerms:
    r"""Related columns among a smooth choice of the k highest scores.

    $-\frac{1}{\sum_j r_{ij}} \sum_j r_{ij} \log m_{ij}$ with the values $m$ of :func:`vicinal.masks.soft_topk`.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        k: how many columns are chosen; None: as many as the row has related ones. A row with at most that many columns
            gets them all, and loss 0.
        alpha: > 0, sharpness of the choice; 2 to 10 for scores that spread over a few units.

    >>> soft_topk(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    number = 0 if k is None else check_integer("k", k)
    mass = pairs.positive.sum(-1)
    counted = pairs.weight > 0
    count = (pairs.positive > 0).sum(-1, keepdim=True) if k is None else torch.full_like(mass, number)[:, None]
    logs = soft_topk_logs(pairs.scores, counted, count, alpha)
    choice = torch.where(pairs.positive > 0, logs, 0.0)  # else -inf times 0
    return row_terms(-row_products(choice, pairs.positive) / torch.where(mass > 0, mass, 1.0), mass > 0)


@pair_loss(
    "adore",
    *ROWS,
    "score-shift-invariant",
    family="ranks",
    paper="arXiv:2104.08051",
    verified="released code, value and gradient in float64",
)
def adore(pairs: Pairs, *, cut: int | None = None, temperature: Positive = 1.0) -> RowTerms:
    r"""Each related column above each unrelated one, weighed by what their order is worth in reciprocal rank.

    The mean over related p and unrelated n of a row of $|1/r_p - 1/r_n| \log(1 + e^{(s_{in} - s_{ip})/\tau})$.

    The ranks r are those of the scores in the row, 1 = highest, the mean rank for ties, and pass no gradient; beyond
    ``cut`` 1/r counts as 0. Each row may have columns of its own, such as what an index finds for it now: see
    :func:`vicinal.samplers.with_relevant`. For the static negatives of the same paper (STAR), which
    :func:`vicinal.samplers.draw_negatives` draws, use ``triplet(margin=0, smooth=True)`` as well as the batch.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        cut: the last rank that counts, >= 1; None: all ranks count.
        temperature: divides the scores, > 0.

    >>> adore(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.6566)
    """
    if cut is not None:
        check_integer("cut", cut)
    scores, weight = pairs.scores, None if pairs.full else pairs.weight.detach()
    worth = _worth(scores.detach(), weight, cut or 0)

    def costs(
        related: Tensor, worth_of_it: Tensor, scores: Tensor, worth: Tensor, negative: Tensor
    ) -> tuple[Tensor, ...]:
        exchange = (worth - worth_of_it).abs() * negative
        cost = (exchange * softplus((scores - related) / temperature)).sum(-1)
        return cost, cost

    share, cost, _ = each_positive(costs, scores, pairs.positive, worth, pairs.negative, gathered=(worth,))
    mass = pairs.positive.sum(-1) * pairs.negative.sum(-1)
    return row_terms((share * cost).sum(-1) / torch.where(mass > 0, mass, 1.0), mass > 0)


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
