"""Kriging over the rows that an index finds: one search a query, whatever the size of the bank."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from vicinal.blockwise.blocks import policy, row_slices
from vicinal.blockwise.exclusion import check_some_row
from vicinal.core.checks import check_integer
from vicinal.heads.approximate import Approximation
from vicinal.heads.kriging import Kriging, KrigingWeights
from vicinal.index import Index, NeighborBank


class ApproximateKriging:
    """The weights of :class:`Kriging` for the k rows that an index finds.

    With an exact index these are the k nearest rows of the bank, up to rows that are equally near in float32. With an
    approximate index (FAISS, Milvus) they are what it returned: measure its recall.

    Args:
        head: sets how many rows are used, and their weights.
        index: holds the rows of the bank under their keys; of similarity l2.
        bank: with labels: numbers ``[N]``, or class indices ``[N]``, or 0 and 1 for each class ``[N, K]``.
        classes: number of classes K, if labels are classes; predictions are then their shares.

    Raises:
        ValueError: for a bank without labels.

    >>> from vicinal.index import ExactIndex
    >>> bank = NeighborBank(1)
    >>> bank.add(range(1000), torch.arange(1000.0)[:, None], torch.arange(1000.0))
    >>> near = ApproximateKriging(Kriging(8, scale=4.0, noise=1e-6), ExactIndex(1, bank=bank), bank)
    >>> answer = near.predict(torch.tensor([[5.25]], dtype=torch.float64), top=2)
    >>> round(float(answer.prediction), 2), answer.positions.tolist()
    (5.24, [[5, 6]])
    """

    def __init__(self, head: Kriging, index: Index, bank: NeighborBank, *, classes: int | None = None) -> None:
        if bank.labels is None:
            raise ValueError("bank: expected one with labels, got one without")
        self.head, self.index, self.bank, self.classes = head, index, bank, classes

    def added(self, keys: Tensor) -> None:
        """Does nothing: the bank and the index, to which the rows were added, hold all that is needed."""

    def removed(self, keys: Tensor) -> None:
        """Does nothing, as :meth:`added`."""

    @torch.no_grad()
    def local_weights(self, queries: Tensor, *, ids: Any = None, groups: Any = None) -> KrigingWeights:
        """The rows that make the predictions of queries ``[b, d]``: see :meth:`Kriging.local_weights`.

        Args:
            queries: ``[b, d]``, finite.
            ids: ``[b]``, ids of the queries, as in the bank: a query never sees the row with its own id. None: all
                rows.
            groups: ``[b]``, likewise: nor a row of its own group.

        Raises:
            ValueError: if a query has no admissible row.
        """
        hidden = None if ids is None and groups is None else self.bank.hidden_keys(ids, groups)
        k = min(self.head.k, len(self.bank))
        parts = []
        for part in row_slices(len(queries), policy().batch_queries):
            exclude = None if hidden is None else hidden[part]
            keys = self.index.search(queries[part].float(), k, exclude=exclude).ids
            parts.append(self._weights(queries[part], self.bank.positions_of_keys(keys)))
        return KrigingWeights(*(torch.cat(values) for values in zip(*(part[:3] for part in parts), strict=True)))

    def _weights(self, queries: Tensor, positions: Tensor) -> KrigingWeights:
        """Weights of the rows at ``positions [b, k]``, which are read once each."""
        known = positions >= 0
        check_some_row(torch.where(known.any(dim=1), 0.0, torch.inf))
        places, where = torch.unique(positions[known], return_inverse=True)
        slots = torch.full_like(positions, -1).masked_scatter_(known, where)
        local = self.head.weights_of(queries, self.bank.vectors_at(places), slots)
        return KrigingWeights(local.weights, positions, local.variance)

    def predict(self, queries: Tensor, *, ids: Any = None, groups: Any = None, top: int = 0) -> Approximation:
        """Predictions of queries ``[b, d]``, and their ``top`` largest absolute weights.

        Args:
            queries: see :meth:`local_weights`, as are ``ids`` and ``groups``.
            ids: see there.
            groups: see there.
            top: how many of the largest weights to return as well.

        Returns:
            an approximation with ``left_out`` and ``error`` 0: no other row has weight, unless the index missed one.
        """
        check_integer("top", top, 0)
        local = self.local_weights(queries, ids=ids, groups=groups)
        nothing = torch.zeros(len(queries), dtype=torch.float64)
        largest = local.largest(top)
        return Approximation(local.mean(self._labels()), nothing, nothing, (local.positions >= 0).sum(dim=1), *largest)

    def _labels(self) -> Tensor:
        labels = self.bank.labels
        if labels is None:
            raise ValueError("bank: expected one with labels, got one without")
        return labels if self.classes is None or labels.ndim == 2 else one_hot(labels.long(), self.classes).double()
