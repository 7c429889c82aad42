"""How large a block is: one policy for all computations by blocks.

A block of rows that stays in a core's cache between the steps of a formula is faster than a whole matrix; an
accelerator needs large blocks instead; elsewhere blocks only limit memory. Up to rounding, results do not depend on
these sizes.

    rows = block_rows(len(scores), scores.shape[1], scores.device)
    for part in row_slices(len(scores), rows):
        ...

Tests that want many small blocks write ``with block_policy(block_entries=64): ...``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockPolicy:
    """Sizes of blocks, in entries (numbers of a matrix) or rows.

    Attributes:
        scan_entries: entries compared and searched at a time on a CPU.
        sort_entries: scores of a block on a CPU that is sorted, or passes through many steps that make new tensors;
            with larger ones, freed memory goes back to the system and has to be requested again.
        block_entries: scores of a block of a formula on a CPU.
        device_entries: scores of a block on an accelerator, which has to be kept busy.
        attention_entries: scores of a tile of queries against a block of the bank on a CPU.
        query_rows: queries of a tile on a CPU.
        device_query_rows: the same on an accelerator.
        batch_queries: queries that a head predicts at a time when it streams the bank.
        streamed_entries: number of scores from which attention is computed by blocks, to save time and memory.
        pair_entries: numbers in the vectors of the single pairs whose differences are computed at a time.
        memory_entries: numbers held at a time where only memory matters.
        bank_rows: bank rows read or compared at a time.
        search_entries: distances of a tile of queries to a block of the bank in a search for the nearest rows.
        least_rows: minimum rows of a block, unless the matrix has fewer.
    """

    scan_entries: int = 1 << 16
    sort_entries: int = 1 << 17
    block_entries: int = 1 << 18
    device_entries: int = 1 << 24
    attention_entries: int = 1 << 19
    query_rows: int = 256
    device_query_rows: int = 4096
    batch_queries: int = 4096
    streamed_entries: int = 1 << 18
    pair_entries: int = 1 << 18
    memory_entries: int = 1 << 22
    bank_rows: int = 1 << 14
    search_entries: int = 1 << 20
    least_rows: int = 32


_IN_FORCE = [BlockPolicy()]
"""The last one is in force, in all threads, since a backward pass may run in another thread than its forward pass."""


def policy() -> BlockPolicy:
    """The policy in force."""
    return _IN_FORCE[-1]


@contextmanager
def block_policy(**changes: int) -> Iterator[BlockPolicy]:
    """The policy in force with these ``changes``, within a ``with`` statement; for tests and measurements.

    >>> with block_policy(block_entries=64):
    ...     block_rows(100, 2, torch.device("cpu"))
    32
    """
    _IN_FORCE.append(replace(policy(), **changes))
    try:
        yield policy()
    finally:
        _IN_FORCE.pop()


def row_slices(rows: int, size: int) -> list[slice]:
    """Slices of ``size`` rows; one empty slice for no rows, so that the results of all blocks can be joined.

    >>> row_slices(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(rows, start + size)) for start in range(0, max(rows, 1), size)]


def query_rows(entries: int, columns: int) -> int:
    """How many queries of ``columns`` entries are computed at a time: a power of two, at most ``batch_queries``.

    So a table has the same blocks as its parts, if each part but the last has a multiple of ``batch_queries`` rows.

    >>> query_rows(1 << 22, 2000), query_rows(100, 1000)
    (2048, 1)
    """
    return min(policy().batch_queries, 1 << (max(1, entries // max(1, columns)).bit_length() - 1))


def block_rows(
    rows: int,
    columns: int,
    device: torch.device,
    *,
    entries: int | None = None,
    uncut: int = 1,
    least: int | None = None,
) -> int:
    """Rows of a block of a matrix ``[rows, columns]``.

    Args:
        rows: of the matrix.
        columns: of the matrix.
        device: where it is computed.
        entries: of a block on a CPU; None: ``block_entries`` of the policy.
        uncut: a matrix of up to this many blocks is not cut.
        least: minimum rows of a block, unless there are fewer; None: ``least_rows`` of the policy.

    >>> block_rows(256, 256, torch.device("cpu")), block_rows(4096, 4096, torch.device("cpu"))
    (256, 64)
    """
    if device.type != "cpu":
        entries = policy().device_entries
    elif entries is None:
        entries = policy().block_entries
    if rows * columns <= entries * uncut:
        return max(1, rows)
    least = policy().least_rows if least is None else least
    return min(rows, max(least, entries // columns))


def attention_sizes(queries: int, dim: int, device: torch.device) -> tuple[int, int]:
    """Bank rows of a block and queries of a tile that fit in cache.

    >>> attention_sizes(1000, 16, torch.device("cpu"))
    (2048, 256)
    """
    sizes = policy()
    on_cpu = device.type == "cpu"
    entries = sizes.attention_entries if on_cpu else sizes.device_entries
    tile = max(1, min(queries, sizes.query_rows if on_cpu else sizes.device_query_rows))
    return max(256, min(entries // tile, entries // max(1, dim))), tile


class Buffers:
    """Named memory that is reused for each block: on a CPU, to allocate a megabyte costs more than to use it.

    Each is as large as the largest matrix requested under its name.

    >>> buffers = Buffers()
    >>> first = buffers.like("gaps", torch.zeros(2, 3))
    >>> buffers.like("gaps", torch.zeros(3, 1)).data_ptr() == first.data_ptr()
    True
    """

    def __init__(self) -> None:
        self._flat: dict[str, Tensor] = {}

    def empty(self, name: str, rows: int, columns: int, like: Tensor) -> Tensor:
        """An uninitialized matrix ``[rows, columns]`` with the dtype and device of ``like``."""
        flat = self._flat.get(name)
        if flat is None or flat.numel() < rows * columns or flat.dtype != like.dtype:
            flat = self._flat[name] = like.new_empty(rows * columns)
        return flat[: rows * columns].view(rows, columns)

    def like(self, name: str, matrix: Tensor) -> Tensor:
        """An uninitialized matrix with the shape, dtype and device of ``matrix``."""
        return self.empty(name, matrix.shape[0], matrix.shape[1], matrix)
