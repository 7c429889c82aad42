"""The contract of a pair loss: terms of pairs, weighed and summed for each row, then reduced.

``@pair_loss`` makes ``f(scores, relation, weight=None, *, reduction="mean", **hyper)`` out of a function that only
says which terms a block of rows has. What all losses share (checks, half precision, columns that are left out, the
four reductions) is here; the files of the families hold the mathematics.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast, get_args

import torch
from torch import Tensor

from vicinal.core import Reduction, check_choice, check_scores, register

PML = "pytorch-metric-learning 2.9.0, value and gradient in float64"
NUMPY = "numpy in float64"

_ARGUMENTS = """scores: ``[b, N]``, higher = more alike.
        relation: ``[b, N]``, how truly related.
        weight: ``[b, N]`` in [0, 1]; 0 leaves a pair out, whatever its score. None: all count.
        reduction: "mean", "sum", "none" (``[b]``) or "mean_nonzero"; see :func:`reduce_parts`."""


class Part(NamedTuple):
    """Terms of a loss, summed for each row; most losses have one part, a few add two.

    Attributes:
        total: ``[b]``, the weighted sum of the terms of each row.
        number: ``[b]``, the sum of their weights.
        nonzero: ``[b]``, the sum of the weights of those that are not 0.
    """

    total: Tensor
    number: Tensor
    nonzero: Tensor


class Pairs:
    """What the terms of a loss are made of.

    Attributes:
        scores: ``[b, N]`` in float32 or wider; 0 where the weight is 0.
        relation: ``[b, N]``.
        weight: ``[b, N]``.
        given: the scores as they were given, for what a pair says about others.
    """

    def __init__(self, scores: Tensor, relation: Tensor, weight: Tensor, given: Tensor) -> None:
        self.scores, self.relation, self.weight, self.given = scores, relation, weight, given
        self._positive: Tensor | None = None  # made when asked for (functools.cached_property breaks a compiled graph)
        self._negative: Tensor | None = None

    @property
    def positive(self) -> Tensor:
        """``[b, N]``, weight times relation: how much a pair counts as related."""
        if self._positive is None:
            self._positive = self.weight * self.relation
        return self._positive

    @property
    def negative(self) -> Tensor:
        """``[b, N]``, weight times (1 - relation): how much a pair counts as unrelated."""
        if self._negative is None:
            self._negative = self.weight - self.positive
        return self._negative


class PairLoss(Protocol):
    """A loss of a matrix of scores; ``terms`` gives its parts before they are reduced."""

    __name__: str
    terms: Callable[..., tuple[Part, ...]]

    def __call__(
        self, scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, reduction: str = "mean", **hyper: Any
    ) -> Tensor:
        """The loss."""


def row_products(one: Tensor, other: Tensor) -> Tensor:
    """Inner products of the rows, ``[b]``, without a matrix of products."""
    return torch.bmm(one.unsqueeze(1), other.unsqueeze(2))[:, 0, 0]


def pair_terms(terms: Tensor, weight: Tensor) -> Part:
    """The part of ``terms [b, K]`` that count with ``weight [b, K]``."""
    nonzero = row_products((terms.detach() != 0).to(weight.dtype), weight)
    return Part(row_products(terms, weight), weight.sum(-1), nonzero)


def row_terms(values: Tensor, active: Tensor) -> Part:
    """The part of one term for each row, ``values [b]``, where ``active [b]``."""
    values = torch.where(active, values, 0.0)
    return Part(values, active.to(values.dtype), (values != 0).to(values.dtype))


def reduce_parts(parts: tuple[Part, ...], reduction: str = "mean") -> Tensor:
    """The sum of all parts, each reduced.

    Args:
        parts: at least one.
        reduction: "mean" over the terms of the part, weighted; "sum"; "none", the sum of the terms of each row,
            ``[b]``; "mean_nonzero", the mean over the terms that are not 0. The mean over no terms is 0.

    >>> part = pair_terms(torch.tensor([[0.0, 2.0], [4.0, 9.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    >>> [reduce_parts((part,), way).tolist() for way in ("mean", "sum", "none", "mean_nonzero")]
    [2.0, 6.0, [2.0, 4.0], 3.0]
    """
    check_choice("reduction", reduction, get_args(Reduction))
    reduced = []
    for part in parts:
        if reduction == "none":
            reduced.append(part.total)
        elif reduction == "sum":
            reduced.append(part.total.sum())
        else:
            count = (part.number if reduction == "mean" else part.nonzero).sum()
            reduced.append(part.total.sum() / torch.where(count > 0, count, 1.0))
    return torch.stack(reduced).sum(0)


def prepare(scores: Tensor, relation: Tensor, weight: Tensor | None) -> Pairs:
    """Check the three and put them in one dtype; scores of pairs that do not count become 0, whatever they were."""
    check_scores(scores, weight)
    if not isinstance(relation, Tensor):
        raise TypeError(f"relation: expected a tensor, got {type(relation).__name__}")
    if relation.shape != scores.shape:
        raise ValueError(f"relation: expected {tuple(scores.shape)} as the scores, got {tuple(relation.shape)}")
    dtype = torch.promote_types(scores.dtype, torch.float32)
    scores, relation = scores.to(dtype), relation.to(dtype)
    if weight is None:
        return Pairs(scores, relation, torch.ones_like(relation), scores)
    weight = weight.to(dtype)
    return Pairs(scores.masked_fill(weight == 0, 0.0), relation, weight, scores)


def pair_loss(name: str, *facts: str, paper: str, verified: str) -> Callable[[Callable[..., Any]], PairLoss]:
    """Make and register a pair loss of a function ``(pairs, **hyper) -> Part`` or a tuple of parts."""

    def make(function: Callable[..., Any]) -> PairLoss:
        def terms(scores: Tensor, relation: Tensor, weight: Tensor | None = None, **hyper: Any) -> tuple[Part, ...]:
            with torch.autocast(scores.device.type, enabled=False):
                parts = function(prepare(scores, relation, weight), **hyper)
            return (parts,) if isinstance(parts, Part) else parts

        @functools.wraps(function)
        def loss(
            scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, reduction: str = "mean", **hyper: Any
        ) -> Tensor:
            return reduce_parts(terms(scores, relation, weight, **hyper), reduction)

        given = list(inspect.signature(loss, follow_wrapped=False).parameters.values())[:-1]
        own = list(inspect.signature(function).parameters.values())[1:]
        loss.__doc__ = (function.__doc__ or "").replace("pairs: scores, relation and weight.", _ARGUMENTS)
        loss.__dict__["__signature__"] = inspect.Signature([*given, *own], return_annotation=Tensor)
        loss.__dict__["terms"] = terms
        return cast(PairLoss, register("pair_loss", name, *facts, paper=paper, verified=verified)(loss))

    return make


class _LogSumExp(torch.autograd.Function):
    """Keeps one matrix, the softmax, for the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weight: Tensor) -> Tensor:
        top = logits.masked_fill(weight == 0, -torch.inf).amax(-1, keepdim=True)
        top = torch.where(top > -torch.inf, top, 0.0)
        mass = (logits - top).clamp_(max=0.0).exp_().mul_(weight)  # above the top are only columns of weight 0
        total = mass.sum(-1, keepdim=True)
        mass /= torch.where(total > 0, total, 1.0)
        ctx.save_for_backward(mass)
        return (total.log() + top)[..., 0]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        (mass,) = ctx.saved_tensors
        return torch.where(mass > 0, slopes[0][..., None] * mass, 0.0), None


def log_sum_exp(logits: Tensor, weight: Tensor) -> Tensor:
    r"""$\log \sum_j w_j e^{x_j}$ over the last dimension; -inf, with gradient 0, where all weights are 0."""
    if logits.shape[-1] == 0:
        return logits.sum(-1) - torch.inf
    result: Tensor = _LogSumExp.apply(logits, weight)  # type: ignore[no-untyped-call]
    return result


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), to the last digit also in float64."""
    return torch.nn.functional.softplus(x, threshold=40.0)


def cross_entropy(logits: Tensor, pairs: Pairs) -> Part:
    """Softmax cross-entropy of each row against its positives, which share a target of 1; rows without are left out."""
    mass = pairs.positive.sum(-1)
    wanted = row_products(logits, pairs.positive) / torch.where(mass > 0, mass, 1.0)
    return row_terms(log_sum_exp(logits, pairs.weight) - wanted, mass > 0)
