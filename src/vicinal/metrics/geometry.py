"""Metrics of embeddings as a whole: alignment, uniformity, hubness and utilization; block by block."""

import math

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_integer, check_matrices, register
from vicinal.metrics.streamed import related_blocks, retrieval_task
from vicinal.ranks.hard import wide
from vicinal.similarity import Cosine, NegativeSquaredL2, resolve_similarity

_BLOCK = 1024
"""Rows of a block."""

_HELD = 1 << 22
"""Scores held at a time where a query needs all of its columns."""


def _checked(name: str, rows: Tensor) -> Tensor:
    kept = rows.detach()
    kept = kept if kept.dtype in (torch.float32, torch.float64) else kept.float()
    bad = (~kept.isfinite().all(dim=1)).nonzero()
    if len(bad):
        raise ValueError(f"{name}: expected finite numbers, got NaN or inf in row {int(bad[0])}")
    return kept


@register(
    "metric",
    "alignment",
    "embeddings",
    "class-labels",
    "rotation-invariant",
    "row-scale-invariant",
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
        scalar from 0 (all rows of a class are one) to $2^\alpha$; NaN if no two rows are related. Lower is better.

    >>> alignment(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), torch.tensor([0, 0, 1]))
    tensor(2., dtype=torch.float64)
    """
    alpha = check_between("power", power, 0, math.inf)
    task = retrieval_task(embeddings, labels, None, None, "cosine")
    total = torch.zeros((), dtype=wide(embeddings.device), device=embeddings.device)
    for _, scores, related in related_blocks(task, 0, len(labels)):
        squared = (2 - 2 * scores[related]).clamp(min=0)
        total += (squared ** (alpha / 2)).sum(dtype=total.dtype)
    return total / task.found.sum()


@register(
    "metric",
    "uniformity",
    "embeddings",
    "rotation-invariant",
    "row-scale-invariant",
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
        scalar from -4t to 0 (all rows are one direction); NaN for fewer than two rows. Lower is more uniform.

    >>> uniformity(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]).double())
    tensor(-8., dtype=torch.float64)
    """
    sharpness = check_between("t", t, 0, math.inf)
    check_matrices(embeddings, embeddings)
    rows, score = _checked("embeddings", embeddings), Cosine()
    total = torch.zeros((), dtype=wide(rows.device), device=rows.device)
    for low in range(0, len(rows), _BLOCK):
        for left in range(low, len(rows), _BLOCK):
            block = (2 * sharpness * (score(rows[low : low + _BLOCK], rows[left : left + _BLOCK]) - 1)).exp()
            part = block.triu(diagonal=1) if left == low else block
            total += 2 * part.sum(dtype=total.dtype)
    return (total / (len(rows) * (len(rows) - 1) or math.nan)).log()


@register("metric", "hubness", "embeddings", paper="Radovanovic et al. 2010", verified="numpy in float64; scipy")
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
        scalar; 0 if all rows come equally often. Rows of equal score at the ``k``-th place are chosen arbitrarily.

    >>> hubness(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), k=1)
    tensor(0., dtype=torch.float64)
    """
    check_matrices(queries, queries if bank is None else bank)
    module, rows = resolve_similarity(similarity), _checked("queries", queries)
    columns = rows if bank is None else _checked("bank", bank)
    number = min(check_integer("k", k), len(columns) - (1 if bank is None else 0))
    counts = torch.zeros(len(columns), dtype=torch.int64, device=rows.device)
    step = max(1, _HELD // max(1, len(columns)))
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
    for low in range(0, len(rows), _BLOCK):
        part = nearest[low : low + _BLOCK]
        for left in range(0, len(columns), _BLOCK):
            block = score(rows[low : low + _BLOCK], columns[left : left + _BLOCK])
            torch.maximum(part, block.amax(dim=1), out=part)
    return -nearest.to(wide(rows.device)).mean()
