"""The two sides of a matrix of scores: rows that ask, and columns of the batch, of all processes, or of a bank."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.losses.bank import CrossBatchBank


class Rows(NamedTuple):
    """Things with labels and ids: ``vectors [n, d]``, ``labels [n, ...]``, ``ids [n]`` and ``groups [n]`` or None."""

    vectors: Tensor
    labels: Tensor
    ids: Tensor | None
    groups: Tensor | None = None


def joined(own: Rows, bank: CrossBatchBank) -> Rows:
    """The rows of the batch, then those of the bank."""
    fill = len(bank)
    if own.ids is None or not fill:
        return own
    vectors = bank.vectors[:fill].to(own.vectors.dtype)
    return Rows(
        torch.cat([own.vectors, vectors]),
        torch.cat([own.labels, bank.labels[:fill].to(own.labels.dtype)]),
        torch.cat([own.ids, bank.ids[:fill].to(own.ids.dtype)]),
    )


def check_rows(name: str, value: Tensor, embeddings: Tensor) -> None:
    """Check that there is a row of ``value`` for each embedding."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
    if value.ndim not in (1, 2) or len(value) != len(embeddings):
        raise ValueError(f"{name}: expected a row for each of {len(embeddings)} embeddings, got {tuple(value.shape)}")
