"""Losses for labels that are numbers; the relation is the negative distance of labels, <= 0."""

import math
from collections.abc import Callable

import numpy
import torch
from torch import Tensor

from vicinal.core import check_between
from vicinal.losses.contract import NUMPY, pair_loss
from vicinal.losses.pairs import Pairs, best_score
from vicinal.losses.parts import Part, row_products, row_terms, some
from vicinal.losses.sloped import sloped
from vicinal.losses.sorting import sort_rows

_ROWS = ("row-separable", "number-relation")


@pair_loss(
    "rank_n_contrast",
    *_ROWS,
    "score-shift-invariant",
    family="label distance",
    paper="arXiv:2210.01189",
    verified=NUMPY,
)
def rank_n_contrast(pairs: Pairs, *, temperature: float = 2.0) -> Part:
    r"""Each column in a softmax against those whose labels, numbers, are at least as far.

    $-\log(e^{s_{ij}/\tau} / \sum_{k: d_{ik} \ge d_{ij}} e^{s_{ik}/\tau})$ for each column j, d the label distance.

    Each column is contrasted with those whose labels are at least as far: the order of the scores comes to follow
    that of the labels. It sorts each row by label distance instead of comparing all triples.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0. Made for negative distances.

    >>> rank_n_contrast(torch.zeros(1, 2), torch.tensor([[-1.0, -2.0]]), reduction="none")
    tensor([0.6931])
    """
    check_between("temperature", temperature, 0, math.inf)
    weight = None if pairs.full else pairs.weight
    return _contrasts(pairs.scores, pairs.relation, weight, float(temperature), pairs.counting)


@sloped("contrasts")
def _contrasts(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None,
    temperature: float,
    counting: bool,  # noqa: FBT001
    wanted: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    weight = torch.ones_like(scores) if weight is None else weight
    number = weight.sum(-1)
    if not scores.numel():
        return number, number.clone(), number.clone(), scores[:, : scores.shape[1] * wanted].clone()
    near, order = sort_rows(relation)  # the farthest first
    logits, weight = (scores / temperature).gather(1, order), weight.gather(1, order)
    logits -= logits.amax(-1, keepdim=True)
    summed = _summed if bool((logits.amin(-1) > _lowest(logits.dtype)).all()) else _log_summed
    terms, slope = summed(logits, weight, _Equals(near), wanted=wanted)  # ties are contrasted too
    nonzero = row_products((terms != 0).to(weight.dtype), weight) if counting else number.clone()
    if wanted:
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
            values, made = rising.numpy(), ends.numpy()
            numpy.not_equal(values[:, 1:], values[:, :-1], out=made[:, :-1])
            self.ends = torch.from_numpy(numpy.flatnonzero(made))
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
        found = values.reshape(-1).index_select(0, place)
        if values.device.type == "cpu":
            return torch.from_numpy(numpy.repeat(found.numpy(), self.number.numpy())).view_as(values)
        return found.repeat_interleave(self.number, output_size=values.numel()).view_as(values)


def _summed(logits: Tensor, weight: Tensor, equals: _Equals, *, wanted: bool) -> tuple[Tensor, Tensor]:
    """Terms of sorted columns, and what their logits add to all terms of the row; none is lost beside the largest."""
    share = logits.exp().mul_(weight)
    mass = equals.last(share.cumsum(-1)).clamp_(min=torch.finfo(share.dtype).tiny)
    slope = share.mul_(equals.first(_from_the_end(weight / mass, Tensor.cumsum))) if wanted else share[:, :0].clone()
    return mass.log_().sub_(logits), slope


def _log_summed(logits: Tensor, weight: Tensor, equals: _Equals, *, wanted: bool) -> tuple[Tensor, Tensor]:
    """As :func:`_summed`, for any logits, from logarithms throughout; where none counts, the term is 0."""
    kept, nothing = weight > 0, torch.finfo(logits.dtype).min / 4
    bias = torch.where(kept, torch.where(kept, weight, 1.0).log(), nothing)
    sums = equals.last((logits + bias).logcumsumexp(-1))
    slope = logits[:, :0].clone()
    if wanted:
        pull = equals.first(_from_the_end(torch.where(kept, bias - sums, nothing), Tensor.logcumsumexp))
        slope = torch.where(kept, logits + bias + pull, nothing).exp()
    return torch.where(kept, sums - logits, 0.0), slope


def _from_the_end(values: Tensor, sums: Callable[[Tensor, int], Tensor]) -> Tensor:
    return sums(values.flip(-1), -1).flip(-1)


@pair_loss(
    "label_contrast", *_ROWS, "score-shift-invariant", family="label distance", paper="arXiv:2106.08808", verified=NUMPY
)
def label_contrast(pairs: Pairs, *, temperature: float = 0.1, bandwidth: float = 1.0) -> Part:
    r"""Softmax over a row against targets that fall with the distance of labels that are numbers.

    $-\sum_j p_{ij} \log\mathrm{softmax}_j(s_{i\cdot}/\tau)$ with targets $p_{ij} \propto e^{-d_{ij}^2 / 2h^2}$.

    Contrast for regression: columns are the more related the nearer their labels. It is :func:`supcon` with a
    Gaussian kernel of the label distance as relation.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0.
        bandwidth: h > 0, in units of the label.

    >>> label_contrast(torch.zeros(1, 2), torch.tensor([[-1.0, -2.0]]))
    tensor(0.6931)
    """
    check_between("temperature", temperature, 0, math.inf)
    check_between("bandwidth", bandwidth, 0, math.inf)
    logits = pairs.scores / temperature
    kept = some(pairs.weight)
    closeness = (pairs.weight.sign() - 1) * 1e30 + pairs.weight.clamp(min=1e-30).log()
    target = (closeness - (pairs.relation / bandwidth).square() / 2).softmax(-1)
    every = torch.where(kept, pairs.log_sum_exp(logits, pairs.weight), 0.0)
    return row_terms(every - row_products(target, logits), kept)


@pair_loss("log_ratio", *_ROWS, family="label distance", paper="arXiv:1904.00667", verified=NUMPY)
def log_ratio(pairs: Pairs, *, best: float | None = None, eps: float = 1e-6) -> Part:
    r"""Ratios of distances of embeddings equal to ratios of distances of labels that are numbers.

    $(\log\frac{D_{ij}}{D_{ik}} - \log\frac{d_{ij}}{d_{ik}})^2$ over pairs j, k of columns: ratios of distances.

    $D = s_{best} - s$ is the distance in score, d that of the labels; both get ``eps`` added. With
    $u_j = \log D_{ij} - \log d_{ij}$ the sum over all pairs is one of squares about the mean of u. For this loss
    "mean_nonzero" is "mean": which of the pairs are exactly 0 is not looked at.

    Args:
        pairs: scores, relation and weight.
        best: the score of two equal things: 0 of negative distances, 1 of cosines. None: that of the similarity of
            the criterion; of bare scores 1 if one of them is above 0, else 0.
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
    return Part(total, count, count)
