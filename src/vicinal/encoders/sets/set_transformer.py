"""The Set Transformer: attention between elements, from learned points and by learned seeds."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from vicinal.core import check_choice, register
from vicinal.core.checks import check_integer
from vicinal.encoders.sets.contract import SetEncoder

Scale = Literal["width", "head"]


class AttentionBlock(nn.Module):
    r"""MAB: queries attend to elements, and each is then changed by itself.

    $H = q + \mathrm{softmax}(q k^\top / s)\, v$ for each head, then $H + \mathrm{relu}(H W + b)$, with
    q, k, v linear in queries and elements. The residual is the projected query.

    Args:
        query_width: width of the queries.
        width: width of the elements.
        dim: of the result.
        heads: which divide ``dim``.
        normalize: layer norm after each of the two sums.
        scale: s is the root of "width", ``dim``, as in the authors' code, or of the width of a "head".

    Paper: arXiv:1810.00825.
    """

    def __init__(
        self, query_width: int, width: int, dim: int, *, heads: int = 4, normalize: bool = False, scale: Scale = "width"
    ) -> None:
        super().__init__()
        self.heads = check_heads(dim, heads)
        check_choice("scale", scale, ("width", "head"))
        self.factor = 1 / math.sqrt(dim if scale == "width" else dim // heads)
        self.query, self.key, self.value = nn.Linear(query_width, dim), nn.Linear(width, dim), nn.Linear(width, dim)
        self.out = nn.Linear(dim, dim)
        self.norms = nn.ModuleList([nn.LayerNorm(dim) if normalize else nn.Identity() for _ in range(2)])

    def forward(self, queries: Tensor, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, m, dim]`` of queries ``[b, m, query_width]`` and elements ``[b, n, width]``, one valid at least."""
        q = self.query(queries)
        attended = attend(q, self.key(elements), self.value(elements), valid, self.heads, self.factor)
        hidden = self.norms[0](q + attended)
        return self.norms[1](hidden + self.out(hidden).relu())


def check_heads(dim: int, heads: int) -> int:
    """``heads``, if they divide ``dim``."""
    check_integer("dim", dim)
    if dim % check_integer("heads", heads):
        raise ValueError(f"heads: expected a divisor of the width {dim}, got {heads}")
    return heads


def attend(q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None, heads: int, factor: float) -> Tensor:
    """Attention of ``[b, m, e]`` to ``[b, n, e]``, by heads; elements that are not ``valid [b, n]`` have weight 0."""
    q, k, v = (
        x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(1, 2) for x in (q, k, v)
    )  # [b, heads, n, e / heads]
    mask = None if valid is None else valid[:, None, None, :]
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=factor).transpose(1, 2).flatten(2)


class SelfAttentionBlock(nn.Module):
    r"""SAB: elements attend to one another, $\mathrm{MAB}(X, X)$; settings of :class:`AttentionBlock`.

    >>> SelfAttentionBlock(2, 8)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 5, 8])
    """

    def __init__(self, width: int, dim: int, **settings: Any) -> None:
        super().__init__()
        self.block = AttentionBlock(width, width, dim, **settings)

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, n, dim]``."""
        return self.block(elements, elements, valid)


class InducedAttentionBlock(nn.Module):
    r"""ISAB: elements attend to m learned points that have attended to them, $\mathrm{MAB}(X, \mathrm{MAB}(I, X))$.

    Args:
        width: of the elements.
        dim: of the result.
        points: m >= 1; the work grows with n m, not with n squared.
        **settings: ``heads``, ``normalize`` and ``scale`` of :class:`AttentionBlock`.

    >>> InducedAttentionBlock(2, 8, points=3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 5, 8])
    """

    def __init__(self, width: int, dim: int, *, points: int = 32, **settings: Any) -> None:
        super().__init__()
        self.points = nn.Parameter(nn.init.xavier_uniform_(torch.empty(check_integer("points", points), dim)))
        self.gather = AttentionBlock(dim, width, dim, **settings)
        self.spread = AttentionBlock(width, dim, dim, **settings)

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, n, dim]``."""
        points = self.gather(self.points.expand(len(elements), -1, -1), elements, valid)
        return self.spread(elements, points)


class AttentionPooling(nn.Module):
    r"""PMA: k learned seeds attend to the elements, $\mathrm{MAB}(S, X)$.

    Args:
        dim: of elements and result.
        seeds: k >= 1.
        **settings: ``heads``, ``normalize`` and ``scale`` of :class:`AttentionBlock`.

    >>> AttentionPooling(8, seeds=2)(torch.zeros(4, 5, 8)).shape
    torch.Size([4, 2, 8])
    """

    def __init__(self, dim: int, *, seeds: int = 1, **settings: Any) -> None:
        super().__init__()
        self.seeds = nn.Parameter(nn.init.xavier_uniform_(torch.empty(check_integer("seeds", seeds), dim)))
        self.block = AttentionBlock(dim, dim, dim, **settings)

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, k, dim]``."""
        return self.block(self.seeds.expand(len(elements), -1, -1), elements, valid)


@register(
    "set_encoder",
    "set_transformer",
    family="set transformer",
    paper="arXiv:1810.00825",
    verified="the authors' code (juho-lee/set_transformer)",
)
class SetTransformer(SetEncoder):
    r"""Attention between elements by way of learned points, then by a learned seed.

    $W\, \mathrm{PMA}_1(\mathrm{ISAB}_m(\mathrm{ISAB}_m(X))) + c$.

    Args:
        width: d, of the elements.
        dim: e, of the vectors.
        hidden: width of the blocks.
        blocks: how many ISAB, >= 1.
        points: m, of each ISAB.
        **settings: ``heads``, ``normalize`` and ``scale`` of :class:`AttentionBlock`.

    >>> SetTransformer(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(
        self, width: int, dim: int, *, hidden: int = 64, blocks: int = 2, points: int = 32, **settings: Any
    ) -> None:
        super().__init__(width, dim)
        widths = [width] + [hidden] * (check_integer("blocks", blocks) - 1)
        self.blocks = nn.ModuleList(InducedAttentionBlock(each, hidden, points=points, **settings) for each in widths)
        self.pooling = AttentionPooling(hidden, **settings)
        self.out = nn.Linear(hidden, dim)

    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """See :meth:`SetEncoder.encode`."""
        mask = None if bool(valid.all()) else valid  # without a mask attention is faster
        for block in self.blocks:
            elements = block(elements, mask)
        return self.out(self.pooling(elements, mask)[:, 0])
