"""The contract of a similarity."""

import torch
from torch import Tensor, nn

from vicinal.blockwise.resolution import UNKNOWN, Resolution
from vicinal.core import make
from vicinal.core.checks import check_matrices


class Similarity(nn.Module):
    """Scores between queries and bank rows; a subclass writes :meth:`score` for checked matrices.

    Half-precision inputs are scored in float32 with autocast switched off, so that scores keep the order of near
    neighbors; the result keeps that dtype. Any block of bank rows can be scored alone: up to rounding, the columns of
    the result do not depend on one another.

    Attributes:
        best: the score of two equal rows, where all rows have the same; None where it depends on the row.
    """

    best: float | None = None

    def forward(self, queries: Tensor, bank: Tensor) -> Tensor:
        """Scores of each query against each bank row.

        Args:
            queries: ``[b, d]``, floating.
            bank: ``[N, d]``, floating.

        Returns:
            ``[b, N]``, higher = more alike; float32, or float64 if either input is.

        Raises:
            TypeError: if an input is not a floating tensor.
            ValueError: if an input is not a matrix or the widths differ.
        """
        check_matrices(queries, bank)
        dtype = torch.promote_types(torch.promote_types(queries.dtype, bank.dtype), torch.float32)
        with torch.autocast(queries.device.type, enabled=False):
            return self.score(queries.to(dtype), bank.to(dtype))

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """Scores ``[b, N]`` of checked matrices of one dtype."""
        raise TypeError(f"similarity: expected a class that defines score(), got {type(self).__name__}")

    def resolution(self, queries: Tensor, longest: Tensor) -> Resolution:
        """By how much scores of a query must differ to be told apart; a subclass that knows its terms is more exact.

        Args:
            queries: ``[b, d]``, in the dtype that scores are computed in.
            longest: a number, the length of the longest bank row.
        """
        del longest
        return Resolution(0.0, 0.0, UNKNOWN, torch.finfo(queries.dtype).eps)


def resolution_of(similarity: nn.Module, queries: Tensor, longest: Tensor) -> Resolution:
    """The resolution of any similarity: see :meth:`Similarity.resolution`."""
    if isinstance(similarity, Similarity):
        return similarity.resolution(queries, longest)
    return Similarity.resolution(Similarity(), queries, longest)


def resolve_similarity(similarity: str | nn.Module) -> nn.Module:
    """The similarity of that name, or the module itself.

    >>> resolve_similarity("cosine")
    Cosine()
    """
    if isinstance(similarity, nn.Module):
        return similarity
    module = make("similarity", similarity)
    if not isinstance(module, nn.Module):
        raise TypeError(f"similarity: expected a module, got {module!r}")
    return module
