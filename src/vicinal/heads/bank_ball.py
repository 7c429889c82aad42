r"""One ball around all rows of a bank, so that something is known of rows that nobody has scored.

A row x of a ball with center c and radius r has $\|q - x\| \le \|q - c\| + r$, and an inner product within $\|q\| r$ of
that with c. So the ball bounds how low the lowest score is from below; the rows farthest from the center, which are
kept, bound it from above, and mostly one of them is the lowest.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import policy
from vicinal.index import NeighborBank
from vicinal.index.pairs import pair_score
from vicinal.similarity import Cosine, Dot, NegativeL1, NegativeL2, NegativeSquaredL2
from vicinal.similarity.products import l2_normalize

_FAR = 64
"""Rows farthest from the center that are kept."""

_SAMPLE = 4096
"""Rows whose mean is the center."""

_SLACK = 1e-9
"""Share by which a bound computed in float64 is widened."""

_FLOAT32 = 2.0**-22
"""Share by which a score may be off that was rounded to float32, twice over."""

_SUPPORTED = (NegativeL1, NegativeL2, NegativeSquaredL2, Cosine, Dot)


def check_bounded(similarity: nn.Module) -> None:
    """Check that a ball bounds the scores of a similarity.

    Raises:
        ValueError: for one that is not of this library.
    """
    if type(similarity) not in _SUPPORTED:
        raise ValueError(
            "similarity: expected l1, l2, squared_l2, cosine, dot or scaled_dot, whose scores can be bounded, got "
            f"{similarity!r}"
        )


class Ends(NamedTuple):
    """The lowest score over the admissible rows lies between ``low [b]`` and ``high [b]``."""

    low: Tensor
    high: Tensor


class BankBall:
    """The ball of a bank's rows, for one similarity, from one pass over the bank; tell it of changes.

    Args:
        bank: the rows.
        similarity: l1, l2, squared_l2, cosine or dot of this library.

    Raises:
        ValueError: for another similarity.
    """

    def __init__(self, bank: NeighborBank, similarity: nn.Module) -> None:
        check_bounded(similarity)
        self.similarity = similarity
        self.norm = 1.0 if isinstance(similarity, NegativeL1) else 2.0
        sample = torch.linspace(0, len(bank) - 1, min(_SAMPLE, len(bank)), dtype=torch.float64).long()
        placed = self._placed(bank.vectors_at(sample).double())
        self.center = placed.mean(dim=0) if len(placed) else torch.zeros(bank.dim, dtype=torch.float64)
        self.radius = self.longest = 0.0
        self.far_keys = torch.zeros(0, dtype=torch.int64)
        self.far = torch.zeros(0, bank.dim, dtype=torch.float64)
        keys = bank.keys
        for start, rows in bank.blocks(policy().bank_rows):
            self.add(keys[start : start + len(rows)], rows)

    def add(self, keys: Tensor, vectors: Tensor) -> None:
        """Put rows in: the ball grows if it must."""
        if len(keys) == 0:
            return
        rows = vectors.double()
        self.radius = max(self.radius, float(self._away(rows).max()) * (1 + _SLACK))
        self.longest = max(self.longest, float(rows.norm(dim=1).max()) * (1 + _SLACK))
        self.far_keys, self.far = torch.cat([self.far_keys, keys]), torch.cat([self.far, rows])
        farthest = self._away(self.far).topk(min(_FAR, len(self.far))).indices
        self.far_keys, self.far = self.far_keys[farthest], self.far[farthest]

    def remove(self, keys: Tensor) -> None:
        """Take rows out; the ball does not shrink, and holds what is left."""
        remaining = ~torch.isin(self.far_keys, keys)
        self.far_keys, self.far = self.far_keys[remaining], self.far[remaining]

    def ends(self, queries: Tensor, hidden: Tensor | None, seen: Tensor) -> Ends:
        """Between what the lowest score over the admissible rows lies.

        Args:
            queries: ``[b, d]`` float64.
            hidden: keys ``[b, m]`` of rows that are not admissible, or None.
            seen: ``[b]``, the lowest score that was seen of an admissible row.
        """
        high = seen
        score = pair_score(self.similarity)
        if score is not None and len(self.far) and len(queries):
            far = torch.stack([score(query.expand_as(self.far), self.far) for query in queries])
            if hidden is not None:
                for column in hidden.T:
                    far.masked_fill_(column[:, None] == self.far_keys, torch.inf)
            high = torch.minimum(high, far.amin(dim=1))
        return Ends(torch.minimum(self._lowest(queries), high), high)

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

    def _lowest(self, queries: Tensor) -> Tensor:
        """The lowest score ``[b]`` that a row of the ball may have."""
        if isinstance(self.similarity, Cosine | Dot):
            placed = self._placed(queries)
            length = torch.linalg.vector_norm(placed, dim=1)
            wide = length * (self.radius + _SLACK * (self.radius + float(self.center.norm())))
            divisor = queries.shape[1] if isinstance(self.similarity, Dot) and self.similarity.scaled else 1
            return torch.div(placed @ self.center - wide, divisor)
        far = torch.linalg.vector_norm(queries - self.center, ord=self.norm, dim=1) * (1 + _SLACK) + self.radius
        return torch.neg(far.square() if isinstance(self.similarity, NegativeSquaredL2) else far)

    def _away(self, rows: Tensor) -> Tensor:
        away: Tensor = torch.linalg.vector_norm(self._placed(rows) - self.center, ord=self.norm, dim=1)
        return away

    def _placed(self, rows: Tensor) -> Tensor:
        return l2_normalize(rows) if isinstance(self.similarity, Cosine) else rows
