"""Which bank rows may be the nearest, the farthest or among the k nearest, found in bfloat16 and settled in float32."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.coarse import ROUNDING, CoarseCosts, Entries
from vicinal.heads.combining import Combine
from vicinal.heads.costs import Costs
from vicinal.heads.hidden import Hidden

_GROUP = 32
"""Columns of which the lowest is found first where several of a row are wanted."""


def coarse_costs(costs: Costs, hidden: Hidden, combine: Combine) -> CoarseCosts | None:
    """Costs in bfloat16, if the bank was prepared for them and all of its rows are here and admissible."""
    prepared = costs.prepared
    if prepared is None or prepared.coarse is None or hidden.keys or not combine.alone:
        return None
    coarse = CoarseCosts(costs.queries, costs.bank, prepared.coarse)
    return coarse if coarse.safe else None


def grouped(values: Tensor) -> Tensor:
    """Integers ``[r, g, B / g]`` that rise with ``values [r, B]``; negative where these are, in no order."""
    group = _GROUP if values.shape[1] % _GROUP == 0 else 1
    return values.view(torch.int16).view(len(values), group, -1)


def numbers(found: Tensor) -> Tensor:
    """The values of such integers in float32."""
    return found.contiguous().view(torch.bfloat16).float()


def upper_bits(values: Tensor) -> Tensor:
    """The integer of a number of bfloat16 above ``values``, in float32."""
    return (values.clamp(min=0) * (1 + 2.0**-7) + 1e-37).clamp(max=3e38).bfloat16().view(torch.int16)


def lower_bits(values: Tensor) -> Tensor:
    """The integer of a number of bfloat16 below ``values``; below all where these are not positive."""
    found = (values.clamp(min=0, max=3e38) * (1 - 2.0**-7)).bfloat16().view(torch.int16)
    return found.masked_fill_(values <= 0, -(2**15))


class Ends(NamedTuple):
    """Squared distances ``[b]`` of the nearest and the farthest row, where one stands, and how many do."""

    values: tuple[Tensor, Tensor]
    positions: tuple[Tensor, Tensor]
    counts: tuple[Tensor, Tensor]


def coarse_ends(costs: CoarseCosts) -> Ends | None:
    """Nearest and farthest row of each query, or None if too many rows could be that."""
    found = []
    for part in costs.parts():  # a tile at a time, so that memory does not grow with the queries
        ends = _ends_of(part)
        if ends is None:
            return None
        found.append(ends)
    values, positions, counts = (
        (torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs]))
        for pairs in zip(*found, strict=True)
    )
    return Ends(values, positions, counts)


def _ends_of(costs: CoarseCosts) -> Ends | None:
    near = costs.error.new_full((len(costs.queries),), torch.inf)
    far = -near
    found: tuple[list[Entries], list[Entries]] = ([], [])
    kept = 0
    for start in costs.starts():
        for rows in costs.tiles():
            values = grouped(costs.product(rows, start))
            low, high = values.amin(dim=1), values.amax(dim=1)  # [r, B / g]
            near[rows] = torch.minimum(near[rows], costs.above(numbers(low.amin(dim=1)), rows))
            far[rows] = torch.maximum(far[rows], costs.below(numbers(high.amax(dim=1)), rows))
            top = upper_bits((near[rows] + costs.error[rows]) / (1 - ROUNDING))[:, None]
            bottom = lower_bits((far[rows] - costs.error[rows]) / (1 + ROUNDING))[:, None]
            found[0].append(_members(values, low, top, 1, rows, start))
            found[1].append(_members(values, high, bottom, -1, rows, start))
            kept += len(found[0][-1].rows) + len(found[1][-1].rows)
        if kept > costs.limit:
            return None
    nearest, farthest = Entries.join(found[0]), Entries.join(found[1])
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
    return Entries(some[which] + rows.start, at + start, numbers(members[which, member]))


def _end(costs: CoarseCosts, entries: Entries, reduce: str) -> tuple[Tensor, Tensor, Tensor]:
    """Lowest or highest of each query among ``entries``, one bank row that has it, and how many do."""
    exact = costs.exact(entries)
    count = len(costs.queries)
    best = exact.new_zeros(count).scatter_reduce_(0, entries.rows, exact, reduce, include_self=False)
    same = exact == best[entries.rows]
    rows, columns = entries.rows[same], entries.columns[same]
    positions = torch.zeros(count, dtype=torch.int64, device=exact.device)
    positions.scatter_reduce_(0, rows, columns, "amin", include_self=False)
    return best, positions, torch.bincount(rows, minlength=count)


def coarse_nearest(costs: CoarseCosts, k: int) -> tuple[Tensor, Tensor] | None:
    """The ``k`` lowest squared distances ``[b, k]``, ascending, and their rows; None if too many could be that."""
    found = []
    for part in costs.parts():
        nearest = _nearest_of(part, k)
        if nearest is None:
            return None
        found.append(nearest)
    return torch.cat([values for values, _ in found]), torch.cat([places for _, places in found])


def _nearest_of(costs: CoarseCosts, k: int) -> tuple[Tensor, Tensor] | None:
    limit = costs.error.new_full((len(costs.queries),), torch.inf)
    found: list[Entries] = []
    kept, next_look = 0, 1
    for number, start in enumerate(costs.starts()):
        for rows in costs.tiles():
            part = _lowest(costs, rows, start, limit, k)
            found.append(part)
            kept += len(part.rows)
        if kept > 4 * costs.limit:
            return None
        if number + 1 >= next_look:
            next_look *= 2
            found, kept = _narrow(costs, found, limit, k)
    entries = _narrow(costs, found, limit, k)[0][0]
    packed, places = _packed(entries.rows, costs.exact(entries), entries.columns, len(costs.queries), k)
    best = packed.topk(k, dim=1, largest=False)
    return best.values, places.gather(1, best.indices)


def _narrow(costs: CoarseCosts, found: list[Entries], limit: Tensor, k: int) -> tuple[list[Entries], int]:
    """Lower ``limit`` to the k-th of what was found, and drop what is above."""
    entries = Entries.join(found)
    packed, _ = _packed(entries.rows, entries.values, entries.columns, len(limit), k)
    torch.minimum(limit, costs.above(packed.kthvalue(k, dim=1).values, slice(0, len(limit))), out=limit)
    entries = entries.where(costs.below(entries.values, entries.rows) <= limit[entries.rows])
    return [entries], len(entries.rows)


def _lowest(costs: CoarseCosts, rows: slice, start: int, limit: Tensor, k: int) -> Entries:
    """Entries of a block that may be below ``limit [b]``, which is lowered first if it is infinite."""
    values = grouped(costs.product(rows, start))
    lowest = values.amin(dim=1)
    if start == 0 and k <= lowest.shape[1]:
        limit[rows] = costs.above(numbers(lowest).kthvalue(k, dim=1).values, rows)
    edge = upper_bits((limit[rows] + costs.error[rows]) / (1 - ROUNDING))[:, None]
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
