"""A pair loss of embeddings a block of rows at a time: which scores, relation and weight a block has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vicinal.losses.contract import PairLoss
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, reduce_parts
from vicinal.losses.rowwise import Score, parts, recomputed, sum_at_once
from vicinal.losses.scaling import plain

Matrix = Callable[[slice], Tensor]


class Columns(NamedTuple):
    """What a block of rows is told about its columns.

    Attributes:
        relation: of a slice of the rows, ``[r, N]``.
        weight: likewise, or None: all count.
        masks: whether both are 0 or 1 throughout.
        miner: ``(scores, relation, weight) -> weight``, or None.
        column: of a slice of the rows, the one related column of each, ``[r, 1]``; None: there may be other numbers.
        classes: ``[b]``, where the columns are the rows, those of a class are related and all count but itself.
    """

    relation: Matrix
    weight: Matrix | None
    masks: bool
    miner: Callable[..., Tensor] | None = None
    column: Matrix | None = None
    classes: Tensor | None = None


def coded(labels: Tensor, bank_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Labels as small whole numbers in a floating dtype: equal where the labels are.

    >>> coded(torch.tensor([900, 5]), torch.tensor([5, 7]))
    (tensor([2., 0.]), tensor([0., 1.]))
    """
    found, code = torch.unique(
        labels if labels is bank_labels else torch.cat([labels, bank_labels]), return_inverse=True
    )
    dtype = torch.float32 if len(found) < 1 << 24 else torch.float64
    code = code.to(dtype)
    return (code, code) if labels is bank_labels else (code[: len(labels)], code[len(labels) :])


