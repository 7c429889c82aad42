"""Costs, which are negated scores, of a tile of queries against a block of the bank."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.masks.scratch import Scratch
from vicinal.similarity.distances import paired_distances
from vicinal.similarity.factors import factors

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
    """Values ``[r, B]`` that rise with the cost, their row minima ``[r]``, and the pairs that were computed again."""

    values: Tensor
    lowest: Tensor
    pairs: tuple[Tensor, Tensor] | None


class Costs:
    """Costs between all queries and all bank rows, made a block at a time and never held whole.

    Args:
        similarity: a module whose columns can be computed alone.
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        chunk: bank rows of a block.
        tile: queries of a tile.

    Attributes:
        local: center each block at its own mean: a little slower, but in a bank whose near rows stand together few
            pairs are left that lose digits.
    """

    def __init__(self, similarity: nn.Module, queries: Tensor, bank: Tensor, chunk: int, tile: int) -> None:
        self.similarity, self.bank, self.chunk, self.tile = similarity, bank, chunk, tile
        self.dtype = torch.promote_types(torch.promote_types(queries.dtype, bank.dtype), torch.float32)
        self.queries = queries.to(self.dtype)
        self.factors = factors(similarity)
        self.features = self.queries
        self.slack: Tensor | None = None
        self.scratch = Scratch()
        self.local = False
        self.rooted = self.factors is not None and self.factors.rooted
        self.center = self.queries.new_zeros(queries.shape[1])
        if self.factors is not None:
            if self.factors.cancels:
                self.center = bank[:: max(1, len(bank) // _SAMPLE)].to(self.dtype).mean(dim=0)
            self.features = self.factors.of_queries(self.queries, self.center)
            if self.factors.cancels:
                self.slack = self.factors.slack_of_queries(self.features)

    def tiles(self) -> list[slice]:
        """The queries in tiles."""
        return [slice(i, min(i + self.tile, len(self.queries))) for i in range(0, len(self.queries), self.tile)]

    def block(self, start: int) -> Block:
        """The block that begins at bank row ``start``."""
        stop = min(start + self.chunk, len(self.bank))
        rows = self.bank[start:stop].to(self.dtype)
        if self.factors is None:
            return Block(start, stop, rows, rows, 0.0, None)
        center = rows.mean(dim=0) if self.local else self.center
        features = self.factors.of_bank(rows, center)
        slack = self.factors.slack_of_bank(features) if self.factors.cancels else 0.0
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

    def product(self, rows: Rows, block: Block) -> Product:
        """What the costs of ``rows`` against ``block`` are the root of, or the costs themselves; in slot 0."""
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
        lowest = values.amin(dim=1)
        if slack is None or float((lowest - slack).amin()) > block.slack:
            return Product(values, lowest, None)
        pairs = self.factors.close_pairs(values, of_queries, block.features)
        if len(pairs[0]) == 0:
            return Product(values, lowest, None)
        values[pairs] = paired_distances(self.queries[rows], block.rows, *pairs)
        return Product(values, values.amin(dim=1), pairs)

    def finish(self, product: Product) -> Tensor:
        """Costs of a product, written over it; slot 1 of scratch is used. torch's power is faster than its root."""
        if not self.rooted:
            return product.values
        values = product.values if product.pairs is None else product.values.clamp_(min=_LEAST)
        return values.mul_(torch.pow(values, -0.5, out=self.scratch.like(values, 1)))

    def finish_rows(self, values: Tensor) -> Tensor:
        """Costs of single values of products, to the last bit as :meth:`finish` gives them."""
        if not self.rooted:
            return values
        finite = values.clamp(min=_LEAST)
        return torch.where(values < torch.inf, finite * finite.pow(-0.5), values)
