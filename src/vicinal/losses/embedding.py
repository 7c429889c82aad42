"""The module that turns a pair loss into a criterion of embeddings and labels."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import block_rows, row_slices
from vicinal.blockwise.row_blocks import coded, equal_codes, others
from vicinal.core import entries, entry, listed, short
from vicinal.core.checks import check_integer, check_matrices, check_tensor
from vicinal.core.gathering import gather_rows
from vicinal.losses.contract import PairLoss, check_reduction, own_settings
from vicinal.losses.cross_batch import CrossBatchBank, LabelledEmbeddings
from vicinal.losses.elsewhere import peer_hint
from vicinal.losses.honesty import tell_of_nothing, with_nan_of
from vicinal.losses.streaming import UNCUT, ScoreBlocks, blocked_loss
from vicinal.relation import label_distance, same_class, shared_labels
from vicinal.similarity.base import resolve_similarity


def check_rows(name: str, value: Tensor, embeddings: Tensor) -> None:
    """Check that there is a row of ``value`` for each embedding."""
    check_tensor(name, value)
    if value.ndim not in (1, 2) or len(value) != len(embeddings):
        raise ValueError(f"{name}: expected a row for each of {len(embeddings)} embeddings, got {tuple(value.shape)}")


Relation = Callable[[Tensor, Tensor], Tensor]
Loss = Callable[..., Tensor]


RENAMED_MINERS = {"whiskers": "iqr_filter"}
"""Names in models that were saved before."""


def plain_name(text: str) -> str:
    """The name of a method as the registry has it, however it is spelled."""
    return text.strip().replace("-", "_").lower()


def miner_name(text: str) -> str:
    """The same of a miner, whose former names and those with "miner" behind them are known, too."""
    name = plain_name(text).removesuffix("miner")
    return RENAMED_MINERS.get(name, name)


def resolve_loss(loss: str | Loss) -> tuple[Loss, frozenset[str]]:
    """The pair loss of that name or itself, and what it declares about itself.

    >>> resolve_loss("supcon")[0].__name__
    'supcon'
    """
    if isinstance(loss, str):
        methods = {one.name: one for one in entries("pair_loss")}
        if (method := methods.get(plain_name(loss))) is None:
            hint = peer_hint(loss, methods, call=True)
            raise ValueError(f"loss: expected one of pairs ('vicinal losses' lists them), got {short(loss)}{hint}")
        return method.factory, method.facts
    if not callable(loss):
        raise TypeError(f"loss: expected a name or a function of scores and relation, got {loss!r}")
    return loss, loss.facts if isinstance(loss, PairLoss) else frozenset()


def has_batch_stats(loss: Loss) -> bool:
    """Whether a loss says what a block of rows adds to what all rows share."""
    return isinstance(loss, PairLoss) and loss.batch_stats is not None


def name_of(loss: Loss) -> str:
    """What a loss or a miner is called."""
    return getattr(loss, "__name__", type(loss).__name__)


def with_best(loss: Loss, similarity: nn.Module, hyper: dict[str, Any]) -> dict[str, Any]:
    """Settings with the ``best`` score of the similarity, for a loss that takes distances from it and was given none.

    Raises:
        ValueError: for a similarity whose best score differs from row to row, such as an inner product.

    >>> from vicinal.similarity import Cosine
    >>> with_best(resolve_loss("icnn")[0], Cosine(), {"k": 3})
    {'k': 3, 'best': 1.0}
    """
    if hyper.get("best") is not None or own_settings(loss).get("best", 0.0) is not None:
        return hyper
    best = getattr(similarity, "best", None)
    if best is None:
        raise ValueError(
            f"best: expected the score of two equal things, from which {name_of(loss)} takes distances, got none of "
            f"{similarity!r}; give best=..., or a similarity such as cosine or l2"
        )
    return {**hyper, "best": best}


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


def _resolve_miner(miner: str | Loss | None) -> Loss | None:
    """A miner by name or as given."""
    if miner is not None and not isinstance(miner, str) and not callable(miner):
        raise TypeError(f"miner: expected a name or a function of scores, relation and weight, got {miner!r}")
    if not isinstance(miner, str):
        return miner
    factory: Loss = entry("miner", miner_name(miner)).factory
    if needed := [name for name, default in own_settings(factory).items() if default is inspect.Parameter.empty]:
        hint = f"functools.partial(miners.{factory.__name__}, {needed[0]}=...)"
        raise ValueError(f"miner: expected {hint}, got {short(miner)} without {listed(needed)}")
    return factory


def miner_facts(miner: Loss | None) -> frozenset[str]:
    """What a registered miner, or one with settings (``functools.partial``), declares about itself."""
    settings = getattr(miner, "keywords", {})
    if any(isinstance(value, Tensor) for value in settings.values()):
        return frozenset()
    return _miner_facts(getattr(miner, "func", miner))


def _miner_facts(miner: Loss | None) -> frozenset[str]:
    facts = [known.facts for known in entries("miner") if known.factory is miner]
    return facts[0] if facts else frozenset()


# What torch.compiler.assume_constant_result does, without its import of torch._dynamo, which takes seconds.
setattr(_miner_facts, "_dynamo_marked_constant", True)  # noqa: B010


class EmbeddingLoss(nn.Module):
    r"""A pair loss of embeddings with labels: scores by a similarity, a relation from labels, self left out by id.

    Args:
        loss: a registered name (``vicinal.core.entries("pair_loss")``), or ``f(scores, relation, weight)``.
        similarity: a registered name or a module ``sim(queries, bank) -> scores``.
        relation: ``(labels [b, ...], bank_labels [N, ...]) -> [b, N]``; None: by what the labels are.
        miner: which pairs count: a name, or ``(scores, relation, weight) -> weight``.
        bank: a :class:`CrossBatchBank`; its rows are further columns, and each batch in training is added to it.
        normalize: scale embeddings to length 1 first, as distance-based losses expect.
        reduction: "mean", "sum", "none" or "mean_nonzero".
        gather: treat the batches of all processes as one, in the order of their ranks: value and gradient are those of
            one process with the whole batch.
        rows: compute this many rows at a time, so that no matrix of all scores is kept; value and gradient are the
            same, but the gradient can be taken only once. None: by size, in blocks of about 2^18 scores on a CPU (all
            rows of a batch of 512) and of 2^24 on an accelerator, where the loss and the miner allow it. Give a number
            as large as the batch for one block.
        hyper: settings of the loss.

    >>> criterion = EmbeddingLoss("supcon", temperature=0.1)
    >>> criterion(torch.eye(3)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))
    tensor(9.0599e-05)
    """

    _looks = True  # for batches with nothing to compare, until one has a loss or a warning was given

    def __init__(
        self,
        loss: str | Loss,
        *,
        similarity: str | nn.Module = "cosine",
        relation: Relation | None = None,
        miner: str | Loss | None = None,
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
        self.relation, self.miner, self.bank = relation, _resolve_miner(miner), bank
        self.normalize, self.reduction = normalize, check_reduction(reduction)
        self.hyper = with_best(self.loss, self.similarity, hyper)
        self.gather = gather
        self.rows = rows if rows is None else check_integer("rows", rows)
        if rows is not None and not self._is_separable():
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
        column_log_probability: Tensor | None = None,
    ) -> Tensor:
        """The loss.

        Args:
            embeddings: ``[b, d]``.
            labels: ``[b]`` or ``[b, C]``.
            bank: columns ``[N, d]`` in place of the batch itself.
            bank_labels: ``[N]`` or ``[N, C]``.
            ids: whole numbers ``[b]``: rows with the same id are the same thing and form no pair. None: each row of the
                batch is a thing of its own.
            bank_ids: whole numbers ``[N]``, with ``ids``.
            groups: whole numbers ``[b]``: rows of the same group (a patient, a house) form no pair either. Only if the
                columns are the batch itself.
            column_log_probability: ``[b]``, or ``[N]`` of the bank: how probable each column was to be drawn, for
                losses that correct for it ("supcon", "nt_xent", "summed_softmax").

        Returns:
            A number, or ``[b]`` (of all processes with ``gather``) for the reduction "none".
        """
        queries, columns = self.sides(embeddings, labels, bank, bank_labels, ids=ids, bank_ids=bank_ids, groups=groups)
        hyper = self.hyper
        if column_log_probability is not None:
            hyper = {**hyper, "column_log_probability": self._of_columns(column_log_probability)}
        if isinstance(self.loss, PairLoss):
            value = self._blocked(queries, columns, hyper, distinct=ids is None and groups is None)
        else:
            value = self.loss(*self.pairs(queries, columns), reduction=self.reduction, **hyper)
        if self.bank is not None and self.training and bank is None:
            self.bank.add(queries.vectors, queries.labels, queries.ids)
        if not torch.compiler.is_compiling() and self._looks:
            self._looks = tell_of_nothing(value, self._relations(queries, columns))
        inputs = [each for side in (queries, columns) for each in (side.vectors, side.labels)]
        return with_nan_of(value, *inputs, column_log_probability, *self._tensors())

    def _relations(
        self, queries: LabelledEmbeddings, columns: LabelledEmbeddings
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Relation and weight of blocks of rows, before a miner."""
        blocks = self._score_blocks(queries, columns, distinct=False)
        rows = len(queries.vectors)
        for part in row_slices(rows, block_rows(rows, len(columns.vectors), queries.vectors.device)):
            yield blocks.relation(part), None if blocks.weight is None else blocks.weight(part)

    def _of_columns(self, column_log_probability: Tensor) -> Tensor:
        """Of the columns of all processes, if the loss takes it."""
        if "column_log_probability" not in inspect.signature(self.loss).parameters:
            raise ValueError(
                f"column_log_probability: expected none for {name_of(self.loss)}, got one; supcon, nt_xent and "
                "summed_softmax take it"
            )
        return gather_rows(column_log_probability) if self.gather else column_log_probability

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
    ) -> tuple[LabelledEmbeddings, LabelledEmbeddings]:
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
            queries = LabelledEmbeddings(self._scaled(embeddings), labels, ids)
            return queries, LabelledEmbeddings(self._scaled(bank), bank_labels, bank_ids)
        if bank_ids is not None:
            raise ValueError("bank_ids: expected with a bank, got no bank")
        if self.gather:
            embeddings, labels = gather_rows(embeddings), gather_rows(labels)
            ids, groups = (each if each is None else gather_rows(each) for each in (ids, groups))
        if ids is None:
            new = torch.arange(len(embeddings)) if self.bank is None else self.bank.new_ids(len(embeddings))
            ids = new.to(embeddings.device)
        check_rows("ids", ids, embeddings)
        if groups is not None:
            check_rows("groups", groups, embeddings)
        batch = LabelledEmbeddings(self._scaled(embeddings), labels, ids, groups)
        return batch, batch if self.bank is None else batch.joined(self.bank)

    def pairs(self, queries: LabelledEmbeddings, columns: LabelledEmbeddings) -> tuple[Tensor, Tensor, Tensor | None]:
        """Scores, relation and weight ``[b, N]`` that the loss sees."""
        scores: Tensor = self.similarity(queries.vectors, columns.vectors)
        relate = self.relation or relation_of(queries.labels, self.facts)
        relation = relate(queries.labels, columns.labels)
        weight = queries.apart(columns)
        if self.miner is not None:
            weight = self.miner(scores.detach(), relation, weight)
        return scores, relation, weight

    def _scaled(self, embeddings: Tensor) -> Tensor:
        return nn.functional.normalize(embeddings, dim=-1) if self.normalize else embeddings

    def _is_separable(self) -> bool:
        """Whether blocks of rows can be computed apart, by what the loss and the miner declare."""
        if "row-separable" not in self.facts and not has_batch_stats(self.loss):
            return False
        if self.miner is None:
            return True
        facts = miner_facts(self.miner)
        return "row-separable" in facts and "random" not in facts

    def _block_rows(self, queries: LabelledEmbeddings, columns: LabelledEmbeddings) -> int:
        """Rows of a block; all of them where they depend on one another, or all is compiled."""
        if self.rows is not None:
            return self.rows
        rows = len(queries.vectors)
        if torch.compiler.is_compiling() or not self._is_separable():
            return max(1, rows)
        return block_rows(rows, len(columns.vectors), queries.vectors.device, uncut=UNCUT)

    def _tensors(self) -> list[Tensor]:
        """What may be tuned beside the embeddings."""
        return [*self.similarity.parameters(), *(each for each in self.hyper.values() if isinstance(each, Tensor))]

    def _blocked(
        self, queries: LabelledEmbeddings, columns: LabelledEmbeddings, hyper: dict[str, Any], *, distinct: bool
    ) -> Tensor:
        blocks = self._score_blocks(queries, columns, distinct=distinct)
        blocks = replace(blocks, size=self._block_rows(queries, columns))
        return blocked_loss(self.loss, blocks, self.reduction, hyper)  # type: ignore[arg-type]  # a PairLoss

    def _score_blocks(self, queries: LabelledEmbeddings, columns: LabelledEmbeddings, *, distinct: bool) -> ScoreBlocks:
        """Scores with relation and weight of a block of rows: from codes of labels and ids where these are classes."""
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
        if queries.identified and columns.identified:

            def weight(part: slice) -> Tensor:
                if distinct:
                    return others(len(range(*part.indices(b))), n, part.start, like)
                return torch.as_tensor(queries.apart(columns, part)).to(like.dtype)

        masks = known and (self.miner is None or bool(miner_facts(self.miner)))  # registered ones keep or drop a pair
        sides = queries.vectors, columns.vectors
        return ScoreBlocks(self.similarity, *sides, relation, weight, masks, self.miner, size=max(1, b))

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        settings = [
            name_of(self.loss),
            *(f"{key}={value!r}" for key, value in self.hyper.items()),
            f"reduction={self.reduction!r}",
        ]
        if self.miner is not None and not isinstance(self.miner, nn.Module):
            function, options = getattr(self.miner, "func", self.miner), getattr(self.miner, "keywords", {})
            settings.append(f"miner={name_of(function)}")
            settings += [f"{key}={value!r}" for key, value in options.items()]
        return ", ".join(settings)


