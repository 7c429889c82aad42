"""Sums over the bank of weights and weighted labels."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.costs import Rows


class Sums(NamedTuple):
    """Of the weights of each row: their sum ``[b, 1]``, that of weight times label ``[b, T]``, both in float64."""

    total: Tensor
    labels: Tensor

    @classmethod
    def zeros(cls, like: Tensor, rows: int, targets: int) -> "Sums":
        """Sums of nothing."""
        empty = torch.zeros(rows, 1 + targets, dtype=torch.float64, device=like.device)
        return cls(empty[:, :1], empty[:, 1:])

    def add(self, rows: Rows, weights: Tensor, labels: Tensor) -> None:
        """Add the ``weights [r, B]`` of the queries ``rows`` to rows with ``labels [B, T]``."""
        self.total[rows] += weights.sum(dim=1, keepdim=True)
        weights = weights.to(labels.dtype)
        if labels.shape[1] <= 3:
            for target in range(labels.shape[1]):
                self.labels[rows, target] += weights @ labels[:, target]
        else:
            self.labels[rows] += (labels.T @ weights.T).T

    def mean(self) -> Tensor:
        """Weighted mean of the labels ``[b, T]``."""
        return self.labels / self.total
