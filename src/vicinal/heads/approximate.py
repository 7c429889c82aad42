"""The NONA head over the rows that an index finds, with a bound on what the rows that it left out would change."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from vicinal.core import check_between, check_integer
from vicinal.heads.approximate_cells import Cells, Ends
from vicinal.heads.approximate_masses import Beyond, weigh_fetched
from vicinal.heads.nona import NONA
from vicinal.heads.streaming import can_stream, simplex_name
from vicinal.index import Index, NeighborBank
from vicinal.index.pairs import pair_score
from vicinal.masks import SoftStep, TopK
from vicinal.similarity.base import resolution_of

_NUMBERS = 1 << 22
"""Numbers of fetched vectors that are held at a time."""

MOST = 4096
"""Rows that are fetched for a query at most; beyond, reading the whole bank is faster."""


class Approximation(NamedTuple):
    """Predictions from fetched rows.

    Attributes:
        prediction: ``[b]``, or ``[b, K]`` for classes; float64.
        left_out: ``[b]``, at most this share of the weight is on other rows than was reckoned with, from 0 to 1: half
            the sum of the absolute differences of the weights from those of the whole bank.
        error: ``[b]``, so far at most is the prediction from that over the whole bank: ``left_out`` times the range of
            the bank's labels (for classes, the chance of each).
        fetched: ``[b]`` int64, rows that were fetched and weighed; all of the bank where that was needed.
        weights: ``[b, top]``, the highest weights, falling; 0 where there are fewer rows.
        positions: ``[b, top]`` int64, where these rows stand in the bank; -1 where the weight is 0.
    """

    prediction: Tensor
    left_out: Tensor
    error: Tensor
    fetched: Tensor
    weights: Tensor
    positions: Tensor


class ApproximateNONA:
    r"""Exact attention on the k rows that an index finds, k doubled until the rest provably matters little enough.

    A row that was not fetched scores at most as the last one that was, and at most what its ball of rows (see
    :mod:`vicinal.heads.approximate_cells`) allows. By this the weight outside is bounded, for

    - softmax: by $\sum_g n_g e^{s_g - \max_j s_j}$ over that plus the fetched mass, where $n_g$ rows score at most
      $s_g$: all N at most as the last row fetched, or ball by ball;
    - top-k: it is 0 once k + 1 rows were fetched and the last of them scores less than the k-th;
    - sparsemax and 1.5-entmax: it is 0 once the last row fetched is below the threshold;
    - S1: it is 0 once the last row fetched is below the point of rejection;
    - SoftStep in general needs the lowest score of the whole bank, which is only known to lie between two numbers (from
      the balls, and from far rows that are kept). Weights are taken between those of either end, and the bound
      includes what this may be wrong by.

    Where ``tolerance`` is not met by 4,096 rows or a quarter of the bank, the whole bank is read instead: the
    prediction is then that of the head, with bound 0. So is every one for ``extent="all"`` with ids or groups.

    **The bound is proved for an exact index** (:class:`vicinal.index.ExactIndex`), for a bank whose changes are told by
    :meth:`added` and :meth:`removed`, up to the rounding of float64. For an approximate index (FAISS, Milvus) it
    supposes that the index returned the best rows; a row that it missed may weigh more. Measure its recall.

    Args:
        head: similarity l1, l2, squared_l2, cosine, dot or scaled_dot; a mask and a simplex map of this library.
        index: holds the rows of the bank under their keys.
        bank: with labels: numbers ``[N]``, or places of classes.
        classes: number of classes, if labels are places of classes; predictions are then their shares.
        tolerance: the most ``left_out`` that is accepted, from 0 to 1.
        first: rows that are fetched at first, for each query.
        cells: balls of a bank that was seen before, as :attr:`cells` holds them; None: found in a pass over the bank.

    Attributes:
        proven: whether ``left_out`` holds against the whole bank, as the index misses nothing.

    Raises:
        ValueError: for another similarity, mask or simplex map, or a bank without labels.

    >>> from vicinal.index import ExactIndex
    >>> bank = NeighborBank(1)
    >>> bank.add(range(1000), torch.arange(1000.0)[:, None], torch.arange(1000.0))
    >>> near = ApproximateNONA(NONA(), ExactIndex(1, bank=bank), bank, tolerance=1e-6)
    >>> found = near.predict(torch.tensor([[5.25]], dtype=torch.float64))
    >>> found.fetched.tolist(), bool(found.left_out < 1e-6), round(float(found.prediction), 3)
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
        cells: Cells | None = None,
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
        self.cells = Cells.of(bank, head.similarity) if cells is None else cells
        self.proven = bool(index.exact)

    def added(self, keys: Tensor) -> None:
        """Take notice of rows that were added to the bank and to the index."""
        self.cells.add(keys, self.bank.vectors_at(self.bank.positions_of_keys(keys)))

    def removed(self, keys: Tensor) -> None:
        """Take notice of rows that were removed from the bank and from the index."""
        self.cells.remove(keys)
        if self.cells.stale:
            self.cells = Cells.of(self.bank, self.head.similarity)

    @torch.no_grad()
    def predict(self, queries: Tensor, *, ids: Any = None, groups: Any = None, top: int = 0) -> Approximation:
        """Predictions, with what they may be wrong by.

        Args:
            queries: ``[b, d]``, finite.
            ids: ``[b]``, ids of the queries as the bank has them: a query sees no row of its id. None: all rows.
            groups: ``[b]``, likewise: nor a row of its group.
            top: how many of the highest weights to give, too.

        Raises:
            ValueError: if a query has no admissible row.
        """
        check_integer("top", top, 0)
        made = _Answer.of(len(queries), self.classes, top)
        hidden = None if ids is None and groups is None else self.bank.hidden_keys(ids, groups)
        left = torch.arange(len(queries))
        for k in self._sizes(hidden):
            for part in torch.split(left, max(1, _NUMBERS // (k * self.bank.dim))):
                self._attend(queries, part, None if hidden is None else hidden[part], k, made)
            left = left[made.left_out[left] > self.tolerance]
            if len(left) == 0:
                break
        if len(left):
            self._read_all(queries, left, ids, groups, made)
        return made.told(self._span())

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

    def _attend(self, queries: Tensor, part: Tensor, hidden: Tensor | None, k: int, made: "_Answer") -> None:
        """Fetch ``k`` rows for each of the queries ``part`` and weigh them."""
        asked = queries[part]
        searched = asked.float()
        found = self.index.search(searched, k, exclude=hidden)
        positions = self.bank.positions_of_keys(found.ids)
        there = positions >= 0
        some = there.any(dim=1)
        if not bool(some.all()):  # left to the reading of all rows, which says what is wrong
            part, asked, searched, found, positions, there = (
                part[some], asked[some], searched[some], type(found)(*(value[some] for value in found)),
                positions[some], there[some],
            )  # fmt: skip
            hidden = None if hidden is None else hidden[some]
            if len(part) == 0:
                return
        wide = asked.double()
        scores = self._scores(wide, positions, there)
        complete = ~there[:, -1] if self.proven else torch.zeros(len(part), dtype=torch.bool)
        lowest = torch.where(there, scores, torch.inf).amin(dim=1)
        last = found.scores[:, -1] if self.proven else lowest
        last = self.cells.reached(last, wide, searched) if self.proven else last
        ends = self._ends(wide, hidden, lowest, complete)
        beyond = self._beyond(wide, last, lowest, there, hidden, complete)
        eps = torch.finfo(torch.promote_types(queries.dtype, torch.float32)).eps  # the head computes in that dtype
        longest = torch.tensor(self.cells.longest, dtype=wide.dtype)
        resolution = resolution_of(self.head.similarity, wide, longest)._replace(eps=eps)
        weighed = weigh_fetched(self.head.mask, self.simplex, wide, scores, beyond, ends, resolution)
        labels = self.bank.labels_at(positions[there])
        made.put(part, weighed.weights, weighed.left_out, positions, there, labels)

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
        ends = self.cells.ends(queries, hidden, lowest)
        return Ends(torch.where(complete, lowest, ends.low), torch.where(complete, lowest, ends.high))

    def _beyond(
        self, queries: Tensor, last: Tensor, lowest: Tensor, there: Tensor, hidden: Tensor | None, complete: Tensor
    ) -> tuple[Beyond, Beyond]:
        """Two accounts of the rows that were not fetched: all alike, and ball by ball.

        A row that was fetched is in a ball that reaches the ``lowest`` score fetched, so of the rows of all such balls
        those that were fetched can be taken off.
        """
        fetched = there.sum(dim=1)
        others = len(self.bank) - fetched - (0 if hidden is None else _distinct(hidden))
        others = torch.where(complete, 0, others.clamp(min=0))[:, None]
        highest = self.cells.highest(queries)
        reaching = highest >= lowest[:, None]
        near = (self.cells.counts * reaching).sum(dim=1) - fetched
        counts = torch.cat([near.clamp(min=0)[:, None], self.cells.counts * ~reaching], dim=1)
        scores = torch.cat([last[:, None], torch.minimum(highest, last[:, None])], dim=1)
        return Beyond(last[:, None], others), Beyond(scores, torch.minimum(counts, others))

    def _read_all(self, queries: Tensor, left: Tensor, ids: Any, groups: Any, made: "_Answer") -> None:
        """What the head gives for the queries ``left``."""
        bank, asked = self.bank, queries[left]
        identity: dict[str, Tensor] = {}
        if ids is not None:
            own = bank.positions([ids[i] for i in left.tolist()])
            identity |= {"query_ids": own, "bank_ids": torch.arange(len(bank))}
        codes = bank.group_codes
        if groups is not None and codes is not None:
            own = bank.codes_of_groups([groups[i] for i in left.tolist()])
            identity |= {"query_groups": own, "bank_groups": codes}
        labels = bank.labels
        if labels is None:
            return
        labels = labels if self.classes is None else one_hot(labels.long(), self.classes).double()
        vectors = bank.vectors
        made.prediction[left] = self.head(asked, vectors, labels, **identity).double()
        made.left_out[left], made.fetched[left] = 0.0, len(bank)
        if made.top:
            found = self.head.top_weights(asked, vectors, made.top, **identity)
            width = found[0].shape[1]
            made.weights[left], made.positions[left] = 0.0, -1
            made.weights[left, :width], made.positions[left, :width] = found[0].double(), found[1]

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

    @classmethod
    def of(cls, rows: int, classes: int | None, top: int) -> "_Answer":
        """Nothing yet."""
        return cls(rows, classes, top)

    def put(
        self, part: Tensor, weights: Tensor, left_out: Tensor, positions: Tensor, there: Tensor, labels: Tensor
    ) -> None:
        """Weights ``[r, k]`` of the rows at ``positions`` for the queries ``part``; ``labels`` of those that are."""
        own = torch.zeros(weights.shape, dtype=torch.float64)
        own[there] = labels.double()
        if self.classes is None:
            self.prediction[part] = (weights * own).sum(dim=1)
        else:
            shares = torch.zeros(len(part), self.classes, dtype=torch.float64)
            self.prediction[part] = shares.scatter_add_(1, own.long(), weights.masked_fill(~there, 0.0))
        self.left_out[part], self.fetched[part] = left_out, there.sum(dim=1)
        if self.top:
            most = weights.topk(min(self.top, weights.shape[1]), dim=1)
            width = most.values.shape[1]
            self.weights[part, :width] = most.values
            self.positions[part, :width] = positions.gather(1, most.indices).masked_fill_(most.values == 0, -1)

    def told(self, span: float) -> Approximation:
        """The approximation, for labels of this range."""
        error = self.left_out * span
        return Approximation(self.prediction, self.left_out, error, self.fetched, self.weights, self.positions)


def _distinct(hidden: Tensor) -> Tensor:
    """How many different keys of at least 0 each row of ``hidden [b, m]`` has."""
    ranked = hidden.sort(dim=1).values
    fresh = ranked >= 0
    fresh[:, 1:] &= ranked[:, 1:] != ranked[:, :-1]
    return fresh.sum(dim=1)
