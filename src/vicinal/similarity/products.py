"""Similarities that are inner products."""

import torch
from torch import Tensor

from vicinal.blockwise.resolution import INPUTS, SUMS, Resolution, lengths
from vicinal.core import register
from vicinal.similarity.base import Similarity


def l2_normalize(rows: Tensor) -> Tensor:
    """``rows [n, d]`` scaled to length 1; a row of zeros stays zero and passes no gradient."""
    largest = rows.detach().abs().amax(dim=-1, keepdim=True)  # [n, 1]
    nonzero = largest > 0
    scaled = rows / torch.where(nonzero, largest, 1.0)  # entries within [-1, 1]: squares cannot overflow
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)  # at zero its gradient is 0
    return scaled * torch.where(nonzero, 1 / torch.where(nonzero, length, 1.0), 0.0)


@register(
    "similarity",
    "cosine",
    "bounded",
    "rotation-invariant",
    "row-scale-invariant",
    family="products",
    paper="NONA, section 3.1",
    verified="values of the paper's code; numpy in float64",
)
class Cosine(Similarity):
    r"""$s_{ij} = q_i \cdot x_j / (\|q_i\| \|x_j\|)$ in [-1, 1]; 0, with gradient 0, for a row of zeros.

    >>> Cosine()(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    tensor([[1., 0., 0.]])
    """

    best = 1.0

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        return l2_normalize(queries) @ l2_normalize(bank).T

    def resolution(self, queries: Tensor, longest: Tensor) -> Resolution:
        """See :meth:`Similarity.resolution`."""
        del longest
        root = queries.shape[1] ** 0.5
        return Resolution(INPUTS / root + SUMS * root, 0.0, 0.0, torch.finfo(queries.dtype).eps)


@register("similarity", "dot", "rotation-invariant", family="products", verified="numpy in float64")
class Dot(Similarity):
    r"""$s_{ij} = q_i \cdot x_j$, or that divided by the width $d$ if ``scaled``.

    Args:
        scaled: divide by ``d`` (the "scaled_dot" of the NONA paper).

    >>> Dot(scaled=True)(torch.tensor([[1.0, 3.0]]), torch.tensor([[2.0, 1.0]]))
    tensor([[2.5000]])
    """

    def __init__(self, *, scaled: bool = False) -> None:
        super().__init__()
        self.scaled = scaled

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        scores = queries @ bank.T
        return scores / queries.shape[1] if self.scaled else scores

    def resolution(self, queries: Tensor, longest: Tensor) -> Resolution:
        """See :meth:`Similarity.resolution`."""
        root = queries.shape[1] ** 0.5
        largest = lengths(queries) * longest / (queries.shape[1] if self.scaled else 1)
        return Resolution((INPUTS / root + SUMS * root) * largest, 0.0, 0.0, torch.finfo(queries.dtype).eps)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return "scaled=True" if self.scaled else ""


@register(
    "similarity",
    "scaled_dot",
    "rotation-invariant",
    family="products",
    paper="NONA, section 3.1",
    verified="values of the paper's code; numpy in float64",
)
def scaled_dot() -> Dot:
    """The inner product divided by the width of the embeddings: ``Dot(scaled=True)``."""
    return Dot(scaled=True)
