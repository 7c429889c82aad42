"""Similarities that are negated distances."""

import torch
from torch import Tensor

from vicinal.blockwise.distances import distances, squared_distances
from vicinal.blockwise.resolution import INPUTS, SUMS, Resolution, lengths
from vicinal.core import register
from vicinal.similarity.base import Similarity


@register(
    "similarity",
    "l2",
    "common-shift-invariant",
    "rotation-invariant",
    family="distances",
    paper="NONA, section 3.1",
    verified="values of the paper's code; numpy in float64",
)
class NegativeL2(Similarity):
    r"""$s_{ij} = -\|q_i - x_j\|_2$, exact for data with a large common offset.

    The gradient at coincident rows is 0, where a plain square root gives NaN.

    >>> NegativeL2()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[-5., -0.]])
    """

    best = 0.0

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        return -distances(queries, bank)

    def resolution(self, queries: Tensor, longest: Tensor) -> Resolution:
        """See :meth:`Similarity.resolution`."""
        del longest
        root = queries.shape[1] ** 0.5
        return Resolution(INPUTS / root * lengths(queries), 0.0, SUMS * root, torch.finfo(queries.dtype).eps)


@register(
    "similarity",
    "squared_l2",
    "common-shift-invariant",
    "rotation-invariant",
    family="distances",
    verified="numpy in float64",
)
class NegativeSquaredL2(Similarity):
    r"""$s_{ij} = -\|q_i - x_j\|_2^2$.

    >>> NegativeSquaredL2()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[-25.]])
    """

    best = 0.0

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        return -squared_distances(queries, bank)

    def resolution(self, queries: Tensor, longest: Tensor) -> Resolution:
        """See :meth:`Similarity.resolution`."""
        del longest
        root = queries.shape[1] ** 0.5
        rooted = 2 * INPUTS / root * lengths(queries)
        return Resolution(0.0, rooted, 2 * SUMS * root, torch.finfo(queries.dtype).eps)


@register(
    "similarity",
    "l1",
    "common-shift-invariant",
    family="distances",
    paper="NONA, section 3.1",
    verified="values of the paper's code; numpy in float64",
)
class NegativeL1(Similarity):
    r"""$s_{ij} = -\sum_k |q_{ik} - x_{jk}|$; the derivative of $|0|$ is taken as 0.

    >>> NegativeL1()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, -4.0]]))
    tensor([[-7.]])
    """

    best = 0.0

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        return -torch.cdist(queries, bank, p=1.0)

    def resolution(self, queries: Tensor, longest: Tensor) -> Resolution:
        """See :meth:`Similarity.resolution`."""
        del longest
        share = SUMS * queries.shape[1] ** 0.5
        return Resolution(INPUTS * lengths(queries), 0.0, share, torch.finfo(queries.dtype).eps)
