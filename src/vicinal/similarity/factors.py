"""Similarities as functions of one inner product, which is how they are computed a block of the bank at a time."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.similarity.distances import CLOSE, NegativeL2, NegativeSquaredL2
from vicinal.similarity.products import Cosine, Dot, directions

RowMap = Callable[[Tensor, Tensor], Tensor]
PullMap = Callable[[Tensor, Tensor, Tensor], Tensor]


class Factors(NamedTuple):
    r"""A cost (negated score) $c_{ij} = \phi(q_i) \cdot \psi(x_j)$, or the square root of that.

    Attributes:
        of_queries: $\phi$, from rows ``[b, d]`` and a center ``[d]`` to ``[b, e]``.
        of_bank: $\psi$, from rows ``[N, d]`` and the same center to ``[N, e]``.
        rooted: the cost is the square root of the inner product.
        cancels: the inner product is a squared distance, which loses digits for rows much nearer to one another than
            to the center; where it is at most ``CLOSE`` times the sum of the squared norms it has to be computed
            again from the difference. The last column of $\phi$ and the one at ``d`` of $\psi$ are those norms.
        shifts: bank rows that all move by one vector change the costs of a query by one number, which weights do not
            depend on; moved to the center they keep more digits, and $\psi$ is given the moved rows.
        pull_bank: gradient ``[N, d]`` of rows from that of $\psi$ ``[N, e]``; None: by autograd.
    """

    of_queries: RowMap
    of_bank: RowMap
    rooted: bool = False
    cancels: bool = False
    shifts: bool = False
    pull_bank: PullMap | None = None

    def slack_of_queries(self, features: Tensor) -> Tensor:
        """Share ``[b]`` of each query in the squared distance below which a pair is close."""
        return CLOSE * features[:, -1]

    def slack_of_norms(self, norms: Tensor) -> float:
        """The same for the bank row that has the largest of the squared ``norms``."""
        return CLOSE * float(norms.amax())

    def close_pairs(self, product: Tensor, of_queries: Tensor, of_bank: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and columns ``[p]`` of the entries of ``product [b, N]`` that have lost digits."""
        limit = CLOSE * (of_queries[:, -1:] + of_bank[:, -2])
        rows, columns = (product <= limit).nonzero(as_tuple=True)
        return rows, columns


def _squared_of_queries(rows: Tensor, center: Tensor) -> Tensor:
    apart = rows - center
    return torch.cat([-2 * apart, torch.ones_like(apart[:, :1]), apart.square().sum(dim=-1, keepdim=True)], dim=-1)


def _squared_of_bank(rows: Tensor, center: Tensor) -> Tensor:
    features = rows.new_empty(len(rows), rows.shape[1] + 2)
    squared_of_bank(rows, center, features)
    return features


def squared_of_bank(rows: Tensor, center: Tensor, out: Tensor) -> Tensor:
    r"""Write $\psi$ of squared distances into ``out [N, d + 2]``; the squared norms ``[N]`` of ``rows - center``."""
    apart = torch.sub(rows, center, out=out[:, :-2])
    norms: Tensor = torch.linalg.vecdot(apart, apart)
    out[:, -2] = norms
    out[:, -1] = 1
    return norms


def _pull_squared(rows: Tensor, center: Tensor, gradient: Tensor) -> Tensor:
    return torch.addcmul(gradient[:, :-2], rows - center, gradient[:, -2:-1], value=2)


def _pull_rows(rows: Tensor, center: Tensor, gradient: Tensor) -> Tensor:
    return gradient


def factors(similarity: nn.Module) -> Factors | None:
    """The factors of a similarity of this package, or None if it has none or is a module of somebody else.

    >>> found = factors(NegativeSquaredL2())
    >>> q, x, center = torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, 6.0]]), torch.zeros(2)
    >>> found.of_queries(q, center) @ found.of_bank(x, center).T
    tensor([[25.]])
    """
    kind = type(similarity)
    if kind is NegativeL2 or kind is NegativeSquaredL2:
        rooted = kind is NegativeL2
        return Factors(_squared_of_queries, _squared_of_bank, rooted=rooted, cancels=True, pull_bank=_pull_squared)
    if kind is Cosine:
        return Factors(lambda rows, center: -directions(rows), lambda rows, center: directions(rows))
    if isinstance(similarity, Dot) and kind is Dot:
        scaled = similarity.scaled
        return Factors(
            lambda rows, center: -rows / (rows.shape[1] if scaled else 1),
            lambda rows, center: rows,
            shifts=True,
            pull_bank=_pull_rows,
        )
    return None


def relative_scores(similarity: nn.Module, queries: Tensor, bank: Tensor) -> Tensor:
    """Scores ``[b, N]`` less some number for each query, which differ from one another more exactly for it.

    That is all that weights which sum to 1 depend on. Inner products with rows that have a large vector in common lose
    the digits in which they differ.

    >>> from vicinal.similarity.products import Dot
    >>> relative_scores(Dot(), torch.ones(1, 1), torch.tensor([[1e8], [1e8 + 16]]))
    tensor([[-8.,  8.]])
    """
    found = factors(similarity)
    if found is not None and found.shifts:
        bank = bank.to(torch.promote_types(torch.promote_types(queries.dtype, bank.dtype), torch.float32))
        bank = bank - bank.detach().mean(dim=0)
    scores: Tensor = similarity(queries, bank)
    return scores
