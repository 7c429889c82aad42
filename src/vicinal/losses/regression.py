"""Losses for labels that are numbers; the relation is the negative distance of labels, <= 0."""

import math
from collections.abc import Callable

import numpy
import torch
from torch import Tensor

from vicinal.blockwise.logsums import log_sum_exp
from vicinal.blockwise.sorting import sort_rows
from vicinal.core.checks import check_between
from vicinal.losses.contract import NUMPY, Pairs, RowTerms, best_score, pair_loss, row_products, row_terms, some
from vicinal.losses.kernels import row_kernel

_ROWS = ("row-separable", "number-relation")


@pair_loss(
    "rank_n_contrast",
    *_ROWS,
    "score-shift-invariant",
    family="regression",
    paper="arXiv:2210.01189",
    verified=NUMPY,
)
def rank_n_contrast(pairs: Pairs, *, temperature: float = 2.0) -> RowTerms:
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
    check_between("temperature", temperature, 0, math.inf)
    if (fast := _contrasts(pairs, float(temperature), pairs.counting)) is not None:
        return fast
    logits = (pairs.scores / temperature)[:, None]  # [b, 1, k]
    as_far = (pairs.relation[:, None] <= pairs.relation[:, :, None]).to(logits.dtype)  # [b, j, k]
    others = 1 - torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    against = log_sum_exp(logits.expand_as(as_far), as_far * others * pairs.weight[:, None])  # [b, j]
    share = pairs.weight.clamp(min=torch.finfo(logits.dtype).tiny).log()
    return pairs.terms(torch.logaddexp(share, against - logits[:, 0]), pairs.weight)


