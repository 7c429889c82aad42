"""Sets folded by a learned operation of two, along a balanced tree."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.core.checks import check_integer
from vicinal.encoders.sets.contract import SetEncoder

Operation = Literal["gru", "sum", "max"]


class CommutativeFold(nn.Module):
    r"""Elements folded by an operation of two that does not see their order.

    $h_i = \mathrm{relu}(W x_i + c)$, folded along a balanced tree by $x * y = (\mathrm{GRU}(x, y) + \mathrm{GRU}(y,
    x)) / 2$; what is left over on a level goes to the next as it is. The operation commutes, but is associative only
    as far as it has learned to be: see :meth:`penalties`. Padding is taken out first, whatever its place.

    Args:
        width: of the elements.
        dim: of the result.
        operation: "gru", or "sum" or "max", for which the order of the tree does not matter.

    Attributes:
        identity: the learned element that should change nothing.

    Paper: arXiv:2212.08541.
    """

    def __init__(self, width: int, dim: int, *, operation: Operation = "gru") -> None:
        super().__init__()
        self.operation = check_choice("operation", operation, get_args(Operation))
        self.lift, self.cell = nn.Linear(width, dim), nn.GRUCell(dim, dim)
        self.identity = nn.Parameter(torch.zeros(dim))

    def combine(self, one: Tensor, other: Tensor) -> Tensor:
        """``x * y`` of ``[..., dim]`` each."""
        if self.operation == "sum":
            return one + other
        if self.operation == "max":
            return torch.maximum(one, other)
        x, y = one.reshape(-1, one.shape[-1]), other.reshape(-1, one.shape[-1])
        result: Tensor = (self.cell(x, y) + self.cell(y, x)) / 2
        return result.reshape(one.shape)

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, dim]`` of ``[b, n, width]``, with one valid element at least in each set."""
        values: Tensor = self.lift(elements).relu()
        if valid is not None and bool(valid.all()):
            valid = None
        if valid is not None:
            order = (~valid).to(torch.int8).argsort(dim=1, stable=True)  # padding last
            values, valid = values.gather(1, order[..., None].expand_as(values)), valid.gather(1, order)
        while values.shape[1] > 1:
            pairs = values.shape[1] // 2
            first, second = values[:, : 2 * pairs : 2], values[:, 1 : 2 * pairs : 2]
            both = self.combine(first, second)
            if valid is not None:
                both = torch.where(valid[:, 1 : 2 * pairs : 2, None], both, first)
                valid = valid[:, ::2]
            values = torch.cat([both, values[:, 2 * pairs :]], dim=1)
        return values[:, 0]

    def penalties(self, elements: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        r"""How far the operation is from associative, and the identity from one.

        $\mathrm{mean}\, |(x * y) * z - x * (y * z)|^2$ over random triples and $\mathrm{mean}\, |x * 1 - x|^2$, to be
        added to a loss with factors of about 0.1.

        Args:
            elements: ``[n, width]``, of any sets.
            generator: draws the triples.
        """
        values = self.lift(elements).relu()
        y, z = (values[torch.randperm(len(values), generator=generator).to(values.device)] for _ in range(2))
        apart = self.combine(self.combine(values, y), z) - self.combine(values, self.combine(y, z))
        off = self.combine(values, self.identity.expand_as(values)) - values
        return apart.square().sum(dim=-1).mean(), off.square().sum(dim=-1).mean()


@register(
    "set_encoder",
    "commutative_monoid",
    "order-gap",
    family="monoid",
    paper="arXiv:2212.08541",
    verified="torch_geometric 2.8.1",
)
class CommutativeMonoid(SetEncoder):
    r"""A set folded by a learned commutative operation, in a depth of the logarithm of its size.

    $W (h_1 * \dots * h_n) + c$: see :class:`CommutativeFold`. The order of three or more elements matters as far as the
    operation is not associative: :func:`order_gap` measures it.

    Args:
        width: d, of the elements.
        dim: e, of the vectors.
        hidden: width of the operation.
        operation: see :class:`CommutativeFold`.

    >>> CommutativeMonoid(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, width: int, dim: int, *, hidden: int = 64, operation: Operation = "gru") -> None:
        super().__init__(width, dim)
        self.fold = CommutativeFold(width, check_integer("hidden", hidden), operation=operation)
        self.out = nn.Linear(hidden, dim)

    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """See :meth:`SetEncoder.encode`."""
        return self.out(self.fold(elements, valid))
