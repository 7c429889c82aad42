"""Retrieval metrics of embeddings with class labels, block by block: memory does not grow with the square.

Rows are sorted by class, so that the related scores of a query lie in one short range of columns and are known before
anything else; :class:`vicinal.metrics.counting.RankCounts` then counts unrelated columns block by block. If rows are
compared with themselves, a block of scores serves both its rows and its columns, so half of the blocks is enough.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.core import check_choice, check_integer, check_matrices
from vicinal.metrics.counting import RankCounts, padded
from vicinal.metrics.formulas import value_of
from vicinal.metrics.naming import DEFAULT, Named, named
from vicinal.similarity import Cosine, Dot, resolve_similarity

_HELD = 1 << 22
"""Related scores held at a time; queries beyond that are taken in stripes."""

_PREPARED_ROWS = 4096
"""Rows checked and scaled at a time."""

_RELATED_ROWS = 256
"""Queries whose related scores are computed at a time."""

Scores = Callable[[Tensor, Tensor], Tensor]


class _Side(NamedTuple):
    """Rows sorted by class: ``rows [n, d]``, their classes ``[n]`` and where each came from ``[n]``."""

    rows: Tensor
    classes: Tensor
    origin: Tensor


class Task(NamedTuple):
    """What is compared with what.

    The related columns of a query are ``bank[begin : end]``, ``found`` of them: itself is not one if ``same``.
    """

    queries: _Side
    bank: _Side
    begin: Tensor
    end: Tensor
    found: Tensor
    same: bool
    score: Scores


@torch.no_grad()
def embedding_metrics(
    embeddings: Tensor,
    labels: Tensor,
    bank: Tensor | None = None,
    bank_labels: Tensor | None = None,
    *,
    metrics: Sequence[str] = DEFAULT,
    similarity: str | nn.Module = "cosine",
    ties: str = "worst",
    empty: float = math.nan,
    block: int = 1024,
) -> dict[str, Tensor]:
    """Retrieval metrics of each row of ``embeddings``, exact, without the matrix of all scores.

    Two rows are related if their labels are equal. Without a ``bank`` each row is compared with all other rows. Memory:
    a few blocks of scores and up to 4 million related scores; time: one pass over the scores (half of them without a
    bank). "map", "ndcg" and, less so, "mrr" read every unrelated row that comes before the farthest (the first) related
    one, so they cost more where classes overlap.

    Args:
        embeddings: ``[n, d]``, floating and finite; half precision is computed in float32.
        labels: integers ``[n]``.
        bank: ``[N, d]`` or None.
        bank_labels: integers ``[N]``, with a bank.
        metrics: names, see :func:`vicinal.metrics.naming.named`.
        similarity: name or module; without a bank it must be symmetric, as all similarities of vicinal are.
        ties: "worst" or "best", see :func:`vicinal.ranks.rank_order`.
        empty: value of a row without related rows.
        block: rows and columns of a block of scores.

    Returns:
        name -> ``[n]``, one value a row, NaN (or ``empty``) for a row without related rows.

    Raises:
        TypeError, ValueError: naming the argument.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [1.0, 0.2]])
    >>> embedding_metrics(x, torch.tensor([0, 0, 1, 1]), metrics=["precision@1"])["precision@1"]
    tensor([1., 0., 1., 0.], dtype=torch.float64)
    """
    wanted = named(metrics)
    check_choice("ties", ties, ("worst", "best"))
    task = retrieval_task(embeddings, labels, bank, bank_labels, similarity)
    step = check_integer("block", block)
    width = int(task.found.max()) if len(task.found) else 0
    stripe = max(step, _HELD // max(1, width) // step * step)
    result: dict[str, list[Tensor]] = {one.name: [] for one in wanted}
    for start in range(0, len(task.found), stripe):
        stop = min(start + stripe, len(task.found))
        counts = _counts(task, start, stop, wanted, worst=ties == "worst")
        _stream(task, counts, start, stop, step)
        for ranks in counts.ranks():
            count = task.found[start : start + len(ranks)]
            start += len(ranks)
            for one in wanted:
                result[one.name].append(value_of(one.formula, ranks, count, k=one.k, empty=empty))
    place = torch.empty_like(task.queries.origin)
    place[task.queries.origin] = torch.arange(len(place), device=place.device)
    return {name: torch.cat(values)[place] if values else torch.zeros(0) for name, values in result.items()}


def _checked_labels(name: str, labels: Tensor | None, rows: Tensor) -> Tensor:
    if not isinstance(labels, Tensor):
        raise TypeError(f"{name}: expected a tensor of integers, got {type(labels).__name__}")
    if labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"{name}: expected integers (classes), got {labels.dtype}; number them with torch.unique")
    if labels.shape != rows.shape[:1]:
        raise ValueError(f"{name}: expected [{rows.shape[0]}], one class for each row, got {tuple(labels.shape)}")
    return labels.to(rows.device)


def _sorted(name: str, rows: Tensor, classes: Tensor, *, unit: bool) -> _Side:
    """A sorted copy of ``rows``, in float32 or float64 and, if ``unit``, with rows of length 1."""
    ordered = classes.sort(stable=True)
    kept = rows.detach()[ordered.indices]
    kept = kept if kept.dtype in (torch.float32, torch.float64) else kept.float()
    for start in range(0, len(kept), _PREPARED_ROWS):
        part = kept[start : start + _PREPARED_ROWS]
        bad = (~part.isfinite().all(dim=1)).nonzero()
        if len(bad):
            row = int(ordered.indices[start + int(bad[0])])
            raise ValueError(f"{name}: expected finite numbers, got NaN or inf in row {row}")
        if unit:
            part.copy_(functional.normalize(part, dim=1))
    return _Side(kept, ordered.values, ordered.indices)


class _Products:
    """Inner products of two blocks of rows, written over those of the call before: no block is allocated twice."""

    def __init__(self) -> None:
        self.held = torch.empty(0)

    def __call__(self, rows: Tensor, columns: Tensor) -> Tensor:
        size = len(rows) * len(columns)
        if self.held.numel() < size or self.held.dtype != rows.dtype or self.held.device != rows.device:
            self.held = rows.new_empty(size)
        out = self.held[:size].view(len(rows), len(columns))
        return torch.mm(rows, columns.T, out=out)


def retrieval_task(
    embeddings: Tensor, labels: Tensor, bank: Tensor | None, bank_labels: Tensor | None, similarity: str | nn.Module
) -> Task:
    """Check the inputs and sort both sides by class."""
    check_matrices(embeddings, embeddings if bank is None else bank)
    module = resolve_similarity(similarity)
    unit = isinstance(module, Cosine)
    plain = unit or (isinstance(module, Dot) and not module.scaled)
    score: Scores = _Products() if plain else module
    classes = _checked_labels("labels", labels, embeddings)
    if bank is None:
        if bank_labels is not None:
            raise ValueError("bank_labels: expected None without a bank, got a tensor; give bank= too")
        number, classes = torch.unique(classes, return_inverse=True)
        queries = others = _sorted("embeddings", embeddings, classes, unit=unit)
    else:
        other = _checked_labels("bank_labels", bank_labels, bank)
        number, both = torch.unique(torch.cat([classes, other]), return_inverse=True)
        queries = _sorted("embeddings", embeddings, both[: len(classes)], unit=unit)
        dtype = torch.promote_types(embeddings.dtype, bank.dtype)
        others = _sorted("bank", bank.to(dtype), both[len(classes) :], unit=unit)
        queries = queries._replace(rows=queries.rows.to(others.rows.dtype))
    sizes = others.classes.bincount(minlength=len(number))
    ends = sizes.cumsum(0)
    mine = queries.classes
    count = sizes[mine] - (1 if bank is None else 0)
    return Task(queries, others, (ends - sizes)[mine], ends[mine], count, bank is None, score)


def related_blocks(task: Task, start: int, stop: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """First query, scores and which of them are related, for a few queries of ``start : stop`` at a time."""
    for low in range(start, stop, _RELATED_ROWS):
        high = min(low + _RELATED_ROWS, stop)
        first, last = int(task.begin[low]), int(task.end[high - 1])
        if first >= last:
            continue
        scores = task.score(task.queries.rows[low:high], task.bank.rows[first:last])
        related = task.queries.classes[low:high, None] == task.bank.classes[first:last]
        if task.same:
            rows = torch.arange(low, high, device=scores.device)
            related &= rows[:, None] != torch.arange(first, last, device=scores.device)
        yield low, scores, related


def _related(task: Task, start: int, stop: int) -> Tensor:
    """Scores of the related columns of the queries ``start : stop``, falling, padded with -inf: ``[s, R]``."""
    width = padded(int(task.found[start:stop].max()))
    result = task.queries.rows.new_full((stop - start, width), -torch.inf)
    for low, scores, related in related_blocks(task, start, stop):
        longest = int(related.sum(dim=1).max())
        kept = torch.where(related, scores, -torch.inf).topk(longest, dim=1).values
        result[low - start : low - start + len(kept), :longest] = kept
    return result


def _counts(task: Task, start: int, stop: int, wanted: Sequence[Named], *, worst: bool) -> RankCounts:
    count = task.found[start:stop]
    reach = torch.zeros(stop - start, dtype=task.queries.rows.dtype, device=count.device)
    for one in wanted:
        limit = one.reach()
        reach = torch.maximum(reach, count.to(reach.dtype) if limit is None else torch.full_like(reach, limit))
    first = any(one.first() for one in wanted)
    return RankCounts(_related(task, start, stop), count, reach, first=first, worst=worst)


def _stream(task: Task, counts: RankCounts, start: int, stop: int, step: int) -> None:
    """Count all columns of the bank for the queries ``start : stop``."""
    queries, bank, total = task.queries, task.bank, len(task.bank.rows)
    both_ways = task.same and start == 0 and stop == total
    for low in range(start, stop, step):
        high = min(low + step, stop)
        for left in range(low if both_ways else 0, total, step):
            right = min(left + step, total)
            scores = task.score(queries.rows[low:high], bank.rows[left:right])
            mine, theirs = queries.classes[low:high], bank.classes[left:right]
            counts.add(low - start, mine, scores, theirs)
            if both_ways and left > low:
                counts.add(left, theirs, scores, mine, by_column=True)
