r"""The rows of highest score, found a block at a time: exact although products are rounded.

A block is scanned by products $p$ that rise as scores fall (see :mod:`vicinal.similarity.factors`). A float32 product
of length $d$ is wrong by at most $\gamma_d \sum_k |\phi_k \psi_k|$ with $\gamma_d = d u / (1 - d u)$, $u = 2^{-24}$
(Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); the sum is at most twice the squared norms, or
the product of the norms.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from vicinal.index.bank import NeighborBank
from vicinal.index.base import Hits, no_hits, ordered
from vicinal.index.pairs import exact_scores, pair_score
from vicinal.similarity.factors import factors

BLOCK = 4096
"""Rows of a block."""

_TILE = 256
"""Queries whose products with a block are held at a time."""

_ROUNDED = {"highest": 0.0, "high": 2.0**-10, "medium": 2.0**-8}
"""How products round what they take, by ``torch.get_float32_matmul_precision()``."""

_SCORE = 2.0**-20
"""Share by which a product may be off that was made of a score in float32."""

_NONE = torch.iinfo(torch.int64).max
"""Stands for no key, behind all keys."""

Blocks = Iterable[tuple[int, Tensor]]
"""Where each block starts, and its rows ``[n, d]``."""


class _Products:
    """Products of queries ``[b, d]`` with a block, lower = more alike, and by how much they may be wrong."""

    def __init__(self, similarity: nn.Module, queries: Tensor, center: Tensor) -> None:
        self.similarity, self.queries, self.center = similarity, queries, center
        self.form = factors(similarity)
        if self.form is not None:
            self.features = self.form.of_queries(queries, center)
            self.share = (2 * queries.shape[1] + 64) * 2.0**-24 + 4 * _ROUNDED[torch.get_float32_matmul_precision()]

    def of(self, tile: slice, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The products ``[r, n]``, and the error ``[r]``: 0 for a similarity that is taken at its word."""
        if self.form is None:
            products = -self.similarity(self.queries[tile], rows).float()
            return products, products.new_zeros(len(products))
        queries, features = self.features[tile], self.form.of_bank(rows, self.center)
        if self.form.cancels:
            error = 2 * self.share * (queries[:, -1] + features[:, -2].amax())
        else:
            error = self.share * (1 + 1e-4) * queries.norm(dim=1) * features.norm(dim=1).amax()
        return queries @ features.T, error

    def of_scores(self, scores: Tensor) -> Tensor:
        """The highest products that rows of these scores may have, without the error of a block."""
        costs = scores.square() if self.form is not None and self.form.rooted else -scores
        return costs if self.form is None else costs + _SCORE * costs.abs()


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
        center: ``[d]``, a point near the rows, which costs digits if it is far.

    Returns:
        keys ``[b, k]``, -1 where there are fewer rows than k, and scores ``[b, k]``, best first.
    """
    device = queries.device
    best = no_hits(len(queries), k, device, _NONE)
    score, products = pair_score(similarity), _Products(similarity, queries, center.to(device))
    tiles = [slice(i, min(i + _TILE, len(queries))) for i in range(0, len(queries), _TILE)]
    for start, stored in blocks:
        rows = stored.to(device)
        block_keys = keys[start : start + len(rows)].to(device)
        for tile in tiles:
            values, error = products.of(tile, rows)
            lines, columns = _candidates(values, error, products.of_scores(best.scores[tile, -1]), k)
            if len(lines) == 0:
                continue
            if products.form is None or score is None:
                scores = -values[lines, columns]
            else:
                scores = exact_scores(score, queries[tile], lines, _reader(rows, columns))
            _merge(best, tile, lines, block_keys[columns], scores)
    return Hits(best.ids.masked_fill_(best.ids == _NONE, -1), best.scores)


def _candidates(products: Tensor, error: Tensor, worst: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Lines and columns ``[p]`` of the entries of ``products [r, n]`` that may belong to the best k.

    Those of the k best so far are at most ``worst [r]``; each product may be wrong by ``error [r]``.
    """
    limit = worst + error
    lines = (~(products.amin(dim=1) > limit)).nonzero()[:, 0]  # so that what is not a number is looked at
    if len(lines) == 0:
        return lines, lines
    some, limit = products if len(lines) == len(products) else products[lines], limit[lines]
    if k < products.shape[1] and bool((worst == torch.inf).any()):
        kth = some.topk(k, dim=1, largest=False, sorted=False).values.amax(dim=1)
        # while fewer than k rows are known, the k-th product of this block bounds the k-th best; it and what it is
        # compared with may each be off by the error, which therefore counts twice
        limit = torch.fmin(limit, kth + _SCORE * kth.abs() + 2 * error[lines])
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
    more = no_hits(len(touched), int(counts.max()), lines.device, _NONE)
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
    ranked = ordered(torch.where(known, hits.ids, _NONE), scores)
    return Hits(ranked.ids.masked_fill(ranked.ids == _NONE, -1), ranked.scores)
