"""Similarities that are negated distances."""

import torch
from torch import Tensor

from vicinal.core import register
from vicinal.similarity.base import Similarity

CLOSE = 1e-2
"""A squared distance below this share of the squared norms has lost digits and is computed again from differences."""

_BLOCK = 1 << 18
"""Elements of differences held at a time while close pairs are computed again."""


def paired_distances(queries: Tensor, bank: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Squared distances ``[p]`` of the named pairs, from differences, a block of pairs at a time."""
    step = max(1, _BLOCK // max(1, queries.shape[1]))
    blocks = [
        (queries[rows[start : start + step]] - bank[columns[start : start + step]]).square().sum(dim=-1)
        for start in range(0, len(rows), step)
    ]
    return torch.cat(blocks) if blocks else queries.new_zeros(0)


def squared_distances(queries: Tensor, bank: Tensor) -> Tensor:
    r"""$\|q_i - x_j\|^2$ by one matrix product, without its two losses of digits.

    The expansion $\|q\|^2 + \|x\|^2 - 2 q \cdot x$ is useless for data with a large common offset, so the mean of the
    bank is subtracted from both sides first. What then still cancels are pairs much nearer to one another than to the
    center; these are computed again from their differences, so coincident rows are at distance exactly 0.

    Args:
        queries: ``[b, d]``.
        bank: ``[N, d]``.

    Returns:
        ``[b, N]``, >= 0.

    >>> squared_distances(torch.tensor([[3000.0, 3000.0]]), torch.tensor([[3000.0, 3000.0], [3001.0, 3000.5]]))
    tensor([[0.0000, 1.2500]])
    """
    if bank.shape[0] == 0 or queries.shape[0] == 0:
        return queries.new_zeros(queries.shape[0], bank.shape[0])
    center = bank.detach().mean(dim=0)
    q, x = queries - center, bank - center
    norms = q.square().sum(dim=-1)[:, None] + x.square().sum(dim=-1)  # [b, N]
    squared = norms - 2 * (q @ x.T)  # [b, N]
    rows, columns = (squared.detach() <= CLOSE * norms.detach()).nonzero(as_tuple=True)
    return squared.index_put((rows, columns), paired_distances(queries, bank, rows, columns))


@register(
    "similarity",
    "l2",
    "common-shift-invariant",
    "rotation-invariant",
    paper="NONA, section 3.1",
    verified="values of the paper's code; numpy in float64",
)
class NegativeL2(Similarity):
    r"""$s_{ij} = -\|q_i - x_j\|_2$, exact for data with a large common offset.

    The gradient at coincident rows is 0, where a plain square root gives NaN.

    >>> NegativeL2()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[-5., -0.]])
    """

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        squared = squared_distances(queries, bank)
        apart = squared > 0
        return -torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)


@register("similarity", "squared_l2", "common-shift-invariant", "rotation-invariant", verified="numpy in float64")
class NegativeSquaredL2(Similarity):
    r"""$s_{ij} = -\|q_i - x_j\|_2^2$.

    >>> NegativeSquaredL2()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[-25.]])
    """

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        return -squared_distances(queries, bank)


@register(
    "similarity",
    "l1",
    "common-shift-invariant",
    paper="NONA, section 3.1",
    verified="values of the paper's code; numpy in float64",
)
class NegativeL1(Similarity):
    r"""$s_{ij} = -\sum_k |q_{ik} - x_{jk}|$; the derivative of $|0|$ is taken as 0.

    >>> NegativeL1()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, -4.0]]))
    tensor([[-7.]])
    """

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        return -torch.cdist(queries, bank, p=1.0)