@dataclass(frozen=True)
class BatchReport:
    """What :func:`explain_batch` found; ``print`` it.

    Attributes:
        loss: the value of the loss.
        pairs: all pairs that could count, without the rows' own selves.
        related: how many of those pairs are related.
        mined: how many of the pairs a miner left.
        pulled: pairs whose score the loss wants higher.
        pushed: pairs whose score the loss wants lower.
        lonely: rows without a related column, which many losses leave out.
        strongest: (row, column, score, relation, gradient of the loss), largest gradients first.
    """

    loss: float
    pairs: int
    related: int
    mined: int
    pulled: int
    pushed: int
    lonely: tuple[int, ...]
    strongest: tuple[tuple[int, int, float, float, float], ...]

    def __str__(self) -> str:
        lines = [
            f"loss {self.loss:.6g}",
            f"{self.pairs} pairs: {self.related} related, {self.pairs - self.related} not; {self.mined} left to count",
            f"{self.pulled} are pulled together, {self.pushed} pushed apart",
            f"{len(self.lonely)} rows have no related column" + (f": {list(self.lonely[:9])}" if self.lonely else ""),
        ]
        for row, column, score, relation, slope in self.strongest:
            way = "together" if slope < 0 else "apart"
            lines.append(f"  {row} - {column}: score {score:.4f}, relation {relation:g}, {way} by {abs(slope):.3g}")
        return "\n".join(lines)


