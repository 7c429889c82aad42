r"""Squared distances in bfloat16, with proven bounds: which entries can be the lowest or highest of their row.

A row splits into what bfloat16 holds and a rest, $x = \bar x + \delta x$, so for centered rows
$|u \cdot x - \bar u \cdot \bar x| \le \|\delta u\| \|x\| + \|\bar u\| \|\delta x\|$; squared norms go in as three
numbers of bfloat16, which hold them to float32; products are added up in float32, and the sum is rounded once more.
Entries that these bounds leave over are few, and are computed again from differences in float32: results are exact.
The bits of a bfloat16 above 0 rise with it, so that row minima are found in integers, which is faster.
"""

from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.similarity.distances import paired_distances

ROUNDING = 2.0**-8
"""Share of a product that rounding it to bfloat16 may take or add, doubled."""

_MOST = 512
"""Most entries a query that are kept; where more cannot be told apart the long way is shorter."""

_BLOCK = 8192
"""Bank rows of a block."""

_TILE = 256


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 natively and adds up in float32.

    >>> has_bfloat16() in (True, False)
    True
    """
    mkldnn = torch.backends.mkldnn
    if not (mkldnn.is_available() and getattr(mkldnn, "enabled", True)):  # type: ignore[no-untyped-call]
        return False
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, name)()) for name in names if hasattr(torch.cpu, name))


def _parts(values: Tensor) -> list[Tensor]:
    """Three numbers of bfloat16 whose sum is ``values [n]`` to float32."""
    parts = []
    for _ in range(3):
        parts.append(values.bfloat16())
        values = values - parts[-1].float()
    return parts


def _lengths(rows: Tensor, held: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squared norms ``[n]`` of ``rows [n, d]``, and norms of what bfloat16 holds of them and of what it does not."""
    wide = held.float()
    norm = torch.linalg.vector_norm
    return torch.linalg.vecdot(rows, rows), norm(wide, dim=1), norm(rows - wide, dim=1)


class CoarseBank(NamedTuple):
    """A bank in bfloat16.

    Attributes:
        features: ``[N, e]``.
        center: ``[d]``, subtracted from all rows.
        held: largest norm of a centered row as bfloat16 holds it.
        rest: largest norm of what it does not hold.
    """

    features: Tensor
    center: Tensor
    held: float
    rest: float

    @classmethod
    def make(cls, bank: Tensor, center: Tensor) -> "CoarseBank":
        """From ``bank [N, d]`` in float32."""
        width = -(-(bank.shape[1] + 6) // 8) * 8
        features = torch.zeros(len(bank), width, dtype=torch.bfloat16, device=bank.device)
        held = rest = 0.0
        for start in range(0, len(bank), 1 << 14):
            part = slice(start, start + (1 << 14))
            apart = bank[part] - center
            into = features[part]
            into[:, : bank.shape[1]] = apart
            squares, most, left = _lengths(apart, into[:, : bank.shape[1]])
            into[:, bank.shape[1] : bank.shape[1] + 6] = torch.stack(
                [*_parts(squares), *[torch.ones_like(squares).bfloat16()] * 3], dim=1
            )
            held, rest = max(held, float(most.amax())), max(rest, float(left.amax()))
        return cls(features, center, held, rest)


class Entries(NamedTuple):
    """Single entries ``[m]``: their queries, their bank rows and what they are in bfloat16."""

    rows: Tensor
    columns: Tensor
    values: Tensor

    def where(self, chosen: Tensor) -> "Entries":
        """Those that are ``chosen [m]``."""
        return Entries(self.rows[chosen], self.columns[chosen], self.values[chosen])

    @classmethod
    def join(cls, parts: list["Entries"]) -> "Entries":
        """All of ``parts``, of which there is at least one."""
        return cls(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


class CoarseCosts:
    """Squared distances of queries to a bank in bfloat16, a tile and a block at a time.

    Attributes:
        error: ``[b]``, how far the squared distances may be off, beside their rounding at the end.
    """

    def __init__(self, queries: Tensor, bank: Tensor, coarse: CoarseBank) -> None:
        self.queries, self.bank, self.coarse = queries, bank, coarse
        apart = queries - coarse.center
        dim = queries.shape[1]
        self.features = torch.zeros(len(queries), coarse.features.shape[1], dtype=torch.bfloat16, device=queries.device)
        self.features[:, :dim] = -2 * apart
        squares, held, rest = _lengths(-2 * apart, self.features[:, :dim])
        ones = torch.ones_like(squares).bfloat16()
        self.features[:, dim : dim + 6] = torch.stack([ones, ones, ones, *_parts(squares / 4)], dim=1)
        full = coarse.held + coarse.rest
        size = (held + rest) * full + full**2 + squares  # of the terms that are added up
        adding = 4 * self.features.shape[1] * torch.finfo(torch.float32).eps
        self.error = 1.0001 * (rest * full + held * coarse.rest) + adding * size + 1e-30
        self._flat = torch.empty(_TILE * _BLOCK, dtype=torch.bfloat16, device=queries.device)
        self.limit = _MOST * len(queries)

    @property
    def safe(self) -> bool:
        """Whether nothing can overflow, and products are computed as supposed and worth it."""
        return (
            has_bfloat16()
            and bool(self.error.isfinite().all())
            and float(self.error.amax()) < 1e30
            and len(self.queries) >= 16
        )

    def parts(self) -> Iterator["CoarseCosts"]:
        """The same of one tile of queries after the other."""
        for rows in self.tiles():
            part = copy(self)
            part.queries, part.features, part.error = self.queries[rows], self.features[rows], self.error[rows]
            part.limit = _MOST * len(part.queries)
            yield part

    def tiles(self) -> list[slice]:
        """The queries in tiles."""
        return [slice(i, min(i + _TILE, len(self.queries))) for i in range(0, len(self.queries), _TILE)]

    def starts(self) -> range:
        """First bank rows of all blocks."""
        return range(0, len(self.bank), _BLOCK)

    def product(self, rows: slice, start: int) -> Tensor:
        """Squared distances ``[r, B]`` in bfloat16."""
        part = self.coarse.features[start : start + _BLOCK]
        few = self.features[rows]
        out = self._flat[: len(few) * len(part)].view(len(few), len(part))
        return torch.mm(few, part.T, out=out)

    def below(self, least: Tensor, rows: slice | Tensor) -> Tensor:
        """Lowest that entries of the queries ``rows`` can be that are ``least`` in bfloat16."""
        return least - ROUNDING * least.abs() - self.error[rows]

    def above(self, most: Tensor, rows: slice | Tensor) -> Tensor:
        """Highest that they can be."""
        return most + ROUNDING * most.abs() + self.error[rows]

    def exact(self, entries: Entries) -> Tensor:
        """Squared distances ``[m]`` from differences."""
        return paired_distances(self.queries, self.bank, entries.rows, entries.columns)
