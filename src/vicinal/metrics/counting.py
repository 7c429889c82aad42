r"""Ranks of related columns by counting, without a sort and without holding a row of scores.

The rank of the $m$-th related column of a query, of score $q_m$, is $m$ plus the number of unrelated columns that come
before it. Related scores are few and known at the start; what is counted are unrelated columns, block by block. A
column matters only if it scores at least the lowest $q_m$ that can still be within reach, and that threshold rises
while columns are counted: soon only a few columns of a block pass one comparison.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.ranks.hard import wide

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
            kept = self._within(places, self.count[start:stop], self.reach[start:stop])
            yield torch.where(kept, places.to(wide(places.device)), torch.inf)

    def _within(self, places: Tensor, count: Tensor, reach: Tensor) -> Tensor:
        """Which related columns still matter: a run from the first on, as places rise."""
        kept = places <= reach[:, None]
        if self.first:
            kept[:, :1] = True
        return kept & (self._places <= count[:, None])

    def _raise(self, start: int, stop: int) -> None:
        """Thresholds of rows: the lowest related score that still matters, or inf if none does."""
        if self.related.shape[1] == 0:
            self.threshold[start:stop] = torch.inf
            return
        before = self.histogram[start:stop, :-1].cumsum(dim=1)
        kept = self._within(self._places + before, self.count[start:stop], self.reach[start:stop]).sum(dim=1)
        lowest = self.related[start:stop].gather(1, (kept - 1).clamp(min=0)[:, None])[:, 0]
        self.threshold[start:stop] = torch.where(kept > 0, lowest, torch.inf)

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
        held = self.threshold[block.start : block.stop]
        held.copy_(torch.where(enough, torch.maximum(held, guess), held))
        return True


class _Block(NamedTuple):
    """What :meth:`RankCounts.add` was given."""

    start: int
    stop: int
    labels: Tensor
    columns: Tensor
    scores: Tensor
    by_column: bool
