"""Measures of retrieval over a large bank, a block of queries at a time, from counted ranks."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from vicinal.blockwise import policy
from vicinal.core import check_choice
from vicinal.core.checks import check_integer, check_matrices
from vicinal.metrics.retrieval import DEFAULT, Named, named, value_of
from vicinal.ranks.hard import wide
from vicinal.similarity import Cosine, Dot
from vicinal.similarity.base import resolve_similarity

_CROWDED = 2
"""If more than one in so many groups of pairs passes, thresholds are raised by the block's own scores first."""

_SAMPLED = 4
"""One in so many columns is looked at to guess a threshold."""

_WORDS = 1 << 12
"""Groups of eight pairs that are opened at a time."""

_ROWS = 1024
"""Queries whose ranks are formed at a time."""


def padded(width: int) -> int:
    """The least number of columns, one less than a power of two, that holds ``width``: bisection needs it.

    >>> padded(5), padded(7), padded(0)
    (7, 7, 0)
    """
    return (1 << width.bit_length()) - 1


class RankCounts:
    """Counts of unrelated columns before each related one, for a range of query rows.

    Args:
        related: ``[s, R]``, scores of the related columns of each query, falling, padded with -inf; see :func:`padded`.
        count: int64 ``[s]``, how many are not padding.
        reach: float ``[s]``, rank beyond which nothing matters (inf: all ranks matter).
        first: the first related column matters at any rank (for the reciprocal rank).
        worst: an unrelated column with the score of a related one comes before it (else after it).
    """

    def __init__(self, related: Tensor, count: Tensor, reach: Tensor, *, first: bool, worst: bool) -> None:
        rows, width = related.shape
        if (width + 1) & width:
            raise ValueError(f"related: expected a width of one less than a power of two, got {width}")
        self.related, self.count, self.reach, self.first, self.worst = related, count, reach, first, worst
        self.histogram = torch.zeros(rows, width + 1, dtype=torch.int32, device=related.device)
        self.threshold = torch.empty(rows, dtype=related.dtype, device=related.device)
        self._places = torch.arange(1, width + 1, device=related.device)
        self._mask = torch.zeros(0, dtype=torch.bool, device=related.device)
        for start in range(0, rows, _ROWS):
            self._raise(start, min(start + _ROWS, rows))

    def add(self, start: int, labels: Tensor, scores: Tensor, columns: Tensor, *, by_column: bool = False) -> None:
        """Count a block.

        Args:
            start: number of the first query of the block.
            labels: ``[b]``, classes of the block's queries.
            scores: ``[b, c]``, or ``[c, b]`` if ``by_column``: a block that is read both ways is computed once.
            columns: ``[c]``, rising, classes of the block's columns; those of the query's own class are passed over.
            by_column: queries are the columns of ``scores``.
        """
        block = _Block(start, start + len(labels), labels, columns, scores, by_column)
        words, groups = self._passing(block)
        if len(words) * _CROWDED > len(scores) * groups and self._lift(block):
            words, groups = self._passing(block)
        for part in torch.split(words, _WORDS):
            self._open(part, groups, block)
        if len(words) * 8 > len(labels):  # fewer would hardly move a threshold
            self._raise(block.start, block.stop)

    def ranks(self) -> Iterator[Tensor]:
        """``[<= 1024, R]`` at a time, rising, inf at the padding and where the rank is out of reach."""
        for start in range(0, len(self.count), _ROWS):
            stop = start + _ROWS
            places = self._places + self.histogram[start:stop, :-1].cumsum(dim=1)  # [s, R]
            counted = self._within(places, self.count[start:stop], self.reach[start:stop])
            yield torch.where(counted, places.to(wide(places.device)), torch.inf)

    def _within(self, places: Tensor, count: Tensor, reach: Tensor) -> Tensor:
        """Which related columns still matter: a run from the first on, as places rise."""
        counted = places <= reach[:, None]
        if self.first:
            counted[:, :1] = True
        return counted & (self._places <= count[:, None])

    def _raise(self, start: int, stop: int) -> None:
        """Thresholds of rows: the lowest related score that still matters, or inf if none does."""
        if self.related.shape[1] == 0:
            self.threshold[start:stop] = torch.inf
            return
        before = self.histogram[start:stop, :-1].cumsum(dim=1)
        counted = self._within(self._places + before, self.count[start:stop], self.reach[start:stop]).sum(dim=1)
        lowest = self.related[start:stop].gather(1, (counted - 1).clamp(min=0)[:, None])[:, 0]
        self.threshold[start:stop] = torch.where(counted > 0, lowest, torch.inf)

    def _passing(self, block: "_Block") -> tuple[Tensor, int]:
        """Groups of eight neighboring pairs of which one reaches its threshold, ``[p, 2]``, and groups in a row.

        Eight booleans are read as one integer, so that finding them reads an eighth of the entries.
        """
        rows, width = block.scores.shape
        groups = (width + 7) // 8
        if self._mask.shape != (rows, 8 * groups):
            self._mask = torch.zeros(rows, 8 * groups, dtype=torch.bool, device=block.scores.device)
        self._mask[:, width:] = False
        threshold = self.threshold[block.start : block.stop]
        limit = threshold if block.by_column else threshold[:, None]
        torch.ge(block.scores, limit, out=self._mask[:, :width])
        return self._mask.view(torch.int64).nonzero(), groups

    def _open(self, words: Tensor, groups: int, block: "_Block") -> None:
        """Count the pairs within ``words`` that pass and are unrelated."""
        at, bit = self._mask.view(-1, groups, 8)[words[:, 0], words[:, 1]].nonzero(as_tuple=True)
        i, j = words[at, 0], words[at, 1] * 8 + bit
        score = block.scores[i, j]
        row, column = (j, i) if block.by_column else (i, j)
        unrelated = block.labels[row] != block.columns[column]
        row, score = row[unrelated] + block.start, score[unrelated]
        flat = row * self.histogram.shape[1] + self._bucket(row, score)
        self.histogram.view(-1).index_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))

    def _bucket(self, row: Tensor, score: Tensor) -> Tensor:
        """How many related columns of each row come before a column of that ``score``: bisection, ``[p]``."""
        flat, start = self.related.view(-1), row * self.related.shape[1]
        place, step = start.clone(), (self.related.shape[1] + 1) // 2
        while step:  # the width is one less than a power of two, so no step leaves the row
            other = flat[place + (step - 1)]
            place.add_((other > score) if self.worst else (other >= score), alpha=step)
            step //= 2
        return place - start

    def _lift(self, block: "_Block") -> bool:
        """Raise thresholds by the block's own scores: what has enough columns before it is out of reach.

        A guess from a sample of the columns; it is used for the rows where a count over all confirms it. Columns
        of the query's own class may be counted with the others: those before the m-th related one are among its m.
        """
        scores = block.scores.T if block.by_column else block.scores  # [b, c]
        needed = self.reach[block.start : block.stop] + 1  # the query itself may be one of them
        highest, width = float(needed.max()), scores.shape[1]
        sample = scores[:, ::_SAMPLED]
        place = int(min(1.3 * highest, width) / _SAMPLED + 4)
        if self.first or highest > width // 4 or place > sample.shape[1]:
            return False
        guess = sample.topk(place, dim=1).values[:, -1]
        enough = (scores >= guess[:, None]).sum(dim=1) >= needed
        limits = self.threshold[block.start : block.stop]
        limits.copy_(torch.where(enough, torch.maximum(limits, guess), limits))
        return True


