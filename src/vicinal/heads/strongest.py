"""The bank rows of highest weight, found a block at a time without a matrix of weights and without a sort."""

import torch
from torch import Tensor, nn

from vicinal.core import check_integer, check_matrices
from vicinal.heads.nearest import nearest
from vicinal.heads.streaming import make_attention, step_numbers
from vicinal.masks import softmax
from vicinal.masks.simplex import SimplexMap


@torch.no_grad()
def streamed_top_weights(
    queries: Tensor,
    bank: Tensor,
    k: int,
    similarity: nn.Module,
    mask: nn.Module | None = None,
    simplex: SimplexMap = softmax,
    *,
    chunk_size: int | None = None,
    query_ids: Tensor | None = None,
    bank_ids: Tensor | None = None,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The ``k`` highest weights of each query and their bank rows, with memory that does not grow with the bank.

    All masks and simplex maps of this package keep the order of the scores, so the highest weights are those of the
    nearest rows; which of several rows of equal weight are given is not fixed.

    Args:
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        k: >= 1; all bank rows if there are fewer.
        similarity: see :func:`vicinal.heads.streamed_prediction`, as is all that follows.
        mask: see there.
        simplex: see there.
        chunk_size: see there.
        query_ids: see there.
        bank_ids: see there.
        query_groups: see there.
        bank_groups: see there.

    Returns:
        weights ``[b, k]``, descending, and positions in the bank ``[b, k]``, -1 where the weight is 0.

    >>> from vicinal.similarity import NegativeL2
    >>> streamed_top_weights(torch.zeros(1, 1), torch.tensor([[2.0], [0.0], [1.0]]), 2, NegativeL2())
    (tensor([[0.6652, 0.2447]]), tensor([[1, 2]]))
    """
    check_matrices(queries, bank)
    k = min(check_integer("k", k), bank.shape[0])
    identity = (query_ids, bank_ids, query_groups, bank_groups)
    attention = make_attention(queries, bank, similarity, mask, simplex, chunk_size, identity)
    dtype = attention.costs.dtype
    if queries.shape[0] == 0:
        return queries.new_zeros(0, k, dtype=dtype), torch.zeros(0, k, dtype=torch.int64, device=queries.device)
    with torch.autocast(queries.device.type, enabled=False):
        attention.predict(bank.new_zeros(bank.shape[0], 0, dtype=dtype), step_numbers(mask, queries, dtype))
        found = nearest(attention.costs, attention.hidden, k)
        weights = attention.weights_of(found.values)
    return weights, found.positions.masked_fill(weights == 0, -1)
