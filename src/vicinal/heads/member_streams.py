"""The mean of several heads over a large bank: its highest weights and its quantiles, without a matrix of weights."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vicinal.core import check_integer, check_labels, check_matrices
from vicinal.heads.attending import Attention
from vicinal.heads.members import Members
from vicinal.heads.nearest import nearest
from vicinal.heads.nona import NONA
from vicinal.heads.quantiles import check_levels, quantiles
from vicinal.heads.streaming import make_attention, step_numbers
from vicinal.index.pairs import pair_score
from vicinal.masks import TopK

_FIRST = 64
"""Rows of each member that the highest of the mean are looked for among at first."""


@torch.no_grad()
def member_top_weights(
    head: Members,
    queries: Tensor,
    bank: Tensor,
    k: int,
    **identity: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The ``k`` highest mean weights of each query and their bank rows; what :meth:`Members.top_weights` gives.

    Each member gives its nearest rows, and all members the weights of these. A row that none of them gave has at most
    the mean of the last weights given; until the k-th is as high as that, more are asked for.

    Args:
        head: members are NONA, of similarities l1, l2, squared_l2, cosine, dot or scaled_dot.
        queries: ``[b, M * d]``.
        bank: ``[N, M * d]``.
        k: >= 1; all bank rows if there are fewer.
        identity: ids and groups, as :class:`vicinal.heads.NONA` takes them.

    Returns:
        weights ``[b, k]``, descending, and positions in the bank ``[b, k]``, -1 where the weight is 0.
    """
    check_matrices(queries, bank)
    k, width = min(check_integer("k", k), len(bank)), max(_FIRST, 2 * check_integer("k", k))
    parts = _attentions(head, queries, bank, identity)
    while True:
        width = min(width, len(bank))
        found = [nearest(part.costs, part.hidden, width) for part in parts]
        own = [part.weights_of(one.values) for part, one in zip(parts, found, strict=True)]
        unseen = torch.stack([weights[:, -1] for weights in own]).mean(dim=0)
        positions, first = _union([one.positions.masked_fill(one.values == torch.inf, -1) for one in found])
        total = torch.zeros(positions.shape, dtype=own[0].dtype)
        for part, one, weights in zip(parts, found, own, strict=True):
            total += _weights_at(part, one.positions, weights, positions)
        total.masked_fill_(~first, 0.0)
        best = (total / len(parts)).topk(min(k, total.shape[1]), dim=1)
        if width == len(bank) or bool((best.values[:, -1] >= unseen).all()):
            break
        width *= 4
    at = positions.gather(1, best.indices).masked_fill(best.values == 0, -1)
    return best.values, at


@torch.no_grad()
def member_quantiles(
    head: Members,
    queries: Tensor,
    bank: Tensor,
    labels: Tensor,
    levels: Sequence[float],
    **identity: Tensor | None,
) -> Tensor:
    """Quantiles ``[b, L]`` of the labels by the mean weights: see :func:`vicinal.heads.streamed_quantiles`."""
    check_matrices(queries, bank)
    check_labels(labels, bank.shape[0])
    return quantiles(_attentions(head, queries, bank, identity), len(queries), labels, check_levels(levels))


def _attentions(head: Members, queries: Tensor, bank: Tensor, identity: dict[str, Tensor | None]) -> list[Attention]:
    """What each member attends to, evaluated."""
    keys = tuple(identity.get(name) for name in ("query_ids", "bank_ids", "query_groups", "bank_groups"))
    made = []
    parts = zip(head.heads, head._parts(queries, "queries"), head._parts(bank, "bank"), strict=True)
    for own, asked, rows in parts:
        if not isinstance(own, NONA):
            raise ValueError(f"heads: expected members that use the bank, got {type(own).__name__}")
        attention = make_attention(asked, rows, own.similarity, own.mask, own.simplex, own.chunk_size, keys)  # type: ignore[arg-type]
        dtype = attention.costs.dtype
        with torch.autocast(queries.device.type, enabled=False):
            attention.predict(rows.new_zeros(len(rows), 0, dtype=dtype), step_numbers(own.mask, asked, dtype))
        made.append(attention)
    return made


def _union(lists: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Positions ``[b, m]`` of all lists, sorted, and which of them stand there for the first time and are >= 0."""
    ranked = torch.cat(lists, dim=1).sort(dim=1).values
    first = ranked >= 0
    first[:, 1:] &= ranked[:, 1:] != ranked[:, :-1]
    return ranked, first


def _weights_at(part: Attention, listed: Tensor, weights: Tensor, positions: Tensor) -> Tensor:
    """The member's weights ``[b, m]`` of the rows at ``positions``: those it listed, others computed."""
    order = listed.sort(dim=1)
    slot = torch.searchsorted(order.values, positions.contiguous()).clamp_(max=listed.shape[1] - 1)
    known = order.values.gather(1, slot) == positions
    mine = weights.gather(1, order.indices).gather(1, slot)
    if isinstance(part.mask, TopK):
        return torch.where(known, mine, 0.0)  # what it keeps is listed
    score = pair_score(part.costs.similarity)
    if score is None:
        raise ValueError(f"similarity: expected one of this library, got {part.costs.similarity!r}")
    lines = torch.arange(len(positions)).repeat_interleave(positions.shape[1])
    rows = part.costs.bank[positions.clamp(min=0).flatten()].to(part.costs.dtype)
    cost = -score(part.costs.queries[lines], rows).reshape(positions.shape)
    values = cost.square() if part.costs.rooted else cost
    return torch.where(known, mine, part.weights_of(values))
