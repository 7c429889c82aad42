"""The rows of highest score, found a block at a time: exact although products are rounded."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from vicinal.index.bank import NeighborBank
from vicinal.index.base import Hits, ordered
from vicinal.index.bounds import Block, Scan, make_scan
from vicinal.index.pairs import exact_scores, pair_score

BLOCK = 4096
"""Rows of a block."""

_TILE = 256
"""Queries whose products with a block are held at a time."""

_NONE = torch.iinfo(torch.int64).max
"""Stands for no key, behind all keys."""

Blocks = Iterable[tuple[int, Tensor]]
"""Where each block starts, and its rows ``[n, d]``."""


def scan(
    similarity: nn.Module,
    queries: Tensor,
    k: int,
    blocks: Blocks,
    keys: Tensor,
    center: Tensor,
) -> Hits:
    """The ``k`` rows of highest score for each query, of equal scores those of lowest key; nothing is missed.

    Blocks are scored by one matrix product each. Its entries may be wrong by the rounding of the product, for which
    there is a bound; every row that may by this bound be among the best ``k`` is scored anew. Only the best k so far
    are kept, so memory does not grow with the rows.

    Args:
        similarity: any; one that is no module of this library is taken at its word, block by block.
        queries: ``[b, d]`` float32.
        k: >= 1.
        blocks: what is scanned.
        keys: ``[N]`` int64, each once.
        center: ``[d]``, a point near the rows.

    Returns:
        keys ``[b, k]``, -1 where there are fewer rows than k, and scores ``[b, k]``, best first.
    """
    device = queries.device
    best = Hits(
        torch.full((len(queries), k), _NONE, device=device), torch.full((len(queries), k), -torch.inf, device=device)
    )
    score, scanned = pair_score(similarity), make_scan(similarity, queries, center.to(device))
    tiles = [slice(i, min(i + _TILE, len(queries))) for i in range(0, len(queries), _TILE)]
    for start, stored in blocks:
        rows = stored.to(device)
        block = scanned.block(rows)
        block_keys = keys[start : start + len(rows)].to(device)
        for tile in tiles:
            products = scanned.products(tile, block)
            lines, columns = _candidates(scanned, tile, block, products, best.scores[tile, -1], k)
            if len(lines) == 0:
                continue
            if scanned.trusted or score is None:
                scores = -products[lines, columns]
            else:
                scores = exact_scores(score, queries[tile], lines, _reader(rows, columns))
            _merge(best, tile, lines, block_keys[columns], scores)
    return Hits(best.ids.masked_fill_(best.ids == _NONE, -1), best.scores)


def _candidates(
    scanned: Scan, tile: slice, block: Block, products: Tensor, worst: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Lines and columns ``[p]`` of the entries of ``products [r, n]`` that may belong to the best k."""
    limit = scanned.reach(tile, block, worst)
    reached = ~(products.amin(dim=1) > limit)  # so that what is not a number is looked at
    lines = reached.nonzero()[:, 0]
    if len(lines) == 0:
        return lines, lines
    some = products if len(lines) == len(products) else products[lines]
    limit = limit[lines]
    if k < products.shape[1] and bool((worst == -torch.inf).any()):
        kth = torch.full((len(products),), torch.inf, device=products.device)
        kth[lines] = some.topk(k, dim=1, largest=False, sorted=False).values.amax(dim=1)
        limit = torch.fmin(limit, scanned.reach(tile, block, scanned.least(tile, block, kth))[lines])
    inside, columns = (some > limit[:, None]).logical_not_().nonzero(as_tuple=True)
    return lines[inside], columns


def _reader(rows: Tensor, columns: Tensor) -> Callable[[slice], Tensor]:
    """Vectors of runs of pairs, out of their block."""
    return lambda run: rows[columns[run]]


def _merge(best: Hits, tile: slice, lines: Tensor, keys: Tensor, scores: Tensor) -> None:
    """Put pairs ``[p]``, sorted by line, among the best of their queries."""
    k = best.ids.shape[1]
    touched, counts = torch.unique_consecutive(lines, return_counts=True)
    slots = torch.arange(len(lines), device=lines.device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    places = torch.arange(len(touched), device=lines.device).repeat_interleave(counts)
    more = Hits(
        torch.full((len(touched), int(counts.max())), _NONE, device=lines.device),
        torch.full((len(touched), int(counts.max())), -torch.inf, device=lines.device),
    )
    more.ids[places, slots], more.scores[places, slots] = keys, scores
    rows = tile.start + touched
    merged = ordered(torch.cat([best.ids[rows], more.ids], dim=1), torch.cat([best.scores[rows], more.scores], dim=1))
    best.ids[rows], best.scores[rows] = merged.ids[:, :k], merged.scores[:, :k]


def rescored(hits: Hits, queries: Tensor, similarity: nn.Module, bank: NeighborBank) -> Hits:
    """``hits [b, k]`` with the exact scores of the bank's vectors, ordered by them.

    Candidates that the bank has not are dropped. What the search missed stays missed.

    Raises:
        ValueError: for a similarity that is none of this library.
    """
    score = pair_score(similarity)
    if score is None:
        raise ValueError(f"similarity: expected one of this library, got {similarity!r}")
    positions = bank.positions_of_keys(hits.ids.masked_fill(hits.ids < 0, -1))
    known = positions >= 0
    lines, _ = known.nonzero(as_tuple=True)
    at = positions[known]
    scores = torch.full_like(hits.scores, -torch.inf)
    scores[known] = exact_scores(score, queries, lines, lambda run: bank.vectors_at(at[run]))
    ranked = ordered(torch.where(known, hits.ids, _LAST), scores)
    return Hits(ranked.ids.masked_fill(ranked.ids == _LAST, -1), ranked.scores)


_LAST = torch.iinfo(torch.int64).max
