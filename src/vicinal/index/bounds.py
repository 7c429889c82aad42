r"""How wrong a product of a block may be, so that no row is missed by a scan of rounded numbers.

A scan computes products $p$ that rise as scores fall (see :mod:`vicinal.similarity.factors`). For a float32 product
of length $d$, $|\hat p - p| \le \gamma_d \sum_k |\phi_k \psi_k|$ with $\gamma_d = d u / (1 - d u)$ and $u = 2^{-24}$
(Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); the sum is at most twice the squared norms, or
the product of the norms. A row that is stored rounded, with $\|x - \hat x\| \le r$, has a distance wrong by at most r,
an inner product by at most $\|q\| r$, and a direction by at most $2 r / \|x\|$.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.blockwise.scores import Factors
from vicinal.similarity import Cosine, Dot, NegativeSquaredL2
from vicinal.similarity.factors import factors

_ROUNDED = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-8}
"""How products round what they take, by ``torch.get_float32_matmul_precision()``."""

_SCORE = 2.0**-22
"""Share by which a score may be off that was rounded to float32, twice over."""


class Block(NamedTuple):
    """A block as it is scanned: features ``[n, e]``, and its longest row."""

    features: Tensor
    longest: float


class Scan:
    """Products of queries with blocks, and which of them may belong to rows of a score that is looked for.

    This one is for a similarity that is taken at its word: its scores are exact.

    Args:
        similarity: any.
        queries: ``[b, d]``.
    """

    trusted = True

    def __init__(self, similarity: nn.Module, queries: Tensor) -> None:
        self.similarity, self.queries = similarity, queries

    def block(self, rows: Tensor) -> Block:
        """A block of rows ``[n, d]``."""
        return Block(rows, 0.0)

    def products(self, tile: slice, block: Block) -> Tensor:
        """``[r, n]``, lower = more alike."""
        scores: Tensor = self.similarity(self.queries[tile], block.features)
        return -scores.float()

    def reach(self, tile: slice, block: Block, scores: Tensor) -> Tensor:
        """The highest product ``[r]`` that a row of at least these scores ``[r]`` may have."""
        del tile, block
        return -scores

    def least(self, tile: slice, block: Block, products: Tensor) -> Tensor:
        """The lowest score ``[r]`` that a row of at most these products ``[r]`` may have."""
        del tile, block
        return -products


class DistanceScan(Scan):
    """For negated distances: products are squared distances."""

    trusted = False

    def __init__(self, similarity: nn.Module, queries: Tensor, factors: Factors, center: Tensor) -> None:
        super().__init__(similarity, queries)
        self.factors, self.center, self.squared = factors, center, type(similarity) is NegativeSquaredL2
        self.features = factors.of_queries(queries, center)
        self.error = _share(queries.shape[1])

    def block(self, rows: Tensor) -> Block:
        """See :meth:`Scan.block`."""
        features = self.factors.of_bank(rows, self.center)
        return Block(features, float(features[:, -2].amax()))

    def products(self, tile: slice, block: Block) -> Tensor:
        """See :meth:`Scan.products`."""
        products: Tensor = self.features[tile] @ block.features.T
        return products

    def reach(self, tile: slice, block: Block, scores: Tensor) -> Tensor:
        """See :meth:`Scan.reach`."""
        cost = -scores * (1 + _SCORE)
        distance = cost.sqrt() if self.squared else cost
        return (distance.square() + self._slack(tile, block)) * (1 + _SCORE)

    def least(self, tile: slice, block: Block, products: Tensor) -> Tensor:
        """See :meth:`Scan.least`."""
        squared = products.clamp(min=0) + self._slack(tile, block)
        return -(squared if self.squared else squared.sqrt()) * (1 + 4 * _SCORE)

    def _slack(self, tile: slice, block: Block) -> Tensor:
        return 2 * self.error * (self.features[tile, -1] + block.longest)


class ProductScan(Scan):
    """For inner products and cosines: products are those, negated."""

    trusted = False

    def __init__(self, similarity: nn.Module, queries: Tensor, factors: Factors) -> None:
        super().__init__(similarity, queries)
        self.factors = factors
        self.features = factors.of_queries(queries, queries)
        self.lengths = self.features.norm(dim=1) * (1 + 1e-5)
        self.error = _share(queries.shape[1])

    def block(self, rows: Tensor) -> Block:
        """See :meth:`Scan.block`."""
        features = self.factors.of_bank(rows, rows)
        return Block(features, float(features.norm(dim=1).amax()) * (1 + 1e-5))

    def products(self, tile: slice, block: Block) -> Tensor:
        """See :meth:`Scan.products`."""
        products: Tensor = self.features[tile] @ block.features.T
        return products

    def reach(self, tile: slice, block: Block, scores: Tensor) -> Tensor:
        """See :meth:`Scan.reach`."""
        return -scores + _SCORE * scores.abs() + self._slack(tile, block)

    def least(self, tile: slice, block: Block, products: Tensor) -> Tensor:
        """See :meth:`Scan.least`."""
        return -products - 2 * _SCORE * products.abs() - 2 * self._slack(tile, block)

    def _slack(self, tile: slice, block: Block) -> Tensor:
        slack: Tensor = self.lengths[tile] * self.error * block.longest * (1 + _SCORE)
        return slack


def make_scan(similarity: nn.Module, queries: Tensor, center: Tensor) -> Scan:
    """The scan of a similarity; ``center [d]`` is a point near the rows, which costs digits if it is far."""
    form = factors(similarity)
    if form is None:
        return Scan(similarity, queries)
    if form.cancels:
        return DistanceScan(similarity, queries, form, center)
    if isinstance(similarity, Cosine | Dot):
        return ProductScan(similarity, queries, form)
    return Scan(similarity, queries)


def _share(dim: int) -> float:
    """By what share of the norms a product of width ``dim`` may be wrong, with what made its factors."""
    return (2 * dim + 64) * 2.0**-24 + 4 * _ROUNDED[torch.get_float32_matmul_precision()]
