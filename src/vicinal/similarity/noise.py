"""The similarity that takes what differs from the query as noise in its signal."""

import torch
from torch import Tensor

from vicinal.blockwise.distances import squared_distances
from vicinal.blockwise.resolution import INPUTS, SUMS, Resolution, lengths
from vicinal.core import register
from vicinal.core.checks import check_between
from vicinal.similarity.base import Similarity


@register(
    "similarity",
    "snr",
    family="noise",
    paper="arXiv:1904.02616",
    verified="pytorch-metric-learning 2.9.0, value and gradient in float64; numpy in float64",
)
class NegativeSNR(Similarity):
    r"""$s_{ij} = -\mathrm{Var}_k(x_{jk} - q_{ik}) / \mathrm{Var}_k(q_{ik})$, noise over signal.

    The variances are over the coordinates of a row. It is not symmetric: the query is the signal. Adding a number to
    all coordinates of a row, or scaling both sides by one factor, changes nothing; for rows of mean 0 it is the
    negative squared distance over the squared length of the query.

    Args:
        eps: >= 0, a lower bound on the variance that is divided by. 0: a query without variance is refused; an
            accelerator has to wait for that check.

    Raises:
        ValueError: for rows of fewer than 2 coordinates, and for queries without variance if ``eps`` is 0.

    >>> NegativeSNR()(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 1.0], [3.0, 1.0], [2.0, -2.0]]))
    tensor([[-1.,  0., -1.]])
    """

    best = 0.0

    def __init__(self, *, eps: float = 1e-8) -> None:
        super().__init__()
        self.eps = check_between("eps", eps, 0, torch.inf, closed=True)

    def score(self, queries: Tensor, bank: Tensor) -> Tensor:
        """See :meth:`Similarity.forward`."""
        width = queries.shape[1]
        if width < 2:
            raise ValueError(f"queries: expected at least 2 coordinates, a variance needs them, got {width}")
        signal = queries - queries.mean(dim=1, keepdim=True)
        other = bank - bank.mean(dim=1, keepdim=True)
        variance = signal.square().mean(dim=1, keepdim=True)  # [b, 1]
        if self.eps == 0:
            flat = (variance[:, 0] == 0).nonzero()
            if len(flat):
                raise ValueError(
                    f"queries: expected rows whose coordinates differ, got a constant row {int(flat[0])}; give an eps"
                )
        else:
            variance = variance.clamp(min=self.eps)
        return 0.0 - squared_distances(signal, other) / (width * variance)

    def resolution(self, queries: Tensor, longest: Tensor) -> Resolution:
        """See :meth:`Similarity.resolution`."""
        del longest
        width, eps = queries.shape[1], torch.finfo(queries.dtype).eps
        signal = lengths(queries - queries.mean(dim=1, keepdim=True)).clamp(min=(width * max(self.eps, eps**4)) ** 0.5)
        return Resolution(0.0, 2 * INPUTS / width**0.5 * lengths(queries) / signal, 2 * SUMS * width**0.5, eps)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"eps={self.eps:g}"
