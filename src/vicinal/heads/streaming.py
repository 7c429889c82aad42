"""Which heads can be read over a bank of any size, a block at a time."""

from typing import Any

from torch import nn

from vicinal.blockwise.thresholds import Simplex
from vicinal.masks import SoftStep, TopK, entmax15, softmax, sparsemax
from vicinal.masks.simplex import SimplexMap

_SIMPLEX: dict[Any, Simplex] = {softmax: "softmax", sparsemax: "sparsemax", entmax15: "entmax15"}


def simplex_name(simplex: SimplexMap) -> Simplex | None:
    """The name of a simplex map that can be streamed, or None."""
    return _SIMPLEX.get(simplex)


def can_stream(mask: nn.Module | None, simplex: SimplexMap) -> bool:
    """Whether the head with these parts can be streamed: masks and maps of this package can, others see whole rows.

    >>> can_stream(TopK(3), softmax), can_stream(nn.Identity(), softmax)
    (True, False)
    """
    return (mask is None or type(mask) in (SoftStep, TopK)) and simplex_name(simplex) is not None
