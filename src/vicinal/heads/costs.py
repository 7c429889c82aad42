"""Costs, which are negated scores, of a tile of queries against a block of the bank."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from vicinal.heads.combining import ALONE, Combine
from vicinal.masks.scratch import Scratch
from vicinal.similarity.base import resolution_of
from vicinal.similarity.distances import paired_distances
from vicinal.similarity.factors import factors, squared_of_bank
from vicinal.similarity.resolution import Resolution, lengths

if TYPE_CHECKING:
    from vicinal.heads.prepared import PreparedBank

Rows = slice | Tensor
"""Which queries: a run of them, or their positions."""

_SAMPLE = 4096
"""Bank rows whose mean is the center; it only has to be near, as what still cancels is computed again."""

_LEAST = 1e-30
"""Squared distance that stands for 0 under a root."""


class Block(NamedTuple):
    """Bank rows ``start`` to ``stop``: the rows in the dtype that is computed in, and what products take.

    ``center`` is that of the block, if it is not the one of all.
    """

    start: int
    stop: int
    rows: Tensor
    features: Tensor
    slack: float
    center: Tensor | None


class Product(NamedTuple):
    """Values ``[r, B]`` that rise with the cost, their row minima ``[r]``, and the pairs that were computed again.

    There are no minima where none were asked for.
    """

    values: Tensor
    lowest: Tensor
    pairs: tuple[Tensor, Tensor] | None


def sampled_center(bank: Tensor, dtype: torch.dtype) -> Tensor:
    """Mean ``[d]`` of some rows of the bank."""
    return ALONE.center(_sample(bank, dtype))


def _sample(bank: Tensor, dtype: torch.dtype) -> Tensor:
    return bank[:: max(1, len(bank) // _SAMPLE)].to(dtype)


class Costs:
    """Costs between all queries and all bank rows, made a block at a time and never held whole.

    Args:
        similarity: a module whose columns can be computed alone.
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        chunk: bank rows of a block.
        tile: queries of a tile.
        combine: with other processes that hold other parts of the bank.
        prepared: what was computed of the bank before, or None.

    Attributes:
        local: center each block at its own mean: a little slower, but in a bank whose near rows stand together few
            pairs are left that lose digits.
        inverse: ``[r, B]``, of the root that :meth:`finish` has taken last; None before, and if costs are no roots.
        longest: length of the longest bank row that was met so far, where the resolution of costs depends on it.
    """

    def __init__(
        self,
        similarity: nn.Module,
        queries: Tensor,
        bank: Tensor,
        chunk: int,
        tile: int,
        combine: Combine = ALONE,
        prepared: "PreparedBank | None" = None,
    ) -> None:
        self.similarity, self.bank, self.chunk, self.tile = similarity, bank, chunk, tile
        self.dtype = torch.promote_types(torch.promote_types(queries.dtype, bank.dtype), torch.float32)
        self.queries = queries.to(self.dtype)
        self.factors = factors(similarity)
        self.features = self.queries
        self.slack: Tensor | None = None
        self.scratch = Scratch()
        self.local = False
        self.inverse: Tensor | None = None
        self.combine = combine
        self.longest = self.queries.new_zeros(())
        self._measured = 0
        self._apart: set[tuple[int, int]] = set()
        self.rooted = self.factors is not None and self.factors.rooted
        self.center = self.queries.new_zeros(queries.shape[1])
        usable = prepared is not None and prepared.features is not None and prepared.features.dtype == self.dtype
        self.prepared = prepared if usable else None
        if self.prepared is not None:
            self.center, self.longest = self.prepared.center, self.prepared.longest
            self._measured = len(bank)
        if self.factors is not None:
            if self.centered and self.prepared is None:
                self.center = combine.center(_sample(bank, self.dtype))
            self.features = self.factors.of_queries(self.queries, self.center)
            if self.factors.cancels:
                self.slack = self.factors.slack_of_queries(self.features)

    @property
    def centered(self) -> bool:
        """Whether bank rows are moved to the center before anything is computed from them."""
        return self.factors is not None and (self.factors.cancels or self.factors.shifts)

    def resolution(self) -> Resolution:
        """By how much costs must differ to be told apart; after a pass over the bank."""
        longest = self.longest
        if self.factors is not None and self.factors.shifts:
            longest = self.combine.most(longest)
        return resolution_of(self.similarity, self.queries, longest)

    def moved(self, rows: Tensor) -> Tensor:
        """Bank ``rows [n, d]`` as a similarity is to be given them so that it agrees with products."""
        return rows - self.center if self.factors is not None and self.factors.shifts else rows

    def tiles(self) -> list[slice]:
        """The queries in tiles."""
        return [slice(i, min(i + self.tile, len(self.queries))) for i in range(0, len(self.queries), self.tile)]

    def block(self, start: int) -> Block:
        """The block that begins at bank row ``start``."""
        stop = min(start + self.chunk, len(self.bank))
        rows = self.bank[start:stop].to(self.dtype)
        if self.factors is None:
            return Block(start, stop, rows, rows, 0.0, None)
        if self.prepared is not None and self.prepared.features is not None and not self.local:
            norms = self.prepared.norms
            slack = 0.0 if norms is None else self.factors.slack_of_norms(norms[start:stop])
            return Block(start, stop, rows, self.prepared.features[start:stop], slack, None)
        center = rows.mean(dim=0) if self.local else self.center
        if not self.factors.cancels:
            if self.factors.shifts and stop > self._measured:
                self._measured, self.longest = stop, torch.maximum(self.longest, lengths(rows).amax())
            return Block(start, stop, rows, self.factors.of_bank(self.moved(rows), center), 0.0, None)
        features = self.scratch.empty(len(rows), rows.shape[1] + 2, rows, 11)
        slack = self.factors.slack_of_norms(squared_of_bank(rows, center, features))
        return Block(start, stop, rows, features, slack, center if self.local else None)

    def blocks(self) -> Iterator[Block]:
        """All blocks, in order."""
        for start in range(0, len(self.bank), self.chunk):
            yield self.block(start)

    def everything(self) -> Iterator[tuple[Block, Rows]]:
        """All blocks, each with all tiles of queries."""
        for block in self.blocks():
            for rows in self.tiles():
                yield block, rows

    def product(self, rows: Rows, block: Block, *, lowest: bool = True) -> Product:
        """What the costs of ``rows`` against ``block`` are the root of, or the costs themselves; in slot 0.

        Without ``lowest`` no row minima are looked for where no pair can have lost digits, as a pass before has seen.
        """
        if self.factors is None:
            values = -self.similarity(self.queries[rows], block.rows).to(self.dtype)
            return Product(values, values.amin(dim=1), None)
        if block.center is None:
            of_queries, slack = self.features[rows], None if self.slack is None else self.slack[rows]
        else:
            of_queries = self.factors.of_queries(self.queries[rows], block.center)
            slack = self.factors.slack_of_queries(of_queries)
        values = self.scratch.empty(len(of_queries), len(block.features), of_queries, 0)
        torch.mm(of_queries, block.features.T, out=values)
        tile = (block.start, rows.start) if isinstance(rows, slice) else None
        if not lowest and (slack is None or tile in self._apart):
            return Product(values, values[:, 0], None)
        least = values.amin(dim=1)
        if slack is None or float((least - slack).amin()) > block.slack:
            if tile is not None:
                self._apart.add(tile)
            return Product(values, least, None)
        pairs = self.factors.close_pairs(values, of_queries, block.features)
        if len(pairs[0]) == 0:
            return Product(values, least, None)
        values[pairs] = paired_distances(self.queries[rows], block.rows, *pairs)
        return Product(values, values.amin(dim=1), pairs)

    def finish(self, product: Product) -> Tensor:
        """Costs of a product, written over it; slot 1 of scratch is used. torch's power is faster than its root."""
        if not self.rooted:
            return product.values
        values = product.values if product.pairs is None else product.values.clamp_(min=_LEAST)
        self.inverse = torch.pow(values, -0.5, out=self.scratch.like(values, 1))
        return values.mul_(self.inverse)

    def finish_rows(self, values: Tensor) -> Tensor:
        """Costs of single values of products, to the last bit as :meth:`finish` gives them."""
        if not self.rooted:
            return values
        finite = values.clamp(min=_LEAST)
        return torch.where(values < torch.inf, finite * finite.pow(-0.5), values)
