"""Losses of dense retrieval: the hardest columns of a row (NGAME), and pairs weighed by their ranks (ADORE)."""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice, check_integer, check_number
from vicinal.losses.contract import pair_loss
from vicinal.losses.logsums import softplus
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms
from vicinal.losses.positives import most_positives, related_columns
from vicinal.losses.sloped import sloped
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
