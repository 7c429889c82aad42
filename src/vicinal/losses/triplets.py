"""Losses of a row, a related and an unrelated column."""

import functools
import math
from typing import Literal

import torch
from torch import Tensor

from vicinal.blockwise.logsums import softplus
from vicinal.blockwise.sorting import each_positive, most_positives
from vicinal.core import check_choice
from vicinal.core.checks import check_between
from vicinal.losses.contract import NUMPY, PML, ROWS, Pairs, RowTerms, pair_loss, pair_terms
from vicinal.losses.ranges import Count, NonNegative, Number, Positive, Share

Triplets = Literal["all", "hard", "semi-hard", "batch-hard"]


_pair_loss = functools.partial(pair_loss, family="triplets")


@_pair_loss("triplet", *ROWS, "score-shift-invariant", paper="arXiv:1503.03832", verified=PML)
def triplet(
    pairs: Pairs,
    *,
    margin: NonNegative = 0.2,
    triplets: Triplets = "all",
    smooth: bool = False,
    swap: bool = False,
) -> RowTerms:
    r"""A related column above an unrelated one by a margin, over all or chosen triplets of a row.

    $[m + s_{in} - s_{ip}]_+$ for triplets of a row i, a related column p and an unrelated column n.

    "all" takes every triplet; "hard" those with $s_{in} \ge s_{ip}$; "semi-hard" those with $s_{ip} - m \le s_{in} <
    s_{ip}$; "batch-hard" one a row, of its least similar related and its most similar unrelated column. With many
    related columns the hinge is summed by sorting each row, with memory for a few matrices; otherwise, and for
    ``smooth`` and ``swap``, it goes block by block.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: >= 0, gap that a related column should have above an unrelated one.
        triplets: which triplets count.
        smooth: softplus instead of the hinge.
        swap: use $\max(s_{in}, s_{pn})$, the harder of the two ends; rows and columns must be the same things.

    >>> triplet(torch.tensor([[0.5, 0.4, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]), reduction="none")
    tensor([0.1000])
    """
    check_choice("triplets", triplets, ("all", "hard", "semi-hard", "batch-hard"))
    if triplets == "batch-hard":
        return _batch_hard(pairs, margin, smooth=smooth)

    def of_related(related: Tensor, scores: Tensor, negative: Tensor, *of_positives: Tensor) -> tuple[Tensor, Tensor]:
        other = torch.maximum(scores, of_positives[0]) if swap else scores
        gap = other - (related - margin)
        value = softplus(gap) if smooth else gap.relu()
        above = (value.detach() > 0).to(value.dtype)
        if triplets == "all":
            column = negative.mT  # [c, N, 1]
            counts = column.sum(1, keepdim=True).expand(-1, value.shape[1], -1)
            return (value @ column)[..., 0], torch.cat([counts, above @ column], -1)
        weight = torch.where(_chosen(related, other, margin, triplets), negative, 0.0)
        return (value * weight).sum(-1), torch.stack([weight.sum(-1), (above * weight).sum(-1)], -1)

    square = pairs.raw_scores if swap else None
    weight, value, count = each_positive(of_related, pairs.scores, pairs.positive, pairs.negative, square=square)
    counts = (weight[..., None] * count).sum(1)
    return RowTerms((weight * value).sum(-1), counts[:, 0], counts[:, 1])


def _chosen(related: Tensor, other: Tensor, margin: float, triplets: str) -> Tensor:
    return other >= related if triplets == "hard" else (other < related) & (other >= related - margin)


def _batch_hard(pairs: Pairs, margin: float, *, smooth: bool) -> RowTerms:
    related, unrelated = pairs.positive > 0, pairs.negative > 0
    both = related.any(-1) & unrelated.any(-1)
    s = pairs.scores.detach()
    worst = torch.where(related, s, torch.inf).argmin(-1, keepdim=True)
    nearest = torch.where(unrelated, s, -torch.inf).argmax(-1, keepdim=True)
    gap = margin + pairs.scores.gather(1, nearest) - pairs.scores.gather(1, worst)
    return pairs.terms(softplus(gap) if smooth else gap.relu(), both[:, None].to(gap.dtype))


