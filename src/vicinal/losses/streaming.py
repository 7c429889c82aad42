"""A pair loss of embeddings a block of rows at a time, so that no matrix of all scores is ever held."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.blockwise.row_blocks import Score, inner_products, recomputed
from vicinal.losses.contract import PairLoss, Pairs, RowTerms, reduce_terms
from vicinal.similarity import Cosine, Dot
from vicinal.similarity.products import l2_normalize

UNCUT = 16
"""So many times larger than a block may scores be that are not cut, as each block has to be computed twice."""


def is_inner_product(similarity: nn.Module) -> bool:
    """Whether scores are inner products of vectors that are scaled first.

    >>> is_inner_product(Cosine()), is_inner_product(Dot(scaled=True))
    (True, False)
    """
    return type(similarity) is Cosine or (type(similarity) is Dot and not similarity.scaled)


def as_inner_product(similarity: nn.Module, queries: Tensor, columns: Tensor) -> tuple[Score, Tensor, Tensor]:
    """The similarity as a function of vectors that are scaled already, and these, in float32 or wider."""
    dtype = torch.promote_types(torch.promote_types(queries.dtype, columns.dtype), torch.float32)
    same = queries is columns
    queries, columns = queries.to(dtype), columns.to(dtype)
    if not is_inner_product(similarity):
        return similarity, queries, columns
    if type(similarity) is Dot:
        return inner_products, queries, columns
    unit = l2_normalize(queries)
    return inner_products, unit, unit if same else l2_normalize(columns)


Matrix = Callable[[slice], Tensor]


@dataclass(frozen=True)
class ScoreBlocks:
    """Scores of queries with columns, a block of rows at a time, with their relation and weight.

    Attributes:
        similarity: of queries and columns.
        queries: ``[b, d]``.
        columns: ``[N, d]``.
        relation: of a slice of the rows, ``[r, N]``.
        weight: likewise, or None: all count.
        masks: whether both are 0 or 1 throughout.
        miner: ``(scores, relation, weight) -> weight``, or None.
        size: rows of a block.
    """

    similarity: nn.Module
    queries: Tensor
    columns: Tensor
    relation: Matrix
    weight: Matrix | None
    masks: bool
    miner: Callable[..., Tensor] | None = None
    size: int = 1

    def pairs(self, scores: Tensor, part: slice, stats: tuple[Tensor, ...] = (), *, counting: bool) -> Pairs:
        """What the loss sees of a block of rows."""
        relation: Tensor | Matrix = _shifted(self.relation, part)
        weight: Tensor | Matrix | None = None if self.weight is None else _shifted(self.weight, part)
        if self.miner is not None:
            relation, weight = self.relation(part), None if self.weight is None else self.weight(part)
            weight = self.miner(scores.detach(), relation, weight)
        pairs = Pairs(scores, relation, weight, clean=True, masks=self.masks)
        pairs.start, pairs.stats, pairs.counting = part.start, stats, counting
        return pairs


def _shifted(matrix: Matrix, part: slice) -> Matrix:
    return lambda rows: matrix(slice(part.start + rows.start, part.start + rows.stop))


def blocked_loss(
    loss: PairLoss,
    blocks: ScoreBlocks,
    reduction: str,
    hyper: dict[str, Any],
    *,
    row_settings: Callable[..., dict[str, Any]] = lambda *_: {},
    setting_tensors: tuple[Tensor, ...] = (),
) -> Tensor:
    """The loss, a block of rows at a time; value and gradient are those of the whole.

    A block is computed again for its gradient; of a loss whose rows depend on one another, what all rows say together
    is computed first.

    Args:
        loss: what is computed.
        blocks: of which scores.
        reduction: "mean", "sum", "none" or "mean_nonzero".
        hyper: settings of the loss.
        row_settings: of a slice of the rows and of ``setting_tensors``, further settings.
        setting_tensors: tensors that further settings are made of, which may pass gradients.
    """
    with torch.autocast(blocks.queries.device.type, enabled=False):
        score, *sides = as_inner_product(blocks.similarity, blocks.queries, blocks.columns)
        counting = reduction == "mean_nonzero"
        if blocks.size >= len(blocks.queries):
            whole = slice(0, len(blocks.queries))
            pairs = blocks.pairs(score(sides[0], sides[1]), whole, counting=counting)
            return loss(pairs, reduction=reduction, **hyper, **row_settings(whole, *setting_tensors))

        def terms_of(scores: Tensor, part: slice, *tensors: Tensor) -> tuple[Tensor, ...]:
            """Totals, numbers and counts of one kind of terms after the other."""
            settings = row_settings(part, *tensors[: len(setting_tensors)])
            pairs = blocks.pairs(scores, part, tensors[len(setting_tensors) :], counting=counting)
            return tuple(value for each in loss.terms(pairs, **hyper, **settings) for value in each)

        def stats_of(scores: Tensor, part: slice, *tensors: Tensor) -> tuple[Tensor, ...]:
            pairs = blocks.pairs(scores, part, counting=counting)
            return loss.batch_stats(pairs, **hyper, **row_settings(part, *tensors))  # type: ignore[misc]

        tensors = (*sides, *setting_tensors)
        if loss.batch_stats is not None:
            tensors = (*tensors, *recomputed(score, stats_of, blocks.size, *tensors))
        values = recomputed(score, terms_of, blocks.size, *tensors)
        return reduce_terms(tuple(RowTerms(*values[i : i + 3]) for i in range(0, len(values), 3)), reduction)
