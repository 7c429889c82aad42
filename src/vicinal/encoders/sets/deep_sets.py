"""Deep Sets: a sum of what a network says of each element."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.core.checks import check_integer
from vicinal.encoders.sets.contract import AdditiveSetEncoder, Sums, masked_sum

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
        vectors: Tensor = self.rho(torch.where(count > 0, pooled, 0.0))
        return vectors


def masked_max(values: Tensor, valid: Tensor) -> Tensor:
    """Largest value of each set, ``[b, n, k]`` to ``[b, k]``; -inf of a set without elements."""
    if values.shape[1] == 0:
        return values.new_full((len(values), values.shape[2]), -torch.inf)
    if not bool(valid.all()):
        values = values + torch.where(valid, 0.0, -torch.inf).to(values.dtype)[..., None]  # faster than to choose
    return values.amax(dim=1)
