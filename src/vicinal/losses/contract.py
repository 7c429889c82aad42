"""What every loss is made of: pairs or scores that are checked, terms weighed and summed for each row, and reductions.

``@pair_loss`` makes ``f(scores, relation, weight=None, *, reduction="mean", **hyper)`` out of a function that only
returns the terms of a block of rows; the mathematics is in the files of the families.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import torch
from torch import Tensor

from vicinal.blockwise.logsums import log_sum_exp
from vicinal.core import Reduction, check_choice, register
from vicinal.core.checks import check_between, check_integer, check_number, check_tensor
from vicinal.losses.honesty import tell_of_nothing
from vicinal.losses.ranges import Count
from vicinal.ranks.pairs import check_relation


def check_scores_like(prediction: Tensor, target: Tensor, *, classes: bool = False) -> Tensor:
    """Check that both are floating tensors of one shape; returns ``target`` in the dtype of ``prediction``.

    Raises:
        TypeError: for anything but floating tensors.
        ValueError: for different shapes, or scores without a dimension of classes where one is needed.
    """
    for name, value in (("prediction", prediction), ("target", target)):
        check_tensor(name, value)
        if not value.is_floating_point():
            raise TypeError(f"{name}: expected scores of a floating dtype, got {value.dtype}; call .float() on it")
    if prediction.shape != target.shape:
        raise ValueError(
            f"target: expected the shape of the prediction, {tuple(prediction.shape)}, got {tuple(target.shape)}"
        )
    if classes and (prediction.ndim < 1 or prediction.shape[-1] < 1):
        raise ValueError(f"prediction: expected [..., K] scores of K classes, got {tuple(prediction.shape)}")
    return target.to(prediction.dtype)


def check_valid(valid: Tensor | None, scores: Tensor) -> None:
    """Check that ``valid``, if given, is boolean and of the shape of ``scores``."""
    if valid is None:
        return
    if not isinstance(valid, Tensor) or valid.dtype != torch.bool:
        raise TypeError(f"valid: expected a boolean tensor, got {getattr(valid, 'dtype', type(valid).__name__)}")
    if valid.shape != scores.shape:
        raise ValueError(f"valid: expected the shape of the scores, {tuple(scores.shape)}, got {tuple(valid.shape)}")


def check_domain(
    name: str, scores: Tensor, domain: tuple[float, float], closed: tuple[bool, bool], valid: Tensor | None = None
) -> None:
    """Check that all ``scores`` (of valid classes) lie in ``domain``; costs nothing where it has no end.

    Raises:
        ValueError: naming the first score outside, and the domain.
    """
    low, high = domain
    if math.isinf(low) and math.isinf(high):
        return
    with torch.no_grad():
        below = scores < low if closed[0] or math.isinf(low) else scores <= low
        above = scores > high if closed[1] or math.isinf(high) else scores >= high
        outside = below | above
        if valid is not None:
            outside = outside & valid
        if bool(outside.any()):
            value = float(scores[outside][0])
            left, right = (
                "[" if closed[0] and math.isfinite(low) else "(",
                "]" if closed[1] and high < math.inf else ")",
            )
            raise ValueError(
                f"{name}: expected scores in {left}{low:g}, {high:g}{right}, the domain of the link, got {value:g}; "
                "rescale the scores, clamp them, or give the link .cap(low, high)"
            )


def check_reduction(reduction: str) -> str:
    """Return ``reduction`` if it is one that :func:`reduce` knows."""
    return check_choice("reduction", reduction, get_args(Reduction))


def spread_weight(weight: Tensor, shape: torch.Size) -> Tensor:
    """``weight`` of ``shape``, or of its first dimensions, expanded to ``shape``.

    Raises:
        ValueError: for any other shape.
    """
    if weight.shape != shape[: weight.ndim]:
        raise ValueError(
            f"weight: expected the shape of the losses, {tuple(shape)}, or one a row, got {tuple(weight.shape)}"
        )
    return weight.reshape(*weight.shape, *[1] * (len(shape) - weight.ndim)).expand(shape)


def reduce(values: Tensor, weight: Tensor | None, active: Tensor | None, reduction: str) -> Tensor:
    """Reduce ``values`` with ``weight``, as torch does: a weighted mean divides by the sum of the weights.

    Args:
        values: ``[...]``.
        weight: >= 0, of the shape of ``values`` or of its first dimensions (a weight for each row); 0 leaves out.
        active: boolean, of the shape of ``values``; what is not active is 0 and does not count.
        reduction: "mean", "sum", "none" or "mean_nonzero" (the weighted mean over what is not 0).

    >>> reduce(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0]), None, "mean")
    tensor(2.)
    """
    if weight is not None:
        weight = spread_weight(weight, values.shape).to(values.dtype)
    if active is not None:
        values = torch.where(active, values, 0.0)
        weight = active.to(values.dtype) if weight is None else torch.where(active, weight, 0.0)
    if weight is not None:  # a loss that does not count may be infinite
        values = torch.where((weight == 0) & ~values.isfinite(), 0.0, values)
    weighted = values if weight is None else weight * values
    if reduction == "none":
        return weighted
    if reduction == "sum":
        return weighted.sum()
    if reduction == "mean_nonzero":
        counted = (values != 0).to(values.dtype)
        weight = counted if weight is None else weight * counted
    if weight is None:
        return weighted.mean() if values.numel() else weighted.sum()
    wide = torch.promote_types(values.dtype, torch.float32)  # half precision cannot hold a large count
    total = weight.sum(dtype=wide)
    return (weighted.sum(dtype=wide) / torch.where(total > 0, total, 1.0)).to(values.dtype)


class RowTerms(NamedTuple):
    """Terms of a loss, summed for each row; most losses have one part, a few add two.

    Attributes:
        total: ``[b]``, the weighted sum of the terms of each row.
        number: ``[b]``, the sum of their weights.
        nonzero: ``[b]``, the sum of the weights of those that are not 0.
    """

    total: Tensor
    number: Tensor
    nonzero: Tensor


def row_products(one: Tensor, other: Tensor) -> Tensor:
    """Inner products of the rows, ``[b]``."""
    return torch.linalg.vecdot(one, other)


def some(weight: Tensor) -> Tensor:
    """Boolean ``[b]``: rows with a weight above 0."""
    if weight.shape[-1] == 0:
        return weight.sum(-1) > 0
    return weight.amax(-1) > 0


def pair_terms(terms: Tensor, weight: Tensor, *, count: bool = True) -> RowTerms:
    """The part of ``terms [b, K]`` that count with ``weight [b, K]``; without ``count``, nonzero is not to be read."""
    number = weight.sum(-1)
    nonzero = row_products((terms.detach() != 0).to(weight.dtype), weight) if count else number
    return RowTerms(row_products(terms, weight), number, nonzero)


def row_terms(values: Tensor, active: Tensor) -> RowTerms:
    """The part of one term for each row, ``values [b]``, where ``active [b]``."""
    values = torch.where(active, values, 0.0)
    return RowTerms(values, active.to(values.dtype), (values != 0).to(values.dtype))


def reduce_terms(parts: tuple[RowTerms, ...], reduction: str = "mean") -> Tensor:
    """The sum of all parts, each reduced.

    Args:
        parts: at least one.
        reduction: "mean" over the terms of the part, weighted; "sum"; "none", the sum of the terms of each row,
            ``[b]``; "mean_nonzero", the mean over the terms that are not 0. The mean over no terms is 0.

    >>> part = pair_terms(torch.tensor([[0.0, 2.0], [4.0, 9.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    >>> [reduce_terms((part,), way).tolist() for way in ("mean", "sum", "none", "mean_nonzero")]
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


Spread = Callable[[Tensor], Tensor]

Matrix = Tensor | Callable[[slice], Tensor]


def _rows(matrix: Matrix, part: slice) -> Tensor:
    return matrix[part] if isinstance(matrix, Tensor) else matrix(part)


class Pairs:
    """What the terms of a loss are made of; matrices are made when they are asked for.

    Args:
        raw_scores: ``[b, N]``, scores in float32 or wider.
        relation: ``[b, N]``, or a function that makes the rows of a slice of it.
        weight: likewise, or None: all count.
        clean: all scores are finite, so those of pairs that do not count need no masking: times 0 they are 0.
        masks: relation and weight are known to be 0 or 1 throughout.
    """

    def __init__(
        self, raw_scores: Tensor, relation: Matrix, weight: Matrix | None, *, clean: bool = False, masks: bool = False
    ) -> None:
        self.raw_scores, self._relation, self.masks = raw_scores, relation, masks
        self._weight, self._clean = weight, clean or weight is None
        self._cache: dict[str, Tensor] = {}  # functools.cached_property breaks a compiled graph
        self.stats: tuple[Tensor, ...] = ()
        self.start, self.counting = 0, True

    @property
    def full(self) -> bool:
        """Whether all pairs count: no weight was given."""
        return self._weight is None

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    @property
    def scores(self) -> Tensor:
        """``[b, N]``; finite where the weight is 0, whatever the score was."""
        if self._clean:
            return self.raw_scores
        return self._once("scores", lambda: self.raw_scores.masked_fill(self.weight == 0, 0.0))

    @property
    def relation(self) -> Tensor:
        """``[b, N]``, how truly related."""
        return self._once("relation", lambda: _rows(self._relation, self._all()))

    @property
    def weight(self) -> Tensor:
        """``[b, N]``, how much a pair counts."""
        if self._weight is None:
            return self._once("weight", lambda: torch.ones_like(self.raw_scores))
        matrix = self._weight
        return self._once("weight", lambda: _rows(matrix, self._all()))

    def _all(self) -> slice:
        return slice(0, len(self.raw_scores))

    def block(self, part: slice) -> "Pairs":
        """The rows of a slice; relation and weight are made for it alone where functions make them."""
        weight = None if self._weight is None else _rows(self._weight, part)
        return Pairs(self.raw_scores[part], _rows(self._relation, part), weight, clean=self._clean, masks=self.masks)

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
        """:func:`log_sum_exp`, faster where weights are known to be 0 or 1."""
        return log_sum_exp(logits, weight, masks=self.masks)

    def log_sum_exp_all(self, logits: Tensor) -> Tensor:
        """:func:`log_sum_exp` over all that counts."""
        return log_sum_exp(logits, None if self.full else self.weight, masks=self.masks)

    def related_terms(self, make: Callable[[Tensor, Spread, Spread], Tensor]) -> RowTerms:
        """Terms of related pairs only, which are few.

        Args:
            make: ``make(scores, of_rows, of_columns)`` gives the terms ``[...]`` of scores ``[...]``; the two functions
                spread values of rows ``[b]`` and of columns ``[N]`` to the same shape.

        If relations are not known to be 0 or 1, or the graph is compiled and so has fixed shapes, it goes through all
        pairs.
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
        return RowTerms(empty.index_add(0, row, terms), number, nonzero)

    def reduced(self, parts: tuple[RowTerms, ...], reduction: str) -> Tensor:
        """:func:`reduce_terms` of a user's pairs: NaN in rows of NaN, and a warning if it is 0 with nothing to compare.

        NaN is looked for in scores, relation and weight of what counts.
        """
        with torch.no_grad():
            counted = self.positive.masked_fill(self.weight == 0, 0.0)
            spoiled = self.scores.isnan().any(-1) | counted.isnan().any(-1)
        factor = torch.ones_like(parts[0].total).masked_fill(spoiled, torch.nan)
        value = reduce_terms(
            tuple(RowTerms(part.total * factor, part.number, part.nonzero) for part in parts), reduction
        )
        if value.device.type == "cpu" and not torch.compiler.is_compiling():  # an accelerator would have to wait
            tell_of_nothing(value, [(self.relation, self.weight)])
        return value

    def terms(self, terms: Tensor, weight: Tensor) -> RowTerms:
        """:func:`pair_terms`, which counts the terms that are not 0 only if asked to."""
        return pair_terms(terms, weight, count=self.counting)


def prepare(scores: Tensor, relation: Tensor | None, weight: Tensor | None) -> Pairs:
    """Check the three and put them in one dtype; scores of pairs that do not count become 0, whatever they were."""
    relation = check_tensor("relation", relation)
    check_relation(scores, relation, weight)
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return Pairs(scores.to(dtype), relation.to(dtype), None if weight is None else weight.to(dtype))


def best_score(pairs: Pairs, best: float | None) -> float | Tensor:
    """``best``, or for None what the scores tell of it: 1 if one is above 0 (cosines), else 0 (negative distances)."""
    if best is not None:
        return check_number("best", best)
    return (pairs.scores * pairs.weight > 0).any().to(pairs.scores.dtype)


def cross_entropy(logits: Tensor, pairs: Pairs) -> RowTerms:
    """Softmax cross-entropy of each row against its positives, which share a target of 1; rows without are left out."""
    mass = pairs.positive.sum(-1)
    target = row_products(logits, pairs.positive) / torch.where(mass > 0, mass, 1.0)
    return row_terms(pairs.log_sum_exp_all(logits) - target, mass > 0)


ROWS = ("row-separable", "soft-relation")
"""Facts of most: each row by itself, and relations may be shares."""

PML = "pytorch-metric-learning 2.9.0, value and gradient in float64"
NUMPY = "numpy in float64"
PAPER_CODE = "values of the paper's code, value and gradient in float64"


def take_settings(loss: Any, formula: Callable[..., Any], inputs: int = 1) -> Callable[[dict[str, Any]], None]:
    """Show ``loss(..., **hyper)`` with the settings of its formula, those behind the first ``inputs`` parameters.

    Returns a function that checks settings by their types in the formula, as :class:`Between` or choices.
    """
    called = loss.__call__ if isinstance(loss, PairLoss) else loss
    signature = inspect.signature(called, follow_wrapped=False)
    *common, _ = signature.parameters.values()
    settings = list(inspect.signature(formula).parameters.values())[inputs:]
    vars(loss)["__signature__"] = signature.replace(parameters=[*common, *settings])
    ranges = {one.name: one.annotation.__metadata__[0] for one in settings if get_origin(one.annotation) is Annotated}
    whole = {one.name for one in settings if one.annotation is Count}
    choices = {one.name: get_args(one.annotation) for one in settings if get_origin(one.annotation) is Literal}

    def check(hyper: dict[str, Any]) -> None:
        for name, value in hyper.items():
            if name in whole:
                check_integer(name, value)
            elif name in ranges:
                low, high, closed = ranges[name]
                check_between(name, value, low, high, closed=closed)
            elif name in choices:
                check_choice(name, value, choices[name])

    return check


Formula = Callable[..., RowTerms | tuple[RowTerms, ...]]
BatchStats = Callable[..., tuple[Tensor, ...]]


class PairLoss:
    """A pair loss ``f(scores, relation, weight=None, *, reduction="mean", **hyper)``, made by :func:`pair_loss`.

    Attributes:
        formula: ``(pairs, **hyper) -> RowTerms``, or a tuple of them.
        batch_stats: for a loss whose rows depend on one another, ``(pairs, **hyper) -> tensors [1, ...] or [b, ...]``:
            what a block of rows contributes to ``pairs.stats``, where the tensors of all blocks are joined; else None.
        facts: what it declares.
    """

    __name__: str

    def __init__(self, formula: Formula, batch_stats: BatchStats | None, facts: frozenset[str]) -> None:
        functools.update_wrapper(self, formula)
        self.formula, self.batch_stats, self.facts = formula, batch_stats, facts
        self._check = take_settings(self, formula)

    def __call__(
        self,
        scores: "Tensor | Pairs",
        relation: Tensor | None = None,
        weight: Tensor | None = None,
        *,
        reduction: str = "mean",
        **hyper: Any,
    ) -> Tensor:
        """The loss.

        Args:
            scores: ``[b, N]``, higher = more alike; or :class:`Pairs`, which hold relation and weight too.
            relation: ``[b, N]``, how truly related.
            weight: ``[b, N]`` in [0, 1]; 0 leaves a pair out, whatever its score. None: all count.
            reduction: "mean", "sum", "none" (``[b]``) or "mean_nonzero"; see :func:`reduce_terms`.
            hyper: settings of the loss.
        """
        check_reduction(reduction)
        if isinstance(scores, Pairs):
            return reduce_terms(self.terms(scores, **hyper), reduction)
        pairs = prepare(scores, relation, weight)
        pairs.counting = reduction == "mean_nonzero"
        return pairs.reduced(self.terms(pairs, **hyper), reduction)

    def terms(self, pairs: "Pairs", **hyper: Any) -> tuple[RowTerms, ...]:
        """The terms of each row, before they are reduced."""
        self._check(hyper)
        with torch.autocast(pairs.raw_scores.device.type, enabled=False):
            if self.batch_stats is not None and not pairs.stats:
                pairs.stats = self.batch_stats(pairs, **hyper)
            terms = self.formula(pairs, **hyper)
        return (terms,) if isinstance(terms, RowTerms) else terms

    def __reduce__(self) -> str:
        """Copied and pickled as the function that it is: by name."""
        return self.__name__

    def __repr__(self) -> str:
        return f"<pair loss {self.__name__}>"


def pair_loss(
    name: str, *facts: str, family: str, paper: str, verified: str, batch_stats: BatchStats | None = None
) -> Callable[[Formula], PairLoss]:
    """Make and register a pair loss from its formula, ``(pairs, **hyper) -> RowTerms`` or a tuple of them.

    Args:
        name: how users name it.
        facts: what it declares.
        family: the group of similar losses that ``vicinal losses`` lists it with.
        paper: where it comes from.
        verified: what it was checked against.
        batch_stats: see :class:`PairLoss`.
    """

    def make(formula: Formula) -> PairLoss:
        loss = PairLoss(formula, batch_stats, frozenset(facts))
        return register("pair_loss", name, *facts, family=family, paper=paper, verified=verified)(loss)

    return make


_FROM_CRITERIA = (
    "lengths",
    "history",
    "negatives",
    "per_class",
    "column_log_probability",
)  # what criteria give to a loss, not users


def own_settings(function: Callable[..., Any]) -> dict[str, Any]:
    """Settings that users give to a pair loss or a miner, with defaults (``inspect.Parameter.empty`` if needed).

    >>> from vicinal.losses import supcon
    >>> own_settings(supcon)
    {'temperature': 0.1}
    """
    named = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {p.name: p.default for p in named if p.name not in ("reduction", *_FROM_CRITERIA)}
