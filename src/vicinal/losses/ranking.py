"""Losses of ranks and of distributions of scores: average precision, positives above negatives, histograms."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from vicinal.blockwise import policy, value_and_grad_op
from vicinal.blockwise.blocks import block_rows, row_slices
from vicinal.blockwise.logsums import softplus
from vicinal.blockwise.sorting import each_positive, first_positives, mean_ranks, related_columns, sort_rows
from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer
from vicinal.losses.contract import PAPER_CODE, PML, Pairs, RowTerms, pair_loss, row_products, row_terms
from vicinal.masks.soft_topk import soft_topk_logs

_RANKS = ("row-separable", "soft-relation", "score-shift-invariant")


@pair_loss(
    "smooth_ap",
    "row-separable",
    "soft-relation",
    "score-shift-invariant",
    family="ranks",
    paper="arXiv:2007.12163",
    verified=PML,
)
def smooth_ap(pairs: Pairs, *, temperature: float = 0.01) -> RowTerms:
    r"""Average precision of a row with smooth ranks.

    1 - average precision of a row, with ranks $1 + \sum_k \sigma((s_{ik} - s_{ip})/\tau)$ of related columns p.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides differences of scores, > 0.

    >>> smooth_ap(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.)
    """
    check_between("temperature", temperature, 0, float("inf"))

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
    temperature: float = 0.01,
    alpha: float = 1.0,
    b: float = 2.0,
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

    def of_related(related: Tensor, scores: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        ahead = (torch.sigmoid((scores - related) / temperature) * negative).sum(-1)
        return cost(ahead), ahead

    weight, costs, _ = each_positive(of_related, pairs.scores, pairs.positive, pairs.negative)
    mass = weight.sum(-1)
    return row_terms((weight * costs).sum(-1) / torch.where(mass > 0, mass, 1.0), mass > 0)


@pair_loss(
    "soft_topk",
    "row-separable",
    "soft-relation",
    "score-shift-invariant",
    family="ranks",
    paper="arXiv:2310.10636",
    verified=PAPER_CODE,
)
def soft_topk(pairs: Pairs, *, k: int | None = None, alpha: float = 2.0) -> RowTerms:
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
    check_between("alpha", alpha, 0, math.inf)
    number = 0 if k is None else check_integer("k", k)
    mass = pairs.positive.sum(-1)
    counted = pairs.weight > 0
    count = (pairs.positive > 0).sum(-1, keepdim=True) if k is None else torch.full_like(mass, number)[:, None]
    logs = soft_topk_logs(pairs.scores, counted, count, alpha)
    choice = torch.where(pairs.positive > 0, logs, 0.0)  # else -inf times 0
    return row_terms(-row_products(choice, pairs.positive) / torch.where(mass > 0, mass, 1.0), mass > 0)


@pair_loss(
    "adore",
    "row-separable",
    "soft-relation",
    "score-shift-invariant",
    family="ranks",
    paper="arXiv:2104.08051",
    verified="released code, value and gradient in float64",
)
def adore(pairs: Pairs, *, cut: int | None = None, temperature: float = 1.0) -> RowTerms:
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
    check_between("temperature", temperature, 0, math.inf)
    scores, weight = pairs.scores, None if pairs.full else pairs.weight
    others = (pairs.relation,) if weight is None else (pairs.relation, weight)
    if not (torch.is_grad_enabled() and any(each.requires_grad for each in others)):
        return _order_costs_op(scores, pairs.relation, weight, cut or 0, float(temperature))
    share, column = first_positives(pairs.positive)  # [b, P]
    worth = _worth(scores.detach(), None if weight is None else weight.detach(), cut or 0)  # [b, N]
    exchange = (worth[:, None] - worth.gather(1, column)[..., None]).abs()  # [b, P, N]
    gap = (scores[:, None] - scores.gather(1, column)[..., None]) / temperature
    cost = (exchange * pairs.negative[:, None] * softplus(gap)).sum(-1)  # [b, P]
    mass = pairs.positive.sum(-1) * pairs.negative.sum(-1)
    return row_terms((share * cost).sum(-1) / torch.where(mass > 0, mass, 1.0), mass > 0)


def _order_costs(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None,
    cut: int,
    temperature: float,
    with_grad: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One related column after the other, with the gradient taken on the way: a sixth of the time for 63 of 512."""
    positive = relation if weight is None else weight * relation
    total, slope = scores.new_zeros(len(scores)), torch.zeros_like(scores[:, : scores.shape[1] * with_grad])
    negative = 1 - positive if weight is None else weight - positive
    mass = positive.sum(-1) * negative.sum(-1)
    if not scores.numel():
        return total, *row_terms(total, mass > 0)[1:], slope
    worth = _worth(scores, weight, cut)
    share, column = related_columns(positive)
    share /= torch.where(mass > 0, mass, torch.inf)[:, None]
    costs = _Costs(scores / temperature)
    for nth in range(column.shape[1]):
        place = column[:, nth, None]
        weights = (worth - worth.gather(1, place)).abs_().mul_(negative).mul_(share[:, nth, None])
        cost, rise = costs.above(place)
        total += row_products(weights, cost)
        if with_grad:
            weights *= rise()
            slope += weights
            slope.scatter_add_(1, place, -weights.sum(-1, keepdim=True))
    return *row_terms(total, mass > 0), slope.div_(temperature)


