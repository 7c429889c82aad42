"""Losses and miners of pytorch-metric-learning in vicinal; it is not imported before a miner is made that needs it."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vicinal.losses.indices import Indices, class_codes, indices_of_weight, weight_of_indices
from vicinal.relation import other_rows


class LossFromPML(nn.Module):
    """A loss of pytorch-metric-learning, and a miner if one is given, as a criterion of vicinal.

    It is called as :class:`EmbeddingLoss` is and can be given to estimators as ``loss=``. The value is that of
    ``loss(embeddings, labels, miner(embeddings, labels))``; its reducer and distance are its own. Pairs of one id or
    one group are taken out, for which the pairs have to be listed.

    Args:
        loss: called with (embeddings, labels, indices_tuple, ref_emb, ref_labels).
        miner: called with (embeddings, labels, ref_emb, ref_labels), or None.

    >>> class Distances(nn.Module):  # stands for a loss of theirs
    ...     def forward(self, embeddings, labels, indices_tuple=None, ref_emb=None, ref_labels=None):
    ...         return (embeddings[:, None] - embeddings).norm(dim=-1).mean()
    >>> LossFromPML(Distances())(torch.eye(2), torch.tensor([0, 1]))
    tensor(0.7071)
    """

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        if not isinstance(loss, nn.Module):
            raise TypeError(f"loss: expected a loss module of pytorch-metric-learning, got {loss!r}")
        self.loss, self.miner = loss, miner

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        bank: Tensor | None = None,
        bank_labels: Tensor | None = None,
        *,
        ids: Tensor | None = None,
        bank_ids: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> Tensor:
        """The loss, a number; arguments as those of :class:`EmbeddingLoss`, labels being classes ``[b]``."""
        if labels.is_floating_point() or labels.ndim != 1:
            raise TypeError(
                f"labels: expected classes [b] as whole numbers, got {labels.dtype} of shape {tuple(labels.shape)}; "
                "pytorch-metric-learning compares labels for equality"
            )
        reference = () if bank is None else (bank, bank_labels)
        indices = None if self.miner is None else self.miner(embeddings, labels, *reference)
        allowed = self._allowed(ids, bank_ids if bank is not None else ids, groups)
        if allowed is not None:
            indices = _filtered(indices, allowed, labels, labels if bank_labels is None else bank_labels)
        value: Tensor = self.loss(embeddings, labels, indices, *reference)
        return value

    @staticmethod
    def _allowed(ids: Tensor | None, bank_ids: Tensor | None, groups: Tensor | None) -> Tensor | None:
        """Where a pair may be, or None if everything but the diagonal may."""
        if ids is None or bank_ids is None:
            if groups is not None:
                raise ValueError("ids: expected with groups, got none")
            return None
        if groups is None and bank_ids is ids and len(torch.unique(ids)) == len(ids):
            return None  # only a row itself is left out, as it is by them
        allowed = other_rows(ids, bank_ids) > 0
        if groups is not None:
            allowed &= groups[:, None] != groups
        return allowed


def _filtered(indices: Indices | None, allowed: Tensor, labels: Tensor, bank_labels: Tensor) -> Indices:
    if indices is None:
        return indices_of_weight(allowed.float(), (labels[:, None] == bank_labels).float())
    if len(indices) == 3:
        anchor, positive, negative = indices
        kept = allowed[anchor, positive] & allowed[anchor, negative]
        return anchor[kept], positive[kept], negative[kept]
    first, positive, second, negative = indices
    one, other = allowed[first, positive], allowed[second, negative]
    return first[one], positive[one], second[other], negative[other]


def miner_from_pml(miner: nn.Module) -> Callable[..., Tensor]:
    """A miner of pytorch-metric-learning as ``g(scores, relation, weight=None) -> weight``.

    Its distance is replaced by the scores that it is called with, so bounds in its settings are in units of the scores:
    similarities, higher = more alike. What it names in triplets counts as pairs. Miners that read the embeddings
    themselves (angular, distance-weighted) cannot be used so; vicinal has both.

    Args:
        miner: a module with ``mine`` and ``distance``; it is copied.

    Raises:
        TypeError: if it is no such module.
    """
    if not (isinstance(miner, nn.Module) and hasattr(miner, "distance") and hasattr(miner, "mine")):
        raise TypeError(f"miner: expected a miner of pytorch-metric-learning with a distance, got {miner!r}")
    from pytorch_metric_learning.distances import BaseDistance

    class Given(BaseDistance):  # type: ignore[misc]
        """The scores of the current call, whatever the embeddings."""

        scores: Tensor

        def forward(self, query_emb: Tensor, ref_emb: Tensor | None = None) -> Tensor:
            return self.scores

    own = copy.deepcopy(miner)
    given = Given(is_inverted=True)
    own.distance = given

    def mine(scores: Tensor, relation: Tensor, weight: Tensor | None = None) -> Tensor:
        """The weight ``[b, N]``: that given where a pair was chosen, else 0."""
        given.scores = scores.detach().clone()  # some of their miners write into it
        of_rows, of_columns = class_codes(relation)
        placeholder = scores.new_zeros(len(of_rows), 1), scores.new_zeros(len(of_columns), 1)
        itself = weight is not None and scores.shape[0] == scores.shape[1] and not bool(weight.diagonal().any())
        reference = () if itself else (placeholder[1], of_columns)  # without one it leaves the diagonal out
        indices = own(placeholder[0], of_rows, *reference)
        chosen = weight_of_indices(indices, *scores.shape).to(scores)
        return chosen if weight is None else chosen * weight

    return mine
