"""What blocks of scores need to know of a similarity: its factors and its resolution."""

import functools

import torch
from torch import Tensor, nn

from vicinal.blockwise.scores import Factors, ScoreKernel, distance_factors
from vicinal.similarity.base import resolution_of
from vicinal.similarity.distances import NegativeL2, NegativeSquaredL2
from vicinal.similarity.products import Cosine, Dot, l2_normalize


def factors(similarity: nn.Module) -> Factors | None:
    """The factors of a similarity of this package, or None if it has none or is a module of somebody else.

    >>> of = factors(NegativeSquaredL2())
    >>> q, x, center = torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, 6.0]]), torch.zeros(2)
    >>> of.of_queries(q, center) @ of.of_bank(x, center).T
    tensor([[25.]])
    """
    kind = type(similarity)
    if kind is NegativeL2 or kind is NegativeSquaredL2:
        return distance_factors(rooted=kind is NegativeL2)
    if kind is Cosine:
        return Factors(lambda rows, center: -l2_normalize(rows), lambda rows, center: l2_normalize(rows))
    if isinstance(similarity, Dot) and kind is Dot:
        scaled = similarity.scaled
        return Factors(
            lambda rows, center: -rows / (rows.shape[1] if scaled else 1),
            lambda rows, center: rows,
            shifts=True,
        )
    return None


def score_kernel(similarity: nn.Module) -> ScoreKernel:
    """The similarity as blocks of scores are computed from it."""
    resolution = functools.partial(resolution_of, similarity)
    return ScoreKernel(similarity, factors(similarity), resolution)


def relative_scores(similarity: nn.Module, queries: Tensor, bank: Tensor) -> Tensor:
    """Scores ``[b, N]`` less some number for each query, which differ from one another more exactly for it.

    That is all that weights which sum to 1 depend on. Inner products with rows that have a large vector in common lose
    the digits in which they differ.

    >>> from vicinal.similarity.products import Dot
    >>> relative_scores(Dot(), torch.ones(1, 1), torch.tensor([[1e8], [1e8 + 16]]))
    tensor([[-8.,  8.]])
    """
    of = factors(similarity)
    if of is not None and of.shifts:
        bank = bank.to(torch.promote_types(torch.promote_types(queries.dtype, bank.dtype), torch.float32))
        bank = bank - bank.detach().mean(dim=0)
    return similarity(queries, bank)
