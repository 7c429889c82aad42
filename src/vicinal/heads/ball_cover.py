r"""Balls that together hold all rows of a bank, so that something is known of rows that nobody has scored.

A row x of a ball with center c and radius r has $\|q - c\| - r \le \|q - x\| \le \|q - c\| + r$, and an inner product
within $\|q\| r$ of that with c. So the balls bound how many rows may have how high a score, and how low the lowest is.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import policy
from vicinal.index import NeighborBank
from vicinal.index.pairs import pair_score
from vicinal.similarity import Cosine, Dot, NegativeL1, NegativeL2, NegativeSquaredL2
from vicinal.similarity.products import l2_normalize

CELLS = 256
"""Balls of a bank."""

_SLACK = 1e-9
"""Share by which a bound computed in float64 is widened."""

_FLOAT32 = 2.0**-22
"""Share by which a score may be off that was rounded to float32, twice over."""

_SUPPORTED = (NegativeL1, NegativeL2, NegativeSquaredL2, Cosine, Dot)


class Ends(NamedTuple):
    """The lowest score over the admissible rows lies between ``low [b]`` and ``high [b]``."""

    low: Tensor
    high: Tensor


class BallCover:
    """The balls of a bank's rows, for one similarity; tell it of every row that is added or removed.

    Args:
        similarity: l1, l2, squared_l2, cosine or dot of this library.
        state: as :meth:`state` gives it, or None to hold no rows yet.
        count: how many balls, for the rows that are put in first.

    Raises:
        ValueError: for another similarity.
    """

    def __init__(self, similarity: nn.Module, state: dict[str, Tensor] | None = None, *, count: int = CELLS) -> None:
        if type(similarity) not in _SUPPORTED:
            raise ValueError(
                "similarity: expected l1, l2, squared_l2, cosine, dot or scaled_dot, whose scores can be bounded, got "
                f"{similarity!r}"
            )
        self.similarity, self.count = similarity, count
        self.norm = 1.0 if isinstance(similarity, NegativeL1) else 2.0
        none = torch.zeros(0, dtype=torch.float64)
        self.centers, self.radii, self.longest = none[:, None], none, 0.0
        self.counts = torch.zeros(0, dtype=torch.int64)
        self.far_keys, self.far = self.counts, none[:, None]
        self.removed = 0
        if state is not None:
            self.centers, self.radii, self.counts = state["centers"], state["radii"], state["counts"]
            self.far_keys, self.far = state["far_keys"], state["far"]
            self.longest, self.removed = float(state["longest"]), int(state["removed"])

    @classmethod
    def of(cls, bank: NeighborBank, similarity: nn.Module, *, count: int = CELLS) -> Self:
        """Balls of all rows of ``bank``, in one pass over its vectors."""
        cover = cls(similarity, count=count)
        keys = bank.keys
        if len(bank):
            cover.begin(bank.vectors_at(_spread(len(bank), count)))
        for start, rows in _exact_blocks(bank):
            cover.add(keys[start : start + len(rows)], rows)
        return cover

    def __len__(self) -> int:
        return int(self.counts.sum())

    def state(self) -> dict[str, Tensor]:
        """What is to be saved."""
        return {
            "centers": self.centers,
            "radii": self.radii,
            "counts": self.counts,
            "far_keys": self.far_keys,
            "far": self.far,
            "longest": torch.tensor(self.longest, dtype=torch.float64),
            "removed": torch.tensor(self.removed),
        }

    @staticmethod
    def empty_state(count: int, far: int, dim: int) -> dict[str, Tensor]:
        """What :meth:`state` gives for ``count`` balls and ``far`` far rows of width ``dim``, without memory."""
        double: dict[str, Any] = {"dtype": torch.float64, "device": "meta"}
        whole: dict[str, Any] = {"dtype": torch.int64, "device": "meta"}
        return {
            "centers": torch.empty(count, dim, **double),
            "radii": torch.empty(count, **double),
            "counts": torch.empty(count, **whole),
            "far_keys": torch.empty(far, **whole),
            "far": torch.empty(far, dim, **double),
            "longest": torch.empty((), **double),
            "removed": torch.empty((), **whole),
        }

    def add(self, keys: Tensor, vectors: Tensor) -> None:
        """Put rows in: each into the ball of the nearest center, which grows if it must."""
        if len(keys) == 0:
            return
        if len(self.centers) == 0:
            self.begin(vectors)
        for start in range(0, len(keys), policy().bank_rows):
            self._add(keys[start : start + policy().bank_rows], vectors[start : start + policy().bank_rows])

    def remove(self, keys: Tensor) -> None:
        """Take rows out; balls do not shrink, and counts stay upper bounds, so make new balls now and then."""
        self.removed += len(keys)
        remaining = ~torch.isin(self.far_keys, keys)
        self.far_keys, self.far = self.far_keys[remaining], self.far[remaining]

    @property
    def stale(self) -> bool:
        """Whether so many rows were removed that new balls are worth a pass over the bank."""
        return 4 * self.removed > len(self)

    def highest(self, queries: Tensor) -> Tensor:
        """Scores ``[b, cells]`` that no row of each ball passes."""
        return self._bounds(queries)[1]

    def ends(self, queries: Tensor, hidden: Tensor | None, seen: Tensor) -> Ends:
        """Between what the lowest score over the admissible rows lies.

        Args:
            queries: ``[b, d]`` float64.
            hidden: keys ``[b, m]`` of rows that are not admissible, or None.
            seen: ``[b]``, the lowest score that was seen of an admissible row.
        """
        low = self._bounds(queries)[0].amin(dim=1)
        high = seen
        score = pair_score(self.similarity)
        if score is not None and len(self.far):
            far = torch.stack([score(query.expand_as(self.far), self.far) for query in queries])
            if hidden is not None:
                for column in hidden.T:
                    far.masked_fill_(column[:, None] == self.far_keys, torch.inf)
            high = torch.minimum(high, far.amin(dim=1))
        return Ends(torch.minimum(low, high), high)

    def reached(self, scores: Tensor, queries: Tensor, searched: Tensor) -> Tensor:
        """What the scores ``[b]`` of a search for ``searched`` in float32 say of ``queries [b, d]``: no row passes it.

        A row whose score for ``searched``, rounded to float32, is at most ``scores`` has at most this score.
        """
        moved = torch.linalg.vector_norm(queries - searched.double(), ord=self.norm, dim=1)
        wide = scores.double()
        if isinstance(self.similarity, Cosine):
            length = torch.linalg.vector_norm(queries, dim=1)
            turned = torch.where(length > 0, 2 * moved / length.clamp(min=1e-300), 0.0)
            return wide + _FLOAT32 * wide.abs() + turned
        if isinstance(self.similarity, Dot):
            reach = moved * self.longest / (queries.shape[1] if self.similarity.scaled else 1)
            return torch.add(wide + _FLOAT32 * wide.abs(), reach)
        cost = (-wide).clamp(min=0) * (1 - _FLOAT32)
        if isinstance(self.similarity, NegativeSquaredL2):
            return torch.neg((cost.sqrt() - moved).clamp(min=0).square())
        return torch.neg((cost - moved).clamp(min=0))

    def begin(self, rows: Tensor) -> None:
        """Take these rows as centers; the balls are empty."""
        placed = self._placed(rows.double())
        self.centers = torch.unique(placed[_spread(len(placed), self.count)], dim=0)
        count = len(self.centers)
        self.radii = torch.zeros(count, dtype=torch.float64)
        self.counts = torch.zeros(count, dtype=torch.int64)
        self.far_keys, self.far = torch.zeros(0, dtype=torch.int64), rows.new_zeros(0, rows.shape[1]).double()

    def _add(self, keys: Tensor, vectors: Tensor) -> None:
        rows = vectors.double()
        placed = self._placed(rows)
        cell = torch.cdist(placed.float(), self.centers.float(), p=self.norm).argmin(dim=1)
        away = torch.linalg.vector_norm(placed - self.centers[cell], ord=self.norm, dim=1) * (1 + _SLACK)
        radii = self.radii.scatter_reduce(0, cell, away, "amax")
        grown = (radii > self.radii).nonzero()[:, 0]
        self.counts += torch.bincount(cell, minlength=len(self.counts))
        self.radii = radii
        self.longest = max(self.longest, float(rows.norm(dim=1).max()) * (1 + _SLACK))
        if len(grown):  # the row that cover a ball grow is a far one
            at = ((away[:, None] == radii[grown]) & (cell[:, None] == grown)).int().argmax(dim=0)
            self.far_keys = torch.cat([keys[at], self.far_keys])
            self.far = torch.cat([rows[at], self.far])
            if len(self.far) > 2 * len(self.centers):
                self._thin()

    def _thin(self) -> None:
        """Keep as many far rows as there are balls, those farthest from the middle."""
        placed = self._placed(self.far)
        away = torch.linalg.vector_norm(placed - self.centers.mean(dim=0), ord=self.norm, dim=1)
        remaining = away.topk(min(len(away), len(self.centers))).indices
        self.far_keys, self.far = self.far_keys[remaining], self.far[remaining]

    def _placed(self, rows: Tensor) -> Tensor:
        return l2_normalize(rows) if isinstance(self.similarity, Cosine) else rows

    def _bounds(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest score ``[b, cells]`` that a row of each ball may have."""
        if isinstance(self.similarity, Cosine | Dot):
            asking = self._placed(queries)
            divisor = queries.shape[1] if isinstance(self.similarity, Dot) and self.similarity.scaled else 1
            middle = asking @ self.centers.T
            length = torch.linalg.vector_norm(asking, dim=1)[:, None]
            wide = length * (self.radii + _SLACK * (self.radii + torch.linalg.vector_norm(self.centers, dim=1)))
            return (middle - wide) / divisor, (middle + wide) / divisor
        if self.norm == 1.0:
            away = torch.cdist(queries, self.centers, p=1.0)
        else:
            away = torch.cdist(queries, self.centers, compute_mode="donot_use_mm_for_euclid_dist")
        near = (away * (1 - _SLACK) - self.radii).clamp(min=0)
        far = away * (1 + _SLACK) + self.radii
        if isinstance(self.similarity, NegativeSquaredL2):
            return -far.square(), -near.square()
        return -far, -near


def _spread(rows: int, count: int) -> Tensor:
    """Positions of ``count`` rows, or of all, from first to last."""
    return torch.linspace(0, rows - 1, min(count, rows), dtype=torch.float64).long()


def _exact_blocks(bank: NeighborBank) -> Iterator[tuple[int, Tensor]]:
    if not bank.exact:
        for start in range(0, len(bank), policy().bank_rows):
            yield start, bank.vectors_at(torch.arange(start, min(start + policy().bank_rows, len(bank))))
        return
    for start, rows, _ in bank.blocks(policy().bank_rows, exact=True):
        yield start, rows
