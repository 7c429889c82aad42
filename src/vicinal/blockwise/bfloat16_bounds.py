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

from vicinal.blockwise.blocks import policy, row_slices
from vicinal.blockwise.distances import paired_distances

ROUNDING = 2.0**-8
"""Share of a product that rounding it to bfloat16 may take or add, doubled."""

_MOST = 512
"""Most entries a query that are collected; where more cannot be told apart the long way is shorter."""

_GROUP = 32
"""Columns of which the lowest is found first where several of a row are sought."""


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


def _norms(rows: Tensor, rounded: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squared norms ``[n]`` of ``rows [n, d]``, and norms of what bfloat16 holds of them and of what it does not."""
    wide = rounded.float()
    norm = torch.linalg.vector_norm
    return torch.linalg.vecdot(rows, rows), norm(wide, dim=1), norm(rows - wide, dim=1)


class Bfloat16Bank(NamedTuple):
    """A bank in bfloat16.

    Attributes:
        features: ``[N, e]``.
        center: ``[d]``, subtracted from all rows.
        length: largest norm of a centered row as bfloat16 holds it.
        rest: largest norm of what it does not hold.
    """

    features: Tensor
    center: Tensor
    length: float
    rest: float

    @classmethod
    def of(cls, bank: Tensor, center: Tensor) -> "Bfloat16Bank":
        """From ``bank [N, d]`` in float32."""
        width = -(-(bank.shape[1] + 6) // 8) * 8
        features = torch.zeros(len(bank), width, dtype=torch.bfloat16, device=bank.device)
        length = rest = 0.0
        for part in row_slices(len(bank), policy().bank_rows):
            apart = bank[part] - center
            into = features[part]
            into[:, : bank.shape[1]] = apart
            squares, most, left = _norms(apart, into[:, : bank.shape[1]])
            into[:, bank.shape[1] : bank.shape[1] + 6] = torch.stack(
                [*_parts(squares), *[torch.ones_like(squares).bfloat16()] * 3], dim=1
            )
            length, rest = max(length, float(most.amax())), max(rest, float(left.amax()))
        return cls(features, center, length, rest)


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


class Bfloat16Distances:
    """Squared distances of queries to a bank in bfloat16, a tile and a block at a time.

    Attributes:
        error: ``[b]``, how far the squared distances may be off, beside their rounding at the end.
    """

    def __init__(self, queries: Tensor, bank: Tensor, rounded: Bfloat16Bank) -> None:
        self.queries, self.bank, self.rounded = queries, bank, rounded
        apart = queries - rounded.center
        dim = queries.shape[1]
        self.features = torch.zeros(
            len(queries), rounded.features.shape[1], dtype=torch.bfloat16, device=queries.device
        )
        self.features[:, :dim] = -2 * apart
        squares, length, rest = _norms(-2 * apart, self.features[:, :dim])
        ones = torch.ones_like(squares).bfloat16()
        self.features[:, dim : dim + 6] = torch.stack([ones, ones, ones, *_parts(squares / 4)], dim=1)
        full = rounded.length + rounded.rest
        size = (length + rest) * full + full**2 + squares  # of the terms that are added up
        adding = 4 * self.features.shape[1] * torch.finfo(torch.float32).eps
        self.error = 1.0001 * (rest * full + length * rounded.rest) + adding * size + 1e-30
        sizes = policy()
        self.tile, self.chunk = sizes.query_rows, sizes.bfloat16_rows
        self._flat = torch.empty(sizes.query_rows * sizes.bfloat16_rows, dtype=torch.bfloat16, device=queries.device)
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

    def parts(self) -> Iterator["Bfloat16Distances"]:
        """The same of one tile of queries after the other."""
        for rows in self.tiles():
            part = copy(self)
            part.queries, part.features, part.error = self.queries[rows], self.features[rows], self.error[rows]
            part.limit = _MOST * len(part.queries)
            yield part

    def tiles(self) -> list[slice]:
        """The queries in tiles."""
        return row_slices(len(self.queries), self.tile)

    def starts(self) -> range:
        """First bank rows of all blocks."""
        return range(0, len(self.bank), self.chunk)

    def product(self, rows: slice, start: int) -> Tensor:
        """Squared distances ``[r, B]`` in bfloat16."""
        part = self.rounded.features[start : start + self.chunk]
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


def _grouped(values: Tensor) -> Tensor:
    """Integers ``[r, g, B / g]`` that rise with ``values [r, B]``; negative where these are, in no order."""
    group = _GROUP if values.shape[1] % _GROUP == 0 else 1
    return values.view(torch.int16).view(len(values), group, -1)


def _numbers(bits: Tensor) -> Tensor:
    """The values of such integers in float32."""
    return bits.contiguous().view(torch.bfloat16).float()


def _upper_bits(values: Tensor) -> Tensor:
    """The integer of a number of bfloat16 above ``values``, in float32."""
    return (values.clamp(min=0) * (1 + 2.0**-7) + 1e-37).clamp(max=3e38).bfloat16().view(torch.int16)


def _lower_bits(values: Tensor) -> Tensor:
    """The integer of a number of bfloat16 below ``values``; below all where these are not positive."""
    bits = (values.clamp(min=0, max=3e38) * (1 - 2.0**-7)).bfloat16().view(torch.int16)
    return bits.masked_fill_(values <= 0, -(2**15))


class Ends(NamedTuple):
    """Squared distances ``[b]`` of the nearest and the farthest row, where one stands, and how many do."""

    values: tuple[Tensor, Tensor]
    positions: tuple[Tensor, Tensor]
    counts: tuple[Tensor, Tensor]


def bfloat16_ends(costs: Bfloat16Distances) -> Ends | None:
    """Nearest and farthest row of each query, or None if too many rows could be that."""
    candidates = []
    for part in costs.parts():  # a tile at a time, so that memory does not grow with the queries
        ends = _ends_of(part)
        if ends is None:
            return None
        candidates.append(ends)
    values, positions, counts = (
        (torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs]))
        for pairs in zip(*candidates, strict=True)
    )
    return Ends(values, positions, counts)


def _ends_of(costs: Bfloat16Distances) -> Ends | None:
    near = costs.error.new_full((len(costs.queries),), torch.inf)
    far = -near
    candidates: tuple[list[Entries], list[Entries]] = ([], [])
    collected = 0
    for start in costs.starts():
        for rows in costs.tiles():
            values = _grouped(costs.product(rows, start))
            low, high = values.amin(dim=1), values.amax(dim=1)  # [r, B / g]
            near[rows] = torch.minimum(near[rows], costs.above(_numbers(low.amin(dim=1)), rows))
            far[rows] = torch.maximum(far[rows], costs.below(_numbers(high.amax(dim=1)), rows))
            top = _upper_bits((near[rows] + costs.error[rows]) / (1 - ROUNDING))[:, None]
            bottom = _lower_bits((far[rows] - costs.error[rows]) / (1 + ROUNDING))[:, None]
            candidates[0].append(_members(values, low, top, 1, rows, start))
            candidates[1].append(_members(values, high, bottom, -1, rows, start))
            collected += len(candidates[0][-1].rows) + len(candidates[1][-1].rows)
        if collected > costs.limit:
            return None
    nearest, farthest = Entries.join(candidates[0]), Entries.join(candidates[1])
    nearest = nearest.where(costs.below(nearest.values, nearest.rows) <= near[nearest.rows])
    farthest = farthest.where(costs.above(farthest.values, farthest.rows) >= far[farthest.rows])
    first, last = _end(costs, nearest, "amin"), _end(costs, farthest, "amax")
    return Ends((first[0], last[0]), (first[1], last[1]), (first[2], last[2]))


def _members(values: Tensor, ends: Tensor, edge: Tensor, sign: int, rows: slice, start: int) -> Entries:
    """Entries up to (sign 1) or from (sign -1) ``edge [r, 1]`` on.

    Args:
        values: integers ``[r, g, B / g]``.
        ends: lowest or highest of each group ``[r, B / g]``.
        edge: integers.
        sign: see above.
        rows: which queries.
        start: first bank row of the block.
    """
    some, group = (ends <= edge if sign > 0 else ends >= edge).nonzero(as_tuple=True)
    members, limit = values[some, :, group], edge[some]  # [m, g]
    which, member = (members <= limit if sign > 0 else members >= limit).nonzero(as_tuple=True)
    at = member * values.shape[2] + group[which]
    return Entries(some[which] + rows.start, at + start, _numbers(members[which, member]))


def _end(costs: Bfloat16Distances, entries: Entries, reduce: str) -> tuple[Tensor, Tensor, Tensor]:
    """Lowest or highest of each query among ``entries``, one bank row that has it, and how many do."""
    exact = costs.exact(entries)
    count = len(costs.queries)
    best = exact.new_zeros(count).scatter_reduce_(0, entries.rows, exact, reduce, include_self=False)
    same = exact == best[entries.rows]
    rows, columns = entries.rows[same], entries.columns[same]
    positions = torch.zeros(count, dtype=torch.int64, device=exact.device)
    positions.scatter_reduce_(0, rows, columns, "amin", include_self=False)
    return best, positions, torch.bincount(rows, minlength=count)


def bfloat16_nearest(costs: Bfloat16Distances, k: int) -> tuple[Tensor, Tensor] | None:
    """The ``k`` lowest squared distances ``[b, k]``, ascending, and their rows; None if too many could be that."""
    candidates = []
    for part in costs.parts():
        nearest = _nearest_of(part, k)
        if nearest is None:
            return None
        candidates.append(nearest)
    return torch.cat([values for values, _ in candidates]), torch.cat([places for _, places in candidates])


def _nearest_of(costs: Bfloat16Distances, k: int) -> tuple[Tensor, Tensor] | None:
    limit = costs.error.new_full((len(costs.queries),), torch.inf)
    candidates: list[Entries] = []
    collected, next_look = 0, 1
    for number, start in enumerate(costs.starts()):
        for rows in costs.tiles():
            part = _lowest(costs, rows, start, limit, k)
            candidates.append(part)
            collected += len(part.rows)
        if collected > 4 * costs.limit:
            return None
        if number + 1 >= next_look:
            next_look *= 2
            candidates, collected = _narrow(costs, candidates, limit, k)
    entries = _narrow(costs, candidates, limit, k)[0][0]
    packed, places = _packed(entries.rows, costs.exact(entries), entries.columns, len(costs.queries), k)
    best = packed.topk(k, dim=1, largest=False)
    return best.values, places.gather(1, best.indices)


def _narrow(costs: Bfloat16Distances, candidates: list[Entries], limit: Tensor, k: int) -> tuple[list[Entries], int]:
    """Lower ``limit`` to the k-th of the candidates, and drop what is above."""
    entries = Entries.join(candidates)
    packed, _ = _packed(entries.rows, entries.values, entries.columns, len(limit), k)
    torch.minimum(limit, costs.above(packed.kthvalue(k, dim=1).values, slice(0, len(limit))), out=limit)
    entries = entries.where(costs.below(entries.values, entries.rows) <= limit[entries.rows])
    return [entries], len(entries.rows)


def _lowest(costs: Bfloat16Distances, rows: slice, start: int, limit: Tensor, k: int) -> Entries:
    """Entries of a block that may be below ``limit [b]``, which is lowered first if it is infinite."""
    values = _grouped(costs.product(rows, start))
    lowest = values.amin(dim=1)
    if start == 0 and k <= lowest.shape[1]:
        limit[rows] = costs.above(_numbers(lowest).kthvalue(k, dim=1).values, rows)
    edge = _upper_bits((limit[rows] + costs.error[rows]) / (1 - ROUNDING))[:, None]
    return _members(values, lowest, edge, 1, rows, start)


def _packed(rows: Tensor, values: Tensor, columns: Tensor, count: int, least: int) -> tuple[Tensor, Tensor]:
    """Values and columns ``[b, m]`` of each query packed to the left, m >= ``least``; the rest is infinite."""
    order = rows.sort(stable=True).indices
    rows = rows[order]
    counts = torch.bincount(rows, minlength=count)
    most = max(least, int(counts.amax()))
    slots = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    packed = values.new_full((count, most), torch.inf)
    places = torch.zeros(packed.shape, dtype=torch.int64, device=values.device)
    packed[rows, slots] = values[order]
    places[rows, slots] = columns[order]
    return packed, places
