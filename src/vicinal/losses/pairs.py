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


Spread = Callable[[Tensor], Tensor]


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


Matrix = Tensor | Callable[[slice], Tensor]


def _rows(matrix: Matrix, part: slice) -> Tensor:
    return matrix[part] if isinstance(matrix, Tensor) else matrix(part)


class Pairs:
    """What the terms of a loss are made of; matrices are made when they are asked for.

    Args:
        given: ``[b, N]``, scores in float32 or wider.
        relation: ``[b, N]``, or a function that makes the rows of a slice of it.
        weight: likewise, or None: all count.
        clean: all scores are finite, so those of pairs that do not count need not be hidden: times 0 they are 0.
        masks: relation and weight are known to be 0 or 1 throughout.
    """

    def __init__(
        self, given: Tensor, relation: Matrix, weight: Matrix | None, *, clean: bool = False, masks: bool = False
    ) -> None:
        self.given, self._relation, self.masks = given, relation, masks
        self._weight, self._clean = weight, clean or weight is None
        self._made: dict[str, Tensor] = {}  # functools.cached_property breaks a compiled graph
        self.shared: tuple[Tensor, ...] = ()
        self.start, self.counting = 0, True

    @property
    def full(self) -> bool:
        """Whether all pairs count: no weight was given."""
        return self._weight is None

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    @property
    def scores(self) -> Tensor:
        """``[b, N]``; finite where the weight is 0, whatever the score was."""
        if self._clean:
            return self.given
        return self._once("scores", lambda: self.given.masked_fill(self.weight == 0, 0.0))

    @property
    def relation(self) -> Tensor:
        """``[b, N]``, how truly related."""
        return self._once("relation", lambda: _rows(self._relation, self._all()))

    @property
    def weight(self) -> Tensor:
        """``[b, N]``, how much a pair counts."""
        if self._weight is None:
            return self._once("weight", lambda: torch.ones_like(self.given))
        given = self._weight
        return self._once("weight", lambda: _rows(given, self._all()))

    def _all(self) -> slice:
        return slice(0, len(self.given))

    def block(self, part: slice) -> "Pairs":
        """The rows of a slice; relation and weight are made for it alone where functions make them."""
        weight = None if self._weight is None else _rows(self._weight, part)
        return Pairs(self.given[part], _rows(self._relation, part), weight, clean=self._clean, masks=self.masks)

    @property
    def positive(self) -> Tensor:
        """``[b, N]``, weight times relation: how much a pair counts as related."""
        if self._weight is None:
            return self.relation
        return self._once("positive", lambda: self.weight * self.relation)

    @property
    def negative(self) -> Tensor:
        """``[b, N]``, weight times (1 - relation): how much a pair counts as unrelated."""
        return self._once("negative", lambda: self.weight - self.positive)

    def log_sum_exp(self, logits: Tensor, weight: Tensor) -> Tensor:
        """:func:`log_sum_exp`, quicker where weights are known to be 0 or 1."""
        return log_sum_exp(logits, weight, masks=self.masks)

    def log_sum_exp_all(self, logits: Tensor) -> Tensor:
        """:func:`log_sum_exp` over all that counts."""
        return log_sum_exp(logits, None if self.full else self.weight, masks=self.masks)

    def related_terms(self, make: Callable[[Tensor, Spread, Spread], Tensor]) -> Part:
        """Terms of related pairs alone, which are few.

        Args:
            make: of scores ``[...]`` and two functions that spread values of rows ``[b]`` and of columns ``[N]`` alike,
                the terms ``[...]``.

        Relations that are not known to be 0 or 1 may have no 0, and a compiled graph has fixed shapes: both go through
        all pairs.
        """
        positive = self.positive
        if not self.masks or torch.compiler.is_compiling():
            return self.terms(make(self.scores, lambda values: values[:, None], lambda values: values), positive)
        place = positive.reshape(-1).nonzero()[:, 0]
        row = place // max(1, positive.shape[1])
        column = place - row * positive.shape[1]
        terms = make(self.scores.reshape(-1)[place], lambda values: values[row], lambda values: values[column])
        empty = positive.new_zeros(len(positive))
        number = positive.sum(-1)
        nonzero = empty.index_add(0, row, (terms.detach() != 0).to(empty.dtype)) if self.counting else number
        return Part(empty.index_add(0, row, terms), number, nonzero)

    def terms(self, terms: Tensor, weight: Tensor) -> Part:
        """:func:`pair_terms`, without a count of what is not 0 where nobody asks for it."""
        return pair_terms(terms, weight, count=self.counting)


class PairLoss(Protocol):
    """A loss of a matrix of scores; ``terms`` gives its parts before they are reduced."""

    __name__: str
    terms: Callable[..., tuple[Part, ...]]
    of_pairs: Callable[..., tuple[Part, ...]]
    across: Callable[..., tuple[Tensor, ...]] | None
    single: bool
    complete: bool
    chosen: Callable[..., tuple[Tensor, Tensor, tuple[Tensor, ...]]] | None

    def __call__(
        self, scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, reduction: str = "mean", **hyper: Any
    ) -> Tensor:
        """The loss."""


def row_products(one: Tensor, other: Tensor) -> Tensor:
    """Inner products of the rows, ``[b]``."""
    products: Tensor = torch.linalg.vecdot(one, other)
    return products


def some(weight: Tensor) -> Tensor:
    """Boolean ``[b]``: rows with a weight above 0."""
    if weight.shape[-1] == 0:
        return weight.sum(-1) > 0
    return weight.amax(-1) > 0


