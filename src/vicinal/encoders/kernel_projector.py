"""From the standardized columns of a plain table to vectors in which a learned kernel is a sum of two simple ones."""

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer

BINS = 8
"""Pieces of a column of numbers, between its quantiles."""


class KernelProjector(nn.Module):
    r"""The columns as a kernel sees them: $[\sqrt 3\, x / \ell,\ \sqrt{a/p}\, x,\ \sqrt c\, \phi(x)]$, centered.

    Of the kernel $(1 + \sqrt 3 r) e^{-\sqrt 3 r} + \frac a p x^\top x' + c\, \phi(x)^\top \phi(x')$ with
    $r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2$ the first p entries give $3 r^2$ as their squared distance, and the rest
    the other terms as their inner product. The kernel's own squared distance,
    $2 - 2 (1 + \sqrt 3 r) e^{-\sqrt 3 r} + \dots$, is that of these vectors, $3 r^2 + \dots$, up to terms of third
    order in r, and never more; the nearest rows are those by the latter.

    $\phi$ are piecewise-linear features of the columns of numbers: for the edges $e_k$ of 8 bins of as many rows each,
    $(2 v_k - 1)/\sqrt 8$ with $v_k = (x - e_k)/(e_{k+1} - e_k)$ cut to 0 and 1, in the outer bins to -1 and 2.

    Args:
        in_dim: p, the width of its input.
        numbers: places of the columns of numbers in it.
        line: whether the kernel has its two terms of inner products; else only $\sqrt 3\, x / \ell$ is left.

    Attributes:
        linear: how many of the last entries enter by their inner product.

    >>> projector = KernelProjector(2, [0]).fit(torch.tensor([[-1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> projector.dim, projector.linear, projector(torch.zeros(5, 2)).shape
    (12, 10, torch.Size([5, 12]))
    """

    edges: Tensor
    center: Tensor

    def __init__(self, in_dim: int, numbers: Sequence[int] = (), *, line: bool = True) -> None:
        super().__init__()
        self.in_dim = check_integer("in_dim", in_dim)
        self.numbers = list(numbers) if line else []
        width = self.in_dim + BINS * len(self.numbers)
        self.linear = width if line else 0
        self.dim = self.in_dim + self.linear
        self.register_buffer("edges", torch.zeros(len(self.numbers), BINS + 1, dtype=torch.float64))
        self.register_buffer("center", torch.zeros(width, dtype=torch.float64))
        self.log_lengths = nn.Parameter(torch.full((in_dim,), math.log(in_dim) / 2, dtype=torch.float64))
        self.log_linear = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))
        self.log_pieces = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))

    @torch.no_grad()
    def fit(self, features: Tensor) -> Self:
        """Take the edges of the bins and the center from training rows ``[n, p]``; gives itself."""
        levels = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
        known = features.double()
        if self.numbers:
            self.edges.copy_(known[:, self.numbers].quantile(levels, dim=0).T)
        self.center.zero_()
        self.center.copy_(torch.cat(self.terms(known), dim=1).mean(dim=0))
        return self

    def terms(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Centered columns ``[b, p]`` and their pieces ``[b, 8 q]`` for q columns of numbers, in float64."""
        wide = features.double()
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        width = high - low
        share = (wide[:, self.numbers, None] - low) / torch.where(width > 0, width, 1.0)  # [b, q, 8]
        least, most = torch.zeros(BINS).double(), torch.ones(BINS).double()
        least[0], most[-1] = -1.0, 2.0
        share = torch.where(width > 0, share.clamp(least.to(share), most.to(share)), 0.5)
        pieces = (2 * share - 1) / math.sqrt(BINS)
        return wide - self.center[: self.in_dim], pieces.flatten(1) - self.center[self.in_dim :]

    def forward(self, features: Tensor) -> Tensor:
        """``[b, dim]`` from ``[b, p]``, in float64."""
        if features.ndim != 2 or features.shape[1] != self.in_dim:
            raise ValueError(f"features: expected [b, {self.in_dim}], got {tuple(features.shape)}")
        inputs, pieces = self.terms(features)
        near = math.sqrt(3) * inputs * (-self.log_lengths).exp()
        if not self.linear:
            return near
        line = inputs * (self.log_linear / 2).exp() / math.sqrt(self.in_dim)
        return torch.cat([near, line, pieces * (self.log_pieces / 2).exp()], dim=1)

    def extra_repr(self) -> str:
        """Widths, for ``print``."""
        return f"in_dim={self.in_dim}, dim={self.dim}, linear={self.linear}"
