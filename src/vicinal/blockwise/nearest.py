r"""The nearest rows of a bank by Euclidean distance: found in float32, decided in float64, so that nothing is missed.

With the center $c$ of the bank, $\|q - x\|^2 = n_x - 2 u \cdot x + (\|u\|^2 + 2 u \cdot c)$ for $n_x = \|x - c\|^2$ and
$u = q - c$. The first two terms are one product with the bank as it is in memory; only $n_x$ is kept beside it, 4 bytes
a row. In float32 the error of their sum is at most $\gamma (n_x + 2 \|u\| \|x\|)$, with $\gamma$ a multiple of the unit
roundoff (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Few rows may be among the nearest by
this bound; their distances are recomputed from differences in float64. If there are many, for example with extreme
values, the block is scored again in float64; if many remain, from all differences, once for all copies of a row.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import Buffers, policy, row_slices
from vicinal.blockwise.distances import paired_distances
from vicinal.blockwise.exclusion import ExcludedEntries, Exclusion
from vicinal.blockwise.scores import BlockScores
from vicinal.blockwise.topk import Nearest, topk
from vicinal.core.checks import check_matrices
from vicinal.core.threads import all_threads

_FEW = 4
"""Up to this many queries, the product with a block is computed with the bank rows first."""

_NARROW = 16
"""Width up to which zeros are appended: products of fewer columns take up to twice as long."""

_WIDE = 128
"""Width from which on threads share the product with a block."""

_GROUP = 16
"""Columns of a group, whose lowest is found first: few groups hold a candidate."""

_CROWDED = 1 / 4
"""If more than this share of a block's groups, plus 2 k a query, hold candidates, a finer method is used."""

_MANY = 256
"""Candidates held for a query, beyond twice k; if there are more, the list is narrowed."""

_HUGE = 1e18
"""Lengths from which squares may overflow in float32."""

_LOST = 1e-34
"""Error of a sum due to numbers too small for float32, in units of the lengths."""

_SAMPLE = 4096
"""Number of rows whose mean is the center, which may be approximate."""

_ROUNDED = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-8}
"""Relative rounding of the inputs of products, by ``torch.get_float32_matmul_precision()``."""


