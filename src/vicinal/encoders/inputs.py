"""Prepared columns: held on the CPU, cheap to keep, cut into batches by row numbers.

``select(rows)`` gives what an encoder's ``forward`` takes: a tensor, or a dictionary of tensors (nested where a
table has several parts), so that any loader can move it to a device.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from vicinal.encoders.cache import content_key


@runtime_checkable
class Inputs(Protocol):
    """One or several prepared columns of a table."""

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def select(self, rows: Tensor) -> Any:
        """The batch of ``rows`` (int64 ``[b]``) for ``forward``."""
        ...

    def content(self, row: int) -> bytes:
        """All that the embedding of ``row`` depends on, besides the encoder: the key of a cache."""
        ...

    def sizes(self) -> Tensor:
        """How much work each row is, int64 ``[n]``: rows of similar size share a batch where the order is free."""
        return torch.ones(len(self), dtype=torch.int64)


def table_rows(rows: Tensor, count: int) -> Tensor:
    """Check that ``rows`` is int64 ``[b]``; ``count`` is the number of rows there are (values are not read)."""
    if not isinstance(rows, Tensor) or rows.dtype != torch.int64 or rows.ndim != 1:
        raise TypeError(f"rows: expected an int64 tensor [b] of row numbers below {count}, got {rows!r}")
    return rows


@dataclass(frozen=True)
class RowInputs(Inputs):
    """Rows of one shape.

    Attributes:
        values: ``[n, ...]``.
        excess: how far the first c values lie beyond what they count as, in ranges of their column ``[n, c]``; None:
            none of them does.

    >>> RowInputs(torch.tensor([[1.0], [2.0]])).select(torch.tensor([1]))
    tensor([[2.]])
    """

    values: Tensor
    excess: Tensor | None = None

    def __len__(self) -> int:
        return self.values.shape[0]

    def select(self, rows: Tensor) -> Tensor:
        """``[b, ...]``."""
        return self.values[table_rows(rows, len(self))]

    def without_wild(self, gone: float) -> Self:
        """Rows where a standardized number over so many ranges beyond what it counts as is a gap, the mean."""
        if self.excess is None:
            return self
        wild = torch.zeros(self.values.shape, dtype=torch.bool)
        wild[:, : self.excess.shape[1]] = self.excess > gone
        return replace(self, values=self.values.masked_fill(wild, 0.0))

    def content(self, row: int) -> bytes:
        """The bytes of the row."""
        return raw(self.values[row])


@dataclass(frozen=True)
class EmbeddedInputs(RowInputs):
    """Embeddings ``values [n, dim]`` of a frozen encoder, in the place of what it would read."""

    def select(self, rows: Tensor) -> Any:
        """A dictionary with the one key "embedded", ``[b, dim]``."""
        return {"embedded": super().select(rows)}


@dataclass(frozen=True)
class RaggedInputs:
    """Rows of different lengths: row ``i`` is ``values[offsets[i] : offsets[i + 1]]``.

    Attributes:
        values: ``[total, ...]``, all rows one after the other.
        offsets: int64 ``[n + 1]``, from 0 to ``total``.
    """

    values: Tensor
    offsets: Tensor

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """``(positions, lengths)``: where the values of ``rows`` lie (int64 ``[sum of lengths]``), and how many."""
        rows = table_rows(rows, len(self))
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        lengths = ends - starts  # [b]
        before = lengths.cumsum(0) - lengths  # [b]
        positions = torch.arange(int(lengths.sum())) + torch.repeat_interleave(starts - before, lengths)
        return positions, lengths

    def padded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """``(values [b, longest, ...], lengths [b])``, zeros behind the end of a row."""
        positions, lengths = self.take(rows)
        longest = max(int(lengths.max()) if len(lengths) else 0, 1)
        values = self.values.new_zeros((len(rows), longest, *self.values.shape[1:]))
        values[torch.arange(longest) < lengths[:, None]] = self.values[positions]
        return values, lengths

    def select(self, rows: Tensor) -> Any:
        """``values [b, longest, ...]`` and ``lengths [b]``."""
        values, lengths = self.padded(rows)
        return {"values": values, "lengths": lengths}

    def content(self, row: int) -> bytes:
        """The bytes of the row."""
        return raw(self.values[int(self.offsets[row]) : int(self.offsets[row + 1])])

    def sizes(self) -> Tensor:
        """The lengths."""
        return self.offsets.diff()


@dataclass(frozen=True)
class StateInputs:
    """Rows with a hidden state of a pretrained network, from which the layers above go on.

    Attributes:
        inputs: what the network reads.
        states: float16 ``[places, ...]`` of each row.
    """

    inputs: Inputs
    states: RaggedInputs

    def __len__(self) -> int:
        return len(self.inputs)

    def select(self, rows: Tensor) -> Any:
        """The batch of the network, and ``states [b, longest, ...]``."""
        return {"inputs": self.inputs.select(rows), "states": self.states.padded(rows)[0]}

    def content(self, row: int) -> bytes:
        """That of the inputs."""
        return self.inputs.content(row)

    def sizes(self) -> Tensor:
        """Those of the inputs."""
        return self.inputs.sizes()


@dataclass(frozen=True)
class JoinedInputs:
    """Several prepared columns, or groups of them, row by row.

    Attributes:
        parts: at least one, of as many rows each.
    """

    parts: tuple[Inputs, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    def select(self, rows: Tensor) -> dict[str, Any]:
        """The batches of all parts, by their number as text."""
        return {str(number): part.select(rows) for number, part in enumerate(self.parts)}

    def content(self, row: int) -> bytes:
        """The contents of all parts, hashed."""
        return "".join(content_key(part.content(row)) for part in self.parts).encode()

    def sizes(self) -> Tensor:
        """The sum over the parts."""
        return torch.stack([part.sizes() for part in self.parts]).sum(dim=0)


@dataclass(frozen=True)
class LazyInputs(Inputs):
    """Rows that are made again for each batch, for columns whose prepared rows would not fit in memory.

    Attributes:
        cells: what a row is made from.
        load: gives one row, always of the same shape.
    """

    cells: Sequence[Any]
    load: Callable[[int, Any], Tensor]

    def __len__(self) -> int:
        return len(self.cells)

    def select(self, rows: Tensor) -> Tensor:
        """``[b, ...]``."""
        return torch.stack([self.load(row, self.cells[row]) for row in table_rows(rows, len(self)).tolist()])

    def content(self, row: int) -> bytes:
        """The bytes of the row."""
        return raw(self.load(row, self.cells[row]))


def raw(values: Tensor) -> bytes:
    """Shape, dtype and bytes of a CPU tensor: equal exactly when the tensors are.

    >>> raw(torch.zeros(2)) == raw(torch.zeros(2, 1))
    False
    """
    array = np.ascontiguousarray(values.numpy())
    return f"{array.dtype.str}{array.shape}".encode() + array.tobytes()


def ragged(rows: Iterable[Tensor], empty: Tensor) -> RaggedInputs:
    """Join ``rows`` (each ``[length, ...]``); ``empty [0, ...]`` stands for no rows at all."""
    listed = list(rows)
    lengths = torch.tensor([0, *(len(row) for row in listed)], dtype=torch.int64)
    return RaggedInputs(torch.cat([empty, *listed]), lengths.cumsum(0))
