r"""Which differences between scores mean something: below the resolution of a query's scores there is only rounding.

A score is a sum of d terms, each computed with a relative error of $\epsilon$. Two errors add up: the inputs may be off
in their last digit, which moves a score by $\epsilon$ times the size of a term, times $\sqrt d$ since errors have
either sign; and the sum itself is off by up to $\sqrt d\,\epsilon$ times its size (Higham and Mary, A new approach to
probabilistic rounding error analysis, 2019). Scores of equal rows may differ by that much, since a matrix product adds
up in another order at the edge of a block.
"""

from typing import NamedTuple

import torch
from torch import Tensor

INPUTS = 8.0
"""Error of the inputs in units of the last digit, enough for the largest over many rows and for two scores."""

SUMS = 4.0
"""The same for sums."""

UNKNOWN = 8.0
"""The same for scores about which nothing is known."""


class Resolution(NamedTuple):
    r"""The least difference that tells two scores of a query apart: $r(s) = \epsilon\,(a + b \sqrt{|s|} + c\,|s|)$.

    Attributes:
        fixed: a, a number or ``[b, 1]``.
        rooted: b, likewise.
        share: c.
        eps: $\epsilon$ of the dtype that is computed in.

    >>> Resolution(0.0, 0.0, 4.0, 2.0**-23).of(torch.tensor([[-1.0]]), torch.tensor([[-8.0]])) * 2**23
    tensor([[32.]])
    """

    fixed: Tensor | float
    rooted: Tensor | float
    share: float
    eps: float

    def at(self, eps: float) -> "Resolution":
        """The same for another ``eps``."""
        return Resolution(self.fixed, self.rooted, self.share, eps)

    def rows(self, part: slice) -> "Resolution":
        """That of the queries in a slice."""
        fixed, rooted = (one[part] if isinstance(one, Tensor) else one for one in (self.fixed, self.rooted))
        return Resolution(fixed, rooted, self.share, self.eps)

    def of(self, *scores: Tensor) -> Tensor:
        """The resolution ``[b, 1]`` at the largest magnitude of these ``scores [b, 1]``; infinite ones count as 0."""
        size = torch.zeros_like(scores[0])
        for score in scores:
            magnitude = score.detach().abs()
            size = torch.maximum(size, torch.where(magnitude < torch.inf, magnitude, 0.0))
        return self.eps * (self.fixed + self.rooted * size.sqrt() + self.share * size)


def lengths(rows: Tensor) -> Tensor:
    """Lengths ``[n, 1]`` of ``rows [n, d]``, without gradient."""
    return torch.linalg.vector_norm(rows.detach(), dim=1, keepdim=True)
