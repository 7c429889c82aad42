"""Losses and miners of vicinal for pytorch-metric-learning, and its own in vicinal.

It is imported only when a miner that needs it is made. Its pairs are tuples of row numbers, ``(anchor, positive,
anchor, negative)`` or ``(anchor, positive, negative)``; here they are weights and relations ``[b, N]``.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vicinal.losses.embedding import EmbeddingLoss
from vicinal.losses.honesty import with_nan_of
from vicinal.losses.proxy_loss import ProxyLoss
from vicinal.relation.pairs import other_rows

Indices = tuple[Tensor, ...]


def weight_of_indices(indices: Indices, rows: int, columns: int) -> Tensor:
    """The weight ``[rows, columns]`` that is 1 for each pair that ``indices`` name.

    Args:
        indices: four tensors (anchors, positives, anchors, negatives), or three (anchors, positives, negatives).
        rows: b.
        columns: N.

    >>> weight_of_indices((torch.tensor([0]), torch.tensor([1]), torch.tensor([2])), 3, 3)
    tensor([[0., 1., 1.],
            [0., 0., 0.],
            [0., 0., 0.]])
    """
    if len(indices) not in (3, 4):
        raise ValueError(f"indices_tuple: expected three or four tensors, got {len(indices)}")
    first, positive, *rest = indices
    second, negative = (first, rest[0]) if len(rest) == 1 else rest
    weight = torch.zeros(rows, columns, device=first.device)
    weight[first.long(), positive.long()] = 1
    weight[second.long(), negative.long()] = 1
    return weight


def indices_of_weight(weight: Tensor, relation: Tensor) -> Indices:
    """The pairs of weight above 0 as (anchors, positives, anchors, negatives).

    >>> [i.tolist() for i in indices_of_weight(torch.tensor([[0.0, 1, 1]]), torch.tensor([[1.0, 1, 0]]))]
    [[0], [1], [0], [2]]
    """
    counted, related = weight > 0, relation > 0
    return (*torch.where(counted & related), *torch.where(counted & ~related))


def class_codes(relation: Tensor) -> tuple[Tensor, Tensor]:
    """Class numbers of rows ``[b]`` and of columns ``[N]`` that have this relation.

    Raises:
        ValueError: if the relation is not that of classes: some row is related to parts of two.

    >>> [codes.tolist() for codes in class_codes(torch.tensor([[1.0, 0, 1], [0, 1, 0]]))]
    [[0, 1], [0, 1, 0]]
    """
    related = relation > 0
    rows, columns = related.shape
    place = torch.arange(columns, device=relation.device)
    of_rows = torch.where(related, place, columns).amin(-1) if columns else place.new_zeros(rows)
    lonely = ~related.any(-1)
    of_rows = torch.where(lonely, columns + torch.arange(rows, device=relation.device), of_rows)
    first = torch.where(related, of_rows[:, None], columns + rows).amin(0) if rows else place
    of_columns = torch.where(related.any(0), first, columns + rows + place)
    if not torch.equal(of_rows[:, None] == of_columns, related) or bool(((relation != 0) & (relation != 1)).any()):
        raise ValueError("relation: expected 0 and 1 of classes, which pytorch-metric-learning compares, got another")
    return of_rows, of_columns


class LossForPML(nn.Module):
    """A criterion of vicinal where pytorch-metric-learning expects a loss, such as its trainers.

    Its ``CrossBatchMemory`` accepts only losses on its own list, by class name; for a memory pass the columns as
    ``ref_emb`` and ``ref_labels``, or use :class:`CrossBatchBank` with the criterion itself.

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
            indices_tuple: what a miner returned; only these pairs count (triplets count as their pairs). None: all.
            ref_emb: columns ``[N, d]``, or None for the batch itself.
            ref_labels: ``[N]``.
        """
        if isinstance(self.criterion, ProxyLoss):
            if indices_tuple is not None or ref_emb is not None:
                raise ValueError("indices_tuple: expected None, as the columns are vectors of classes, got pairs")
            return self.criterion(embeddings, labels)
        queries, columns = self.criterion.sides(embeddings, labels, ref_emb, ref_labels)
        scores, relation, weight = self.criterion.pairs(queries, columns)
        if indices_tuple is not None:
            mined = weight_of_indices(indices_tuple, *scores.shape).to(scores)
            weight = mined if weight is None else mined * weight
        criterion = self.criterion
        value: Tensor = criterion.loss(scores, relation, weight, reduction=criterion.reduction, **criterion.hyper)
        return with_nan_of(value, queries.vectors, columns.vectors)


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


class LossFromPML(nn.Module):
    """A loss of pytorch-metric-learning, and a miner if one is given, as a criterion of vicinal.

    It is called as :class:`EmbeddingLoss` is and can be given to estimators as ``loss=``. The value is that of
    ``loss(embeddings, labels, miner(embeddings, labels))``; its reducer and distance are its own. Pairs with the same
    id or group are taken out, which means listing all pairs.

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
        return self.loss(embeddings, labels, indices, *reference)

    @staticmethod
    def _allowed(
        ids: Tensor | None = None, bank_ids: Tensor | None = None, groups: Tensor | None = None
    ) -> Tensor | None:
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
        usable = allowed[anchor, positive] & allowed[anchor, negative]
        return anchor[usable], positive[usable], negative[usable]
    first, positive, second, negative = indices
    one, other = allowed[first, positive], allowed[second, negative]
    return first[one], positive[one], second[other], negative[other]


def miner_from_pml(miner: nn.Module) -> Callable[..., Tensor]:
    """A miner of pytorch-metric-learning as ``g(scores, relation, weight=None) -> weight``.

    Its distance is replaced by the scores that it is called with, so bounds in its settings are in units of the scores:
    similarities, higher = more alike. Triplets that it returns count as their pairs. Miners that read the embeddings
    themselves (angular, distance-weighted) cannot be used this way; vicinal has both.

    Args:
        miner: a module with ``mine`` and ``distance``; it is copied.

    Raises:
        TypeError: if ``miner`` is not such a module.
    """
    if not (isinstance(miner, nn.Module) and hasattr(miner, "distance") and hasattr(miner, "mine")):
        raise TypeError(f"miner: expected a miner of pytorch-metric-learning with a distance, got {miner!r}")
    from pytorch_metric_learning.distances import BaseDistance

    class GivenScores(BaseDistance):  # type: ignore[misc]
        """The scores of the current call, whatever the embeddings."""

        scores: Tensor

        def forward(self, query_emb: Tensor, ref_emb: Tensor | None = None) -> Tensor:
            return self.scores

    adapted = copy.deepcopy(miner)
    distance = GivenScores(is_inverted=True)
    adapted.distance = distance

    def mine(scores: Tensor, relation: Tensor, weight: Tensor | None = None) -> Tensor:
        """The weight ``[b, N]``: that given where a pair was chosen, else 0."""
        distance.scores = scores.detach().clone()  # some of their miners write into it
        of_rows, of_columns = class_codes(relation)
        placeholder = scores.new_zeros(len(of_rows), 1), scores.new_zeros(len(of_columns), 1)
        itself = weight is not None and scores.shape[0] == scores.shape[1] and not bool(weight.diagonal().any())
        reference = () if itself else (placeholder[1], of_columns)  # without one it leaves the diagonal out
        indices = adapted(placeholder[0], of_rows, *reference)
        chosen = weight_of_indices(indices, *scores.shape).to(scores)
        return chosen if weight is None else chosen * weight

    return mine
