"""Losses for labels that are numbers; the relation is the negative distance of labels, <= 0."""

import math
from typing import Any

import numpy
import torch
from torch import Tensor

from vicinal.core import check_between, check_number
from vicinal.losses.contract import NUMPY, pair_loss
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms, some
from vicinal.losses.sorting import sort_rows

_ROWS = ("row-separable", "number-relation")


@pair_loss("rank_n_contrast", *_ROWS, "score-shift-invariant", paper="arXiv:2210.01189", verified=NUMPY)
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
    logits = pairs.scores / temperature
    if not logits.shape[1]:
        return pairs.terms(logits, pairs.weight)
    near, order = sort_rows(pairs.relation)  # the farthest first
    weight = pairs.weight.gather(1, order)
    last = _last_of_equals(near)  # ties are contrasted too
    if not pairs.counting and not torch.compiler.is_compiling() and _narrow(logits):
        total: Tensor = _Contrasts.apply(logits, weight, order, last)  # type: ignore[no-untyped-call]
        number = weight.sum(-1)
        return Part(total, number, number)
    logits = logits.gather(1, order)
    return pairs.terms(_log_sums(logits, weight, last) - logits, weight)


def _lowest(dtype: torch.dtype) -> float:
    """A logit below the largest of its row that is still not lost beside it."""
    return -60.0 if dtype == torch.float32 else -600.0


def _narrow(logits: Tensor) -> bool:
    """Whether no term of a row is lost beside its largest one."""
    logits = logits.detach()
    return bool((logits.amin(-1) - logits.amax(-1) > _lowest(logits.dtype)).all())


class _Contrasts(torch.autograd.Function):
    """The sum of the terms of each row, with its slope taken on the way."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weight: Tensor, order: Tensor, last: Tensor | None) -> Tensor:
        top = logits.amax(-1, keepdim=True)
        logits = logits.gather(1, order).sub_(top)
        share = logits.exp().mul_(weight)
        mass = share.cumsum(-1)
        mass = mass if last is None else mass.gather(1, last)
        mass.clamp_(min=torch.finfo(mass.dtype).tiny)
        if ctx.needs_input_grad[0]:
            pull = weight / mass
            pull = pull if last is None else torch.zeros_like(pull).scatter_add_(1, last, pull)
            slope = share.mul_(pull.flip(-1).cumsum(-1).flip(-1)).sub_(weight)
            ctx.save_for_backward(torch.empty_like(slope).scatter_(1, order, slope))
        return row_products(mass.log_().sub_(logits), weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return slope * slopes[0][:, None], None, None, None


def _last_of_equals(rising: Tensor) -> Tensor | None:
    """Place of the last value equal to each of a row, ``[b, N]``; None if all differ."""
    differs = rising[:, 1:] != rising[:, :-1]
    if not torch.compiler.is_compiling() and bool(differs.all()):
        return None
    if rising.device.type == "cpu" and not torch.compiler.is_compiling():
        return _last_by_numpy(differs)
    place = torch.arange(rising.shape[1], device=rising.device)
    ends = torch.where(torch.nn.functional.pad(differs, (0, 1), value=True), place, rising.shape[1])
    return ends.flip(-1).cummin(-1).values.flip(-1)


def _last_by_numpy(differs: Tensor) -> Tensor:
    """As :func:`_last_of_equals`, from where neighbors differ: each place where one ends, as often as it has equals."""
    rows, columns = len(differs), differs.shape[1] + 1
    ends = numpy.flatnonzero(torch.nn.functional.pad(differs, (0, 1), value=True).numpy())
    last = torch.from_numpy(numpy.repeat(ends, numpy.diff(ends, prepend=-1))).view(rows, columns)
    return last.sub_(torch.arange(0, rows * columns, columns)[:, None])


def _log_sums(logits: Tensor, weight: Tensor, last: Tensor | None) -> Tensor:
    r"""$\log \sum_k w_k e^{x_k}$ over the columns up to ``last`` (or each itself); where none counts, any number."""
    hidden = (weight.sign() - 1) * 1e30
    shown = logits.detach() + hidden
    top = shown.amax(-1, keepdim=True)
    lowest = (logits.detach() - hidden - top).amin(-1)
    if not torch.compiler.is_compiling() and bool(
        (lowest > _lowest(logits.dtype)).all()
    ):  # no term is lost beside the largest
        mass = ((logits - top).clamp(max=0.0).exp() * weight).cumsum(-1)
        mass = mass if last is None else mass.gather(1, last)
        return mass.clamp(min=torch.finfo(mass.dtype).tiny).log() + top
    kept = weight > 0
    nothing = torch.finfo(logits.dtype).min / 4
    sums = torch.where(kept, logits + torch.where(kept, weight, 1.0).log(), nothing).logcumsumexp(-1)
    sums = sums if last is None else sums.gather(1, last)
    return torch.where(kept, sums, logits)


@pair_loss("label_contrast", *_ROWS, "score-shift-invariant", paper="arXiv:2106.08808", verified=NUMPY)
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


@pair_loss("log_ratio", *_ROWS, paper="arXiv:1904.00667", verified=NUMPY)
def log_ratio(pairs: Pairs, *, best: float = 0.0, eps: float = 1e-6) -> Part:
    r"""Ratios of distances of embeddings equal to ratios of distances of labels that are numbers.

    $(\log\frac{D_{ij}}{D_{ik}} - \log\frac{d_{ij}}{d_{ik}})^2$ over pairs j, k of columns: ratios of distances.

    $D = s_{best} - s$ is the distance in score, d that of the labels; both get ``eps`` added. With
    $u_j = \log D_{ij} - \log d_{ij}$ the sum over all pairs is one of squares about the mean of u. For this loss
    "mean_nonzero" is "mean": which of the pairs are exactly 0 is not looked at.

    Args:
        pairs: scores, relation and weight.
        best: the score of two equal things: 0 of negative distances, 1 of cosines.
        eps: > 0.

    >>> log_ratio(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-3.0, -3.0]]))
    tensor(0.4805)
    """
    check_number("best", best)
    check_between("eps", eps, 0, math.inf)
    distance = (best - pairs.scores).clamp(min=0) + eps
    ratio = distance.log() - (pairs.relation.abs() + eps).log()
    mass = pairs.weight.sum(-1)
    center = (pairs.weight * ratio).sum(-1) / torch.where(mass > 0, mass, 1.0)
    total = mass * (pairs.weight * (ratio - center[:, None]).square()).sum(-1)
    count = ((mass.square() - pairs.weight.square().sum(-1)) / 2).clamp(min=0)
    return Part(total, count, count)