def row_terms_op(name: str, steps: Callable[..., tuple[Tensor, ...]]) -> Callable[..., RowTerms]:
    """The terms of all rows, and their gradient by the scores alone, as one node of a compiled graph.

    Args:
        name: of the operator.
        steps: ``(scores, relation, weight or None, *settings, with_grad) -> (total, number, nonzero, gradient)`` of a
            block of rows, which stays in the caches of a core. They are annotated, change nothing that they are given
            and give new tensors; without ``with_grad`` the gradient is ``[b, 0]``.
    """

    def in_blocks(scores: Tensor, *others: Any) -> tuple[Tensor, ...]:
        def block(part: slice) -> tuple[Tensor, ...]:
            return steps(*(each[part].contiguous() if isinstance(each, Tensor) else each for each in (scores, *others)))

        size = block_rows(len(scores), max(1, scores.shape[1]), scores.device, entries=policy().sort_entries)
        slices = row_slices(len(scores), size)
        if len(slices) == 1:
            return block(slices[0])
        grad, sums = scores.new_empty(len(scores), scores.shape[1] if others[-1] else 0), []
        for part in slices:
            *each, grad[part] = block(part)
            sums.append(each)
        return *(torch.cat(each) for each in zip(*sums, strict=True)), grad

    def like(scores: Tensor, *others: Any) -> tuple[Tensor, ...]:
        rows = [scores.new_empty(len(scores)) for _ in range(3)]
        return *rows, scores.new_empty(len(scores), scores.shape[1] if others[-1] else 0)

    op = value_and_grad_op(name, in_blocks, like, others="relation, weight", schema_of=steps)
    return lambda scores, *others: RowTerms(*op(scores, *others))


_order_costs_op = row_terms_op("order_costs", _order_costs)


class _Costs:
    """log(1 + e^x) and its slope for what each logit of a row is above one of them.

    Logits that are not far apart share one exp; of others it would overflow.
    """

    def __init__(self, logits: Tensor) -> None:
        high, low = logits.amax(-1, keepdim=True), logits.amin(-1, keepdim=True)
        self.logits, self.near = logits, bool((high - low < 60).all())
        if self.near:
            self.ratios = (logits - (high + low) / 2).exp_()

    def above(self, columns: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
        """Of the columns ``own [b, 1]``; the slope is computed when it is asked for."""
        if self.near:
            ratio = self.ratios / self.ratios.gather(1, columns)
            return ratio.log1p(), lambda: ratio.div_(ratio + 1)
        gap = self.logits - self.logits.gather(1, columns)
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
