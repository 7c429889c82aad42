"""What the terms of a pair loss are made of: scores, relation and weight of a block of rows."""

from collections.abc import Callable

import torch
from torch import Tensor

from vicinal.core import check_number, check_scores
from vicinal.losses.logsums import log_sum_exp
from vicinal.losses.parts import Part, pair_terms, row_products, row_terms

Spread = Callable[[Tensor], Tensor]

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

    Attributes:
        column: ``[b, 1]``, the one related column of each row if it is known and all columns count, else None.
    """

    def __init__(
        self, given: Tensor, relation: Matrix, weight: Matrix | None, *, clean: bool = False, masks: bool = False
    ) -> None:
        self.given, self._relation, self.masks = given, relation, masks
        self._weight, self._clean = weight, clean or weight is None
        self._made: dict[str, Tensor] = {}  # functools.cached_property breaks a compiled graph
        self.shared: tuple[Tensor, ...] = ()
        self.start, self.counting = 0, True
        self.column: Tensor | None = None

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


def prepare(scores: Tensor, relation: Tensor, weight: Tensor | None) -> Pairs:
    """Check the three and put them in one dtype; scores of pairs that do not count become 0, whatever they were."""
    check_scores(scores, weight)
    if not isinstance(relation, Tensor):
        raise TypeError(f"relation: expected a tensor, got {type(relation).__name__}")
    if relation.shape != scores.shape:
        raise ValueError(f"relation: expected {tuple(scores.shape)} as the scores, got {tuple(relation.shape)}")
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return Pairs(scores.to(dtype), relation.to(dtype), None if weight is None else weight.to(dtype))


def best_score(pairs: Pairs, best: float | None) -> float | Tensor:
    """``best``, or for None what the scores tell of it: 1 if one is above 0 (cosines), else 0 (negative distances)."""
    if best is not None:
        return check_number("best", best)
    return (pairs.scores * pairs.weight > 0).any().to(pairs.scores.dtype)


def cross_entropy(logits: Tensor, pairs: Pairs) -> Part:
    """Softmax cross-entropy of each row against its positives, which share a target of 1; rows without are left out."""
    mass = pairs.positive.sum(-1)
    wanted = row_products(logits, pairs.positive) / torch.where(mass > 0, mass, 1.0)
    return row_terms(pairs.log_sum_exp_all(logits) - wanted, mass > 0)