@_pair_loss("angular", "square", "cosine-scores", "soft-relation", paper="arXiv:1708.01682", verified=PML)
def angular(pairs: Pairs, *, alpha: float = 40.0) -> RowTerms:
    r"""Triangles of a row, a related and an unrelated column with a bounded angle at the unrelated corner.

    $\log(1 + \sum_n e^{4 t (s_{in} + s_{pn}) - 2 (1 + t) s_{ip}})$ for related pairs (i, p), $t = \tan^2\alpha$.

    It bounds the angle at n in the triangle of i, p and n by $\alpha$. Rows and columns must be the same things.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        alpha: degrees, between 0 and 90.

    >>> same = torch.tensor([0, 0, 1])[:, None] == torch.tensor([0, 0, 1])
    >>> angular(torch.eye(3), same.float(), 1 - torch.eye(3), alpha=45)
    tensor(0.6931)
    """
    slope = math.tan(math.radians(check_between("alpha", alpha, 0, 90))) ** 2

    if pairs.raw_scores.shape[0] != pairs.raw_scores.shape[1]:
        raise ValueError(
            f"scores: expected as many rows as columns, the same things, got {tuple(pairs.raw_scores.shape)}"
        )

    def of_related(related: Tensor, scores: Tensor, negative: Tensor, of_positives: Tensor) -> tuple[Tensor, Tensor]:
        both = scores + of_positives
        value = softplus(
            pairs.log_sum_exp(4 * slope * both, negative.expand_as(both)) - 2 * (1 + slope) * related[..., 0]
        )
        return value, torch.ones_like(value)

    weight, value, _ = each_positive(
        of_related, pairs.raw_scores, pairs.positive, pairs.negative, square=pairs.raw_scores
    )
    return pairs.terms(value, weight)


@_pair_loss("lmnn", "row-separable", paper="Weinberger et al., NeurIPS 2005", verified="numpy in float64")
def lmnn(
    pairs: Pairs, *, k: Count = 3, margin: NonNegative = 1.0, push: Share = 0.5, top: Number = 1.0
) -> tuple[RowTerms, RowTerms]:
    r"""The few nearest related columns of a row near, and unrelated ones farther than these by a margin.

    $(1 - \mu)\,(s_{\max} - s_{ip})$ for each of the k most similar related columns p of row i, its targets, plus $\mu
    [m + s_{in} - s_{ip}]_+$ for each of them and each unrelated column n, averaged separately.

    Large margin nearest neighbors. The paper chooses the targets once, by distances of the inputs, and learns a linear
    map; here they are those of the scores as they are, and whoever made these is trained. Columns tied at the k-th
    place are targets, too.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`. Made for negative squared
            distances.
        k: targets of a row, >= 1.
        margin: >= 0, in units of score.
        push: $\mu$, from 0 to 1, the part of the second sum.
        top: $s_{\max}$, the score of a row with itself: 1 for cosines, 0 for negative distances. It moves the value
            alone.

    >>> lmnn(torch.tensor([[-1.0, -4.0, -1.5]]), torch.tensor([[1.0, 1.0, 0.0]]), k=1, top=0.0)
    tensor(0.7500)
    """
    columns = pairs.scores.shape[1]
    if columns == 0:
        return (pairs.terms(pairs.scores, pairs.weight),) * 2
    among = torch.where(pairs.positive > 0, pairs.scores.detach(), -torch.inf)
    least = among.topk(min(k, columns), dim=-1).values[:, -1:]
    targets = torch.where(among >= least, pairs.positive, 0.0)
    weight, column = targets.topk(min(max(1, most_positives(targets)), columns), dim=-1)
    gaps = (margin + pairs.scores[:, None] - pairs.scores.gather(1, column)[..., None]).relu()  # [b, P, N]
    return (
        pairs.terms((1 - push) * (top - pairs.scores), targets),
        pairs.terms(push * gaps.flatten(1), (weight[..., None] * pairs.negative[:, None]).flatten(1)),
    )


Weighting = Literal["equal", "softmax"]


