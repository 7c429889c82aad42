"""Signed kriging over all rows of a bank: one inverse serves every query, also where some rows are left out."""

from collections.abc import Iterator

import torch
from torch import Tensor

from vicinal.blockwise.blocks import policy, query_rows
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
        vector, line, hidden = self._kernel(queries, identity)
        weights = torch.addmm(self.sums / self.total, vector, self.projected)
        multiplier = (vector @ self.sums - 1) / self.total
        for at, rows, part, inside in self._parts(hidden):
            step = torch.linalg.solve(inside, weights[at].gather(1, rows))
            weights[at] = (weights[at] - (step[:, None] @ part)[:, 0]).scatter(1, rows, 0.0)
            multiplier[at] -= (step * self.sums[rows]).sum(dim=1) / self.total
        alone = 1 + line.square().sum(dim=1)  # the kernel of a query with itself
        variance = alone + self.head.noise() - (weights * vector).sum(dim=1) - multiplier
        return WholeWeights(weights, torch.arange(len(self.rows)).expand_as(weights), variance)

    @torch.no_grad()
    def means_of(self, queries: Tensor, labels: Tensor, identity: Identity) -> Tensor:
        """Predictions ``[b]`` or ``[b, T]`` from ``labels [N]`` or ``[N, T]`` by these weights.

        With $P Y$ known a query costs N, and no matrix of weights is made.
        """
        vector, _, hidden = self._kernel(queries, identity)
        known = labels.double().reshape(len(labels), -1)
        solved = self.projected @ known  # [N, T]
        means = torch.addmm(self.sums @ known / self.total, vector, solved)
        for at, rows, part, inside in self._parts(hidden):
            there = self.sums[rows] / self.total + (part @ vector[at, :, None])[:, :, 0]
            means[at] -= (torch.linalg.solve(inside, there)[:, None] @ solved[rows])[:, 0]
        return means.reshape(-1, *labels.shape[1:])

    def _kernel(self, queries: Tensor, identity: Identity) -> tuple[Tensor, Tensor, Tensor | None]:
        """The kernel of queries with all rows ``[b, N]``, their linear part, and rows that they may not see."""
        if queries.ndim != 2 or queries.shape[1] != self.width:
            raise ValueError(f"queries: expected [b, {self.width}], got {tuple(queries.shape)}")
        near, line = queries.double().tensor_split([self.rows.shape[1]], dim=1)
        line = line - self.origin
        allowed = identity.allowed(len(queries), len(self.rows))
        check_some(allowed, len(self.rows))
        vector = self.head.covariance(squared_distances(near, self.rows)).addmm_(line, self.line.T)  # [b, N]
        return vector, line, None if allowed is None else ~allowed

    def _parts(self, hidden: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Queries ``[q]`` with as many hidden rows, these ``[q, m]``, P of them and all, and of them ``[q, m, m]``."""
        counts = torch.zeros(0) if hidden is None else hidden.sum(dim=1)
        for count in sorted({*counts[counts > 0].tolist()}):
            step = query_rows(policy().block_entries, count * len(self.rows))
            for at in (counts == count).nonzero()[:, 0].split(step):
                rows = hidden[at].nonzero()[:, 1].view(len(at), count)  # type: ignore[index]  # some are hidden
                part = self.projected[rows]  # [q, m, N]
                yield at, rows, part, part.gather(2, rows[:, None].expand(-1, count, -1))
