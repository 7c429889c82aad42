"""Signed kriging over all rows of a bank: one inverse serves every query, also where some rows are left out."""

import torch
from torch import Tensor

from vicinal.blockwise.distances import squared_distances
from vicinal.heads.admissible import Identity, check_bank_weight, check_some
from vicinal.heads.kriging import Kriging, KrigingWeights


class WholeWeights(KrigingWeights):
    """Weights of all rows of a bank, in its order."""

    def mean(self, labels: Tensor) -> Tensor:
        """See :meth:`vicinal.heads.kriging.KrigingWeights.mean`; by one product."""
        return self.weights @ labels.double()


class WholeBank:
    r"""The weights of a signed :class:`vicinal.heads.Kriging` over all rows of one bank.

    They solve $M w + \mu 1 = c$, $1^\top w = 1$ with $M = C + \lambda I$. With $s = M^{-1} 1$, $S = 1^\top s$ and
    $P = M^{-1} - s s^\top / S$

    .. math::
        w = P c + s / S, \qquad \mu = (s^\top c - 1) / S

    so that a query costs $N^2$ and not $N^3$. Without the rows E, which a query may not see, they are

    .. math::
        w - P_{\cdot E} P_{EE}^{-1} w_E, \qquad \mu - s_E^\top P_{EE}^{-1} w_E / S

    exactly as if the system had been solved without them. The variance is $\kappa(q, q) + \lambda - w^\top c - \mu$.
    The origin of a linear part, which does not matter as weights sum to 1, is the mean of the bank here.

    Args:
        head: with ``convex=False``; how many rows it looks at is passed over.
        bank: ``[N, d]``.
        bank_weight: ``[N]`` or None, see there.

    Raises:
        ValueError: for a head with ``convex``, or an empty bank.

    References:
        Leaving one row out of kriging by its inverse: Dubrule (1983), doi:10.1007/BF01033232.

    >>> head = Kriging(k=1, noise=1e-6, convex=False)
    >>> whole = WholeBank(head, torch.tensor([[0.0], [1.0], [3.0]]))
    >>> round(float(whole.weights_of(torch.tensor([[0.5]]), Identity()).weights.sum()), 6)
    1.0
    """

    @torch.no_grad()
    def __init__(self, head: Kriging, bank: Tensor, bank_weight: Tensor | None = None) -> None:
        check_bank_weight(bank_weight, len(bank))
        if head.convex:
            raise ValueError(f"head: expected convex=False, got {head.convex}")
        if len(bank) == 0:
            raise ValueError("bank: expected at least one row, got an empty bank")
        self.head, self.width = head, bank.shape[1]
        self.rows, line = bank.double().tensor_split([self.width - head.linear], dim=1)
        self.origin = line.mean(dim=0)
        self.line = line - self.origin
        matrix = head.covariance(squared_distances(self.rows, self.rows))
        matrix.addmm_(self.line, self.line.T)
        noise = head.noise() if bank_weight is None else head.noise() / bank_weight.double()
        matrix.diagonal().add_(noise)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
        self.sums = inverse.sum(dim=1)
        self.total = self.sums.sum()
        self.projected = inverse.addr_(self.sums, self.sums, alpha=-1 / float(self.total))

    @torch.no_grad()
    def weights_of(self, queries: Tensor, identity: Identity) -> WholeWeights:
        """The weight of every row ``[b, N]`` in the predictions of queries ``[b, d]``.

        Args:
            queries: ``[b, d]``.
            identity: who is who; its ``bank_weight`` is that of the bank already.

        Raises:
            ValueError: if a query may see no row.
        """
        if queries.ndim != 2 or queries.shape[1] != self.width:
            raise ValueError(f"queries: expected [b, {self.width}], got {tuple(queries.shape)}")
        near, line = queries.double().tensor_split([self.rows.shape[1]], dim=1)
        line = line - self.origin
        allowed = identity.allowed(len(queries), len(self.rows))
        check_some(allowed, len(self.rows))
        vector = self.head.covariance(squared_distances(near, self.rows)).addmm_(line, self.line.T)  # [b, N]
        weights = torch.addmm(self.sums / self.total, vector, self.projected)
        multiplier = (vector @ self.sums - 1) / self.total
        if allowed is not None:
            multiplier = multiplier - self._without(weights, ~allowed)
        alone = 1 + line.square().sum(dim=1)  # the kernel of a query with itself
        variance = alone + self.head.noise() - (weights * vector).sum(dim=1) - multiplier
        return WholeWeights(weights, torch.arange(len(self.rows)).expand_as(weights), variance)

    def _without(self, weights: Tensor, hidden: Tensor) -> Tensor:
        """Take hidden rows ``[b, N]`` out of weights ``[b, N]``, in place; by how much the multipliers fall ``[b]``."""
        fall = weights.new_zeros(len(weights))
        for query in hidden.any(dim=1).nonzero()[:, 0].tolist():
            rows = hidden[query].nonzero()[:, 0]
            part = self.projected[rows]  # [m, N]
            step = torch.linalg.solve(part[:, rows], weights[query, rows])
            weights[query] -= step @ part
            weights[query, rows] = 0.0
            fall[query] = self.sums[rows] @ step / self.total
        return fall
