"""Losses of embeddings that are added to the error of the predictions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.losses import ProxyLoss


class AddedLosses(nn.Module):
    """A weighted sum of losses of the embeddings of a batch, for training only.

    Two rows of the same id or group are not a pair, as in the head. Learned class vectors (proxies) are parameters of
    this module: they are trained with the network, but not part of it.

    Args:
        criteria: factor and criterion of each loss, ``criterion(embeddings, labels, ids=, groups=)`` or a
            :class:`vicinal.losses.ProxyLoss`.
        low: label that training has scaled to 0.
        high: label that training has scaled to 1; the criteria see labels in their own units.
        multilabel: whether rows have several classes, 0 or 1 ``[b, K]``; the criteria then see them unchanged.

    >>> from vicinal.losses import EmbeddingLoss
    >>> added = AddedLosses([(0.5, EmbeddingLoss("supcon"))])
    >>> one_hot = torch.eye(2)[[0, 0, 1, 1]]
    >>> bool(added(torch.eye(4)[[0, 0, 1, 1]], one_hot, torch.arange(4)) < 1e-3)
    True
    """

    def __init__(
        self,
        criteria: Sequence[tuple[float, nn.Module]],
        low: float = 0.0,
        high: float = 1.0,
        *,
        multilabel: bool = False,
    ) -> None:
        super().__init__()
        self.weights = [weight for weight, _ in criteria]
        self.criteria = nn.ModuleList([criterion for _, criterion in criteria])
        self.low, self.high, self.multilabel = low, high, multilabel

    def forward(self, embeddings: Tensor, labels: Tensor, ids: Tensor, groups: Tensor | None = None) -> Tensor:
        """The weighted sum of the losses of ``embeddings [b, d]``; labels are numbers in [0, 1], or one-hot."""
        if self.multilabel:
            targets = labels.long()
        else:
            targets = labels.argmax(dim=-1) if labels.ndim == 2 else self.low + (self.high - self.low) * labels
        return self.summed(embeddings, targets, ids, groups)

    def summed(self, embeddings: Tensor, targets: Tensor, ids: Tensor, groups: Tensor | None) -> Tensor:
        """The same for ``targets`` as the criteria take them."""
        total = embeddings.new_zeros((), dtype=torch.promote_types(embeddings.dtype, torch.float32))
        for weight, criterion in zip(self.weights, self.criteria, strict=True):
            identity = {} if isinstance(criterion, ProxyLoss) else {"ids": ids, "groups": groups}
            total = total + weight * criterion(embeddings, targets, **identity)
        return total
