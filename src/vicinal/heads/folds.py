"""Members as folds: each row is predicted by the members that never saw its label, from rows of other folds."""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer
from vicinal.heads.admissible import Identity
from vicinal.heads.kriging import Kriging
from vicinal.heads.members import Ensemble, alike_members, stacked_weights
from vicinal.heads.nona import mean_label


class FoldMembers:
    r"""The members of a head by the fold of rows that they leave out: member m leaves out fold $m \bmod F$.

    A member has the fold that it leaves out neither among its training rows nor, here, in its bank, so its predictions
    for the rows of that fold are out of fold: as honest as for new rows. A kriging head reads all members' embeddings
    side by side; out of fold it reads those of one fold's members, with a scale shorter by $\sqrt F$, as their
    distances are.

    Args:
        head: an :class:`Ensemble`, or a :class:`Kriging` over embeddings of ``members`` members.
        members: their number, M.
        folds: F, from 2 to M.
        heads: the head of each fold's members, F of them, where they have others than ``head``; None: it is that.

    >>> from vicinal.heads import NONA
    >>> members = FoldMembers(Ensemble([NONA(), NONA()]), 2, 2)
    >>> bank, labels, folds = torch.zeros(4, 2), torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([0, 0, 1, 1])
    >>> members.out_of_fold(torch.zeros(2, 2), torch.tensor([0, 1]), bank, labels, folds)
    tensor([2.5000, 0.5000])
    """

    def __init__(self, head: nn.Module, members: int, folds: int, heads: Sequence[nn.Module] | None = None) -> None:
        self.head, self.members = head, check_integer("members", members)
        self.folds = check_integer("folds", folds, 2, members)
        self.heads = [head] * self.folds if heads is None else list(heads)
        if len(self.heads) != self.folds:
            raise ValueError(f"heads: expected {self.folds}, one for each fold, got {len(self.heads)}")

    def member_folds(self, device: torch.device | None = None) -> Tensor:
        """The fold ``[M]`` that each member leaves out."""
        return torch.arange(self.members, device=device) % self.folds

    def columns(self, fold: int, embeddings: Tensor) -> Tensor:
        """The part ``[b, d']`` of embeddings ``[b, M * d]`` that the members of ``fold`` made."""
        return embeddings.reshape(len(embeddings), self.members, embeddings.shape[1] // self.members)[
            :, fold :: self.folds
        ].flatten(1)

    def part(self, fold: int) -> nn.Module:
        """The head of the members of ``fold``."""
        head = self.heads[fold]
        if isinstance(head, Ensemble):
            heads = list(head.heads)[fold :: self.folds]
            return heads[0] if len(heads) == 1 else Ensemble(heads)
        if not isinstance(head, Kriging):
            raise TypeError(f"head: expected an Ensemble or a Kriging head, got {type(head).__name__}")
        part = copy.deepcopy(head)
        with torch.no_grad():
            part.log_scale.sub_(math.log(self.folds) / 2)
        return part

    def bank(
        self, fold: int, bank: Tensor, labels: Tensor, bank_folds: Tensor, identity: dict[str, Tensor | None]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor | None]]:
        """The rows that the members of ``fold`` predict from, with their labels and identity."""
        others = bank_folds != fold
        known = {n: v[others] if v is not None and n.startswith("bank") else v for n, v in identity.items()}
        return self.columns(fold, bank[others]), labels[others], known

    def predict(
        self,
        fold: int,
        queries: Tensor,
        bank: Tensor,
        labels: Tensor,
        bank_folds: Tensor,
        **identity: Tensor | None,
    ) -> Tensor:
        """Predictions ``[b]`` or ``[b, T]`` of ``queries [b, M * d]`` by the members of ``fold``.

        Rows of the bank of fold -1 may be seen by all members.
        """
        rows, own_labels, known = self.bank(fold, bank, labels, bank_folds, identity)
        return self.part(fold)(self.columns(fold, queries), rows, own_labels, **known)

    def out_of_fold(
        self,
        queries: Tensor,
        query_folds: Tensor,
        bank: Tensor,
        labels: Tensor,
        bank_folds: Tensor,
        **identity: Tensor | None,
    ) -> Tensor:
        """Predictions of rows ``[b]`` or ``[b, T]``, each by the members that leave out its fold ``query_folds [b]``.

        Raises:
            ValueError: for a row without a fold.
        """
        if len(queries) and not bool(((query_folds >= 0) & (query_folds < self.folds)).all()):
            raise ValueError(f"query_folds: expected folds from 0 to {self.folds - 1}, got others")
        prediction: Tensor | None = None
        for fold in sorted(set(query_folds.tolist())):
            at = (query_folds == fold).nonzero()[:, 0]
            known = {n: v[at] if v is not None and n.startswith("query") else v for n, v in identity.items()}
            some = self.predict(fold, queries[at], bank, labels, bank_folds, **known)
            if prediction is None:
                prediction = some.new_empty(len(queries), *some.shape[1:])
            prediction[at] = some
        return labels.new_empty(0, *labels.shape[1:]) if prediction is None else prediction

    def training_predictions(
        self,
        embeddings: Tensor,
        labels: Tensor,
        folds: Tensor,
        **identity: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """For a batch that is its own bank: each member's predictions, and which of them it learns from.

        Member m sees no row of the fold that it leaves out, neither as a neighbor nor as a row to predict.

        Args:
            embeddings: ``[b, M * d]``.
            labels: ``[b]`` or ``[b, T]``.
            folds: ``[b]``.
            identity: ids and groups, as heads take them.

        Returns:
            ``[b, M]`` or ``[b, T, M]``, and ``[b, M]``, false where the row is of the member's fold or has no neighbor;
            ignore the prediction there.
        """
        if not isinstance(self.head, Ensemble):
            raise TypeError(f"head: expected an Ensemble, got {type(self.head).__name__}")
        seen = folds[None] != self.member_folds(folds.device)[:, None]  # [M, b]
        if not self.head.uses_bank:
            return self.head.each(embeddings, embeddings, labels), seen.T
        pairs = Identity(**identity).allowed(len(labels), len(labels))
        weight = identity.get("bank_weight")
        allowed = seen[:, None, :].expand(-1, len(labels), -1)  # [M, b, b]
        if pairs is not None:
            allowed = allowed & pairs
        valid = allowed.any(dim=-1) & seen
        parts = self.head.columns(embeddings, "embeddings")
        alike = alike_members(list(self.head.heads))
        if alike and not alike[0].streams(parts[0], parts[0], weight):
            whole = (allowed | ~valid[:, :, None]).flatten(0, 1)  # rows that mean nothing see all, so that none is NaN
            weights = stacked_weights(alike, list(parts), list(parts), whole, weight)
            return mean_label(weights, labels).movedim(0, -1), valid.T
        predictions = []
        for head, part, rows, mine in zip(self.head.heads, parts, seen, valid, strict=True):
            known = {n: v if v is None else v[mine if n.startswith("query") else rows] for n, v in identity.items()}
            some = head(part[mine], part[rows], labels[rows], **known) if bool(mine.any()) else labels[:0]
            every = some.new_zeros(len(labels), *labels.shape[1:])
            predictions.append(every.index_put((mine.nonzero()[:, 0],), some))
        return torch.stack(predictions, dim=-1), valid.T
