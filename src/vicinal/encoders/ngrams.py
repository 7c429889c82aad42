"""Text as a bag of hashed character n-grams, trained from scratch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from torch import Tensor, nn

from vicinal.core import check_integer, register
from vicinal.encoders.base import ColumnEncoder, refuse, short
from vicinal.encoders.hashing import hashed_ngrams
from vicinal.encoders.inputs import Inputs, RaggedInputs, raw


def to_texts(series: "pd.Series[Any]", column: str) -> list[str]:
    """The texts of a column; a missing one is empty, a number is its digits.

    Raises:
        ValueError: naming the row of a cell that is neither text nor a number.

    >>> to_texts(pd.Series(["a", None, 3], dtype=object), "title")
    ['a', '', '3']
    """
    found: list[str] = []
    for row, cell, missing in zip(series.index, series, series.isna(), strict=True):
        if isinstance(cell, str):
            found.append(cell)
        elif missing:
            found.append("")
        elif isinstance(cell, bytes | bytearray | list | tuple | dict | set | np.ndarray):
            raise refuse(column, row, "text", short(cell))
        else:
            found.append(str(cell))
    return found


@dataclass(frozen=True)
class BagInputs(RaggedInputs):
    """Bags of numbered things with weights: ``values`` are the numbers, ``weights`` float32 as long."""

    weights: Tensor

    def select(self, rows: Tensor) -> Any:
        """``indices [m]``, ``weights [m]`` and ``offsets [b + 1]`` as ``torch.nn.EmbeddingBag`` takes them."""
        positions, lengths = self.take(rows)
        offsets = nn.functional.pad(lengths.cumsum(0), (1, 0))
        return {
            "indices": self.values[positions],
            "weights": self.weights[positions],
            "offsets": offsets,
        }

    def content(self, row: int) -> bytes:
        """Numbers and weights of the row."""
        part = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
        return raw(self.values[part]) + raw(self.weights[part])


@register("encoder", "ngrams", "text", "from-scratch")
class NgramEncoder(ColumnEncoder):
    """Text as the sum of learned vectors of its hashed character n-grams, words and pairs of words.

    A text is weighted to length 1 (in the sense of its counts), so long and short ones have vectors of like size;
    an empty one is the zero vector. The hash is fixed: it does not change between runs or machines.

    Args:
        columns: the column.
        width: length of the vectors.
        buckets: number of vectors; n-grams that fall in one bucket share its vector.
        sizes: lengths of n-grams in characters, borders of words included.
        pairs: whether two words in a row count as one n-gram more.
        fold_case: whether upper and lower case are the same.

    >>> encoder = NgramEncoder("title", width=8, buckets=1000)
    >>> inputs = encoder.prepare(pd.DataFrame({"title": ["red shoes", ""]}))
    >>> encoder(inputs.select(torch.tensor([1, 0]))).shape
    torch.Size([2, 8])
    """

    kind = "text"
    name = "ngrams"

    def __init__(
        self,
        columns: str | Sequence[str],
        width: int = 128,
        buckets: int = 1 << 15,
        sizes: Sequence[int] = (1, 2, 3, 4, 5),
        pairs: bool = True,  # noqa: FBT001, FBT002 a setting by keyword, restored from JSON
        fold_case: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        super().__init__(columns)
        self.width = check_integer("width", width)
        self.buckets = check_integer("buckets", buckets)
        self.sizes = [check_integer("sizes", size) for size in sizes]
        self.pairs, self.fold_case = bool(pairs), bool(fold_case)
        self.table = nn.EmbeddingBag(self.buckets, self.width, mode="sum", include_last_offset=True)
        # Small, so that n-grams which no training row has say next to nothing. On the valence of 7,000 words
        # this took a third off the error of torch's deviation of 1.
        nn.init.normal_(self.table.weight, std=0.02)

    @property
    def dim(self) -> int:
        """The width."""
        return self.width

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> BagInputs:
        """Hash the n-grams of each text."""
        del root
        texts = to_texts(self.cells(frame), self.columns[0])
        offsets, bucket, count = hashed_ngrams(
            texts, sizes=self.sizes, pairs=self.pairs, buckets=self.buckets, fold_case=self.fold_case
        )
        starts, counts = torch.from_numpy(offsets), torch.from_numpy(count).double()
        owner = torch.repeat_interleave(torch.arange(len(texts)), starts.diff())
        squares = torch.zeros(len(texts), dtype=torch.float64).index_add_(0, owner, counts.square())
        weights = (counts / squares.sqrt()[owner]).float()
        return BagInputs(torch.from_numpy(bucket).int(), starts, weights)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """``[b, width]``."""
        weights = batch["weights"].to(self.table.weight.dtype)
        found: Tensor = self.table(batch["indices"].long(), batch["offsets"], per_sample_weights=weights)
        return found

    def features(self, frame: pd.DataFrame, inputs: Inputs) -> scipy.sparse.csr_matrix:
        """Counts in buckets, each text scaled to length 1: sparse ``[n, buckets]``."""
        bags = inputs if isinstance(inputs, BagInputs) else self.prepare(frame)
        parts = (bags.weights.double().numpy(), bags.values.numpy(), bags.offsets.numpy())
        return scipy.sparse.csr_matrix(parts, shape=(len(bags), self.buckets))

    def config(self) -> dict[str, Any]:
        """All settings."""
        return {
            "encoder": self.name,
            "columns": self.columns,
            "width": self.width,
            "buckets": self.buckets,
            "sizes": self.sizes,
            "pairs": self.pairs,
            "fold_case": self.fold_case,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "NgramEncoder":
        """An encoder of the same shape with random vectors."""
        return cls(**{key: value for key, value in config.items() if key != "encoder"})