def pair_terms(terms: Tensor, weight: Tensor, *, count: bool = True) -> Part:
    """The part of ``terms [b, K]`` that count with ``weight [b, K]``; without ``count``, nonzero is not to be read."""
    number = weight.sum(-1)
    nonzero = row_products((terms.detach() != 0).to(weight.dtype), weight) if count else number
    return Part(row_products(terms, weight), number, nonzero)


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
    return Pairs(scores.to(dtype), relation.to(dtype), None if weight is None else weight.to(dtype))


def pair_loss(
    name: str,
    *facts: str,
    paper: str,
    verified: str,
    across: Callable[..., tuple[Tensor, ...]] | None = None,
    complete: bool = False,
    chosen: Callable[..., tuple[Tensor, Tensor, tuple[Tensor, ...]]] | None = None,
) -> Callable[[Callable[..., Any]], PairLoss]:
    """Make and register a pair loss of a function ``(pairs, **hyper) -> Part`` or a tuple of parts.

    Args:
        name: how users name it.
        facts: what it declares.
        paper: where it comes from.
        verified: against what.
        across: of a loss whose rows depend on one another, ``(pairs, **hyper) -> tensors [1, ...] or [b, ...]``: what
            a block of rows adds to ``pairs.shared``, where the tensors of all blocks are joined.
        complete: the loss needs no more than what is shared.
        chosen: of a loss that looks at few rows and columns, which (``across`` then looks at no scores): of what is
            shared and the number of columns, both and what they share among themselves.
    """

    def make(function: Callable[..., Any]) -> PairLoss:
        def of_pairs(pairs: Pairs, **hyper: Any) -> tuple[Part, ...]:
            with torch.autocast(pairs.given.device.type, enabled=False):
                if across is not None and not pairs.shared:
                    pairs.shared = across(pairs, **hyper)
                parts = function(pairs, **hyper)
            return (parts,) if isinstance(parts, Part) else parts

        def terms(scores: Tensor, relation: Tensor, weight: Tensor | None = None, **hyper: Any) -> tuple[Part, ...]:
            return of_pairs(prepare(scores, relation, weight), **hyper)

        @functools.wraps(function)
        def loss(
            scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, reduction: str = "mean", **hyper: Any
        ) -> Tensor:
            check_choice("reduction", reduction, get_args(Reduction))
            pairs = prepare(scores, relation, weight)
            pairs.counting = reduction == "mean_nonzero"
            return reduce_parts(of_pairs(pairs, **hyper), reduction)

        given = list(inspect.signature(loss, follow_wrapped=False).parameters.values())[:-1]
        own = list(inspect.signature(function).parameters.values())[1:]
        loss.__doc__ = (function.__doc__ or "").replace("pairs: scores, relation and weight.", _ARGUMENTS)
        loss.__dict__["__signature__"] = inspect.Signature([*given, *own], return_annotation=Tensor)
        single = inspect.signature(function).return_annotation is Part
        facts_ = {"across": across, "single": single, "complete": complete, "chosen": chosen}
        loss.__dict__.update(terms=terms, of_pairs=of_pairs, **facts_)
        return cast(PairLoss, register("pair_loss", name, *facts, paper=paper, verified=verified)(loss))

    return make


_OUT = 1e30
"""Taken from a logit that does not count: exp gives 0 beside any that does."""


def hidden(weight: Tensor, *, masks: bool) -> Tensor:
    """What to add to logits: log of the weight, and so little where it is 0 that nothing is left beside any other."""
    bias = (weight - 1 if masks else weight.sign().sub_(1)).mul_(_OUT)  # a comparison would take longer
    if not masks:
        bias += weight.clamp(min=1e-30).log_()  # of 0 it would be slow
    return bias


def log_sum(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log of the sum of exp of rows, ``[b]``; softmax; and where all was :func:`hidden`, for which the sum is -inf."""
    share = logits.softmax(-1)
    total = logits.amax(-1) - share.amax(-1).log()
    nothing = total < -_OUT / 2
    return total.masked_fill(nothing, -torch.inf), share, nothing


class _LogSumExp(torch.autograd.Function):
    """Keeps one matrix, the softmax, for the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, weight: Tensor | None, masks: bool) -> Tensor:  # noqa: FBT001
        total, share, nothing = log_sum(logits if weight is None else hidden(weight, masks=masks).add_(logits))
        ctx.save_for_backward(share, nothing)
        return total

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        share, nothing = ctx.saved_tensors
        return share * slopes[0].masked_fill(nothing, 0.0)[..., None], None, None


def log_sum_exp(logits: Tensor, weight: Tensor | None, *, masks: bool = False) -> Tensor:
    r"""$\log \sum_j w_j e^{x_j}$ over the last dimension; -inf, with gradient 0, where all weights are 0.

    No weight means 1; with ``masks`` weights are known to be 0 or 1. Logits must be finite, also where the weight is 0.
    """
    if logits.shape[-1] == 0:
        return logits.sum(-1) - torch.inf
    result: Tensor = _LogSumExp.apply(logits, weight, masks)  # type: ignore[no-untyped-call]
    return result


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), to the last digit also in float64."""
    return torch.nn.functional.softplus(x, threshold=40.0)


def cross_entropy(logits: Tensor, pairs: Pairs) -> Part:
    """Softmax cross-entropy of each row against its positives, which share a target of 1; rows without are left out."""
    mass = pairs.positive.sum(-1)
    wanted = row_products(logits, pairs.positive) / torch.where(mass > 0, mass, 1.0)
    return row_terms(pairs.log_sum_exp_all(logits) - wanted, mass > 0)