def explain_batch(
    criterion: EmbeddingLoss, embeddings: Tensor, labels: Tensor, *, ids: Tensor | None = None, most: int = 5
) -> BatchReport:
    """Which pairs a loss sees in a batch, and in which direction it moves them.

    Args:
        criterion: the loss; it and its bank are left as they are.
        embeddings: ``[b, d]``.
        labels: ``[b]`` or ``[b, C]``.
        ids: whole numbers ``[b]``.
        most: how many of the strongest pairs to name.

    >>> report = explain_batch(EmbeddingLoss("triplet"), torch.eye(2)[[0, 0, 1]], torch.tensor([0, 0, 1]))
    >>> print(report)
    loss 0
    6 pairs: 2 related, 4 not; 6 left to count
    0 are pulled together, 0 pushed apart
    1 rows have no related column: [2]
    """
    with torch.no_grad():
        queries, columns = criterion.sides(embeddings, labels, ids=ids)
        scores, relation, weight = criterion.pairs(queries, columns)
        counted = torch.ones_like(scores) if weight is None else weight
        apart = queries.apart(columns)
        some = counted > 0 if apart is None else apart > 0
    leaf = scores.detach().requires_grad_()
    reduction = "sum" if criterion.reduction == "none" else criterion.reduction
    with torch.enable_grad():
        value = criterion.loss(leaf, relation, weight, reduction=reduction, **criterion.hyper)
        slope = torch.autograd.grad(value, leaf)[0]
    places = slope.abs().flatten().topk(min(most, slope.numel())).indices.tolist()
    strongest = [
        (at // slope.shape[1], at % slope.shape[1], *(float(m.flatten()[at]) for m in (scores, relation, slope)))
        for at in places
        if slope.flatten()[at] != 0
    ]
    related = (relation > 0) & some
    return BatchReport(
        loss=float(value.detach()),
        pairs=int(some.sum()),
        related=int(related.sum()),
        mined=int((counted > 0).sum()),
        pulled=int((slope < 0).sum()),
        pushed=int((slope > 0).sum()),
        lonely=tuple(torch.nonzero(~related.any(-1)).flatten().tolist()),
        strongest=tuple(strongest),
    )