def equal_codes(codes: Tensor, bank_codes: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where codes are equal, else 0, ``[b, N]``; arithmetic is several times quicker than a comparison on a CPU.

    >>> equal_codes(torch.tensor([2.0, 0.0]), torch.tensor([0.0, 1.0]), torch.float32)
    tensor([[0., 0.],
            [1., 0.]])
    """
    return (1 - (codes[:, None] - bank_codes).abs_()).clamp_(min=0).to(dtype)


def others(rows: int, columns: int, start: int, like: Tensor) -> Tensor:
    """1, but 0 where row i meets column ``start + i``, ``[rows, columns]``: itself.

    >>> others(2, 3, 1, torch.zeros(1))
    tensor([[1., 0., 1.],
            [1., 1., 0.]])
    """
    weight = like.new_ones(rows, columns)
    weight.diagonal(start).zero_()
    return weight


@dataclass(frozen=True)
class Stream:
    """A pair loss of embeddings, and how it is gone through.

    Attributes:
        loss: made by :func:`vicinal.losses.pair_loss`.
        similarity: of queries and columns.
        queries: ``[b, d]``.
        columns: ``[N, d]``.
        of: relation and weight.
        size: rows of a block.
        reduction: "mean", "sum", "none" or "mean_nonzero".
        hyper: settings of the loss.
        given: tensors that further settings are made of, which may pass gradients.
        settings: of a slice of the rows and of what is given, further settings of the loss.
    """

    loss: PairLoss
    similarity: nn.Module
    queries: Tensor
    columns: Tensor
    of: Columns
    size: int
    reduction: str
    hyper: dict[str, Any]
    given: tuple[Tensor, ...] = ()
    settings: Callable[..., dict[str, Any]] = lambda *_: {}

    def pairs(self, scores: Tensor, part: slice, shared: tuple[Tensor, ...] = ()) -> Pairs:
        """What the loss sees of a block of rows."""
        relation: Tensor | Matrix = self._within(self.of.relation, part)
        weight: Tensor | Matrix | None = None if self.of.weight is None else self._within(self.of.weight, part)
        if self.of.miner is not None:
            relation, weight = self.of.relation(part), None if self.of.weight is None else self.of.weight(part)
            weight = self.of.miner(scores.detach(), relation, weight)
        made = Pairs(scores, relation, weight, clean=True, masks=self.of.masks)
        made.start, made.shared, made.counting = part.start, shared, self.reduction == "mean_nonzero"
        made.column = None if self.of.column is None else self.of.column(part)
        return made

    @staticmethod
    def _within(matrix: Matrix, part: slice) -> Matrix:
        return lambda rows: matrix(slice(part.start + rows.start, part.start + rows.stop))

    def parts(self, scores: Tensor, part: slice, *tensors: Tensor) -> tuple[Part, ...]:
        """Terms of a block, given what settings are made of and then what is shared."""
        given, shared = tensors[: len(self.given)], tensors[len(self.given) :]
        return self.loss.of_pairs(self.pairs(scores, part, shared), **self.hyper, **self.settings(part, *given))

    def values(self, scores: Tensor, part: slice, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Totals and numbers of a block, of one part after the other."""
        return tuple(value for each in self.parts(scores, part, *tensors) for value in each)

    def across(self, scores: Tensor, part: slice, *given: Tensor) -> tuple[Tensor, ...]:
        """What a block adds to what all rows say together; nothing of most losses."""
        if self.loss.across is None:
            return ()
        return self.loss.across(self.pairs(scores, part), **self.hyper, **self.settings(part, *given))

    def reduced(self, values: tuple[Tensor, ...]) -> Tensor:
        """The loss, of the values of all rows."""
        return reduce_parts(tuple(Part(*values[i : i + 3]) for i in range(0, len(values), 3)), self.reduction)


def streamed_loss(stream: Stream) -> Tensor:
    """The loss, a block of rows at a time; value and gradient are those of the whole.

    A mean or sum of one kind of terms takes its gradient on the way, others compute the scores of a block twice; of a
    loss whose rows depend on one another, what all rows say together (``across``) is computed first.
    """
    with torch.autocast(stream.queries.device.type, enabled=False):
        if stream.loss.of_classes is not None and stream.of.classes is not None:
            found = stream.loss.of_classes(stream.similarity, stream.queries, stream.of.classes, **stream.hyper)
            if found is not None:
                return reduce_parts((found,), stream.reduction)
        score, *sides = plain(stream.similarity, stream.queries, stream.columns)
        if stream.loss.chosen is not None and stream.of.miner is None and not torch.compiler.is_compiling():
            return _of_chosen(stream, score, sides[0], sides[1])
        if stream.size >= len(stream.queries):
            whole = slice(0, len(stream.queries))
            return reduce_parts(stream.parts(score(sides[0], sides[1]), whole, *stream.given), stream.reduction)
        return _in_blocks(stream, score, sides)


def _in_blocks(stream: Stream, score: Score, sides: list[Tensor]) -> Tensor:
    sides = [*sides, *stream.given]
    shared: tuple[Tensor, ...] = ()
    if stream.loss.across is not None:
        shared = recomputed(score, stream.across, stream.size, *sides)
    if stream.loss.complete:
        empty = sides[0].new_empty(len(sides[0]), 0)
        made = Pairs(empty, empty, None)
        made.shared = shared
        return reduce_parts(stream.loss.of_pairs(made, **stream.hyper), stream.reduction)
    if stream.reduction != "none" and stream.loss.single:
        which = 2 if stream.reduction == "mean_nonzero" else 1

        def two(scores: Tensor, part: slice, *shared: Tensor) -> tuple[Tensor, Tensor]:
            found = stream.values(scores, part, *shared)
            return found[0], found[which]

        return sum_at_once(score, two, stream.size, *sides, *shared, mean=stream.reduction != "sum")
    return stream.reduced(recomputed(score, stream.values, stream.size, *sides, *shared))


def _of_chosen(stream: Stream, score: Score, queries: Tensor, columns: Tensor) -> Tensor:
    """The loss of the rows and columns that it chooses, so that no other scores are made."""
    rows, among, shared, weight = _choice(stream, len(queries), len(columns))
    scores = score(queries.index_select(0, rows), columns.index_select(0, among))
    pairs = Pairs(scores, torch.ones_like(scores), weight, clean=True, masks=stream.of.masks)
    pairs.shared, pairs.counting = shared, stream.reduction == "mean_nonzero"
    found = stream.loss.of_pairs(pairs, **stream.hyper)
    if stream.reduction != "none":
        return reduce_parts(found, stream.reduction)
    empty = scores.new_zeros(len(queries))
    return stream.reduced(tuple(empty.index_add(0, rows, value) for each in found for value in each))


def _choice(stream: Stream, rows: int, columns: int) -> tuple[Tensor, Tensor, tuple[Tensor, ...], Tensor | None]:
    """Which rows and columns a loss chooses, what they share among themselves, and their weight."""
    of, slices = stream.of, parts(rows, stream.size)
    choose, across = stream.loss.chosen, stream.loss.across
    if choose is None or across is None:
        raise ValueError(f"loss: expected one that chooses rows and columns, got {stream.loss.__name__}")

    def block(part: slice) -> Pairs:
        relation = of.relation(part)  # stands for the scores too, at which nobody looks
        weight = None if of.weight is None else of.weight(part)
        return Pairs(relation, relation, weight, clean=True, masks=of.masks)

    if len(slices) == 1:
        pairs = block(slices[0])
        kept, among, shared = choose(*across(pairs, **stream.hyper), columns)
        return kept, among, shared, None if pairs.full else pairs.weight[kept[:, None], among]
    made = [across(block(part), **stream.hyper) for part in slices]
    kept, among, shared = choose(*(torch.cat(each) for each in zip(*made, strict=True)), columns)
    if of.weight is None:
        return kept, among, shared, None
    within = [kept[(kept >= part.start) & (kept < part.stop)] - part.start for part in slices]
    weight = [of.weight(part)[which][:, among] for part, which in zip(slices, within, strict=True)]
    return kept, among, shared, torch.cat(weight)


def checkpointed_loss(stream: Stream) -> Tensor:
    """As :func:`streamed_loss`, for gradients of settings and of a learned similarity too: it computes blocks twice."""

    def joined(make: Callable[..., tuple[Tensor, ...]], *shared: Tensor) -> tuple[Tensor, ...]:
        def block(part: slice) -> tuple[Tensor, ...]:
            return make(stream.similarity(stream.queries[part], stream.columns), part, *shared)

        slices = parts(len(stream.queries), stream.size)
        made = [checkpoint(block, part, use_reentrant=False) for part in slices]
        return tuple(torch.cat(each) for each in zip(*made, strict=True))

    shared = joined(stream.across) if stream.loss.across is not None else ()
    return stream.reduced(joined(stream.values, *shared))
