"""Deep Sets: a sum of what a network says of each element, and layers that answer for each element."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.core.checks import check_integer
from vicinal.encoders.sets.contract import AdditiveSetEncoder, Sums, check_sets, masked_sum

Pool = Literal["sum", "mean", "max"]


def perceptron(width: int, hidden: int, dim: int) -> nn.Sequential:
    """Linear, ReLU, Linear."""
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, dim))


@register(
    "set_encoder",
    "deep_sets",
    "mini-batch-consistent",
    family="deep sets",
    paper="arXiv:1703.06114",
    verified="torch_geometric 2.8.1",
)
class DeepSets(AdditiveSetEncoder):
    r"""A network of the sum over a network of each element.

    $\rho(\sum_i \phi(x_i))$, with $\phi$ and $\rho$ of two layers.

    Args:
        width: d, of the elements.
        dim: e, of the vectors.
        hidden: width of the hidden layers and of the sum.
        pool: "sum", which tells how many elements there are, or "mean", which a repeated set does not change,
            or "max", which a repeated element does not change.

    >>> DeepSets(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, width: int, dim: int, *, hidden: int = 128, pool: Pool = "sum") -> None:
        super().__init__(width, dim)
        check_integer("hidden", hidden)
        self.pool = check_choice("pool", pool, get_args(Pool))
        self.additive = pool != "max"
        self.phi, self.rho = perceptron(width, hidden, hidden), perceptron(hidden, hidden, dim)

    def sums(self, elements: Tensor, valid: Tensor) -> Sums:
        """Pool of the elements, and their number."""
        hidden, last = self.phi[:-1](elements), self.phi[-1]
        count = valid.sum(dim=1, keepdim=True).to(hidden.dtype)
        if not self.additive:
            return masked_max(last(hidden), valid), count
        weight, bias = last.parameters()
        return masked_sum(hidden, valid) @ weight.T + count * bias, count  # the last map after the sum

    def joined(self, one: Sums, other: Sums) -> Sums:
        """See :class:`AdditiveSetEncoder`."""
        pooled = one[0] + other[0] if self.additive else torch.maximum(one[0], other[0])
        return pooled, one[1] + other[1]

    def read_out(self, sums: Sums) -> Tensor:
        """See :class:`DeepSets`."""
        pooled, count = sums
        if self.pool == "mean":
            pooled = pooled / count.clamp(min=1)
        return self.rho(torch.where(count > 0, pooled, 0.0))


class EquivariantLayer(nn.Module):
    r"""A vector for each element, which moves with it when the order changes.

    $y_i = \Gamma x_i + \gamma - \Lambda\, \mathrm{pool}_j x_j$, or with ``centered``
    $y_i = \Gamma (x_i - \mathrm{pool}_j x_j) + \gamma$, which a common shift does not change.

    Args:
        width: of the elements.
        dim: of the result.
        pool: "max" or "mean", over the valid elements.
        centered: one matrix, for elements less their pool.

    Paper: arXiv:1703.06114.

    >>> EquivariantLayer(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 5, 3])
    """

    def __init__(self, width: int, dim: int, *, pool: Literal["max", "mean"] = "max", centered: bool = False) -> None:
        super().__init__()
        self.width, self.dim = check_integer("width", width), check_integer("dim", dim)
        self.pool = check_choice("pool", pool, ("max", "mean"))
        self.gamma = nn.Linear(width, dim)
        self.pooled = None if centered else nn.Linear(width, dim, bias=False)

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, n, dim]`` of ``[b, n, width]``; 0 where ``valid`` is False."""
        elements, valid = check_sets(elements, valid, self.width)
        some = valid.any(dim=1, keepdim=True)  # [b, 1]
        if self.pool == "mean":
            pooled = masked_sum(elements, valid) / valid.sum(dim=1, keepdim=True).clamp(min=1)
        else:
            pooled = torch.where(some, masked_max(elements, valid), 0.0)
        if self.pooled is None:
            values = self.gamma(elements - pooled[:, None])
        else:
            values = self.gamma(elements) - self.pooled(pooled)[:, None]
        return torch.where(valid[..., None], values, 0.0)


def masked_max(values: Tensor, valid: Tensor) -> Tensor:
    """Largest value of each set, ``[b, n, k]`` to ``[b, k]``; -inf of a set without elements."""
    if values.shape[1] == 0:
        return values.new_full((len(values), values.shape[2]), -torch.inf)
    if not bool(valid.all()):
        values = values + torch.where(valid, 0.0, -torch.inf).to(values.dtype)[..., None]  # faster than to choose
    return values.amax(dim=1)
