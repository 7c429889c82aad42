"""The one module that turns a pair loss into a criterion of embeddings and labels."""

import functools
from typing import Any, cast

import torch
from torch import Tensor, nn

from vicinal.core import check_integer, check_matrices, gather_rows
from vicinal.losses.bank import CrossBatchBank
from vicinal.losses.checks import check_reduction
from vicinal.losses.contract import PairLoss
from vicinal.losses.resolving import Loss, Relation, miner_facts, relation_of, resolve_loss, with_best
from vicinal.losses.rowwise import block_rows
from vicinal.losses.sides import Rows, check_rows, joined
from vicinal.losses.streamed import Columns, Stream, checkpointed_loss, coded, equal_codes, others, streamed_loss
from vicinal.relation import other_rows, same_class
from vicinal.similarity import resolve_similarity


class EmbeddingLoss(nn.Module):
    r"""A pair loss of embeddings with labels: scores by a similarity, a relation from labels, self left out by id.

    Args:
        loss: a registered name (``vicinal.core.entries("pair_loss")``), or ``f(scores, relation, weight)``.
        similarity: a registered name or a module ``sim(queries, bank) -> scores``.
        relation: ``(labels [b, ...], bank_labels [N, ...]) -> [b, N]``; None: by what the labels are.
        miner: ``(scores, relation, weight) -> weight``, which pairs count.
        bank: a :class:`CrossBatchBank`; its rows are further columns, and each batch in training is added to it.
        normalize: scale embeddings to length 1 first, as distance-based losses want it.
        reduction: "mean", "sum", "none" or "mean_nonzero".
        gather: train with the batches of all processes as one, in the order of their ranks: value and gradient are
            those of one process with the whole batch.
        rows: compute so many rows at a time, so that no matrix of all scores is kept; value and gradient are the same,
            but a gradient can then be taken only once. None: by size, in blocks of about 2^18 scores on a CPU (all
            rows of a batch of 512) and of 2^24 on an accelerator, where the loss and the miner allow it. Give a number
            as large as the batch for one block.
        hyper: settings of the loss.

    >>> criterion = EmbeddingLoss("supcon", temperature=0.1)
    >>> criterion(torch.eye(3)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))
    tensor(9.0599e-05)
    """

    def __init__(
        self,
        loss: str | Loss,
        *,
        similarity: str | nn.Module = "cosine",
        relation: Relation | None = None,
        miner: Loss | None = None,
        bank: CrossBatchBank | None = None,
        normalize: bool = False,
        reduction: str = "mean",
        gather: bool = False,
        rows: int | None = None,
        **hyper: Any,
    ) -> None:
        super().__init__()
        self.loss, self.facts = resolve_loss(loss)
        self.similarity = resolve_similarity(similarity)
        self.relation, self.miner, self.bank = relation, miner, bank
        self.normalize, self.reduction = normalize, check_reduction(reduction)
        self.hyper = with_best(self.loss, self.similarity, hyper)
        self.gather = gather
        self.rows = rows if rows is None else check_integer("rows", rows)
        if rows is not None and not self._separable():
            raise ValueError(
                f"rows: expected None, got {rows!r}: blocks of rows need a loss whose rows do not depend on one "
                "another, and no miner or one that looks at each row alone"
            )

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
        """The loss.

        Args:
            embeddings: ``[b, d]``.
            labels: ``[b]`` or ``[b, C]``.
            bank: other columns ``[N, d]`` than the batch itself.
            bank_labels: ``[N]`` or ``[N, C]``.
            ids: whole numbers ``[b]``: rows of one id are the same thing and no pair. None: each row of the batch is
                a thing of its own.
            bank_ids: whole numbers ``[N]``, with ``ids``.
            groups: whole numbers ``[b]``: rows of one group (a patient, a house) are no pair either. Only for columns
                that are the batch itself.

        Returns:
            A number, or ``[b]`` (of all processes with ``gather``) for the reduction "none".
        """
        queries, columns = self.sides(embeddings, labels, bank, bank_labels, ids=ids, bank_ids=bank_ids, groups=groups)
        if "of_pairs" in getattr(self.loss, "__dict__", {}):
            value = self._in_blocks(queries, columns, distinct=ids is None and groups is None)
        else:
            value = self.loss(*self.pairs(queries, columns), reduction=self.reduction, **self.hyper)
        if self.bank is not None and self.training and bank is None:
            self.bank.add(queries.vectors, queries.labels, queries.ids)
        return value

    def sides(
        self,
        embeddings: Tensor,
        labels: Tensor,
        bank: Tensor | None = None,
        bank_labels: Tensor | None = None,
        *,
        ids: Tensor | None = None,
        bank_ids: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> tuple[Rows, Rows]:
        """Queries and columns of the scores, as :meth:`forward` has them."""
        check_matrices(embeddings, embeddings if bank is None else bank)
        check_rows("labels", labels, embeddings)
        if (bank is None) != (bank_labels is None):
            raise ValueError("bank_labels: expected with a bank, and only then; ids go by name, ids=...")
        if groups is not None and (bank is not None or self.bank is not None):
            raise ValueError("groups: expected none with a bank, whose rows have no groups; give ids instead")
        if bank is not None and bank_labels is not None:
            check_rows("bank_labels", bank_labels, bank)
            if self.gather:
                raise ValueError(
                    "bank: expected none with gather=True, which makes one batch of those of all processes"
                )
            if (ids is None) != (bank_ids is None):
                raise ValueError("bank_ids: expected with ids, or neither, got only one of them")
            return Rows(self._scaled(embeddings), labels, ids), Rows(self._scaled(bank), bank_labels, bank_ids)
        if bank_ids is not None:
            raise ValueError("bank_ids: expected with a bank, got no bank")
        if self.gather:
            embeddings, labels = gather_rows(embeddings), gather_rows(labels)
            ids = ids if ids is None else gather_rows(ids)
            groups = groups if groups is None else gather_rows(groups)
        if ids is None:
            new = torch.arange(len(embeddings), device=embeddings.device)
            ids = new if self.bank is None else self.bank.new_ids(len(embeddings)).to(embeddings.device)
        check_rows("ids", ids, embeddings)
        if groups is not None:
            check_rows("groups", groups, embeddings)
        own = Rows(self._scaled(embeddings), labels, ids, groups)
        return own, own if self.bank is None else joined(own, self.bank)

    def pairs(self, queries: Rows, columns: Rows) -> tuple[Tensor, Tensor, Tensor | None]:
        """Scores, relation and weight ``[b, N]`` that the loss sees."""
        scores: Tensor = self.similarity(queries.vectors, columns.vectors)
        relate = self.relation or relation_of(queries.labels, self.facts)
        relation = relate(queries.labels, columns.labels)
        weight = None
        if queries.ids is not None and columns.ids is not None:
            weight = other_rows(queries.ids, columns.ids)
        if weight is not None and queries.groups is not None and columns.groups is not None:
            weight = weight * (queries.groups[:, None] != columns.groups)
        if self.miner is not None:
            weight = self.miner(scores.detach(), relation, weight)
        return scores, relation, weight

    def _scaled(self, embeddings: Tensor) -> Tensor:
        return nn.functional.normalize(embeddings, dim=-1) if self.normalize else embeddings

    def _separable(self) -> bool:
        """Whether blocks of rows can be computed apart, by what the loss and the miner declare."""
        if "row-separable" not in self.facts and getattr(self.loss, "across", None) is None:
            return False
        if self.miner is None:
            return True
        facts = miner_facts(self.miner)
        return "row-separable" in facts and "random" not in facts

    def _block_rows(self, queries: Rows, columns: Rows, relation: Tensor) -> int:
        """Rows of a block; all of them where a gradient of more than embeddings is wanted, or all is compiled."""
        if self.rows is not None:
            return self.rows
        if torch.compiler.is_compiling() or not self._separable() or _tuned([*self._tensors(), relation]):
            return max(1, len(queries.vectors))
        twice = getattr(self.loss, "across", None) is not None or not getattr(self.loss, "single", True)
        return block_rows(len(queries.vectors), len(columns.vectors), queries.vectors.device, twice=twice)

    def _tensors(self) -> list[Tensor]:
        """What may be tuned beside the embeddings."""
        return [*self.similarity.parameters(), *(each for each in self.hyper.values() if isinstance(each, Tensor))]

    def _in_blocks(self, queries: Rows, columns: Rows, *, distinct: bool) -> Tensor:
        of = self._columns(queries, columns, distinct=distinct)
        loss, sides = cast(PairLoss, self.loss), (queries.vectors, columns.vectors)
        size = len(queries.vectors)
        if of.classes is None or loss.of_classes is None:
            size = self._block_rows(queries, columns, of.relation(slice(0, 1)) if self.relation else queries.labels)
        make = checkpointed_loss if size < len(queries.vectors) and _tuned(self._tensors()) else streamed_loss
        return make(Stream(loss, self.similarity, *sides, of, size, self.reduction, self.hyper))

    def _columns(self, queries: Rows, columns: Rows, *, distinct: bool) -> Columns:
        """Relation and weight of a block of rows: from codes of labels and ids where these are classes."""
        b, n, like = len(queries.vectors), len(columns.vectors), queries.vectors
        like = like.new_zeros((), dtype=torch.promote_types(like.dtype, torch.float32))
        relate = self.relation or relation_of(queries.labels, self.facts)
        known = relate is same_class
        if known and not torch.compiler.is_compiling():
            codes = functools.cache(lambda: coded(queries.labels, columns.labels))

            def relation(part: slice) -> Tensor:
                return equal_codes(codes()[0][part], codes()[1], like.dtype)
        else:

            def relation(part: slice) -> Tensor:
                return relate(queries.labels[part], columns.labels).to(like.dtype)

        weight = None
        if queries.ids is not None and columns.ids is not None:
            ids, of_ids = queries.ids, columns.ids
            groups, of_groups = queries.groups, columns.groups

            def weight(part: slice) -> Tensor:
                if distinct:
                    return others(len(range(*part.indices(b))), n, part.start, like)
                made = other_rows(ids[part], of_ids).to(like.dtype)
                return made if groups is None or of_groups is None else made * (groups[part, None] != of_groups)

        masks = known and (self.miner is None or bool(miner_facts(self.miner)))  # registered ones keep or drop a pair
        square = known and distinct and columns is queries and self.miner is None
        return Columns(relation, weight, masks, self.miner, classes=queries.labels if square else None)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        name = getattr(self.loss, "__name__", type(self.loss).__name__)
        settings = [name, *(f"{key}={value!r}" for key, value in self.hyper.items()), f"reduction={self.reduction!r}"]
        return ", ".join(settings)


def _tuned(values: list[Tensor]) -> bool:
    return any(value.requires_grad for value in values)
