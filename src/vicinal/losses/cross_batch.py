"""Embeddings with their labels and ids: of a batch, and of the batches before it, which a bank keeps."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer
from vicinal.relation.pairs import other_rows


class CrossBatchBank(nn.Module):
    """The last ``size`` embeddings with their labels and ids, as buffers: position and fill are saved too.

    Args:
        size: rows to keep, >= 1.
        dim: width of the embeddings.
        label_shape: shape of the label of one row: ``()`` for a class or a number, ``(C,)`` for several labels.
        label_dtype: dtype of the labels.

    Memory is fixed: ``size * (dim + 1)`` numbers and the labels. The oldest rows leave first.

    >>> bank = CrossBatchBank(3, 2)
    >>> bank.add(torch.eye(2), torch.tensor([0, 1]))
    >>> len(bank), bank.labels[: len(bank)]
    (2, tensor([0, 1]))
    """

    def __init__(
        self, size: int, dim: int, *, label_shape: tuple[int, ...] = (), label_dtype: torch.dtype = torch.int64
    ) -> None:
        super().__init__()
        self.size = check_integer("size", size)
        check_integer("dim", dim)
        self.vectors: Tensor
        self.labels: Tensor
        self.ids: Tensor
        self.pointer: Tensor
        self.fill: Tensor
        self.seen: Tensor
        self.register_buffer("vectors", torch.zeros(size, dim))
        self.register_buffer("labels", torch.zeros(size, *label_shape, dtype=label_dtype))
        self.register_buffer("ids", torch.zeros(size, dtype=torch.int64))
        for name in ("pointer", "fill", "seen"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        return int(self.fill)

    def new_ids(self, rows: int) -> Tensor:
        """Ids for rows that have none: negative, and never given twice."""
        return -1 - (self.seen + torch.arange(rows, device=self.seen.device))

    @torch.no_grad()
    def add(self, embeddings: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
        """Store a batch in place of the oldest rows; of a batch larger than the bank the last rows are kept.

        Args:
            embeddings: ``[b, dim]``; stored without gradient.
            labels: ``[b, *label_shape]``.
            ids: whole numbers ``[b]``; None: new ones.

        Raises:
            ValueError: for other shapes or another dtype of labels.
        """
        ids = self.new_ids(len(embeddings)) if ids is None else ids
        for name, value, stored in (("embeddings", embeddings, self.vectors), ("labels", labels, self.labels)):
            if value.shape[1:] != stored.shape[1:] or len(value) != len(ids):
                raise ValueError(f"{name}: expected [{len(ids)}, {tuple(stored.shape[1:])}], got {tuple(value.shape)}")
        if labels.is_floating_point() != self.labels.is_floating_point():
            raise ValueError(
                f"labels: expected {self.labels.dtype} as the bank stores, got {labels.dtype}; make the bank with "
                f"label_dtype={labels.dtype}"
            )
        rows = len(ids)
        place = (self.pointer + torch.arange(rows, device=self.pointer.device)) % self.size
        place = place[-self.size :]
        self.vectors[place] = embeddings[-self.size :].to(self.vectors.dtype)
        self.labels[place] = labels[-self.size :].to(self.labels.dtype)
        self.ids[place] = ids[-self.size :].to(self.ids.dtype)
        self.pointer.copy_((self.pointer + rows) % self.size)
        self.fill.copy_((self.fill + rows).clamp(max=self.size))
        self.seen.add_(rows)

    @torch.no_grad()
    def clear(self) -> None:
        """Forget all rows."""
        self.pointer.zero_()
        self.fill.zero_()

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"size={self.size}, dim={self.vectors.shape[1]}"


@dataclass(frozen=True)
class LabelledEmbeddings:
    """Things with labels and ids: ``vectors [n, d]``, ``labels [n, ...]``, ``ids [n]`` and ``groups [n]`` or None."""

    vectors: Tensor
    labels: Tensor
    ids: Tensor | None
    groups: Tensor | None = None

    @property
    def identified(self) -> bool:
        """Whether ids are known."""
        return self.ids is not None

    def apart(self, columns: "LabelledEmbeddings", part: slice = slice(None)) -> Tensor | None:
        """1 where a row of ``part`` and a column are of other ids and groups, else 0; None if ids are not known."""
        ids = None if self.ids is None else self.ids[part]
        groups = None if self.groups is None else self.groups[part]
        return rows_apart(ids, columns.ids, groups, columns.groups)

    def joined(self, bank: CrossBatchBank) -> "LabelledEmbeddings":
        """These rows, then those of the bank."""
        fill = len(bank)
        if self.ids is None or not fill:
            return self
        vectors = bank.vectors[:fill].to(self.vectors.dtype)
        return LabelledEmbeddings(
            torch.cat([self.vectors, vectors]),
            torch.cat([self.labels, bank.labels[:fill].to(self.labels.dtype)]),
            torch.cat([self.ids, bank.ids[:fill].to(self.ids.dtype)]),
        )


def rows_apart(
    ids: Tensor | None = None,
    column_ids: Tensor | None = None,
    groups: Tensor | None = None,
    column_groups: Tensor | None = None,
) -> Tensor | None:
    """1 where a row and a column are of other ids and, if known, groups, else 0 ``[b, N]``; None without ids."""
    if ids is None or column_ids is None:
        return None
    apart = other_rows(ids, column_ids)
    return apart if groups is None or column_groups is None else apart * (groups[:, None] != column_groups)