class _Block(NamedTuple):
    """What :meth:`RankCounts.add` was given."""

    start: int
    stop: int
    labels: Tensor
    columns: Tensor
    scores: Tensor
    by_column: bool


_PREPARED_ROWS = 4096
"""Rows checked and scaled at a time."""


Scores = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class _Side:
    """Rows sorted by class: ``rows [n, d]``, their classes ``[n]`` and where each came from ``[n]``."""

    rows: Tensor
    classes: Tensor
    origin: Tensor


class Task(NamedTuple):
    """What is compared with what.

    The related columns of a query are ``bank[begin : end]``, ``number`` of them: itself is not one if ``same``.
    """

    queries: _Side
    bank: _Side
    begin: Tensor
    end: Tensor
    number: Tensor
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
    bank). "map", "ndcg" and, less so, "mrr" read every unrelated row ahead of the last (for "mrr" the first) related
    one, so they cost more where classes overlap.

    Args:
        embeddings: ``[n, d]``, floating and finite; half precision is computed in float32.
        labels: integers ``[n]``.
        bank: ``[N, d]`` or None.
        bank_labels: integers ``[N]``, with a bank.
        metrics: names, see :func:`vicinal.metrics.retrieval.named`.
        similarity: name or module; without a bank it must be symmetric, as all similarities of vicinal are.
        ties: "worst" or "best", see :func:`vicinal.ranks.hard.rank_order`.
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
    measures = named(metrics)
    check_choice("ties", ties, ("worst", "best"))
    task = retrieval_task(embeddings, labels, bank, bank_labels, similarity)
    step = check_integer("block", block)
    width = int(task.number.max()) if len(task.number) else 0
    stripe = max(step, policy().memory_entries // max(1, width) // step * step)
    result: dict[str, list[Tensor]] = {one.name: [] for one in measures}
    for start in range(0, len(task.number), stripe):
        stop = min(start + stripe, len(task.number))
        counts = _counts(task, start, stop, measures, worst=ties == "worst")
        _stream(task, counts, start, stop, step)
        for ranks in counts.ranks():
            count = task.number[start : start + len(ranks)]
            start += len(ranks)
            for one in measures:
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
    finite = rows.detach()[ordered.indices]
    finite = finite if finite.dtype in (torch.float32, torch.float64) else finite.float()
    for start in range(0, len(finite), _PREPARED_ROWS):
        part = finite[start : start + _PREPARED_ROWS]
        bad = (~part.isfinite().all(dim=1)).nonzero()
        if len(bad):
            row = int(ordered.indices[start + int(bad[0])])
            raise ValueError(f"{name}: expected finite numbers, got NaN or inf in row {row}")
        if unit:
            part.copy_(functional.normalize(part, dim=1))
    return _Side(finite, ordered.values, ordered.indices)


class _Products:
    """Inner products of two blocks of rows, written over those of the call before: no block is allocated twice."""

    def __init__(self) -> None:
        self.buffer = torch.empty(0)

    def __call__(self, rows: Tensor, columns: Tensor) -> Tensor:
        size = len(rows) * len(columns)
        if self.buffer.numel() < size or self.buffer.dtype != rows.dtype or self.buffer.device != rows.device:
            self.buffer = rows.new_empty(size)
        out = self.buffer[:size].view(len(rows), len(columns))
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
        queries = replace(queries, rows=queries.rows.to(others.rows.dtype))
    sizes = others.classes.bincount(minlength=len(number))
    ends = sizes.cumsum(0)
    mine = queries.classes
    count = sizes[mine] - (1 if bank is None else 0)
    return Task(queries, others, (ends - sizes)[mine], ends[mine], count, bank is None, score)


def related_blocks(task: Task, start: int, stop: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """First query, scores and which of them are related, for a few queries of ``start : stop`` at a time."""
    step = policy().query_rows
    for low in range(start, stop, step):
        high = min(low + step, stop)
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
    width = padded(int(task.number[start:stop].max()))
    result = task.queries.rows.new_full((stop - start, width), -torch.inf)
    for low, scores, related in related_blocks(task, start, stop):
        longest = int(related.sum(dim=1).max())
        highest = torch.where(related, scores, -torch.inf).topk(longest, dim=1).values
        result[low - start : low - start + len(highest), :longest] = highest
    return result


def _counts(task: Task, start: int, stop: int, measures: Sequence[Named], *, worst: bool) -> RankCounts:
    count = task.number[start:stop]
    reach = torch.zeros(stop - start, dtype=task.queries.rows.dtype, device=count.device)
    for one in measures:
        limit = one.reach()
        reach = torch.maximum(reach, count.to(reach.dtype) if limit is None else torch.full_like(reach, limit))
    first = any(one.first() for one in measures)
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
