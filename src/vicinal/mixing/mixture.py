"""Mixed rows: which row is mixed with which, in what share, and what follows for relations and weights."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mixture:
    r"""Rows $v_m = \lambda_m x_{i_m} + (1 - \lambda_m) x_{j_m}$ of a batch, at any level of a network.

    ``rows`` mixes inputs, features of a layer or embeddings; ``relation`` says how related the mixed rows are, so any
    pair loss with soft relations takes them as further columns. No labels are needed beyond the relation.

    Attributes:
        first: i, whole numbers ``[M]``, positions of rows.
        second: j, whole numbers ``[M]``.
        share: $\lambda$ ``[M]`` in [0, 1], the part of the first.
        size: n, how many rows are mixed from.

    Raises:
        TypeError: for positions that are not whole numbers.
        ValueError: for other shapes, a share outside [0, 1], or a position that is not a row's.

    >>> mixture = Mixture(torch.tensor([0]), torch.tensor([2]), torch.tensor([0.75]), 3)
    >>> mixture.rows(torch.tensor([[4.0, 0.0], [9.0, 9.0], [0.0, 4.0]]))
    tensor([[3., 1.]])
    >>> mixture.relation(torch.tensor([[1.0, 1.0, 0.0]]))
    tensor([[0.7500]])
    """

    first: Tensor
    second: Tensor
    share: Tensor
    size: int

    def __post_init__(self) -> None:
        for name, value in (("first", self.first), ("second", self.second)):
            if value.is_floating_point() or value.dtype == torch.bool:
                raise TypeError(f"{name}: expected whole numbers, got {value.dtype}")
            if value.ndim != 1 or value.shape != self.share.shape:
                raise ValueError(
                    f"{name}: expected one row for each of the shares {tuple(self.share.shape)}, got "
                    f"{tuple(value.shape)}"
                )
            if torch.compiler.is_compiling():
                continue
            outside = (value < 0) | (value >= self.size)
            if bool(outside.any()):
                raise ValueError(f"{name}: expected rows 0 to {self.size - 1}, got {int(value[outside][0])}")
        if not torch.compiler.is_compiling():
            wrong = ~((self.share >= 0) & (self.share <= 1))
            if bool(wrong.any()):
                raise ValueError(f"share: expected numbers from 0 to 1, got {float(self.share[wrong][0]):g}")

    def __len__(self) -> int:
        return len(self.first)

    def rows(self, values: Tensor) -> Tensor:
        """Mix rows.

        Args:
            values: ``[n, ...]``, floating: inputs, features, embeddings, or labels as 0/1 ``[n, C]``.

        Returns:
            ``[M, ...]``. Embeddings are not of length 1 any more; the cosine does not mind.
        """
        if not values.is_floating_point():
            raise TypeError(f"values: expected a floating dtype, got {values.dtype}; labels go in one-hot")
        self._check("values", values, 0)
        share = self.share.to(values.device, values.dtype).view(-1, *[1] * (values.ndim - 1))
        first, second = self.first.to(values.device), self.second.to(values.device)
        return share * values[first] + (1 - share) * values[second]

    def relation(self, relation: Tensor) -> Tensor:
        r"""How related things are to the mixed rows, $t_{am} = \lambda r_{ai} + (1 - \lambda) r_{aj}$.

        Args:
            relation: ``[b, n]`` to the rows themselves.

        Returns:
            ``[b, M]``.
        """
        self._check("relation", relation, 1)
        share = self.share.to(relation.device, relation.dtype)
        first, second = self.first.to(relation.device), self.second.to(relation.device)
        return share * relation[:, first] + (1 - share) * relation[:, second]

    def weight(self, weight: Tensor, *, with_anchor: bool = False) -> Tensor:
        """Which mixed rows count: those both of whose sources do, the lower weight of the two.

        A source of share 0 is not in the mixture and does not matter.

        Args:
            weight: ``[b, n]`` of the rows themselves; 0 for the query itself.
            with_anchor: the first sources are meant to be the queries themselves, so only the second must count.

        Returns:
            ``[b, M]``.
        """
        self._check("weight", weight, 1)
        share = self.share.to(weight.device)
        first, second = self.first.to(weight.device), self.second.to(weight.device)
        of_first = torch.where((share > 0) & (not with_anchor), weight[:, first], 1.0)
        return torch.minimum(of_first, torch.where(share < 1, weight[:, second], 1.0)).to(weight.dtype)

    def _check(self, name: str, value: Tensor, dim: int) -> None:
        if value.ndim <= dim or value.shape[dim] != self.size:
            wanted = f"[{self.size}, ...]" if dim == 0 else f"[b, {self.size}]"
            raise ValueError(f"{name}: expected {wanted}, the rows that are mixed, got {tuple(value.shape)}")
