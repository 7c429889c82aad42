"""Sets by the mean and the deviation of their elements, with nothing to learn but what an empty set is."""

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.encoders.sets.contract import AdditiveSetEncoder, Sums, masked_sum

EPSILON = 1e-6
"""What is added to a variance, so that the gradient of its root is finite where all elements are alike."""


@register(
    "set_encoder",
    "moments",
    "mini-batch-consistent",
    family="moments",
    verified="numpy in float64",
)
class Moments(AdditiveSetEncoder):
    r"""Mean and deviation of the elements, and the logarithm of their number.

    $[m, \sqrt{\mathrm{mean}_i (x_i - m)^2 + \epsilon}, \log(1 + n)]$ with $m = \mathrm{mean}_i x_i$ and
    $\epsilon = 10^{-6}$. Nothing of it is trained, which is an advantage where sets are few.

    Args:
        width: d, of the elements.
        dim: e, of the vectors, by a linear map of that; None: 2 d + 1, as they are.

    >>> Moments(1)(torch.tensor([[[1.0], [3.0]]]))
    tensor([[2.0000, 1.0000, 1.0986]], grad_fn=...)
    """

    def __init__(self, width: int, dim: int | None = None) -> None:
        super().__init__(width, 2 * width + 1 if dim is None else dim)
        self.out = nn.Identity() if dim is None else nn.Linear(2 * width + 1, dim)

    def sums(self, elements: Tensor, valid: Tensor) -> Sums:
        """Sums of the elements and of their squares, and their number; in double precision, or differences are lost."""
        values = elements.double()
        count = valid.sum(dim=1, keepdim=True).to(values.dtype)
        return masked_sum(values, valid), masked_sum(values.square(), valid), count

    def read_out(self, sums: Sums) -> Tensor:
        """See :class:`Moments`."""
        first, second, count = sums
        mean = first / count.clamp(min=1)
        variance = (second / count.clamp(min=1) - mean.square()).clamp(min=0)
        moments = torch.cat([mean, (variance + EPSILON).sqrt(), count.log1p()], dim=-1)
        vectors: Tensor = self.out(moments.to(self.empty.dtype))
        return vectors