@_pair_loss(
    "ngame",
    *ROWS,
    paper="arXiv:2207.04452",
    verified="released code, value and gradient in float64, but for its softmax over k and its ties",
)
def ngame(
    pairs: Pairs, *, margin: Number = 0.3, k: Count = 3, weighting: Weighting = "equal", temperature: Positive = 0.1
) -> RowTerms:
    r"""Each related column above the few hardest unrelated ones of its row, by a margin.

    $[s_{in} - s_{ip} + m]_+$ for each related column p and each of the k most similar unrelated columns n of row i.

    "softmax" instead has one term for each related column, the mean over the k with weights
    $\mathrm{softmax}_n(s_{in}/\tau)$, where a column that meets the margin has score 0. Columns tied at the k-th place
    share it equally. A row with fewer unrelated columns uses those it has. Give related columns that are known but were
    not chosen weight 0. For the batches of this method see :class:`vicinal.samplers.ClusterBatches`.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: in units of score.
        k: unrelated columns of a row, >= 1.
        weighting: "equal" or "softmax".
        temperature: > 0, of the softmax of the weights.

    >>> ngame(torch.tensor([[0.5, 0.4, 0.1]]), torch.tensor([[1.0, 0.0, 0.0]]), k=2)
    tensor(0.1000)
    """
    if pairs.scores.shape[1] == 0:
        return pairs.terms(pairs.scores, pairs.weight)
    against, share = _hardest(pairs, min(k, pairs.scores.shape[1]))  # [b, k] each
    related, column = pairs.positive.topk(min(max(1, most_positives(pairs.positive)), pairs.scores.shape[1]), dim=-1)
    of_related = pairs.scores.gather(1, column)  # [b, P]
    terms = (against[:, None] - of_related[..., None] + margin).relu()  # [b, P, k]
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
    is_real = top.values > -torch.inf
    last = torch.where(is_real, top.values, torch.inf).amin(-1, keepdim=True).detach()
    tied = unrelated & (pairs.scores == last)
    number = tied.sum(-1, keepdim=True).clamp(min=1)
    level = torch.where(tied, pairs.scores, 0.0).sum(-1, keepdim=True) / number  # its slope is shared by all tied
    share = torch.where(tied, pairs.negative, 0.0).sum(-1, keepdim=True) / number
    above = top.values > last
    scores = torch.where(above, top.values, torch.where(is_real, level, 0.0))
    return scores, torch.where(above, pairs.negative.gather(1, top.indices), torch.where(is_real, share, 0.0))


@_pair_loss("proto_triplet", "row-separable", "score-shift-invariant", paper="arXiv:2305.09062", verified=NUMPY)
def proto_triplet(pairs: Pairs, *, margin: NonNegative = 1.0, wrong: Literal["nearest", "all"] = "nearest") -> RowTerms:
    r"""The prototype of a row's own class above the nearest other prototype by a margin.

    $[s_{i-} - s_{iy} + m]_+$ for each related column y, where $s_{i-}$ is the highest unrelated score of the row.

    The columns are prototypes, so with scores $-\|z_i - c_k\|^2$ this is the triplet loss of a query with its own and
    the nearest wrong prototype: ``EmbeddingLoss("proto_triplet", similarity="squared_l2")(queries, labels,
    class_means(support, support_labels), torch.arange(C))``.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        margin: m >= 0, in units of score.
        wrong: "nearest", or "all": the mean over all wrong prototypes of a term with each.

    >>> proto_triplet(torch.tensor([[-1.0, -1.5, -9.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(0.5000)
    """
    unrelated = pairs.negative > 0
    some = unrelated.any(-1, keepdim=True)
    counted = torch.where(some, pairs.positive, 0.0)
    if pairs.scores.shape[1] == 0:
        return pair_terms(pairs.scores, counted)
    if wrong == "nearest":
        hardest = torch.where(unrelated, pairs.scores, -torch.inf).amax(-1, keepdim=True)
        hardest = torch.where(some, hardest, 0.0)
        return pair_terms(torch.relu(hardest - pairs.scores + margin), counted)
    return pair_terms(_mean_gaps(pairs.scores, pairs.negative, margin), counted)


def _mean_gaps(scores: Tensor, negative: Tensor, margin: float) -> Tensor:
    """Mean over unrelated columns n of [s_n - s_j + m]_+ for each column j, ``[b, N]``, by sorting each row.

    Of the unrelated scores those above s_j - m count: their sum and their number are sums of the end of the row. All
    are measured from the highest unrelated score of the row, since sums of large scores would lose their gaps.
    """
    top = torch.where(negative > 0, scores.detach(), -torch.inf).amax(-1, keepdim=True)
    scores = scores - torch.where(top > -torch.inf, top, 0.0)
    ordered, order = scores.sort(dim=-1)
    share = negative / negative.sum(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
    sorted_share = share.gather(-1, order)
    first = torch.searchsorted(ordered.detach(), (scores - margin).detach().contiguous(), right=True)
    sums = []
    for values in (sorted_share, sorted_share * ordered):
        ends = values.flip(-1).cumsum(-1).flip(-1)  # [b, N], of the columns from each on
        sums.append(torch.cat([ends, torch.zeros_like(ends[:, :1])], -1).gather(-1, first))
    mass, total = sums
    return total - mass * (scores - margin)
