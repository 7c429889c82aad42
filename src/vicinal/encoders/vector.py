"""Columns of fixed vectors (embeddings made elsewhere, measurements): standardized."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from pydantic import Field, NonNegativeFloat, model_validator
from torch import Tensor

from vicinal.core import ColumnError, register, short, short_text
from vicinal.encoders.base import ColumnEncoder, SavedEncoder, refuse
from vicinal.encoders.inputs import RowInputs
from vicinal.encoders.numeric import Array, standardizer


def to_vectors(series: "pd.Series[Any]", column: str, width: int | None) -> Array:
    """A column of lists or arrays of numbers as float64 ``[n, width]``; None: as wide as the first row.

    Raises:
        ValueError: naming the row that is missing, of another length, or holds something else than finite numbers.
    """
    rows: list[Array] = []
    for row, cell in series.items():
        try:
            values = np.asarray(cell, dtype=np.float64)
        except (TypeError, ValueError):
            raise refuse(column, row, "a list of numbers", short(cell)) from None
        if values.ndim != 1:
            raise refuse(column, row, "a list of numbers", short(cell), "leave out rows without one")
        width = len(values) if width is None else width
        if len(values) != width or not width:
            raise refuse(column, row, f"{width or 'some'} numbers", f"{len(values)}")
        if not np.isfinite(values).all():
            place = int(np.argmin(np.isfinite(values)))
            raise refuse(column, row, "finite numbers", f"{values[place]} at place {place}")
        rows.append(values)
    return np.stack(rows) if rows else np.zeros((0, width or 0))


class SavedVectors(SavedEncoder):
    """See :meth:`VectorEncoder.config`."""

    mean: list[float] = Field(min_length=1)
    factor: list[NonNegativeFloat]

    @model_validator(mode="after")
    def _one_an_entry(self) -> Self:
        if len(self.mean) != len(self.factor):
            raise ValueError(f"{len(self.mean)} means and {len(self.factor)} factors")
        return self


@register("encoder", "vectors", "vector", "parameter-free")
class VectorEncoder(ColumnEncoder):
    """Vectors of one length in the cells of a column, each entry standardized, in float64.

    Args:
        columns: the column.

    >>> frame = pd.DataFrame({"v": [[1.0, 5.0], [3.0, 5.0]]})
    >>> encoder = VectorEncoder("v").fit(frame)
    >>> encoder.prepare(frame).values
    tensor([[-1.,  0.],
            [ 1.,  0.]], dtype=torch.float64)
    """

    kind = "vector"
    name = "vectors"
    saved = SavedVectors

    def __init__(self, columns: str | Sequence[str]) -> None:
        super().__init__(columns)
        self.mean: list[float] = []
        self.factor: list[float] = []

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        if not self.mean:
            raise ValueError("VectorEncoder: expected a fitted encoder, got one without means; call fit first")
        return len(self.mean)

    def fit(self, frame: pd.DataFrame) -> Self:
        """Take mean and deviation of each entry."""
        values = to_vectors(self.cells(frame), self.columns[0], None)
        if not len(values):
            raise ColumnError(f"{short_text(self.columns[0])}: expected at least one row, got none")
        mean, factor = standardizer(values)
        self.mean, self.factor = mean.tolist(), factor.tolist()
        return self

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RowInputs:
        """Standardize."""
        del root
        values = to_vectors(self.cells(frame), self.columns[0], self.dim)
        return RowInputs(torch.from_numpy((values - np.array(self.mean)) * np.array(self.factor)))

    def forward(self, batch: Tensor) -> Tensor:
        """The prepared vectors, in the dtype in which they come."""
        return batch

    def config(self) -> dict[str, Any]:
        """Column, means, factors."""
        return {"encoder": self.name, "columns": self.columns, "mean": self.mean, "factor": self.factor}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "VectorEncoder":
        """The fitted encoder."""
        encoder = cls(config["columns"])
        encoder.mean, encoder.factor = list(config["mean"]), list(config["factor"])
        return encoder
