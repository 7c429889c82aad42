"""Scores of a tile of queries against a block of the bank, as costs, which are negated scores.

Most costs are functions of one inner product of *features* of the query and of the bank row (:class:`Factors`), so a
block of them is one matrix product. Squared distances from such products lose digits for rows that are close to each
other; those pairs are found and recomputed from their difference.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.blocks import Buffers, row_slices
from vicinal.blockwise.distances import CLOSE, paired_distances
from vicinal.blockwise.resolution import Resolution, lengths

Rows = slice | Tensor
"""Which queries: a slice, or their positions."""

RowMap = Callable[[Tensor, Tensor], Tensor]

_SAMPLE = 4096
"""Number of bank rows whose mean is the center; it may be approximate, since pairs that still cancel are recomputed."""

_LEAST = 1e-30
"""Squared distance that replaces 0 under a root."""


class Factors(NamedTuple):
    r"""A cost (negated score) $c_{ij} = \phi(q_i) \cdot \psi(x_j)$, or the square root of that.

    Attributes:
        of_queries: $\phi$, from rows ``[b, d]`` and a center ``[d]`` to ``[b, e]``.
        of_bank: $\psi$, from rows ``[N, d]`` and the same center to ``[N, e]``.
        rooted: the cost is the square root of the inner product.
        cancels: the inner product is a squared distance, which loses digits for rows much closer to each other than to
            the center; where it is at most ``CLOSE`` times the sum of the squared norms, it is recomputed from the
            difference. The last column of $\phi$ and the one at ``d`` of $\psi$ are those norms.
        shifts: moving all bank rows by one vector changes the costs of a query by one number, which does not affect
            weights; $\psi$ takes the rows minus the center, which keeps more digits.
    """

    of_queries: RowMap
    of_bank: RowMap
    rooted: bool = False
    cancels: bool = False
    shifts: bool = False

    def slack_of_queries(self, features: Tensor) -> Tensor:
        """Each query's part ``[b]`` of the squared distance below which a pair is close."""
        return CLOSE * features[:, -1]

    def slack_of_norms(self, norms: Tensor) -> float:
        """The bank row's part of it, for the largest of the squared ``norms``."""
        return CLOSE * float(norms.amax())

    def close_pairs(self, product: Tensor, of_queries: Tensor, of_bank: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and columns ``[p]`` of the entries of ``product [b, N]`` that have lost digits."""
        limit = CLOSE * (of_queries[:, -1:] + of_bank[:, -2])
        rows, columns = (product <= limit).nonzero(as_tuple=True)
        return rows, columns


def _squared_of_queries(rows: Tensor, center: Tensor) -> Tensor:
    apart = rows - center
    return torch.cat([-2 * apart, torch.ones_like(apart[:, :1]), apart.square().sum(dim=-1, keepdim=True)], dim=-1)


def _squared_of_bank(rows: Tensor, center: Tensor) -> Tensor:
    features = rows.new_empty(len(rows), rows.shape[1] + 2)
    squared_of_bank(rows, center, features)
    return features


def squared_of_bank(rows: Tensor, center: Tensor, out: Tensor) -> Tensor:
    r"""Write $\psi$ of squared distances into ``out [N, d + 2]``; return the squared norms of ``rows - center [N]``."""
    apart = torch.sub(rows, center, out=out[:, :-2])
    norms: Tensor = torch.linalg.vecdot(apart, apart)
    out[:, -2] = norms
    out[:, -1] = 1
    return norms


def distance_factors(*, rooted: bool) -> Factors:
    """Factors of squared Euclidean distances, or of distances if ``rooted``.

    >>> factors = distance_factors(rooted=False)
    >>> q, x, center = torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, 6.0]]), torch.zeros(2)
    >>> factors.of_queries(q, center) @ factors.of_bank(x, center).T
    tensor([[25.]])
    """
    return Factors(_squared_of_queries, _squared_of_bank, rooted=rooted, cancels=True)


class ScoreKernel(NamedTuple):
    """What is known about a similarity.

    Attributes:
        score: scores ``[b, N]`` of queries ``[b, d]`` and bank rows ``[N, d]``; any block of columns can be computed
            alone.
        factors: None for a similarity that is not a function of one inner product.
        resolution: from queries ``[b, d]`` and the length of the longest bank row, how much scores must differ to be
            told apart.
    """

    score: Callable[[Tensor, Tensor], Tensor]
    factors: Factors | None
    resolution: Callable[[Tensor, Tensor], Resolution]

    @property
    def euclidean(self) -> bool:
        """Whether costs are Euclidean distances, or their squares."""
        return self.factors is not None and self.factors.cancels


def _sample(bank: Tensor, dtype: torch.dtype) -> Tensor:
    return bank[:: max(1, len(bank) // _SAMPLE)].to(dtype)


class Block(NamedTuple):
    """Bank rows ``start`` to ``stop``, in the dtype of the computation, and their features."""

    start: int
    stop: int
    rows: Tensor
    features: Tensor
    slack: float


class Product(NamedTuple):
    """Values ``[r, B]`` that rise with the cost, their row minima ``[r]``, and the pairs that were recomputed.

    The minima may be meaningless if they were not requested.
    """

    values: Tensor
    lowest: Tensor
    pairs: tuple[Tensor, Tensor] | None


class BlockScores:
    """Costs between all queries and all bank rows, computed a block at a time and never held whole.

    Args:
        kernel: the similarity.
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        chunk: bank rows of a block.
        tile: queries of a tile.
    """

    def __init__(
        self,
        kernel: ScoreKernel,
        queries: Tensor,
        bank: Tensor,
        chunk: int,
        tile: int,
    ) -> None:
        self.kernel, self.bank, self.chunk, self.tile = kernel, bank, chunk, tile
        self.dtype = torch.promote_types(torch.promote_types(queries.dtype, bank.dtype), torch.float32)
        self.queries = queries.to(self.dtype)
        self.factors = kernel.factors
        self.features = self.queries
        self.slack: Tensor | None = None
        self.buffers = Buffers()
        self.rooted = self.factors is not None and self.factors.rooted
        self.center = self.queries.new_zeros(queries.shape[1])
        self._longest = self.queries.new_zeros(())  # of the rows before self._measured
        self._measured = 0
        self._apart: set[tuple[int, int]] = set()  # block and tile in which no pair has lost digits
        if self.factors is not None:
            if self.factors.cancels or self.factors.shifts:
                self.center = _sample(bank, self.dtype).mean(dim=0)
            self.features = self.factors.of_queries(self.queries, self.center)
            if self.factors.cancels:
                self.slack = self.factors.slack_of_queries(self.features)

    def resolution(self) -> Resolution:
        """How much costs must differ to be told apart; call it after a pass over the bank."""
        return self.kernel.resolution(self.queries, self._longest)

    def moved(self, rows: Tensor) -> Tensor:
        """Bank ``rows [n, d]`` as a similarity must get them to agree with products."""
        return rows - self.center if self.factors is not None and self.factors.shifts else rows

    def tiles(self) -> list[slice]:
        """The queries in tiles."""
        return row_slices(len(self.queries), self.tile)

    def block(self, start: int) -> Block:
        """The block that begins at bank row ``start``."""
        stop = min(start + self.chunk, len(self.bank))
        rows = self.bank[start:stop].to(self.dtype)  # [B, d]
        if self.factors is None:
            return Block(start, stop, rows, rows, 0.0)
        if not self.factors.cancels:
            if self.factors.shifts and stop > self._measured:
                self._measured, self._longest = stop, torch.maximum(self._longest, lengths(rows).amax())
            return Block(start, stop, rows, self.factors.of_bank(self.moved(rows), self.center), 0.0)
        features = self.buffers.empty("bank features", len(rows), rows.shape[1] + 2, rows)
        slack = self.factors.slack_of_norms(squared_of_bank(rows, self.center, features))
        return Block(start, stop, rows, features, slack)

    def blocks(self) -> Iterator[Block]:
        """All blocks, in order."""
        for start in range(0, len(self.bank), self.chunk):
            yield self.block(start)

    def everything(self) -> Iterator[tuple[Block, Rows]]:
        """All blocks, each with every tile of queries."""
        for block in self.blocks():
            for rows in self.tiles():
                yield block, rows

    def product(self, rows: Rows, block: Block, *, lowest: bool = True) -> Product:
        """The costs of ``rows`` against ``block``, or their squares if costs are roots.

        Without ``lowest``, row minima are skipped where an earlier pass found that no pair has lost digits.
        """
        if self.factors is None:
            values = -self.kernel.score(self.queries[rows], block.rows).to(self.dtype)
            return Product(values, values.amin(dim=1), None)
        of_queries, slack = self.features[rows], None if self.slack is None else self.slack[rows]
        values = self.buffers.empty("products", len(of_queries), len(block.features), of_queries)  # [r, B]
        torch.mm(of_queries, block.features.T, out=values)
        tile = (block.start, rows.start) if isinstance(rows, slice) else None
        if not lowest and (slack is None or tile in self._apart):
            return Product(values, values[:, 0], None)
        least = values.amin(dim=1)  # [r]
        if slack is None or float((least - slack).amin()) > block.slack:
            if tile is not None:
                self._apart.add(tile)
            return Product(values, least, None)
        pairs = self.factors.close_pairs(values, of_queries, block.features)
        if len(pairs[0]) == 0:
            return Product(values, least, None)
        values[pairs] = paired_distances(self.queries[rows], block.rows, *pairs)
        return Product(values, values.amin(dim=1), pairs)

    def costs(self, product: Product) -> Tensor:
        """Costs ``[r, B]`` of a product, which overwrite it; torch's power is faster than its root."""
        if not self.rooted:
            return product.values
        values = product.values if product.pairs is None else product.values.clamp_(min=_LEAST)
        inverse = torch.pow(values, -0.5, out=self.buffers.like("inverse roots", values))
        return values.mul_(inverse)

    def costs_of(self, values: Tensor) -> Tensor:
        """Costs of single values of products, equal to those of :meth:`costs` to the last bit."""
        if not self.rooted:
            return values
        finite = values.clamp(min=_LEAST)
        return torch.where(values < torch.inf, finite * finite.pow(-0.5), values)