@row_kernel("contrasts", loss="rank_n_contrast", float32=1e-5)
def _contrasts(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None,
    temperature: float,
    counting: bool,  # noqa: FBT001
    with_grad: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    weight = torch.ones_like(scores) if weight is None else weight
    number = weight.sum(-1)
    if not scores.numel():
        return number, number.clone(), number.clone(), scores[:, : scores.shape[1] * with_grad].clone()
    near, order = sort_rows(relation)  # the farthest first
    logits, weight = (scores / temperature).gather(1, order), weight.gather(1, order)
    logits -= logits.amax(-1, keepdim=True)
    summed = _summed if bool((logits.amin(-1) > _lowest(logits.dtype)).all()) else _log_summed
    equals = _Equals(near)
    terms, slope = summed(logits, weight, equals, with_grad=with_grad)  # ties are contrasted too
    nonzero = number.clone()
    if counting:
        counts = weight.sign()
        alone = (equals.last(counts.cumsum(-1)) == counts).logical_and_(weight == 1)  # 0, whatever rounding leaves
        nonzero = row_products((terms != 0).logical_and_(~alone).to(weight.dtype), weight)
    if with_grad:
        slope = torch.empty_like(slope).scatter_(1, order, slope.sub_(weight).div_(temperature))
    return row_products(terms, weight), number, nonzero, slope


def _lowest(dtype: torch.dtype) -> float:
    """A logit below the largest of its row that is still not lost beside it."""
    return -60.0 if dtype == torch.float32 else -600.0


class _Equals:
    """Runs of equal values in rows that rise, ``[b, N]``."""

    def __init__(self, rising: Tensor) -> None:
        ends = torch.ones_like(rising, dtype=torch.bool)
        if rising.device.type == "cpu":  # half the time that it takes otherwise
            values, is_end = rising.numpy(), ends.numpy()
            numpy.not_equal(values[:, 1:], values[:, :-1], out=is_end[:, :-1])
            self.ends = torch.from_numpy(numpy.flatnonzero(is_end))
        else:
            torch.ne(rising[:, 1:], rising[:, :-1], out=ends[:, :-1])
            self.ends = ends.view(-1).nonzero()[:, 0]
        self.none = len(self.ends) == rising.numel()
        self.number = self.ends.diff(prepend=self.ends.new_full((1,), -1))

    def last(self, values: Tensor) -> Tensor:
        """For each place the value at the last one equal to it."""
        return values if self.none else self._spread(values, self.ends)

    def first(self, values: Tensor) -> Tensor:
        """For each place the value at the first one equal to it."""
        return values if self.none else self._spread(values, self.ends - self.number + 1)

    def _spread(self, values: Tensor, place: Tensor) -> Tensor:
        at_runs = values.reshape(-1).index_select(0, place)
        if values.device.type == "cpu":
            return torch.from_numpy(numpy.repeat(at_runs.numpy(), self.number.numpy())).view_as(values)
        return at_runs.repeat_interleave(self.number, output_size=values.numel()).view_as(values)


def _summed(logits: Tensor, weight: Tensor, equals: _Equals, *, with_grad: bool) -> tuple[Tensor, Tensor]:
    """Terms of sorted columns, and what their logits add to all terms of the row; none is lost beside the largest."""
    share = logits.exp().mul_(weight)
    mass = equals.last(share.cumsum(-1)).clamp_(min=torch.finfo(share.dtype).tiny)
    slope = share.mul_(equals.first(_from_the_end(weight / mass, Tensor.cumsum))) if with_grad else share[:, :0].clone()
    return mass.log_().sub_(logits), slope


def _log_summed(logits: Tensor, weight: Tensor, equals: _Equals, *, with_grad: bool) -> tuple[Tensor, Tensor]:
    """As :func:`_summed`, for any logits, from logarithms throughout; where none counts, the term is 0."""
    counted, nothing = weight > 0, torch.finfo(logits.dtype).min / 4
    bias = torch.where(counted, torch.where(counted, weight, 1.0).log(), nothing)
    sums = equals.last((logits + bias).logcumsumexp(-1))
    slope = logits[:, :0].clone()
    if with_grad:
        pull = equals.first(_from_the_end(torch.where(counted, bias - sums, nothing), Tensor.logcumsumexp))
        slope = torch.where(counted, logits + bias + pull, nothing).exp()
    return torch.where(counted, sums - logits, 0.0), slope


def _from_the_end(values: Tensor, sums: Callable[[Tensor, int], Tensor]) -> Tensor:
    return sums(values.flip(-1), -1).flip(-1)


@pair_loss(
    "label_contrast", *_ROWS, "score-shift-invariant", family="regression", paper="arXiv:2106.08808", verified=NUMPY
)
def label_contrast(pairs: Pairs, *, temperature: float = 0.1, bandwidth: float = 1.0) -> RowTerms:
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
    check_between("temperature", temperature, 0, math.inf)
    check_between("bandwidth", bandwidth, 0, math.inf)
    logits = pairs.scores / temperature
    counted = some(pairs.weight)
    closeness = (pairs.weight.sign() - 1) * 1e30 + pairs.weight.clamp(min=1e-30).log()
    target = (closeness - (pairs.relation / bandwidth).square() / 2).softmax(-1)
    every = torch.where(counted, pairs.log_sum_exp(logits, pairs.weight), 0.0)
    return row_terms(every - row_products(target, logits), counted)


@pair_loss("log_ratio", *_ROWS, family="regression", paper="arXiv:1904.00667", verified=NUMPY)
def log_ratio(pairs: Pairs, *, best: float | None = None, eps: float = 1e-6) -> RowTerms:
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
    check_between("eps", eps, 0, math.inf)
    distance = (best_score(pairs, best) - pairs.scores).clamp(min=0) + eps
    ratio = distance.log() - (pairs.relation.abs() + eps).log()
    mass = pairs.weight.sum(-1)
    center = (pairs.weight * ratio).sum(-1) / torch.where(mass > 0, mass, 1.0)
    total = mass * (pairs.weight * (ratio - center[:, None]).square()).sum(-1)
    count = ((mass.square() - pairs.weight.square().sum(-1)) / 2).clamp(min=0)
    return RowTerms(total, count, count)
