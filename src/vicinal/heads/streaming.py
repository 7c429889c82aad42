"""The NONA head over a bank of any size: a block at a time, forward and backward, equal to the dense head."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vicinal.core import check_integer, check_labels, check_matrices
from vicinal.heads.admissible import check_keys
from vicinal.heads.attending import Attention
from vicinal.heads.combining import ALONE, Combine
from vicinal.heads.costs import Costs
from vicinal.heads.hidden import Hidden
from vicinal.heads.maps import Simplex
from vicinal.heads.prepared import PreparedBank
from vicinal.heads.pruning import Visits, make_pruner
from vicinal.heads.pulling import pull
from vicinal.masks import SoftStep, TopK, entmax15, softmax, sparsemax
from vicinal.masks.simplex import SimplexMap

_TILE = 256
_CACHED = 1 << 19

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


def can_prune(mask: nn.Module | None, simplex: Simplex) -> bool:
    """Whether rows beyond some cost have weight exactly 0, and nothing else about them matters."""
    if isinstance(mask, SoftStep):
        return mask.family == "s1"
    return mask is not None or simplex != "softmax"


def automatic_sizes(queries: int, dim: int, device: torch.device, *, tracked: bool = False) -> tuple[int, int]:
    """Bank rows of a block and queries of a tile whose scores and rows stay in cache; fewer if a gradient follows."""
    cached, tile = (_CACHED, _TILE) if device.type == "cpu" else (1 << 24, 4096)
    cached //= 2 if tracked else 1
    tile = max(1, min(queries, tile))
    return max(256, min(cached // tile, cached // max(1, dim))), tile


Identity = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def make_attention(
    queries: Tensor,
    bank: Tensor,
    similarity: nn.Module,
    mask: nn.Module | None,
    simplex: SimplexMap,
    chunk_size: int | None,
    identity: Identity,
    *,
    tracked: bool = False,
    combine: Combine = ALONE,
    prepared: PreparedBank | None = None,
) -> Attention:
    """The evaluation that these settings ask for, with all of them checked."""
    name, mask = check_parts(queries, mask, simplex, chunk_size)
    shape = (queries.shape[0], bank.shape[0])
    keys = check_keys(shape, *identity)
    if combine.rows(shape[1]) == 0:
        raise ValueError("bank: expected at least one row, got an empty bank")
    chunk, tile = automatic_sizes(shape[0], queries.shape[1], queries.device, tracked=tracked)
    if chunk_size is not None:
        chunk = min(chunk_size, max(1, shape[1]))
    with torch.no_grad():
        if prepared is not None:
            prepared.check(bank, similarity)
        costs = Costs(similarity, queries.detach(), bank.detach(), chunk, tile, combine, prepared)
    return Attention(costs, Hidden(keys), mask, name, tracked=tracked, combine=combine)


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


def step_numbers(mask: nn.Module | None, queries: Tensor, dtype: torch.dtype) -> Tensor | None:
    """The numbers (a0, b0, t, t / (1 - t)) of a SoftStep for each query, ``[b, 4]``, differentiable."""
    if not isinstance(mask, SoftStep):
        return None
    return torch.cat([value.expand(len(queries), 1) for value in mask.shape(queries)], dim=1).to(dtype)


class _Streamed(torch.autograd.Function):
    """Prediction ``[b, T]``; differentiable in queries, bank, labels, SoftStep numbers and similarity parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        attention: Attention,
        queries: Tensor,
        bank: Tensor,
        labels: Tensor,
        numbers: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.attention = attention
        prediction = attention.predict(labels, numbers)
        ctx.save_for_backward(queries, bank, labels, numbers, *parameters, prediction)
        return prediction

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, _, labels, numbers, *parameters, prediction = ctx.saved_tensors
        with torch.autocast(queries.device.type, enabled=False):
            found = pull(ctx.attention, labels, numbers, parameters, prediction, gradient, ctx.needs_input_grad[2:4])
        return (None, found.queries.to(queries.dtype), found.bank, found.labels, found.numbers, *found.parameters)


