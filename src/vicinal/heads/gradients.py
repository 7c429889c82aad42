"""Gradients of queries and bank from gradients of costs, a block of the bank at a time."""

from collections.abc import Callable

import torch
from torch import Tensor

from vicinal.heads.costs import Block, Costs, Product
from vicinal.similarity.factors import Factors

Back = Callable[[Tensor], None]
"""Takes the gradient ``[r, B]`` of the costs of a tile once they are finished, and may write over it."""

_PAIRS = 64
"""Rows whose single pairs are scored together by a similarity that only knows matrices."""


class CostGradients:
    """Gradients of queries, bank and parameters of the similarity, from gradients of costs, block after block.

    Attributes:
        bank: ``[N, d]`` in the bank's dtype, or None if it is not asked for.
        scale: ``[b, 1]``, what gradients of the costs of each query are to be multiplied by.
    """

    def __init__(self, costs: Costs, *, bank: bool, parameters: list[Tensor]) -> None:
        self.scale = torch.ones_like(costs.queries[:, :1])
        self.costs = costs
        self.bank = torch.zeros_like(costs.bank) if bank else None
        self.parameters = [torch.zeros_like(value) for value in parameters]
        self._asked = parameters
        self._queries = torch.zeros_like(costs.queries)
        self._features = torch.zeros_like(costs.features)

    def open(self, block: Block) -> None:
        """Begin with ``block``."""
        self._block = block
        self._rows = torch.zeros_like(block.rows)
        self._block_features = torch.zeros_like(block.features)

    def tracked(self, rows: slice) -> tuple[Product, Back]:
        """The product of ``rows`` with the open block, and what takes the gradient of its costs ``[r, B]``."""
        if self.costs.factors is None:
            return self._through_module(rows)
        product = self.costs.product(rows, self._block, lowest=False)
        near = None if product.pairs is None else product.values[product.pairs]

        def back(gradient: Tensor) -> None:
            if product.pairs is not None and near is not None:
                self._through_pairs(rows, product.pairs, near, gradient)
            self._through_product(rows, gradient)

        return product, back

    def _through_product(self, rows: slice, gradient: Tensor) -> None:
        scale = self.scale[rows]
        if self.costs.rooted and self.costs.inverse is not None:
            gradient, scale = gradient.mul_(self.costs.inverse), 0.5 * scale
        # Products of narrow matrices are much faster with the long side last.
        self._features[rows] += (self._block.features.T @ gradient.T).T.mul_(scale)
        if self.bank is not None:
            self._block_features += ((self.costs.features[rows] * scale).T @ gradient).T

    def _through_pairs(self, rows: slice, pairs: tuple[Tensor, Tensor], near: Tensor, gradient: Tensor) -> None:
        queries, columns = pairs
        each = gradient[pairs] * self.scale[rows][queries, 0]
        apart = self.costs.queries[rows][queries] - self._block.rows[columns]
        cost = self.costs.finish_rows(near)
        scale = torch.where(near > 0, each / torch.where(near > 0, cost, 1.0), 0.0) if self.costs.rooted else 2 * each
        apart *= scale[:, None]
        self._queries[rows].index_add_(0, queries, apart)
        self._rows.index_add_(0, columns, apart, alpha=-1)
        gradient[pairs] = 0.0

    def _through_module(self, rows: slice) -> tuple[Product, Back]:
        leaves = [self.costs.queries[rows].detach(), self._block.rows.detach()]
        with torch.enable_grad():
            leaves = [leaf.requires_grad_() for leaf in leaves]
            scores = self.costs.similarity(*leaves)
        values = -scores.detach().to(self.costs.dtype)

        def back(gradient: Tensor) -> None:
            of_scores = -(gradient * self.scale[rows]).to(scores.dtype)
            found = torch.autograd.grad(scores, [*leaves, *self._asked], of_scores, allow_unused=True)
            for total, part in zip([self._queries[rows], self._rows, *self.parameters], found, strict=True):
                if part is not None:
                    total += part

        return Product(values, values.amin(dim=1), None), back

    def add_pairs(self, rows: Tensor, positions: Tensor, gradient: Tensor) -> None:
        """Take the gradients ``[p]`` of single costs: of the queries ``rows`` with the bank rows at ``positions``."""
        for start in range(0, len(rows), _PAIRS):
            some = slice(start, start + _PAIRS)
            q, at = rows[some], positions[some]
            rows_at = self.costs.moved(self.costs.bank[at].to(self.costs.dtype))
            leaves = [self.costs.queries[q].detach(), rows_at.detach()]
            with torch.enable_grad():
                leaves = [leaf.requires_grad_() for leaf in leaves]
                scores = self.costs.similarity(*leaves).diagonal()
            found = torch.autograd.grad(
                scores, [*leaves, *self._asked], -gradient[some].to(scores.dtype), allow_unused=True
            )
            if found[0] is not None:
                self._queries.index_add_(0, q, found[0])
            if found[1] is not None and self.bank is not None:
                self.bank.index_add_(0, at, found[1].to(self.bank.dtype))
            for total, part in zip(self.parameters, found[2:], strict=True):
                if part is not None:
                    total += part

    def close(self) -> None:
        """End with the open block: write the gradient of its rows."""
        if self.bank is None:
            return
        if self.costs.factors is not None:
            self._rows += _pulled(self.costs.factors, self._block.rows, self.costs.center, self._block_features)
        self.bank[self._block.start : self._block.stop] += self._rows.to(self.bank.dtype)

    def queries(self) -> Tensor:
        """Gradient of the queries ``[b, d]``."""
        if self.costs.factors is None:
            return self._queries
        of_queries = self.costs.factors.of_queries
        return self._queries + _differentiated(of_queries, self.costs.queries, self.costs.center, self._features)


def _pulled(factors: Factors, rows: Tensor, center: Tensor, gradient: Tensor) -> Tensor:
    """Gradient of bank ``rows`` from that of what products take of them."""
    if factors.pull_bank is None:
        return _differentiated(factors.of_bank, rows, center, gradient)
    return factors.pull_bank(rows, center, gradient)


def _differentiated(
    mapped: Callable[[Tensor, Tensor], Tensor], rows: Tensor, center: Tensor, gradient: Tensor
) -> Tensor:
    """Gradient at ``rows`` of ``mapped(rows, center)`` from the gradient of its result."""
    with torch.enable_grad():
        leaf = rows.detach().requires_grad_()
        result = mapped(leaf, center)
    (found,) = torch.autograd.grad(result, leaf, gradient)
    return found
