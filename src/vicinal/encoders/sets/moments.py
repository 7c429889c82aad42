"""Sets by moments, counts or quantiles of their elements, with nothing to learn but what an empty set is."""

from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_integer
from vicinal.encoders.sets.contract import AdditiveSetEncoder, SetEncoder, Sums
from vicinal.transport import draw_directions

EPSILON = 1e-6
"""What is added to a variance, so that the gradient of its root is finite where all elements are alike."""


class _PowerSums(torch.autograd.Function):
    r"""Sums of elements ``[b, n, d]`` that are 0 where not valid, and of their squares, float64 ``[b, d]`` each.

    Squares are summed about the mean m of these elements, $\sum_i x_i^2 = \sum_i (x_i - m)^2 + n m^2$, so that the
    elements may stay in their own precision; the gradient $g_1 + 2 g_2 x_i$ is one pass.
    """

    @staticmethod
    def forward(ctx: Any, elements: Tensor, valid: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(elements)
        wide = elements.to(torch.promote_types(elements.dtype, torch.float32))
        first = wide.sum(dim=1).double()
        mean = first / count.clamp(min=1)
        apart = wide - mean.to(wide.dtype)[:, None]
        if not bool(valid.all()):
            apart *= valid[..., None]
        return first, apart.square_().sum(dim=1).double() + first * mean

    @staticmethod
    def backward(ctx: Any, one: Tensor, two: Tensor) -> tuple[Tensor, None, None]:
        (elements,) = ctx.saved_tensors
        first, second = (each.to(elements.dtype)[:, None] for each in (one, 2 * two))
        return torch.addcmul(first, second, elements), None, None


@register(
    "set_encoder",
    "moments",
    "mini-batch-consistent",
    "parameter-free",
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
        count = valid.sum(dim=1, keepdim=True).double()
        first, second = _PowerSums.apply(elements, valid, count)  # type: ignore[no-untyped-call]
        return first, second, count

    def read_out(self, sums: Sums) -> Tensor:
        """See :class:`Moments`."""
        first, second, count = sums
        mean = first / count.clamp(min=1)
        variance = (second / count.clamp(min=1) - mean.square()).clamp(min=0)
        moments = torch.cat([mean, (variance + EPSILON).sqrt(), count.log1p()], dim=-1)
        return self.out(moments.to(self.empty.dtype))


@register(
    "set_encoder",
    "counts",
    "mini-batch-consistent",
    "parameter-free",
    family="moments",
    verified="numpy in float64",
)
class Counts(Moments):
    r"""Sum and mean of the elements, and the logarithm of their number.

    $[\sum_i x_i, \mathrm{mean}_i x_i, \log(1 + n)]$: of categories, whose vectors are 1 at one place, how many of each
    there are and their share, so that what each element adds to a label is linear in it. Nothing of it is trained.

    Args:
        width: d, of the elements.
        dim: e, of the vectors, by a linear map of that; None: 2 d + 1, as they are.

    >>> Counts(2)(torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]]))
    tensor([[2.0000, 2.0000, 0.5000, 0.5000, 1.6094]], grad_fn=...)
    """

    def sums(self, elements: Tensor, valid: Tensor) -> Sums:
        """Sum of the elements, and their number; in double precision."""
        count = valid.sum(dim=1, keepdim=True).double()
        return elements.sum(dim=1, dtype=torch.float64), count

    def read_out(self, sums: Sums) -> Tensor:
        """See :class:`Counts`."""
        first, count = sums
        moments = [first, first / count.clamp(min=1), count.log1p()]
        return self.out(torch.cat(moments, dim=-1).to(self.empty.dtype))


@register(
    "set_encoder",
    "sliced",
    "parameter-free",
    family="moments",
    paper="arXiv:2305.17555",
    verified="sliced Wasserstein distances of the public code",
)
class SlicedQuantiles(SetEncoder):
    r"""Quantiles of the elements along directions, whose distance is the sliced Wasserstein distance of two sets.

    $[Q_{lk} / \sqrt{LK}, \log(1 + n)]$ with $Q_{lk}$ the quantile of $u_l \cdot x_i$ at the level $(k - 1/2) / K$, the
    element at the rank $\lceil n (k - 1/2) / K \rceil$. So between sets of K elements (or of a divisor of K) squared
    distances are $\frac 1 L \sum_l W_2^2$, of the same directions. For sets whose shape matters, such as points of a
    drawing; vectors of hundreds of numbers are better read by :class:`Moments`.

    Args:
        width: d, of the elements.
        dim: e, of the vectors, by a linear map of that; None: L K + 1, as they are.
        directions: L, drawn once, orthogonal in groups of d; 1 for d = 1.
        levels: K.

    >>> SlicedQuantiles(1, levels=2)(torch.tensor([[[3.0], [1.0]]]))
    tensor([[0.7071, 2.1213, 1.0986]], grad_fn=...)
    """

    def __init__(self, width: int, dim: int | None = None, directions: int = 32, levels: int = 8) -> None:
        count = 1 if width == 1 else check_integer("directions", directions)
        size = count * check_integer("levels", levels) + 1
        super().__init__(width, size if dim is None else dim)
        self.levels = levels
        drawn = draw_directions(width, count, orthogonal=True, generator=torch.Generator().manual_seed(0))
        self.along: Tensor = nn.Buffer((drawn.abs() if width == 1 else drawn).to(self.empty))
        self.out = nn.Identity() if dim is None else nn.Linear(size, dim)

    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """See :class:`SlicedQuantiles`."""
        places = (elements @ self.along.to(elements).T).mT  # [b, L, n]
        places = places.masked_fill(~valid[:, None], torch.inf).sort(dim=-1).values
        count = valid.sum(dim=1, keepdim=True)
        halves = 2 * torch.arange(self.levels, device=count.device) + 1  # levels (k - 1/2) / K, in units of 1 / 2 K
        at = (count * halves + 2 * self.levels - 1) // (2 * self.levels) - 1  # [b, K]
        quantiles = places.gather(-1, at[:, None].expand(-1, places.shape[1], -1))  # [b, L, K]
        flat = quantiles.flatten(1) / (len(self.along) * self.levels) ** 0.5
        return self.out(torch.cat([flat, count.to(flat).log1p()], dim=1).to(self.empty.dtype))