def streamed_prediction(
    queries: Tensor,
    bank: Tensor,
    labels: Tensor,
    similarity: nn.Module,
    mask: nn.Module | None = None,
    simplex: SimplexMap = softmax,
    *,
    chunk_size: int | None = None,
    query_ids: Tensor | None = None,
    bank_ids: Tensor | None = None,
    query_groups: Tensor | None = None,
    bank_groups: Tensor | None = None,
    visits: Visits | None = None,
    prepared: PreparedBank | None = None,
    compiled: bool = False,
) -> Tensor:
    """What :class:`vicinal.heads.NONA` predicts, with memory that does not grow with the bank.

    One pass over the bank finds the range of each row of scores, a second adds up masked weights and labels; without a
    mask one pass does both, and sparse simplex maps take some ten more for their threshold. The gradient scores each
    block again.

    Args:
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        labels: ``[N]`` or ``[N, T]``, floating.
        similarity: a module ``sim(queries, bank) -> scores`` of which any block of columns can be computed alone.
        mask: :class:`vicinal.masks.SoftStep`, :class:`vicinal.masks.TopK` or None.
        simplex: softmax, sparsemax or entmax15 of :mod:`vicinal.masks`.
        chunk_size: bank rows of a block; None: as many as stay in cache.
        query_ids: see :class:`vicinal.heads.NONA`, as are the three below.
        bank_ids: see there.
        query_groups: see there.
        bank_groups: see there.
        visits: told how much of the scoring was done where blocks can be skipped (see :mod:`vicinal.heads.pruning`):
            without gradient, for S1, top-k and sparse simplex maps, in a bank whose near rows stand together.
        prepared: what was computed of this bank before; see :class:`vicinal.heads.PreparedBank`.
        compiled: have torch.compile fuse the arithmetic of the forward pass, for one target; this needs a C++ compiler
            at run time, and seconds at the first call.

    Returns:
        ``[b]`` or ``[b, T]``.

    Raises:
        ValueError: if mask or simplex map cannot be streamed, or a query has no admissible bank row.

    >>> from vicinal.similarity import NegativeL2
    >>> bank, labels = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0.0, 1.0, 5.0])
    >>> streamed_prediction(torch.tensor([[0.5]]), bank, labels, NegativeL2(), chunk_size=2)
    tensor([0.5008])
    """
    check_matrices(queries, bank)
    check_labels(labels, bank.shape[0])
    identity = (query_ids, bank_ids, query_groups, bank_groups)
    tracked = asks_gradient(queries, bank, labels, similarity, mask)
    attention = make_attention(
        queries, bank, similarity, mask, simplex, chunk_size, identity, tracked=tracked, prepared=prepared
    )
    attention.compiled = compiled
    return evaluate(attention, queries, bank, labels, visits)


def asks_gradient(queries: Tensor, bank: Tensor, labels: Tensor, similarity: nn.Module, mask: nn.Module | None) -> bool:
    """Whether a prediction from these will have a gradient."""
    learned = [queries, bank, labels, *similarity.parameters(), *(mask.parameters() if mask is not None else ())]
    return torch.is_grad_enabled() and any(value.requires_grad for value in learned)


def evaluate(
    attention: Attention, queries: Tensor, bank: Tensor, labels: Tensor, visits: Visits | None = None
) -> Tensor:
    """The prediction ``[b]`` or ``[b, T]`` of an attention that was made of these ``queries`` and this ``bank``."""
    mask, similarity = attention.mask, attention.costs.similarity
    parameters = [value for value in similarity.parameters() if value.requires_grad]
    dtype = torch.promote_types(attention.costs.dtype, labels.dtype)
    columns = labels.to(dtype)[:, None] if labels.ndim == 1 else labels.to(dtype)
    if queries.shape[0] == 0:
        result = queries.new_zeros(0, columns.shape[1])
    else:
        with torch.autocast(queries.device.type, enabled=False):
            numbers = step_numbers(mask, queries, attention.costs.dtype)
            if not attention.tracked and can_prune(mask, attention.simplex):
                attention.pruner = make_pruner(attention.costs, Visits() if visits is None else visits)
            result = _Streamed.apply(attention, queries, bank, columns, numbers, *parameters)  # type: ignore[no-untyped-call]
    result = result.to(dtype)
    return result[:, 0] if labels.ndim == 1 else result
