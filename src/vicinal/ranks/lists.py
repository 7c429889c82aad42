"""Rows of several lists in one column, as a matrix with a row for each list."""

import torch
from torch import Tensor


def list_places(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Where the rows of each list stand, and which of these places are rows.

    Args:
        codes: the list of each row, int64 ``[n]``.

    Returns:
        Positions ``[Q, N]`` and boolean ``[Q, N]``, lists by rising code, N rows in the longest; where there is no row
        the position is 0.

    >>> places, valid = list_places(torch.tensor([7, 3, 7]))
    >>> places.tolist(), valid.tolist()
    ([[1, 0], [0, 2]], [[True, False], [True, True]])
    """
    _, code, sizes = torch.unique(codes, return_inverse=True, return_counts=True)
    order = code.argsort(stable=True)
    longest = int(sizes.max()) if len(sizes) else 0
    valid = torch.arange(longest, device=codes.device) < sizes[:, None]
    places = torch.zeros(valid.shape, dtype=torch.int64, device=codes.device)
    places[valid] = order
    return places, valid
