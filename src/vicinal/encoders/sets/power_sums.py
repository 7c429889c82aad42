"""Sets by sums of powers or exponentials of projections of their elements, whose sufficient widths are known."""

from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_integer
from vicinal.encoders.sets.contract import AdditiveSetEncoder, Sums, masked_sum
from vicinal.encoders.sets.deep_sets import perceptron


@register(
    "set_encoder",
    "power_sums",
    "mini-batch-consistent",
    family="power sums",
    paper="arXiv:2307.04001",
    verified="numpy in float64",
)
class PowerSums(AdditiveSetEncoder):
    r"""A network of the power sums of projections of the elements (LP).

    $\rho(\sum_i [(w_k \cdot x_i)^p]_{k \le K,\, p \le P})$. With P at least the number of elements the sums determine
    the projections of a set (Newton's identities). Elements are divided by the largest number seen in training, so
    that powers stay small.

    Args:
        width: d, of the elements.
        dim: e, of the vectors.
        projections: K >= 1; None: 4 d.
        powers: P >= 1.
        hidden: width of the hidden layer of $\rho$.
        mean: divide the sums by the number of elements, which $\rho$ then does not see.

    >>> PowerSums(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        width: int,
        dim: int,
        *,
        projections: int | None = None,
        powers: int = 4,
        hidden: int = 128,
        mean: bool = False,
    ) -> None:
        super().__init__(width, dim)
        count = 4 * width if projections is None else check_integer("projections", projections)
        self.powers, self.mean = check_integer("powers", powers), mean
        self.projection = nn.Linear(width, count, bias=False)
        self.rho = perceptron(self.features, check_integer("hidden", hidden), dim)
        self.largest: Tensor = nn.Buffer(torch.tensor(0.0))

    @property
    def features(self) -> int:
        """How many sums there are: L."""
        return self.projection.out_features * self.powers

    def embedded(self, projected: Tensor) -> Tensor:
        """Of projections ``[b, n, K]`` what is added up, ``[b, n, L]``."""
        return torch.cat([projected**power for power in range(1, self.powers + 1)], dim=-1)

    def sums(self, elements: Tensor, valid: Tensor) -> Sums:
        """Of the elements, and their number."""
        if self.training and elements.numel():
            self.largest.copy_(torch.maximum(self.largest, elements.detach().abs().amax().to(self.largest)))
        scale = torch.where(self.largest > 0, self.largest, 1.0).to(elements.dtype)
        values = masked_sum(self.embedded(self.projection(elements / scale)), valid)  # after the powers: exp(0) is 1
        return values, valid.sum(dim=1, keepdim=True).to(values.dtype)

    def read_out(self, sums: Sums) -> Tensor:
        """See :class:`PowerSums`."""
        total, count = sums
        return self.rho(total / count.clamp(min=1) if self.mean else total)


@register(
    "set_encoder",
    "exponential_sums",
    "mini-batch-consistent",
    family="power sums",
    paper="arXiv:2307.04001",
    verified="numpy in float64",
)
class ExponentialSums(PowerSums):
    r"""A network of the sums of exponentials of projections of the elements (LE).

    $\rho(\sum_i [e^{w_k \cdot x_i}]_{k \le L})$, with exponents cut to -20 and 20.

    Args:
        width: d, of the elements.
        dim: e, of the vectors.
        projections: L >= 1; None: 16 d.
        **settings: ``hidden`` and ``mean`` of :class:`PowerSums`.

    >>> ExponentialSums(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, width: int, dim: int, *, projections: int | None = None, **settings: Any) -> None:
        count = 16 * width if projections is None else projections
        super().__init__(width, dim, projections=count, powers=1, **settings)

    def embedded(self, projected: Tensor) -> Tensor:
        """Of projections ``[b, n, L]`` what is added up, ``[b, n, L]``."""
        return projected.clamp(-20, 20).exp()
