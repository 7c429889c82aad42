"""Memory that is used again for each block: on CPU fresh memory of a megabyte costs more than the arithmetic in it."""

from torch import Tensor


class Scratch:
    """Numbered buffers, each as large as the largest tensor that was asked for.

    >>> import torch
    >>> scratch = Scratch()
    >>> first = scratch.like(torch.zeros(2, 3), 0)
    >>> scratch.like(torch.zeros(3, 1), 0).data_ptr() == first.data_ptr()
    True
    """

    def __init__(self) -> None:
        self._flat: dict[int, Tensor] = {}

    def empty(self, rows: int, columns: int, like: Tensor, slot: int) -> Tensor:
        """A matrix ``[rows, columns]`` with the dtype and device of ``like``, of arbitrary content."""
        flat = self._flat.get(slot)
        if flat is None or flat.numel() < rows * columns or flat.dtype != like.dtype:
            flat = self._flat[slot] = like.new_empty(rows * columns)
        return flat[: rows * columns].view(rows, columns)

    def like(self, matrix: Tensor, slot: int) -> Tensor:
        """A matrix of the shape, dtype and device of ``matrix``."""
        return self.empty(matrix.shape[0], matrix.shape[1], matrix, slot)
