"""Losses for labels that are numbers; the relation is the negative distance of labels, <= 0."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from vicinal.blockwise.sorting import sort_rows
from vicinal.losses.contract import NUMPY, Pairs, RowTerms, best_score, pair_loss, row_products, row_terms, some
from vicinal.losses.ranges import Positive

_ROWS = ("row-separable", "number-relation")


@pair_loss(
    "rank_n_contrast", *_ROWS, "score-shift-invariant", family="regression", paper="arXiv:2210.01189", verified=NUMPY
)
def rank_n_contrast(pairs: Pairs, *, temperature: Positive = 2.0) -> RowTerms:
    r"""Each column in a softmax against those whose labels, numbers, are at least as far.

    $-\log(e^{s_{ij}/\tau} / \sum_{k: d_{ik} \ge d_{ij}} e^{s_{ik}/\tau})$ for each column j, d the label distance.

    So the order of the scores comes to follow that of the label distances. The code sorts each row by label distance
    instead of comparing all triples.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0. Made for negative distances.

    >>> rank_n_contrast(torch.zeros(1, 2), torch.tensor([[-1.0, -2.0]]), reduction="none")
    tensor([0.6931])
    """
    if not pairs.scores.shape[1]:
        return pairs.terms(pairs.scores, pairs.weight)
    rising, order = sort_rows(pairs.relation)  # the farthest first
    logits, weight = (pairs.scores / temperature).gather(1, order), pairs.weight.gather(1, order)
    logits = logits - logits.detach().amax(-1, keepdim=True)
    tiny, compiled = torch.finfo(logits.dtype).tiny, torch.compiler.is_compiling()
    if not compiled and bool((logits > _lowest(logits.dtype)).all()):  # four times faster than logarithms throughout
        share = logits.exp() * weight
        mass = _at_last_equal(share.cumsum(-1), rising)
        alone, total = mass == share, mass.clamp(min=tiny).log()
    else:
        share = logits + weight.clamp(min=tiny).log()
        total = _at_last_equal(share.logcumsumexp(-1), rising)
        alone = total == share
    terms = torch.where(alone, weight.clamp(min=tiny).log(), total - logits)  # else 0 were lost to rounding
    return pairs.terms(terms, weight)


def _lowest(dtype: torch.dtype) -> float:
    """A logit below the largest of its row that is still not lost beside it."""
    return -60.0 if dtype == torch.float32 else -600.0


def _at_last_equal(values: Tensor, rising: Tensor) -> Tensor:
    """For each place of ``rising [b, N]`` the value at the last one equal to it."""
    differ = rising[:, 1:] != rising[:, :-1]
    if not torch.compiler.is_compiling() and bool(differ.all()):
        return values
    place = torch.arange(rising.shape[1], device=rising.device)
    ends = torch.where(pad(differ, (0, 1), value=True), place, len(place))
    return values.gather(1, ends.flip(-1).cummin(-1).values.flip(-1))


@pair_loss(
    "label_contrast", *_ROWS, "score-shift-invariant", family="regression", paper="arXiv:2106.08808", verified=NUMPY
)
def label_contrast(pairs: Pairs, *, temperature: Positive = 0.1, bandwidth: Positive = 1.0) -> RowTerms:
    r"""Softmax over a row against targets that fall with the distance of labels that are numbers.

    $-\sum_j p_{ij} \log\mathrm{softmax}_j(s_{i\cdot}/\tau)$ with targets $p_{ij} \propto e^{-d_{ij}^2 / 2h^2}$.

    Contrast for regression: the nearer the labels, the more related the columns. It is :func:`supcon` with a Gaussian
    kernel of the label distance as relation.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0.
        bandwidth: h > 0, in units of the label.

    >>> label_contrast(torch.zeros(1, 2), torch.tensor([[-1.0, -2.0]]))
    tensor(0.6931)
    """
    logits = pairs.scores / temperature
    counted = some(pairs.weight)
    closeness = (pairs.weight.sign() - 1) * 1e30 + pairs.weight.clamp(min=1e-30).log()
    target = (closeness - (pairs.relation / bandwidth).square() / 2).softmax(-1)
    every = torch.where(counted, pairs.log_sum_exp(logits, pairs.weight), 0.0)
    return row_terms(every - row_products(target, logits), counted)


@pair_loss("log_ratio", *_ROWS, family="regression", paper="arXiv:1904.00667", verified=NUMPY)
def log_ratio(pairs: Pairs, *, best: float | None = None, eps: Positive = 1e-6) -> RowTerms:
    r"""Ratios of distances of embeddings equal to ratios of distances of labels that are numbers.

    $(\log\frac{D_{ij}}{D_{ik}} - \log\frac{d_{ij}}{d_{ik}})^2$ over pairs j, k of columns: ratios of distances.

    $D = s_{best} - s$ is the distance in score, d that of the labels; both get ``eps`` added. With $u_j = \log D_{ij} -
    \log d_{ij}$ the sum over all pairs is one of squares about the mean of u. For this loss "mean_nonzero" is the same
    as "mean": it does not check which pairs are exactly 0.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        best: the score of two equal things: 0 for negative distances, 1 for cosines. None: that of the criterion's
            similarity; for bare scores 1 if any of them is above 0, else 0.
        eps: > 0.

    >>> log_ratio(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-3.0, -3.0]]))
    tensor(0.4805)
    """
    distance = (best_score(pairs, best) - pairs.scores).clamp(min=0) + eps
    ratio = distance.log() - (pairs.relation.abs() + eps).log()
    mass = pairs.weight.sum(-1)
    center = (pairs.weight * ratio).sum(-1) / torch.where(mass > 0, mass, 1.0)
    total = mass * (pairs.weight * (ratio - center[:, None]).square()).sum(-1)
    count = ((mass.square() - pairs.weight.square().sum(-1)) / 2).clamp(min=0)
    return RowTerms(total, count, count)
