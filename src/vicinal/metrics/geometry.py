"""The geometry of embeddings: alignment, uniformity, hubs, use of dimensions, and what a bank covers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.blockwise import policy
from vicinal.blockwise.distances import squared_distances
from vicinal.core import register
from vicinal.core.checks import check_between, check_integer, check_matrices
from vicinal.metrics.streamed import related_blocks, retrieval_task
from vicinal.ranks.hard import wide
from vicinal.similarity import Cosine, NegativeSquaredL2
from vicinal.similarity.base import resolve_similarity


@torch.no_grad()
def nearest_distances(
    queries: Tensor,
    bank: Tensor | None = None,
    *,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
) -> Tensor:
    """Euclidean distance ``[n]`` of each row to its nearest neighbor; inf where none is admissible.

    Args:
        queries: ``[n, d]``.
        bank: ``[N, d]``; None: the queries, where no row is its own neighbor.
        query_groups: integers ``[n]``; rows of the same group are never neighbors.
        bank_groups: integers ``[N]``, with ``query_groups`` if there is a bank.

    >>> nearest_distances(torch.tensor([[0.0], [1.0], [5.0]]))
    tensor([1., 1., 4.])
    """
    rows = queries if bank is None else bank
    check_matrices(queries, rows)
    if bank is None and bank_groups is not None:
        raise ValueError("bank_groups: expected none without a bank, got some; query_groups serve for both")
    if bank is not None and (query_groups is None) != (bank_groups is None):
        raise ValueError("bank_groups: expected groups of queries and bank, or neither")
    codes = torch.arange(len(queries), device=queries.device) if query_groups is None else query_groups
    others = codes if bank is None else codes.new_full((len(rows),), -1) if bank_groups is None else bank_groups
    for name, each, number in (("query_groups", codes, len(queries)), ("bank_groups", others, len(rows))):
        if each.shape != (number,):
            raise ValueError(f"{name}: expected [{number}], got {tuple(each.shape)}")
    step, nearest = max(1, policy().memory_entries // max(len(rows), 1)), []
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        apart = squared_distances(queries[part], rows)
        apart = apart.masked_fill(codes[part, None] == others[None], torch.inf)
        none = apart.new_full((len(apart), 1), torch.inf)
        nearest.append(torch.cat([apart, none], dim=1).amin(1).sqrt())
    return torch.cat(nearest) if nearest else queries.new_zeros(0)


def neighbor_coverage(
    queries: Tensor,
    radius: float | Sequence[float],
    bank: Tensor | None = None,
    *,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
) -> Tensor:
    """Share of rows whose nearest admissible neighbor lies within ``radius``: how much of the data has somebody near.

    Args:
        queries: ``[n, d]``, n >= 1.
        radius: >= 0, or several.
        bank: see :func:`nearest_distances`, as for the groups.
        query_groups: integers ``[n]``.
        bank_groups: integers ``[N]``.

    Returns:
        a scalar, or ``[r]`` for several radii.

    >>> neighbor_coverage(torch.tensor([[0.0], [1.0], [5.0]]), [0.5, 1.0, 4.0])
    tensor([0.0000, 0.6667, 1.0000])
    """
    several = isinstance(radius, Sequence)
    all_radii = list(radius) if isinstance(radius, Sequence) else [radius]
    radii = [check_between("radius", value, 0, math.inf, closed=True) for value in all_radii]
    if len(queries) == 0:
        raise ValueError("queries: expected at least one row, got none")
    away = nearest_distances(queries, bank, query_groups=query_groups, bank_groups=bank_groups)
    shares = (away[:, None] <= away.new_tensor(radii)).to(away.dtype).mean(0)
    return shares if several else shares[0]


def _tile_rows() -> int:
    """Rows and columns of a square of scores."""
    return max(1, math.isqrt(policy().memory_entries) // 2)


def _checked(name: str, rows: Tensor) -> Tensor:
    finite = rows.detach()
    finite = finite if finite.dtype in (torch.float32, torch.float64) else finite.float()
    bad = (~finite.isfinite().all(dim=1)).nonzero()
    if len(bad):
        raise ValueError(f"{name}: expected finite numbers, got NaN or inf in row {int(bad[0])}")
    return finite


@register(
    "metric",
    "alignment",
    "embeddings",
    "class-labels",
    "rotation-invariant",
    "row-scale-invariant",
    family="geometry",
    paper="arXiv:2005.10242",
    verified="numpy in float64",
)
@torch.no_grad()
def alignment(embeddings: Tensor, labels: Tensor, *, power: float = 2.0) -> Tensor:
    r"""Mean distance of related rows, $\mathrm{mean}_{i \ne j,\, y_i = y_j} \|x_i - x_j\|^{\alpha}$ of directions.

    Args:
        embeddings: ``[n, d]``, floating and finite.
        labels: integers ``[n]``.
        power: $\alpha > 0$.

    Returns:
        scalar from 0 (all rows of a class coincide) to $2^\alpha$; NaN if no two rows are related. Lower is better.

    >>> alignment(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), torch.tensor([0, 0, 1]))
    tensor(2., dtype=torch.float64)
    """
    alpha = check_between("power", power, 0, math.inf)
    task = retrieval_task(embeddings, labels, None, None, "cosine")
    total = torch.zeros((), dtype=wide(embeddings.device), device=embeddings.device)
    for _, scores, related in related_blocks(task, 0, len(labels)):
        squared = (2 - 2 * scores[related]).clamp(min=0)
        total += (squared ** (alpha / 2)).sum(dtype=total.dtype)
    return total / task.number.sum()


@register(
    "metric",
    "uniformity",
    "embeddings",
    "rotation-invariant",
    "row-scale-invariant",
    family="geometry",
    paper="arXiv:2005.10242",
    verified="numpy in float64",
)
@torch.no_grad()
def uniformity(embeddings: Tensor, *, t: float = 2.0) -> Tensor:
    r"""How evenly directions cover the sphere, $\log \mathrm{mean}_{i \ne j}\, e^{-t \|x_i - x_j\|^2}$.

    Args:
        embeddings: ``[n, d]``, floating and finite.
        t: sharpness, > 0.

    Returns:
        scalar from -4t to 0 (all rows have one direction); NaN for fewer than two rows. Lower is more uniform.

    >>> uniformity(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]).double())
    tensor(-8., dtype=torch.float64)
    """
    sharpness = check_between("t", t, 0, math.inf)
    check_matrices(embeddings, embeddings)
    rows, score = _checked("embeddings", embeddings), Cosine()
    total = torch.zeros((), dtype=wide(rows.device), device=rows.device)
    tile = _tile_rows()
    for low in range(0, len(rows), tile):
        for left in range(low, len(rows), tile):
            block = (2 * sharpness * (score(rows[low : low + tile], rows[left : left + tile]) - 1)).exp()
            part = block.triu(diagonal=1) if left == low else block
            total += 2 * part.sum(dtype=total.dtype)
    return (total / (len(rows) * (len(rows) - 1) or math.nan)).log()


@register(
    "metric",
    "hubness",
    "embeddings",
    family="geometry",
    paper="Radovanovic et al. 2010",
    verified="numpy in float64; scipy",
)
@torch.no_grad()
def hubness(
    queries: Tensor, bank: Tensor | None = None, *, k: int = 10, similarity: str | nn.Module = "cosine"
) -> Tensor:
    r"""Skewness of the number of queries $N_k(j)$ that have bank row j among their first ``k``.

    $\mathrm{mean}_j (N_k(j) - \mu)^3 / \sigma^3$: near 0 without hubs, large if a few rows are near everything.

    Args:
        queries: ``[n, d]``, floating and finite.
        bank: ``[N, d]``, or None to compare each query with all other queries.
        k: neighbors of a query, >= 1; at most as many as there are.
        similarity: name or module.

    Returns:
        scalar; 0 if all rows come up equally often. Ties at the ``k``-th place are broken arbitrarily.

    >>> hubness(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), k=1)
    tensor(0., dtype=torch.float64)
    """
    check_matrices(queries, queries if bank is None else bank)
    module, rows = resolve_similarity(similarity), _checked("queries", queries)
    columns = rows if bank is None else _checked("bank", bank)
    number = min(check_integer("k", k), len(columns) - (1 if bank is None else 0))
    counts = torch.zeros(len(columns), dtype=torch.int64, device=rows.device)
    step = max(1, policy().memory_entries // max(1, len(columns)))
    for low in range(0, len(rows) if number > 0 else 0, step):
        scores = module(rows[low : low + step], columns)
        if bank is None:
            scores.diagonal(low).fill_(-torch.inf)
        near = scores.topk(number, dim=1).indices.view(-1)
        counts += near.bincount(minlength=len(columns))
    centered = counts.to(wide(rows.device)) - counts.to(wide(rows.device)).mean()
    deviation = centered.square().mean().sqrt()
    return torch.where(deviation > 0, centered.pow(3).mean() / torch.where(deviation > 0, deviation, 1.0) ** 3, 0.0)


@register(
    "metric",
    "utilization",
    "embeddings",
    "common-shift-invariant",
    "rotation-invariant",
    family="geometry",
    paper="arXiv:2106.04990",
    verified="numpy in float64",
)
@torch.no_grad()
def utilization(queries: Tensor, bank: Tensor) -> Tensor:
    r"""How well training rows cover the queries, $\mathrm{mean}_i \min_j \|q_i - x_j\|^2$. Lower is better.

    Args:
        queries: ``[n, d]``, embeddings of test rows, floating and finite.
        bank: ``[N, d]``, embeddings of training rows, N >= 1.

    Returns:
        scalar >= 0; 0 if all queries are in the bank.

    Raises:
        ValueError: for an empty bank.

    >>> utilization(torch.tensor([[0.0, 0.0], [3.0, 0.0]]), torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
    tensor(0.5000, dtype=torch.float64)
    """
    check_matrices(queries, bank)
    if len(bank) == 0:
        raise ValueError("bank: expected at least one row, got none")
    rows, columns, score = _checked("queries", queries), _checked("bank", bank), NegativeSquaredL2()
    nearest = rows.new_full((len(rows),), -torch.inf, dtype=torch.promote_types(rows.dtype, columns.dtype))
    tile = _tile_rows()
    for low in range(0, len(rows), tile):
        part = nearest[low : low + tile]
        for left in range(0, len(columns), tile):
            block = score(rows[low : low + tile], columns[left : left + tile])
            torch.maximum(part, block.amax(dim=1), out=part)
    return -nearest.to(wide(rows.device)).mean()
