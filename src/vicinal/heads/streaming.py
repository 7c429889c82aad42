"""The NONA head over a bank of any size: a block at a time, equal to the dense head.

This module reads and checks the arguments; :mod:`vicinal.blockwise.attention` does the computing.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vicinal.blockwise.attention import Attended, Attention
from vicinal.blockwise.blocks import attention_sizes
from vicinal.blockwise.exclusion import Exclusion
from vicinal.blockwise.nearest import lowest_rows
from vicinal.blockwise.scores import BlockScores
from vicinal.blockwise.thresholds import Simplex
from vicinal.core.checks import check_integer, check_matrices
from vicinal.heads.admissible import Identity
from vicinal.masks import SoftStep, TopK, entmax15, softmax, sparsemax
from vicinal.masks.simplex import SimplexMap
from vicinal.similarity.factors import score_kernel

_SIMPLEX: dict[Any, Simplex] = {softmax: "softmax", sparsemax: "sparsemax", entmax15: "entmax15"}


def simplex_name(simplex: SimplexMap) -> Simplex | None:
    """The name of a simplex map that can be streamed, or None."""
    return _SIMPLEX.get(simplex)


def can_stream(mask: nn.Module | None, simplex: SimplexMap) -> bool:
    """Whether the head with these parts can be streamed: masks and maps of this package can, others see whole rows.

    >>> can_stream(TopK(3), softmax), can_stream(nn.Identity(), softmax)
    (True, False)
    """
    return (mask is None or type(mask) in (SoftStep, TopK)) and simplex_name(simplex) is not None


def check_parts(
    queries: Tensor, mask: nn.Module | None, simplex: SimplexMap, chunk_size: int | None
) -> tuple[Simplex, SoftStep | TopK | None]:
    """The name of the simplex map, and the mask, of a head that can be streamed for these queries.

    Raises:
        ValueError: if it cannot, or a setting is wrong.
    """
    name = simplex_name(simplex)
    if name is None or not (mask is None or isinstance(mask, SoftStep | TopK)) or not can_stream(mask, simplex):
        raise ValueError(
            "chunk_size: expected None for a mask or simplex map of your own, as it must see whole rows, "
            f"got {chunk_size!r} with mask {type(mask).__name__}"
        )
    if isinstance(mask, SoftStep) and queries.shape[1] != mask.dim:
        raise ValueError(f"queries: expected {(len(queries), mask.dim)}, got {tuple(queries.shape)}")
    if chunk_size is not None:
        check_integer("chunk_size", chunk_size)
    return name, mask


def make_attention(
    queries: Tensor,
    bank: Tensor,
    similarity: nn.Module,
    mask: nn.Module | None,
    simplex: SimplexMap,
    chunk_size: int | None,
    identity: Identity,
) -> Attention:
    """What these settings ask for, with all of them checked."""
    name, mask = check_parts(queries, mask, simplex, chunk_size)
    keys = identity.keys(len(queries), len(bank))
    if identity.bank_weight is not None:
        raise ValueError("bank_weight: expected None for a bank that is streamed, got weights; NONA reads it whole")
    if len(bank) == 0:
        raise ValueError("bank: expected at least one row, got an empty bank")
    chunk, tile = attention_sizes(len(queries), queries.shape[1], queries.device)
    if chunk_size is not None:
        chunk = min(chunk_size, max(1, len(bank)))
    with torch.no_grad():
        scores = BlockScores(score_kernel(similarity), queries.detach(), bank.detach(), chunk, tile)
    form = mask.form if isinstance(mask, SoftStep) else None
    k = mask.k if isinstance(mask, TopK) else None
    return Attention(scores, Exclusion(keys), name, form, k)


def step_numbers(mask: nn.Module | None, queries: Tensor, dtype: torch.dtype) -> Tensor | None:
    """The numbers (a0, b0, t, t / (1 - t)) of a SoftStep for each query, ``[b, 4]``."""
    if not isinstance(mask, SoftStep):
        return None
    return torch.cat([value.expand(len(queries), 1) for value in mask.step_parameters(queries)], dim=1).to(dtype)


@torch.no_grad()
def evaluate(attention: Attention, queries: Tensor, mask: nn.Module | None, labels: Tensor | None = None) -> Attended:
    """The evaluation of an attention to these ``queries``, on ``labels [N, T]`` or without any."""
    scores = attention.scores
    if labels is None:
        labels = scores.bank.new_zeros(len(scores.bank), 0, dtype=scores.dtype)
    with torch.autocast(queries.device.type, enabled=False):
        return attention.evaluate(labels, step_numbers(mask, queries, scores.dtype))


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
    nearest rows; among rows of equal weight, which are given is not fixed.

    Args:
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        k: >= 1; all bank rows if there are fewer.
        similarity: see :func:`vicinal.heads.streamed_prediction`, also for all that follows.
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
    identity = Identity(query_ids, bank_ids, query_groups, bank_groups)
    attention = make_attention(queries, bank, similarity, mask, simplex, chunk_size, identity)
    dtype = attention.scores.dtype
    if queries.shape[0] == 0:
        return queries.new_zeros(0, k, dtype=dtype), torch.zeros(0, k, dtype=torch.int64, device=queries.device)
    with torch.autocast(queries.device.type, enabled=False):
        nearest = lowest_rows(attention.scores, attention.exclusion, k)
        weights = evaluate(attention, queries, mask).weights_of(nearest.values)
    return weights, nearest.positions.masked_fill(weights == 0, -1)
