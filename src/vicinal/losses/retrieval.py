"""Losses of dense retrieval: the hardest columns of a row (NGAME), and pairs weighed by their ranks (ADORE)."""

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice, check_integer, check_number
from vicinal.losses.contract import pair_loss
from vicinal.losses.logsums import softplus
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms
from vicinal.losses.positives import each_positive, first_positives, most_positives
from vicinal.losses.sorting import mean_ranks, sort_rows

Weighting = Literal["equal", "softmax"]


@pair_loss(
    "ngame",
    "row-separable",
    "soft-relation",
    paper="arXiv:2207.04452",
    verified="released code, value and gradient in float64, but for its softmax over k and its ties",
)
def ngame(
    pairs: Pairs, *, margin: float = 0.3, k: int = 3, weighting: Weighting = "equal", temperature: float = 0.1
) -> Part:
    r"""Each related column above the few hardest unrelated ones of its row, by a margin.

    $[s_{in} - s_{ip} + m]_+$ for each related column p and each of the k most similar unrelated columns n of row i.

    "softmax" instead has one term for each related column, the mean over the k with weights
    $\mathrm{softmax}_n(s_{in}/\tau)$, in which a column whose margin holds has 0 for its score. Columns tied at the
    k-th place share it equally. A row with fewer unrelated columns uses those it has. Known but not chosen related
    columns are to have weight 0. For the batches of this method see :class:`vicinal.samplers.ClusterBatches`.

    Args:
        pairs: scores, relation and weight.
        margin: in units of score.
        k: unrelated columns of a row, >= 1.
        weighting: "equal" or "softmax".
        temperature: > 0, of the softmax of the weights.

    >>> ngame(torch.tensor([[0.5, 0.4, 0.1]]), torch.tensor([[1.0, 0.0, 0.0]]), k=2)
    tensor(0.1000)
    """
    check_number("margin", margin)
    check_integer("k", k)
    check_choice("weighting", weighting, get_args(Weighting))
    check_between("temperature", temperature, 0, math.inf)
    if pairs.scores.shape[1] == 0:
        return pairs.terms(pairs.scores, pairs.weight)
    against, share = _hardest(pairs, min(k, pairs.scores.shape[1]))  # [b, k] each
    related, column = pairs.positive.topk(min(max(1, most_positives(pairs.positive)), pairs.scores.shape[1]), dim=-1)
    own = pairs.scores.gather(1, column)  # [b, P]
    terms = (against[:, None] - own[..., None] + margin).relu()  # [b, P, k]
    if weighting == "equal":
        return pairs.terms(terms.flatten(1), (related[..., None] * share[:, None]).flatten(1))
    logits = torch.where(terms > 0, against[:, None] / temperature, 0.0)
    top = torch.where(share[:, None] > 0, logits.detach(), -torch.inf).amax(-1, keepdim=True)
    mass = share[:, None] * torch.where(share[:, None] > 0, logits - top, 0.0).exp()
    total = mass.sum(-1)  # [b, P]
    value = (mass * terms).sum(-1) / torch.where(total > 0, total, 1.0)
    return pairs.terms(value, related * (total > 0))


def _hardest(pairs: Pairs, k: int) -> tuple[Tensor, Tensor]:
    """Scores and weights ``[b, k]`` of the k most similar unrelated columns; weight 0 where there are fewer."""
    unrelated = pairs.negative > 0
    top = torch.where(unrelated, pairs.scores, -torch.inf).topk(k, dim=-1)
    found = top.values > -torch.inf
    last = torch.where(found, top.values, torch.inf).amin(-1, keepdim=True).detach()
    tied = unrelated & (pairs.scores == last)
    number = tied.sum(-1, keepdim=True).clamp(min=1)
    level = torch.where(tied, pairs.scores, 0.0).sum(-1, keepdim=True) / number  # its slope is shared by all tied
    share = torch.where(tied, pairs.negative, 0.0).sum(-1, keepdim=True) / number
    above = top.values > last
    scores = torch.where(above, top.values, torch.where(found, level, 0.0))
    return scores, torch.where(above, pairs.negative.gather(1, top.indices), torch.where(found, share, 0.0))


@pair_loss(
    "adore",
    "row-separable",
    "soft-relation",
    "score-shift-invariant",
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
    scores = pairs.scores
    if scores.shape[1] == 0:
        return pairs.terms(scores, pairs.weight)
    worth = _worth(scores.detach(), pairs.weight > 0, cut)
    mass = pairs.positive.sum(-1) * pairs.negative.sum(-1)
    if torch.compiler.is_compiling():
        total = _in_one_graph(pairs, worth, temperature)
    else:
        weight, column = first_positives(pairs.positive)
        total = _OrderCosts.apply(scores, worth, pairs.negative, column, weight, temperature)  # type: ignore[no-untyped-call]
    return row_terms(total / torch.where(mass > 0, mass, 1.0), mass > 0)


class _OrderCosts(torch.autograd.Function):
    """Sum over the triplets of each row, one related column after the other, with its slope taken on the way."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, worth: Tensor, negative: Tensor, column: Tensor, weight: Tensor, temperature: float
    ) -> Tensor:
        total, slope = scores.new_zeros(len(scores)), torch.zeros_like(scores)
        for nth in range(column.shape[1]):
            own, each = column[:, nth, None], weight[:, nth, None]
            gap = (scores - scores.gather(1, own)).div_(temperature)
            cost = (worth - worth.gather(1, own)).abs_().mul_(negative).mul_(each)
            total += row_products(cost, softplus(gap))
            if ctx.needs_input_grad[0]:
                rise = cost.mul_(gap.sigmoid_())
                slope += rise
                slope.scatter_add_(1, own, -rise.sum(-1, keepdim=True))
        ctx.save_for_backward(slope.div_(temperature))
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return slope * slopes[0][:, None], None, None, None, None, None


def _in_one_graph(pairs: Pairs, worth: Tensor, temperature: float) -> Tensor:
    """As :class:`_OrderCosts`, all triplets at once: a loop over related columns would need their number."""

    def terms(own: Tensor, scores: Tensor, worth: Tensor, against: Tensor) -> tuple[Tensor, Tensor]:
        mine = torch.where(scores == own, worth, 0.0).amax(-1, keepdim=True)  # columns that are tied are worth the same
        cost = (mine - worth).abs().detach() * softplus((scores - own) / temperature)
        return (against * cost).sum(-1), against.sum(-1).expand(own.shape[:2])

    weight, value, _ = each_positive(terms, pairs.scores, pairs.positive, worth, pairs.negative)
    return (weight * value).sum(-1)


def _worth(scores: Tensor, counted: Tensor, cut: int | None) -> Tensor:
    """1 / rank of each column that counts, ``[b, N]``; 0 beyond ``cut`` and where a column does not count."""
    ordered, column = sort_rows(torch.where(counted, -scores, torch.inf))
    rank = mean_ranks(ordered)
    worth = 1 / rank
    if cut is not None:
        worth = torch.where(rank <= cut, worth, 0.0)
    return torch.where(counted, torch.empty_like(scores).scatter_(1, column, worth), 0.0)
