"""A transformer of the elements without positions, and the largest and the mean of what it gives."""

from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_between, check_integer
from vicinal.encoders.sets.contract import SetEncoder, masked_sum
from vicinal.encoders.sets.deep_sets import masked_max
from vicinal.encoders.sets.set_transformer import attend, check_heads


class PreNormBlock(nn.Module):
    r"""Attention and a network of each element, both of normalized elements and added to them.

    $x \leftarrow x + \mathrm{MHA}(\mathrm{LN}\, x)$, then $x \leftarrow x + W' \mathrm{GELU}(W\, \mathrm{LN}\, x + c)
    + c'$; queries, keys and values have no bias.

    Args:
        dim: of the elements.
        heads: which divide ``dim``.
        widening: of the hidden layer, as a multiple of ``dim``.
        dropout: of attention and hidden layer.
    """

    def __init__(self, dim: int, *, heads: int = 8, widening: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = check_heads(dim, heads)
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, dim)
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        hidden = dim * check_integer("widening", widening)
        self.network = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.dropout = nn.Dropout(check_between("dropout", dropout, 0, 1, closed=True))

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, n, dim]`` of the same."""
        x = self.norm(elements)
        factor = (x.shape[-1] // self.heads) ** -0.5
        attended = attend(self.query(x), self.key(x), self.value(x), valid, self.heads, factor)
        elements = elements + self.dropout(self.out(attended))
        return elements + self.dropout(self.network(elements))


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization that takes the running statistics for a batch of one."""

    def forward(self, rows: Tensor) -> Tensor:
        """``[b, d]`` of the same."""
        if self.training and len(rows) < 2:
            return nn.functional.batch_norm(
                rows, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(rows)


def max_mean(elements: Tensor, valid: Tensor) -> Tensor:
    """The largest and the mean of each set, ``[b, n, k]`` to ``[b, 2 k]``."""
    mean = masked_sum(elements, valid) / valid.sum(dim=1, keepdim=True).to(elements.dtype)
    return torch.cat([masked_max(elements, valid), mean], dim=-1)


@register(
    "set_encoder",
    "view_transformer",
    family="view transformer",
    paper="arXiv:2409.09254",
    verified="the authors' code (auniquesun/VSFormer)",
)
class ViewTransformer(SetEncoder):
    r"""A transformer without positions, read out by the largest and the mean of its elements.

    $\rho([\max_i y_i, \mathrm{mean}_i y_i])$ with y of some :class:`PreNormBlock` of $W x_i + c$, and $\rho$ batch
    normalization, ReLU and a linear map, twice.

    Args:
        width: d, of the elements.
        dim: e, of the vectors.
        hidden: width of the blocks.
        blocks: how many, >= 1.
        **settings: ``heads``, ``widening`` and ``dropout`` of :class:`PreNormBlock`.

    >>> ViewTransformer(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, width: int, dim: int, *, hidden: int = 64, blocks: int = 4, **settings: Any) -> None:
        super().__init__(width, dim)
        self.lift = nn.Linear(width, check_integer("hidden", hidden))
        self.blocks = nn.ModuleList(PreNormBlock(hidden, **settings) for _ in range(check_integer("blocks", blocks)))
        first = [BatchNorm(2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden)]
        self.rho = nn.Sequential(*first, BatchNorm(hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """See :meth:`SetEncoder.encode`."""
        mask = None if bool(valid.all()) else valid
        values = self.lift(elements)
        for block in self.blocks:
            values = block(values, mask)
        return self.rho(max_mean(values, valid))
