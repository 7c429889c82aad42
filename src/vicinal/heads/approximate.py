r"""The NONA head over the rows that an index finds, with a bound on what the rows that it left out would change.

What is known of the n rows that were not fetched: they score at most as high as the last one that was. The
unit scores of SoftStep need the lowest score over all rows, which is only known to lie between two numbers. Both S1 and
S2 rise with the unit score, which falls as the lowest score rises, so every masked score $\ell_j$ lies between
$\ell_j^-$ and $\ell_j^+$, computed at either end. From these follow lower bounds $p_j^-$ of the true weights:

- softmax: $p_j^- = e^{\ell_j^-} / (\sum_k e^{\ell_k^+} + n e^{\ell_n^+})$;
- sparsemax, 1.5-entmax: with the threshold $\tau^+$ of all $\ell^+$ (that of the rest counted n times), $p_j^- =
  (\ell_j^- - \tau^+)_+$ and $(\ell_j^-/2 - \tau^+)_+^2$, since thresholds rise with every score.

The weights that are used, $\hat p$, come from scores between the two, over the fetched rows alone, so $\hat p_j \ge
p_j^-$, and half the sum of $|\hat p_j - p_j|$ over the whole bank is at most $\sum_j (\hat p_j - p_j^-) = 1 - \sum_j
p_j^-$. Where the lowest score is known, $\hat p$ are the true weights divided by their sum, and the bound is a bound on
the weight that was left out.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from vicinal.blockwise.attention import tied
from vicinal.blockwise.blocks import policy
from vicinal.blockwise.resolution import Resolution
from vicinal.blockwise.thresholds import Simplex, find_threshold, simplex_weights
from vicinal.core.checks import check_between, check_integer
from vicinal.heads.bank_ball import BankBall, Ends, check_bounded
from vicinal.heads.nona import NONA
from vicinal.heads.streaming import can_stream, simplex_name
from vicinal.index import Index, NeighborBank
from vicinal.index.pairs import pair_score
from vicinal.masks import SoftStep, TopK, unit_scores
from vicinal.masks.unit import RowRange
from vicinal.similarity.base import resolution_of

MOST = 4096
"""Rows that are fetched for a query at most; beyond, reading the whole bank is faster."""


class Approximation(NamedTuple):
    """Predictions from fetched rows.

    Attributes:
        prediction: ``[b]``, or ``[b, K]`` for classes; float64.
        left_out: ``[b]``, from 0 to 1: a bound on how much weight is misplaced, that is, on half the sum of the
            absolute differences between these weights and those over the whole bank.
        error: ``[b]``, a bound on how far the prediction is from that over the whole bank: ``left_out`` times the range
            of the bank's labels (for classes, a bound for each probability).
        fetched: ``[b]`` int64, how many rows were fetched and weighed; the whole bank where that was needed.
        weights: ``[b, top]``, the highest weights, descending; 0 where there are fewer rows.
        positions: ``[b, top]`` int64, the positions of these rows in the bank; -1 where the weight is 0.
    """

    prediction: Tensor
    left_out: Tensor
    error: Tensor
    fetched: Tensor
    weights: Tensor
    positions: Tensor


class UnfetchedRows(NamedTuple):
    """Rows that were not fetched: ``counts [r, 1]`` of them score at most ``scores [r, 1]``."""

    scores: Tensor
    counts: Tensor


class Spread(NamedTuple):
    """Masked scores, relative to the best score of each query, between ``low`` and ``high``: ``[r, k]``."""

    low: Tensor
    high: Tensor


class BoundedWeights(NamedTuple):
    """Weights ``[r, k]`` of the fetched rows, summing to 1, and the bound ``[r]`` on what is wrong with them."""

    weights: Tensor
    left_out: Tensor


class ApproximateNONA:
    r"""Exact attention on the k rows that an index finds, k doubled until the rest provably matters little enough.

    A row that was not fetched scores at most as high as the last one that was, s. This bounds the weight outside, for

    - softmax: by the mass $n e^{s - \max_j s_j}$ of the n other rows, divided by itself plus the fetched mass;
    - top-k: it is 0 once k + 1 rows were fetched and the last of them scores less than the k-th;
    - sparsemax and 1.5-entmax: it is 0 once the last row fetched is below the threshold;
    - S1: it is 0 once the last row fetched is below the point of rejection;
    - SoftStep in general needs the lowest score of the whole bank, which is only known to lie between two numbers (from
      a ball around all rows, and from far rows that are kept: :mod:`vicinal.heads.bank_ball`). Weights are taken
      between those of the two ends, and the bound includes that error.

    Where ``tolerance`` is not met by 4,096 rows or a quarter of the bank, the whole bank is read instead: the
    prediction is then that of the head, with bound 0. The same holds for every prediction with ``extent="all"`` and ids
    or groups.

    **The bound is proved for an exact index** (:class:`vicinal.index.ExactIndex`), for a bank whose changes are
    reported by :meth:`added` and :meth:`removed`, up to rounding in float64. For an approximate index (FAISS, Milvus)
    it assumes that the index returned the best rows; a row that it missed may weigh more. Measure the recall of such an
    index.

    Args:
        head: similarity l1, l2, squared_l2, cosine, dot or scaled_dot; a mask and a simplex map of this library.
        index: holds the rows of the bank under their keys.
        bank: with labels: numbers ``[N]``, or class indices ``[N]``, or 0 and 1 for each class ``[N, K]``.
        classes: number of classes K, if labels are classes; predictions are then their shares.
        tolerance: the largest ``left_out`` that is accepted, from 0 to 1.
        first: rows that are fetched at first, for each query.

    Attributes:
        proven: whether ``left_out`` is proved, which takes an index that misses nothing.

    Raises:
        ValueError: for another similarity, mask or simplex map, or a bank without labels.

    >>> from vicinal.index import ExactIndex
    >>> bank = NeighborBank(1)
    >>> bank.add(range(1000), torch.arange(1000.0)[:, None], torch.arange(1000.0))
    >>> near = ApproximateNONA(NONA(), ExactIndex(1, bank=bank), bank, tolerance=1e-6)
    >>> answer = near.predict(torch.tensor([[5.25]], dtype=torch.float64))
    >>> answer.fetched.tolist(), bool(answer.left_out < 1e-6), round(float(answer.prediction), 3)
    ([64], True, 5.246)
    """

    def __init__(
        self,
        head: NONA,
        index: Index,
        bank: NeighborBank,
        *,
        classes: int | None = None,
        tolerance: float = 1e-3,
        first: int = 64,
    ) -> None:
        simplex = simplex_name(head.simplex)
        if simplex is None or not can_stream(head.mask, head.simplex):
            raise ValueError(
                "head: expected a mask and a simplex map of this library, whose weights can be bounded, got "
                f"{type(head.mask).__name__} and {head.simplex!r}"
            )
        if bank.labels is None:
            raise ValueError("bank: expected one with labels, got one without")
        self.head, self.index, self.bank, self.simplex, self.classes = head, index, bank, simplex, classes
        self.tolerance = check_between("tolerance", tolerance, 0, 1, closed=True)
        self.first = check_integer("first", first)
        check_bounded(head.similarity)
        self._ball: BankBall | None = None
        self.proven = bool(index.exact)

    @property
    def ball(self) -> BankBall:
        """The ball of the bank's rows, found at the first prediction: to open a model reads no vectors."""
        if self._ball is None:
            self._ball = BankBall(self.bank, self.head.similarity)
        return self._ball

    def added(self, keys: Tensor) -> None:
        """Update for rows that were added to the bank and to the index."""
        if self._ball is not None:
            self._ball.add(keys, self.bank.vectors_at(self.bank.positions_of_keys(keys)))

    def removed(self, keys: Tensor) -> None:
        """Update for rows that were removed from the bank and from the index."""
        if self._ball is not None:
            self._ball.remove(keys)

    @torch.no_grad()
    def predict(self, queries: Tensor, *, ids: Any = None, groups: Any = None, top: int = 0) -> Approximation:
        """Predictions, with bounds on their errors.

        Args:
            queries: ``[b, d]``, finite.
            ids: ``[b]``, ids of the queries, as in the bank: a query never sees the row with its own id. None: all
                rows.
            groups: ``[b]``, likewise: nor a row of its own group.
            top: how many of the highest weights to return as well.

        Raises:
            ValueError: if a query has no admissible row.
        """
        check_integer("top", top, 0)
        answer = _Answer(len(queries), self.classes, top)
        hidden = None if ids is None and groups is None else self.bank.hidden_keys(ids, groups)
        left = torch.arange(len(queries))
        for k in self._sizes(hidden):
            for part in torch.split(left, max(1, policy().memory_entries // (k * self.bank.dim))):
                self._attend(queries, part, None if hidden is None else hidden[part], k, answer)
            left = left[answer.left_out[left] > self.tolerance]
            if len(left) == 0:
                break
        if len(left):
            self._read_all(queries, left, ids, groups, answer)
        return answer.approximation(self._span())

    def _sizes(self, hidden: Tensor | None) -> Iterator[int]:
        """How many rows to fetch, time after time."""
        mask = self.head.mask
        if hidden is not None and isinstance(mask, SoftStep) and mask.extent == "all":
            return
        k = max(self.first, mask.k + 1 if isinstance(mask, TopK) else 1)
        more = 0 if hidden is None else hidden.shape[1]  # the index is asked for these, too
        while k <= min(MOST, max(self.first, len(self.bank) // 4)) and k + more <= 4 * MOST:
            yield k
            k *= 2

    def _attend(self, queries: Tensor, part: Tensor, hidden: Tensor | None, k: int, answer: "_Answer") -> None:
        """Fetch ``k`` rows for each of the queries ``part`` and weigh them."""
        rows = queries[part]
        searched = rows.float()
        neighbors = self.index.search(searched, k, exclude=hidden)
        positions = self.bank.positions_of_keys(neighbors.ids)
        there = positions >= 0
        some = there.any(dim=1)
        if not bool(some.all()):  # left to the reading of all rows, which says what is wrong
            part, rows, searched, neighbors, positions, there = (
                part[some], rows[some], searched[some], type(neighbors)(*(value[some] for value in neighbors)),
                positions[some], there[some],
            )  # fmt: skip
            hidden = None if hidden is None else hidden[some]
            if len(part) == 0:
                return
        wide = rows.double()
        scores = self._scores(wide, positions, there)
        complete = ~there[:, -1] if self.proven else torch.zeros(len(part), dtype=torch.bool)
        lowest = torch.where(there, scores, torch.inf).amin(dim=1)
        last = neighbors.scores[:, -1] if self.proven else lowest
        last = self.ball.reached(last, wide, searched) if self.proven else last
        ends = self._ends(wide, hidden, lowest, complete)
        beyond = self._beyond(last, there, hidden, complete)
        eps = torch.finfo(torch.promote_types(queries.dtype, torch.float32)).eps  # the head computes in that dtype
        longest = torch.tensor(self.ball.longest, dtype=wide.dtype)
        resolution = resolution_of(self.head.similarity, wide, longest).at(eps)
        weighed = weigh_fetched(self.head.mask, self.simplex, wide, scores, beyond, ends, resolution)
        labels = self.bank.labels_at(positions[there])
        answer.put(part, weighed.weights, weighed.left_out, positions, there, labels)

    def _scores(self, queries: Tensor, positions: Tensor, there: Tensor) -> Tensor:
        """Scores ``[r, k]`` in float64 of the fetched rows, -inf where there is none."""
        score = pair_score(self.head.similarity)
        if score is None:
            raise ValueError(f"similarity: expected one of this library, got {self.head.similarity!r}")
        rows, _ = there.nonzero(as_tuple=True)
        scores = torch.full(positions.shape, -torch.inf, dtype=torch.float64)
        scores[there] = score(queries[rows], self.bank.vectors_at(positions[there]).double())
        return scores

    def _ends(self, queries: Tensor, hidden: Tensor | None, lowest: Tensor, complete: Tensor) -> Ends | None:
        if not isinstance(self.head.mask, SoftStep):
            return None
        ends = self.ball.ends(queries, hidden, lowest)
        return Ends(torch.where(complete, lowest, ends.low), torch.where(complete, lowest, ends.high))

    def _beyond(self, last: Tensor, there: Tensor, hidden: Tensor | None, complete: Tensor) -> UnfetchedRows:
        """What is known of the rows that were not fetched."""
        others = len(self.bank) - there.sum(dim=1) - (0 if hidden is None else _distinct(hidden))
        return UnfetchedRows(last[:, None], torch.where(complete, 0, others.clamp(min=0))[:, None])

    def _read_all(self, queries: Tensor, left: Tensor, ids: Any, groups: Any, answer: "_Answer") -> None:
        """What the head gives for the queries ``left``."""
        bank, rows = self.bank, queries[left]
        identity: dict[str, Tensor] = {}
        if ids is not None:
            places = bank.positions([ids[i] for i in left.tolist()])
            identity |= {"query_ids": places, "bank_ids": torch.arange(len(bank))}
        codes = bank.group_codes
        if groups is not None and codes is not None:
            places = bank.codes_of_groups([groups[i] for i in left.tolist()])
            identity |= {"query_groups": places, "bank_groups": codes}
        labels = bank.labels
        if labels is None:
            return
        if self.classes is not None and labels.ndim == 1:
            labels = one_hot(labels.long(), self.classes).double()
        vectors = bank.vectors
        answer.prediction[left] = self.head(rows, vectors, labels, **identity).double()
        answer.left_out[left], answer.fetched[left] = 0.0, len(bank)
        if answer.top:
            best = self.head.top_weights(rows, vectors, answer.top, **identity)
            width = best[0].shape[1]
            answer.weights[left], answer.positions[left] = 0.0, -1
            answer.weights[left, :width], answer.positions[left, :width] = best[0].double(), best[1]

    def _span(self) -> float:
        labels = self.bank.labels
        if self.classes is not None or labels is None or len(labels) == 0:
            return 1.0
        return float(labels.max() - labels.min())


class _Answer:
    """An approximation that is being put together."""

    def __init__(self, rows: int, classes: int | None, top: int) -> None:
        self.classes, self.top = classes, top
        self.prediction = torch.zeros((rows,) if classes is None else (rows, classes), dtype=torch.float64)
        self.left_out = torch.ones(rows, dtype=torch.float64)
        self.fetched = torch.zeros(rows, dtype=torch.int64)
        self.weights = torch.zeros(rows, top, dtype=torch.float64)
        self.positions = torch.full((rows, top), -1)

    def put(
        self, part: Tensor, weights: Tensor, left_out: Tensor, positions: Tensor, there: Tensor, labels: Tensor
    ) -> None:
        """Weights ``[r, k]`` of the rows at ``positions`` for the queries ``part``; ``labels`` of those that are."""
        if labels.ndim == 2:
            each = weights[there].double()[:, None] * labels.double()
            shares = torch.zeros(len(part), labels.shape[1], dtype=torch.float64)
            self.prediction[part] = shares.index_add_(0, there.nonzero()[:, 0], each)
        else:
            self._put_numbers(part, weights, there, labels)
        self.left_out[part], self.fetched[part] = left_out, there.sum(dim=1)
        if self.top:
            most = weights.topk(min(self.top, weights.shape[1]), dim=1)
            width = most.values.shape[1]
            self.weights[part, :width] = most.values
            self.positions[part, :width] = positions.gather(1, most.indices).masked_fill_(most.values == 0, -1)

    def _put_numbers(self, part: Tensor, weights: Tensor, there: Tensor, labels: Tensor) -> None:
        """Predictions of numbers, or of a class each."""
        wide = torch.zeros(weights.shape, dtype=torch.float64)
        wide[there] = labels.double()
        if self.classes is None:
            self.prediction[part] = (weights * wide).sum(dim=1)
        else:
            shares = torch.zeros(len(part), self.classes, dtype=torch.float64)
            self.prediction[part] = shares.scatter_add_(1, wide.long(), weights.masked_fill(~there, 0.0))

    def approximation(self, span: float) -> Approximation:
        """The approximation, for labels of this range."""
        error = self.left_out * span
        return Approximation(self.prediction, self.left_out, error, self.fetched, self.weights, self.positions)


def _distinct(hidden: Tensor) -> Tensor:
    """How many different keys of at least 0 each row of ``hidden [b, m]`` has."""
    ranked = hidden.sort(dim=1).values
    fresh = ranked >= 0
    fresh[:, 1:] &= ranked[:, 1:] != ranked[:, :-1]
    return fresh.sum(dim=1)


def weigh_fetched(
    mask: nn.Module | None,
    simplex: Simplex,
    queries: Tensor,
    scores: Tensor,
    beyond: UnfetchedRows,
    ends: Ends | None,
    resolution: Resolution,
) -> BoundedWeights:
    """Weights of fetched rows, and the bound on what is wrong with them.

    Args:
        mask: SoftStep, TopK or None.
        simplex: name of the map.
        queries: ``[r, d]`` float64.
        scores: ``[r, k]`` float64, -inf where there is no row; each query has one.
        beyond: all other rows.
        ends: of the lowest score, for SoftStep.
        resolution: of the scores, as the head has it.
    """
    best = scores.amax(dim=1, keepdim=True)
    span, outside = _masked(mask, queries, scores, best, beyond, ends, resolution)
    chosen = span.high
    if isinstance(mask, SoftStep):
        chosen = torch.logaddexp(span.low, span.high) - math.log(2)
    weights = _map(simplex, chosen)
    total = _least(simplex, span, UnfetchedRows(outside, beyond.counts))
    return BoundedWeights(weights, (1 - total).clamp(0, 1))


def _masked(
    mask: nn.Module | None,
    queries: Tensor,
    scores: Tensor,
    best: Tensor,
    beyond: UnfetchedRows,
    ends: Ends | None,
    resolution: Resolution,
) -> tuple[Spread, Tensor]:
    """Masked relative scores of the fetched rows, and the highest that those beyond may have."""
    others = torch.where(beyond.counts > 0, beyond.scores, -torch.inf)
    top = best - tied(resolution.of(best))
    relative, outside = (torch.minimum(values, top) - top for values in (scores, others))
    if isinstance(mask, TopK):
        k = min(mask.k, scores.shape[1])
        kth = scores.topk(k, dim=1).values[:, -1:]
        passed = torch.maximum(kth, others.amax(dim=1, keepdim=True))
        last, surely_last = (score - resolution.of(score, best) for score in (kth, passed))
        likely = relative.masked_fill(scores < last, -torch.inf)
        surely = relative.masked_fill(scores < surely_last, -torch.inf)
        return Spread(surely, likely), outside.masked_fill(others < last, -torch.inf)
    if not isinstance(mask, SoftStep) or ends is None:
        return Spread(relative, relative), outside
    logs = []
    for values, above, end in (
        (scores, relative, ends.high),
        (scores, relative, ends.low),
        (others, outside, ends.low),
    ):
        unit = unit_scores(values, RowRange(end[:, None], best), resolution, inset=mask.form.inset)
        logs.append(above + mask.log_step(unit, mask.step_parameters(queries), torch.ones_like(unit[:, :1])))
    return Spread(logs[0], logs[1]), logs[2]


def _map(simplex: Simplex, scores: Tensor) -> Tensor:
    if simplex == "softmax":
        mass = scores.exp()
        return mass / mass.sum(dim=1, keepdim=True)
    weights = simplex_weights(simplex, scores.clone(), _threshold(simplex, scores, torch.ones_like(scores)))
    return weights / weights.sum(dim=1, keepdim=True)


def _least(simplex: Simplex, spread: Spread, beyond: UnfetchedRows) -> Tensor:
    """Sum ``[r]`` of the lower bounds of the weights."""
    if simplex == "softmax":
        outside = (beyond.counts * beyond.scores.exp()).sum(dim=1)
        return spread.low.exp().sum(dim=1) / (spread.high.exp().sum(dim=1) + outside)
    scores = torch.cat([spread.high, beyond.scores], dim=1)
    counts = torch.cat([torch.ones_like(spread.high), beyond.counts.to(spread.high).expand_as(beyond.scores)], dim=1)
    return simplex_weights(simplex, spread.low.clone(), _threshold(simplex, scores, counts)).sum(dim=1)


def _threshold(simplex: Simplex, scores: Tensor, counts: Tensor) -> Tensor:
    """Threshold ``[r, 1]`` of scores that occur ``counts`` times."""
    best = scores.amax(dim=1, keepdim=True)
    above = find_threshold(simplex, lambda: iter([(slice(None), scores - best)]), len(scores), scores, counts=counts)
    return above + (best if simplex == "sparsemax" else best / 2)
