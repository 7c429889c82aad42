"""The one module that turns a pair loss into a criterion of embeddings and labels."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vicinal.core import check_integer, check_matrices, entries, entry
from vicinal.losses.bank import CrossBatchBank
from vicinal.losses.checks import check_reduction
from vicinal.losses.gathering import gather_rows
from vicinal.losses.pairs import Part, reduce_parts
from vicinal.relation import label_distance, other_rows, same_class, shared_labels
from vicinal.similarity import resolve_similarity

Relation = Callable[[Tensor, Tensor], Tensor]
Loss = Callable[..., Tensor]


class Rows(NamedTuple):
    """Things with their labels and ids: ``vectors [n, d]``, ``labels [n, ...]``, ``ids [n]`` or None."""

    vectors: Tensor
    labels: Tensor
    ids: Tensor | None


def resolve_loss(loss: str | Loss) -> tuple[Loss, frozenset[str]]:
    """The pair loss of that name or itself, and what it declares about itself.

    >>> resolve_loss("supcon")[0].__name__
    'supcon'
    """
    if isinstance(loss, str):
        found = entry("pair_loss", loss.strip().lower().replace("-", "_"))
        return found.make, found.facts
    if not callable(loss):
        raise TypeError(f"loss: expected a name or a function of scores and relation, got {loss!r}")
    facts = [known.facts for known in entries("pair_loss") if known.make is loss]
    return loss, facts[0] if facts else frozenset()


def relation_of(labels: Tensor, facts: frozenset[str]) -> Relation:
    """The relation that fits the labels: classes ``[b]``, several labels ``[b, C]``, or numbers for such losses.

    Raises:
        TypeError: for numbers where classes are needed; equality of floating numbers would relate nothing.
    """
    if "number-relation" in facts:
        return label_distance
    if labels.is_floating_point():
        raise TypeError(
            "labels: expected classes (whole numbers), got "
            f"{labels.dtype}; for labels that are numbers use a loss such as 'rank_n_contrast', or give "
            "relation=lambda a, b: label_distance(a, b, kernel='gaussian')"
        )
    return same_class if labels.ndim == 1 else shared_labels


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
            those of one process with the whole batch. Each process needs equally many rows.
        rows: compute so many rows at a time, and again in the backward pass, so that no matrix of all scores is kept.
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
        self.normalize, self.reduction, self.hyper = normalize, check_reduction(reduction), hyper
        self.gather = gather
        self.rows = rows if rows is None else check_integer("rows", rows)
        if rows is not None and ("row-separable" not in self.facts or miner is not None):
            raise ValueError(
                f"rows: expected None, got {rows!r}: blocks of rows need a loss whose rows do not depend on one "
                "another, and no miner"
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

        Returns:
            A number, or ``[b]`` (of all processes with ``gather``) for the reduction "none".
        """
        queries, columns = self.sides(embeddings, labels, bank, bank_labels, ids=ids, bank_ids=bank_ids)
        if self.rows is None or self.rows >= len(queries.vectors):
            value = self.loss(*self.pairs(queries, columns), reduction=self.reduction, **self.hyper)
        else:
            value = self._in_blocks(queries, columns, self.rows)
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
    ) -> tuple[Rows, Rows]:
        """Queries and columns of the scores, as :meth:`forward` has them."""
        check_matrices(embeddings, embeddings if bank is None else bank)
        _check_rows("labels", labels, embeddings)
        if (bank is None) != (bank_labels is None):
            raise ValueError("bank_labels: expected with a bank, and only then; ids go by name, ids=...")
        if bank is not None and bank_labels is not None:
            _check_rows("bank_labels", bank_labels, bank)
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
        if ids is None:
            new = torch.arange(len(embeddings), device=embeddings.device)
            ids = new if self.bank is None else self.bank.new_ids(len(embeddings)).to(embeddings.device)
        _check_rows("ids", ids, embeddings)
        own = Rows(self._scaled(embeddings), labels, ids)
        return own, own if self.bank is None else _joined(own, self.bank)

    def pairs(self, queries: Rows, columns: Rows) -> tuple[Tensor, Tensor, Tensor | None]:
        """Scores, relation and weight ``[b, N]`` that the loss sees."""
        scores: Tensor = self.similarity(queries.vectors, columns.vectors)
        relate = self.relation or relation_of(queries.labels, self.facts)
        relation = relate(queries.labels, columns.labels)
        weight = None
        if queries.ids is not None and columns.ids is not None:
            weight = other_rows(queries.ids, columns.ids)
        if self.miner is not None:
            weight = self.miner(scores.detach(), relation, weight)
        return scores, relation, weight

    def _scaled(self, embeddings: Tensor) -> Tensor:
        return nn.functional.normalize(embeddings, dim=-1) if self.normalize else embeddings

    def _in_blocks(self, queries: Rows, columns: Rows, rows: int) -> Tensor:
        terms = self.loss.__dict__["terms"]

        def block(start: int) -> tuple[Part, ...]:
            part = slice(start, start + rows)
            ids = None if queries.ids is None else queries.ids[part]
            made: tuple[Part, ...] = terms(
                *self.pairs(Rows(queries.vectors[part], queries.labels[part], ids), columns), **self.hyper
            )
            return made

        made = [checkpoint(block, start, use_reentrant=False) for start in range(0, len(queries.vectors), rows)]
        joined = tuple(
            Part(*(torch.cat(values) for values in zip(*parts, strict=True))) for parts in zip(*made, strict=True)
        )
        return reduce_parts(joined, self.reduction)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        name = getattr(self.loss, "__name__", type(self.loss).__name__)
        settings = [name, *(f"{key}={value!r}" for key, value in self.hyper.items()), f"reduction={self.reduction!r}"]
        return ", ".join(settings)


def _joined(own: Rows, bank: CrossBatchBank) -> Rows:
    fill = len(bank)
    if own.ids is None or not fill:
        return own
    vectors = bank.vectors[:fill].to(own.vectors.dtype)
    return Rows(
        torch.cat([own.vectors, vectors]),
        torch.cat([own.labels, bank.labels[:fill].to(own.labels.dtype)]),
        torch.cat([own.ids, bank.ids[:fill].to(own.ids.dtype)]),
    )


def _check_rows(name: str, value: Tensor, embeddings: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
    if value.ndim not in (1, 2) or len(value) != len(embeddings):
        raise ValueError(f"{name}: expected a row for each of {len(embeddings)} embeddings, got {tuple(value.shape)}")
