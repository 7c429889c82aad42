"""Vectors of ids, in tables that may be smaller than there are ids; and vectors as a few levels."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.core import check_choice
from vicinal.core.checks import check_integer


class IdTable(nn.Module):
    r"""Learned vectors of ids 0 to size - 1, ``forward(ids [...]) -> [..., dim]``.

    - "full": a row per id, $T_i$;
    - "hashed": $T_{i \bmod m}$, so ids with the same remainder share a row;
    - "multiplied", "added" or "joined": $Q_{\lfloor i / m \rfloor} \odot R_{i \bmod m}$, their sum, or their
      concatenation (quotient and remainder): no two ids share both rows, and there are only $\lceil size / m \rceil +
      m$ rows.

    Args:
        size: number of ids.
        dim: width of the vectors; even for "joined".
        kind: as above.
        rows: m, at least 1 and below size; None: the root of size for quotient and remainder, a tenth for "hashed".

    Paper: arXiv:1909.02107.

    >>> table = IdTable(1000, 8, "multiplied")
    >>> table(torch.tensor([3, 999])).shape, table.parameter_count()
    (torch.Size([2, 8]), 512)
    """

    KINDS = ("full", "hashed", "multiplied", "added", "joined")

    def __init__(self, size: int, dim: int, kind: str = "full", *, rows: int | None = None) -> None:
        super().__init__()
        self.size, self.dim = check_integer("size", size), check_integer("dim", dim)
        self.kind = check_choice("kind", kind, self.KINDS)
        if kind == "joined" and dim % 2:
            raise ValueError(f"dim: expected an even number for 'joined', got {dim}")
        default = max(1, size // 10) if kind == "hashed" else math.ceil(math.sqrt(size))
        self.rows = size if kind == "full" else check_integer("rows", default if rows is None else rows, 1, size)
        width = dim // 2 if kind == "joined" else dim
        self.remainder = nn.Parameter(torch.randn(self.rows, width) / math.sqrt(dim))
        quotients = 0 if kind in ("full", "hashed") else -(-size // self.rows)
        start = 1 + torch.randn(quotients, width) / 10 if kind == "multiplied" else torch.randn(quotients, width)
        self.quotient = nn.Parameter(start if kind == "multiplied" else start / math.sqrt(dim))

    def forward(self, ids: Tensor) -> Tensor:
        """``[..., dim]`` of whole numbers ``[...]``."""
        check_ids(ids, self.size)
        rest = self.remainder[ids % self.rows]
        if self.kind in ("full", "hashed"):
            return rest
        whole = self.quotient[ids // self.rows]
        if self.kind == "joined":
            return torch.cat([whole, rest], dim=-1)
        return whole * rest if self.kind == "multiplied" else whole + rest

    def parameter_count(self) -> int:
        """How many numbers are learned."""
        return self.remainder.numel() + self.quotient.numel()

    def extra_repr(self) -> str:
        """What it was made with."""
        return f"{self.size}, {self.dim}, {self.kind!r}, rows={self.rows}"


def check_ids(ids: Tensor, size: int) -> None:
    """Check that ids are whole numbers below ``size``."""
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"ids: expected whole numbers, got {ids.dtype}")
    if ids.numel() and not bool(((ids >= 0) & (ids < size)).all()):
        raise ValueError(f"ids: expected 0 to {size - 1}, got {int(ids.min())} to {int(ids.max())}")


class FSQ(nn.Module):
    r"""Vectors whose coordinates have a few levels each (finite scalar quantization): codes without a codebook.

    $q_k = \mathrm{round}(h_k \tanh(x_k + \operatorname{atanh}(o_k / h_k)) - o_k) / \lfloor l_k / 2 \rfloor$ with
    $h = (l - 1)(1 + 10^{-3}) / 2$ and o = 1/2 for an even number of levels l, else 0. Rounding passes the gradient on.

    Args:
        levels: $l_k \ge 2$ of each coordinate; their product is the number of codes.

    Paper: arXiv:2309.15505.

    >>> quantizer = FSQ([3, 5])
    >>> vectors = quantizer(torch.tensor([[0.2, -9.0]]))
    >>> vectors, quantizer.codes(vectors), quantizer.vectors(torch.tensor([1]))
    (tensor([[ 0., -1.]]), tensor([1]), tensor([[ 0., -1.]]))
    """

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        if not levels:
            raise ValueError("levels: expected at least one number, got none")
        counts = [check_integer("levels", each, 2) for each in levels]
        self.levels: Tensor = nn.Buffer(torch.tensor(counts), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., d]`` of levels from -1 to 1, for floating ``[..., d]``."""
        self._check("x", x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        levels = self.levels.to(wide)
        half = (levels - 1) * (1 + 1e-3) / 2
        offset = torch.where(self.levels % 2 == 0, 0.5, 0.0).to(wide)
        bounded = (wide + (offset / half).atanh()).tanh() * half - offset
        rounded = bounded + (bounded.round() - bounded).detach()
        return (rounded / (self.levels // 2)).to(x.dtype)

    def codes(self, vectors: Tensor) -> Tensor:
        """Whole numbers ``[...]`` of vectors that :meth:`forward` gave."""
        self._check("vectors", vectors)
        half = self.levels // 2
        return ((vectors.float() * half).round().long() + half).mul(self._bases()).sum(-1)

    def vectors(self, codes: Tensor) -> Tensor:
        """``[..., d]`` of codes ``[...]``."""
        most = int(self.levels.prod())
        if codes.is_floating_point() or (codes.numel() and not bool(((codes >= 0) & (codes < most)).all())):
            raise ValueError(f"codes: expected whole numbers from 0 to {most - 1}, got others")
        half = self.levels // 2
        return (codes[..., None] // self._bases() % self.levels - half) / half

    def _bases(self) -> Tensor:
        return torch.cat([self.levels.new_ones(1), self.levels[:-1]]).cumprod(0)

    def _check(self, name: str, value: Tensor) -> None:
        if not value.is_floating_point() or value.shape[-1:] != self.levels.shape:
            raise ValueError(
                f"{name}: expected floating [..., {len(self.levels)}], got {value.dtype} {tuple(value.shape)}"
            )
        if not bool(value.isfinite().all()):
            raise ValueError(f"{name}: expected finite numbers, got nan or inf")
