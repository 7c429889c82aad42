"""Losses and miners of vicinal where pytorch-metric-learning expects its own; nothing of it is imported."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vicinal.losses.embedding import EmbeddingLoss
from vicinal.losses.indices import Indices, indices_of_weight, weight_of_indices
from vicinal.losses.proxies import ProxyLoss


class LossForPML(nn.Module):
    """A criterion of vicinal where pytorch-metric-learning expects a loss, such as its trainers.

    Its ``CrossBatchMemory`` takes losses of its own list only, by the name of their class; for a memory give the
    columns as ``ref_emb`` and ``ref_labels``, or use :class:`CrossBatchBank` with the criterion itself.

    Args:
        criterion: an :class:`EmbeddingLoss` (without a bank) or a :class:`ProxyLoss`.

    >>> loss = LossForPML(EmbeddingLoss("supcon"))
    >>> loss(torch.eye(3)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))
    tensor(9.0599e-05)
    """

    def __init__(self, criterion: EmbeddingLoss | ProxyLoss) -> None:
        super().__init__()
        if not isinstance(criterion, EmbeddingLoss | ProxyLoss):
            raise TypeError(f"criterion: expected an EmbeddingLoss or a ProxyLoss, got {criterion!r}")
        if isinstance(criterion, EmbeddingLoss) and criterion.bank is not None:
            raise ValueError(
                "criterion: expected none with a bank, whose rows have no place in an indices_tuple, got one"
            )
        self.criterion = criterion

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Indices | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss.

        Args:
            embeddings: ``[b, d]``.
            labels: classes ``[b]``.
            indices_tuple: of a miner; only these pairs count (triplets count as their pairs). None: all.
            ref_emb: other columns ``[N, d]``, or None for the batch itself.
            ref_labels: ``[N]``.
        """
        if isinstance(self.criterion, ProxyLoss):
            if indices_tuple is not None or ref_emb is not None:
                raise ValueError("indices_tuple: expected None, as the columns are vectors of classes, got pairs")
            own: Tensor = self.criterion(embeddings, labels)
            return own
        queries, columns = self.criterion.sides(embeddings, labels, ref_emb, ref_labels)
        scores, relation, weight = self.criterion.pairs(queries, columns)
        if indices_tuple is not None:
            mined = weight_of_indices(indices_tuple, *scores.shape).to(scores)
            weight = mined if weight is None else mined * weight
        criterion = self.criterion
        value: Tensor = criterion.loss(scores, relation, weight, reduction=criterion.reduction, **criterion.hyper)
        return value


class MinerForPML(nn.Module):
    """A miner of vicinal where pytorch-metric-learning expects one: it gives pairs by row numbers.

    Args:
        miner: ``g(scores, relation, weight) -> weight``.
        similarity: a registered name or a module.

    >>> from vicinal.miners import hard
    >>> pairs = MinerForPML(hard)(torch.eye(3)[[0, 0, 1, 2]], torch.tensor([0, 0, 1, 1]))
    >>> [i.tolist() for i in pairs[:2]]
    [[0, 1, 2, 3], [1, 0, 3, 2]]
    """

    def __init__(self, miner: Callable[..., Tensor], similarity: str | nn.Module = "cosine") -> None:
        super().__init__()
        self.criterion = EmbeddingLoss(lambda scores, *rest: scores.sum(), similarity=similarity, miner=miner)

    @torch.no_grad()
    def forward(
        self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor | None = None, ref_labels: Tensor | None = None
    ) -> Indices:
        """(anchors, positives, anchors, negatives) of the pairs that count."""
        _, relation, weight = self.criterion.pairs(*self.criterion.sides(embeddings, labels, ref_emb, ref_labels))
        return indices_of_weight(torch.ones_like(relation) if weight is None else weight, relation)