class NearestRows:
    """Prepares a bank ``[N, d]``, so that the rows nearest to a query are found in one pass.

    Args:
        bank: ``[N, d]``, floating and finite; it is not kept, so pass the same rows to each search.

    >>> bank = torch.tensor([[0.0], [3.0], [1.0], [1.0]])
    >>> NearestRows(bank).search(torch.tensor([[0.9]]), bank, 3).positions
    tensor([[2, 3, 0]])
    """

    def __init__(self, bank: Tensor) -> None:
        check_matrices(bank, bank)
        sample = bank[:: max(1, len(bank) // _SAMPLE)].double()
        center = sample.mean(dim=0) if len(bank) else sample.new_zeros(bank.shape[1])
        self.center = center.float()  # [d]
        self._norms = torch.zeros(0, device=bank.device)
        self.update(bank, torch.arange(len(bank), device=bank.device))

    def __len__(self) -> int:
        return len(self._norms)

    def update(self, bank: Tensor, changed: Tensor) -> None:
        """Follow the bank: ``changed [n]`` are the positions of all rows that are new or have changed."""
        norms = torch.zeros(len(bank), device=bank.device)
        known = min(len(norms), len(self._norms))
        norms[:known] = self._norms[:known]
        for part in row_slices(len(changed), max(1, policy().block_entries // max(1, bank.shape[1]))):
            rows = bank[changed[part]]
            rows = rows.to(torch.promote_types(rows.dtype, torch.float32)) - self.center
            norms[changed[part]] = torch.linalg.vecdot(rows, rows).float()  # infinite where float32 cannot hold it
        self._norms = norms

    @torch.no_grad()
    def search(self, queries: Tensor, bank: Tensor, k: int, exclusion: Exclusion | None = None) -> Nearest:
        """The ``k`` nearest rows of each query; ties go to the rows that come first.

        Args:
            queries: ``[b, d]``.
            bank: ``[N, d]``, the prepared rows.
            k: >= 1; all rows if there are fewer.
            exclusion: rows that a query may not get; None: it may get all.

        Returns:
            squared distances ``[b, k]``, float64, ascending, and positions ``[b, k]``; if fewer rows are admissible,
            the remaining distances are infinite.

        Raises:
            ValueError: if the bank has another size than the prepared one.
        """
        check_matrices(queries, bank)
        if len(bank) != len(self):
            raise ValueError(f"bank: expected the {len(self)} rows that were prepared, got {len(bank)}")
        k, sizes, buffers = min(k, len(bank)), policy(), Buffers()
        tiles = [
            _Tile(self.center, queries[rows].double(), bank, rows, k, buffers)
            for rows in row_slices(len(queries), sizes.query_rows)
        ]
        chunk = max(_GROUP, sizes.search_entries // max(1, min(len(queries), sizes.query_rows)) // _GROUP * _GROUP)
        with all_threads() if bank.shape[1] >= _WIDE else nullcontext():
            for start in range(0, len(bank), chunk):
                block = _Block(start, bank[start : start + chunk], self._norms[start : start + chunk])
                entries = None if exclusion is None else exclusion.within(start, start + len(block.rows))
                for tile in tiles:
                    tile.visit(block, entries)
        nearest = [tile.finish() for tile in tiles]
        return Nearest(torch.cat([one.values for one in nearest]), torch.cat([one.positions for one in nearest]))


def lowest_rows(scores: BlockScores, exclusion: Exclusion, k: int) -> Nearest:
    """The ``k`` admissible bank rows of lowest cost, or all if fewer; for L2 distances by :class:`NearestRows`."""
    if not scores.kernel.euclidean:
        return topk(scores, exclusion, k)
    nearest = NearestRows(scores.bank).search(scores.queries, scores.bank, k, exclusion)
    return Nearest(nearest.values.to(scores.dtype), nearest.positions)


@dataclass(frozen=True, eq=False)
class _Block:
    """Bank rows ``[B, d]`` from ``start`` on, and their squared distances from the center ``[B]``."""

    start: int
    rows: Tensor
    norms: Tensor

    @cached_property
    def distinct(self) -> tuple[Tensor, Tensor]:
        """The distinct rows ``[u, d]``, and which of them each row is ``[B]``."""
        rows, copy = torch.unique(self.rows, dim=0, return_inverse=True)
        return rows, copy

    @cached_property
    def terms(self) -> Tensor:
        """The rows with their squared distances behind them ``[d + 1, B]``, in float32: one product adds both."""
        rows = nn.functional.pad(self.rows.float(), (0, max(1, _NARROW - self.rows.shape[1])))
        rows[:, self.rows.shape[1]] = self.norms
        return rows.T


class _Candidates(NamedTuple):
    """Single entries ``[m]``: queries, bank rows, and lower bounds of their squared distances."""

    rows: Tensor
    columns: Tensor
    least: Tensor

    def where(self, chosen: Tensor) -> "_Candidates":
        """Those that are ``chosen``."""
        return _Candidates(self.rows[chosen], self.columns[chosen], self.least[chosen])


class _Tile:
    """The search for some queries, a block at a time."""

    def __init__(self, center: Tensor, queries: Tensor, bank: Tensor, rows: slice, k: int, buffers: Buffers) -> None:
        self.queries, self.bank, self.rows, self.k, self.buffers = queries, bank, rows, k, buffers
        self.center, dim = center.double(), bank.shape[1]
        self.apart = queries - self.center  # u
        self.length = torch.linalg.vector_norm(self.apart, dim=1)
        self.offset = self.length.square() + 2 * self.apart @ self.center
        self.at = float(torch.linalg.vector_norm(self.center))
        self.doubled = nn.functional.pad((-2 * self.apart).float(), (0, max(1, _NARROW - dim)))
        self.doubled[:, dim] = 1.0
        self.share = (3 * dim + 64) * 2.0**-24 + 4 * _ROUNDED[torch.get_float32_matmul_precision()]
        self.fine = (4 * dim + 256) * 2.0**-53
        self.best = queries.new_full((len(queries), k), torch.inf)  # the k lowest of what distances are at most
        self.candidates: list[_Candidates] = []
        self.count, self.most = 0, (2 * k + _MANY) * len(queries)

    def visit(self, block: _Block, entries: ExcludedEntries | None) -> None:
        """Search a block."""
        part = self._coarse(block, entries) or self._double(block, entries) or self._exact(block, entries)
        candidates, highest = part
        if len(candidates.rows) == 0:
            return
        self._lower(candidates.rows, highest)
        self.candidates.append(candidates)
        self.count += len(candidates.rows)
        if self.count > self.most:
            self._narrow()

    def _coarse(self, block: _Block, entries: ExcludedEntries | None) -> tuple[_Candidates, Tensor] | None:
        """Candidates of a block in float32, and upper bounds of their distances; None if there are too many."""
        norm = float(block.norms.amax())
        if not (norm < _HUGE**2 and self.at < _HUGE and float(self.length.amax()) < _HUGE):
            return None
        few = len(self.queries) <= _FEW and block.rows.device.type == "cpu"
        values = self.buffers.empty("values", len(self.queries), len(block.rows), block.norms)  # [r, B]
        if few:  # of one vector the product takes more than twice the time of two
            products = block.terms.T @ self.doubled.expand(max(2, len(values)), -1).contiguous().T
            values.copy_(products[:, : len(values)].T)
        else:
            torch.mm(self.doubled, block.terms, out=values)
        return self._select(values, self.offset, self._slack(norm, self.length), block, entries)

    def _double(self, block: _Block, entries: ExcludedEntries | None) -> tuple[_Candidates, Tensor] | None:
        """The same in float64."""
        rows = block.rows.double() - self.center
        norms = torch.linalg.vecdot(rows, rows)
        values = torch.addmm(norms, self.apart, rows.T, alpha=-2)
        slack = self.fine * (norms.amax().sqrt() + self.length).square()
        return self._select(values, self.length.square(), slack, block, entries)

    def _exact(self, block: _Block, entries: ExcludedEntries | None) -> tuple[_Candidates, Tensor]:
        """The same by distances from differences; ties go to the rows that come first."""
        rows, copy = block.distinct
        pairs = torch.arange(len(rows) * len(self.queries), device=rows.device)
        table = paired_distances(self.queries, rows, pairs // len(rows), pairs % len(rows))
        values = table.view(len(self.queries), len(rows))[:, copy]
        if entries is not None:
            values = entries.fill(values, self.rows, torch.inf)
        limit = self.best[:, -1:]
        lines = (values < limit).any(dim=1).nonzero()[:, 0]
        nearest = values[lines].sort(dim=1, stable=True)
        line, place = (nearest.values[:, : self.k] < limit[lines]).nonzero(as_tuple=True)
        exact = nearest.values[line, place]
        return _Candidates(lines[line], nearest.indices[line, place] + block.start, exact), exact

    def _slack(self, norm: Tensor | float, length: Tensor) -> Tensor:
        """Error bound of sums in float32, for rows at squared distance ``norm`` from the center."""
        reach = norm**0.5 + self.at
        lost = _LOST * (1 + length + reach)
        return self.share * (norm + 2 * length * reach) + self.fine * (length + reach) ** 2 + lost

    def _select(
        self, values: Tensor, offset: Tensor, slack: Tensor, block: _Block, entries: ExcludedEntries | None
    ) -> tuple[_Candidates, Tensor] | None:
        """Entries of ``values [r, B]`` that may be among the nearest k, or None if too many may be.

        Squared distances are ``values + offset [r]``, with an error of at most ``slack [r]``.
        """
        if entries is not None:
            values = entries.fill(values, self.rows, torch.inf)
        members = values.view(len(values), _GROUP if values.shape[1] % _GROUP == 0 else 1, -1)  # [r, g, B / g]
        lowest = members.amin(dim=1)
        limit = self.best[:, -1]
        if bool((limit == torch.inf).any()) and self.k <= values.shape[1]:
            some = lowest if self.k <= lowest.shape[1] else values
            kth = some.kthvalue(self.k, dim=1).values.double() + offset + slack
            limit = torch.minimum(limit, kth)
        edge = (limit - offset + slack).to(values.dtype)
        edge = torch.nextafter(edge, torch.full_like(edge, torch.inf))[:, None].clamp(max=torch.finfo(edge.dtype).max)
        rows, group = (lowest <= edge).nonzero(as_tuple=True)
        if len(rows) > _CROWDED * lowest.numel() + 2 * self.k * len(lowest):
            return None
        inside = members[rows, :, group]  # [m, g]
        which, member = (inside <= edge[rows]).nonzero(as_tuple=True)
        rows, columns = rows[which], member * members.shape[2] + group[which]
        middle = inside[which, member].double() + offset[rows]
        candidates = _Candidates(rows, columns + block.start, middle - slack[rows])
        return candidates, middle + slack[rows]

    def _lower(self, rows: Tensor, highest: Tensor) -> None:
        """Add the upper bounds ``highest``, of entries sorted by their ``rows [m]``, to the lowest k."""
        counts = torch.bincount(rows, minlength=len(self.best))
        slots = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
        packed = highest.new_full((len(self.best), int(counts.amax())), torch.inf)
        packed[rows, slots] = highest
        self.best = torch.cat([self.best, packed], dim=1).topk(self.k, dim=1, largest=False).values

    def _joined(self) -> _Candidates:
        """The candidates that may still be among the nearest k."""
        joined = _Candidates(*(torch.cat(parts) for parts in zip(*self.candidates, strict=True)))
        return joined.where(joined.least <= self.best[joined.rows, -1])

    def _narrow(self) -> None:
        """Drop candidates that are now too far, and if many are left, all but the nearest k."""
        candidates = self._joined()
        if len(candidates.rows) > self.most // 2:
            rows, columns, values, _ = self._ranked(candidates)
            candidates = _Candidates(rows, columns, values)
            self.best = torch.full_like(self.best, torch.inf)
            self._lower(rows, values)
        self.candidates, self.count = [candidates], len(candidates.rows)

    def _ranked(self, candidates: _Candidates) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The nearest k of each query: rows, columns, squared distances and places among the k, each ``[m]``."""
        rows, columns, _ = candidates.where(candidates.columns.argsort())
        values = paired_distances(self.queries, self.bank, rows, columns)
        order = values.argsort(stable=True)
        order = order[rows[order].argsort(stable=True)]
        rows, columns, values = rows[order], columns[order], values[order]
        counts = torch.bincount(rows, minlength=len(self.queries))
        slots = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
        near = slots < self.k
        return rows[near], columns[near], values[near], slots[near]

    def finish(self) -> Nearest:
        """The nearest rows."""
        values = torch.full_like(self.best, torch.inf)
        positions = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
        if self.candidates:
            rows, columns, exact, slots = self._ranked(self._joined())
            values[rows, slots], positions[rows, slots] = exact, columns
        return Nearest(values, positions)
