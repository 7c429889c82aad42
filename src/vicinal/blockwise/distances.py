"""Euclidean distances of all pairs, accurate for data with a large common offset and for nearby pairs.

Distances and their squares have a hand-written gradient, since autograd would go through many matrices of scores.
In a compiled graph they are one node, because which pairs have lost digits depends on the data.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vicinal.blockwise.blocks import policy, row_slices
from vicinal.blockwise.custom_ops import custom_op

CLOSE = 1e-2
"""A squared distance below this share of the squared norms has lost digits and is recomputed from differences."""


class Close(NamedTuple):
    """Pairs ``[p]`` that are close to each other, and their distances or squared distances."""

    rows: Tensor
    columns: Tensor
    distances: Tensor


def paired_distances(queries: Tensor, bank: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Squared distances ``[p]`` of the given pairs, from differences, a block of pairs at a time."""
    queries, bank = queries.flatten(0, -2), bank.flatten(0, -2)
    blocks = [(queries[rows[part]] - bank[columns[part]]).square().sum(dim=-1) for part in _pair_slices(rows, queries)]
    return torch.cat(blocks)


def _pair_slices(pairs: Tensor, vectors: Tensor) -> list[slice]:
    """Slices of ``pairs [p]`` that are computed at a time."""
    return row_slices(len(pairs), max(1, policy().pair_entries // max(1, vectors.shape[-1])))


def _centered(queries: Tensor, bank: Tensor) -> tuple[Tensor, Tensor]:
    center = bank.mean(dim=-2, keepdim=True)
    q = queries - center
    return q, q if bank is queries else bank - center


def _norms(rows: Tensor) -> Tensor:
    return rows.square().sum(dim=-1)


def _close(distances: Tensor, of_queries: Tensor, of_bank: Tensor, *, rooted: bool) -> tuple[Tensor, Tensor]:
    """Rows and columns of pairs whose squared distance is at most the share ``CLOSE`` of the squared norms."""
    of_queries, of_bank = CLOSE * of_queries[..., None], CLOSE * of_bank[..., None, :]
    several, on_cpu = distances.ndim == 3, distances.device.type == "cpu"
    entries = distances[0].numel()
    positions = []
    for part in row_slices(len(distances), max(1, policy().scan_entries // entries) if on_cpu else len(distances)):
        block = distances[part]  # [r, N]
        near = (block.square() if rooted else block) <= of_queries[part] + (of_bank[part] if several else of_bank)
        # numpy takes a fifth of the time to find a few among many
        flat = torch.from_numpy(np.flatnonzero(near.numpy())) if on_cpu else near.flatten().nonzero()[:, 0]
        positions.append(flat + part.start * entries)
    return _pairs(torch.cat(positions), distances)


def _pairs(places: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns, numbered through all banks, of places in flat ``distances``."""
    columns = distances.shape[-1]
    rows, of_bank = places // columns, places % columns
    return rows, of_bank if distances.ndim == 2 else of_bank + rows // distances.shape[1] * columns


def _places(rows: Tensor, columns: Tensor, distances: Tensor) -> Tensor:
    """The inverse of :func:`_pairs`."""
    return rows * distances.shape[-1] + columns % distances.shape[-1]


def _add_product(start: Tensor, weight: Tensor, rows: Tensor) -> Tensor:
    """``start - weight @ rows``."""
    return (torch.addmm if start.ndim == 2 else torch.baddbmm)(start, weight, rows, alpha=-1)


def _measure(queries: Tensor, bank: Tensor, *, rooted: bool) -> tuple[Tensor, Close]:
    """Distances ``[b, N]``, squared unless ``rooted``, and the close pairs."""
    with torch.autocast(queries.device.type, enabled=False):
        q, x = _centered(queries, bank)
        of_queries, of_bank = _norms(q), _norms(x)
        squared = of_queries[..., None] + of_bank[..., None, :]  # [b, N]
        (squared.addmm_ if squared.ndim == 2 else squared.baddbmm_)(q, x.mT, alpha=-2)
        rows, columns = _close(squared, of_queries, of_bank, rooted=False)
        exact = paired_distances(queries, bank, rows, columns)
        squared.view(-1)[_places(rows, columns, squared)] = exact
        if rooted:
            return squared.sqrt_(), Close(rows, columns, exact.sqrt_())
        return squared, Close(rows, columns, exact)


def _backward(
    slope: Tensor, queries: Tensor, bank: Tensor, roots: Tensor | None, close: Close, needed: tuple[bool, ...]
) -> list[Tensor | None]:
    """Gradients of the sides that are ``needed``, given the slope of squared distances, or of their ``roots``."""
    with torch.autocast(queries.device.type, enabled=False):
        q, x = _centered(queries, bank)
        weight = 2 * slope if roots is None else slope / roots  # by which a pair's difference is multiplied, [b, N]
        apart = close.distances.nonzero()[:, 0]  # coincident rows, mostly a row and itself, do not pull
        rows, columns = close.rows[apart], close.columns[apart]
        weight = weight.contiguous()
        flat = weight.view(-1)
        near = flat[_places(rows, columns, weight)][:, None]
        flat[_places(close.rows, close.columns, weight)] = 0.0
        of_queries = _add_product(weight.sum(-1)[..., None] * q, weight, x) if needed[0] else None
        of_bank = _add_product(weight.sum(-2)[..., None] * x, weight.mT, q) if needed[1] else None
        first, second = queries.flatten(0, -2), bank.flatten(0, -2)
        for part in _pair_slices(rows, queries):
            difference = near[part] * (first[rows[part]] - second[columns[part]])
            if of_queries is not None:
                of_queries.flatten(0, -2).index_put_((rows[part],), difference, accumulate=True)
            if of_bank is not None:
                of_bank.flatten(0, -2).index_put_((columns[part],), -difference, accumulate=True)
    return [of_queries, of_bank]


def _formula(queries: Tensor, bank: Tensor, *, rooted: bool) -> Tensor:
    """As :func:`_measure`, by steps that can be differentiated twice."""
    center = bank.detach().mean(dim=-2, keepdim=True)
    q, x = queries - center, bank - center
    norms = q.square().sum(dim=-1)[..., None] + x.square().sum(dim=-1)[..., None, :]  # [b, N]
    squared = norms - 2 * (q @ x.mT)  # [b, N]
    places = (squared.detach() <= CLOSE * norms.detach()).flatten().nonzero()[:, 0]
    exact = paired_distances(queries, bank, *_pairs(places, squared))
    squared = squared.flatten().index_put((places,), exact).view_as(squared)
    apart = squared > 0
    return torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0) if rooted else squared


class _Distances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, bank: Tensor, rooted: bool) -> Tensor:  # noqa: FBT001
        values, close = _measure(queries, bank, rooted=rooted)
        ctx.save_for_backward(queries, bank, values if rooted else None, *close)
        return values

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        queries, bank, roots, *close = ctx.saved_tensors
        needed = ctx.needs_input_grad[:2]
        if not torch.is_grad_enabled():
            return *_backward(slopes[0], queries, bank, roots, Close(*close), needed), None
        sides = queries.view_as(queries), bank.view_as(bank)  # two of them even where queries are the bank
        leaves = [side for side, want in zip(sides, needed, strict=True) if want]
        with torch.autocast(queries.device.type, enabled=False):
            value = _formula(*sides, rooted=roots is not None)
            grads = iter(torch.autograd.grad(value, leaves, slopes[0], create_graph=True))
        return *(next(grads) if want else None for want in needed), None


def _node(queries: Tensor, bank: Tensor, rooted: bool) -> Tensor:  # noqa: FBT001
    return _measure(queries, bank, rooted=rooted)[0]


def _backward_node(
    slope: Tensor,
    queries: Tensor,
    bank: Tensor,
    distances: Tensor,
    rooted: bool,  # noqa: FBT001
    needed: list[bool],
) -> list[Tensor]:
    with torch.autocast(queries.device.type, enabled=False):
        q, x = _centered(queries, bank)
        places = _close(distances, _norms(q), _norms(x), rooted=rooted)
    close = Close(*places, distances[places])
    grads = _backward(slope, queries, bank, distances if rooted else None, close, tuple(needed))
    return [each for each in grads if each is not None]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    queries, bank, ctx.rooted = inputs
    ctx.save_for_backward(queries, bank, output)


def _op_backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    needed = list(ctx.needs_input_grad[:2])
    grads = iter(_BACKWARD_OP(slope, *ctx.saved_tensors, ctx.rooted, needed))
    return *(next(grads) if want else None for want in needed), None


_BACKWARD_OP = custom_op(
    "distances_backward",
    _backward_node,
    lambda slope, queries, bank, distances, rooted, needed: [
        side.new_empty(side.shape) for side, want in zip((queries, bank), needed, strict=True) if want
    ],
)
_DISTANCES_OP = custom_op(
    "distances",
    _node,
    lambda queries, bank, rooted: queries.new_empty(queries.shape[0], bank.shape[0]),
    save=_keep,
    backward=_op_backward,
)


def distances(queries: Tensor, bank: Tensor, *, rooted: bool = True) -> Tensor:
    r"""$\|q_i - x_j\|$, or its square unless ``rooted``: see :func:`squared_distances`.

    The gradient at coincident rows is 0, where a plain square root gives NaN.

    >>> distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[5., 0.]])
    """
    if bank.shape[-2] == 0 or queries.shape[-2] == 0:
        return queries.new_zeros(*queries.shape[:-1], bank.shape[-2])
    if torch.compiler.is_compiling():
        values: Tensor = _DISTANCES_OP(queries, bank, rooted)
    else:
        values = _Distances.apply(queries, bank, rooted)  # type: ignore[no-untyped-call]
    return values


def squared_distances(queries: Tensor, bank: Tensor) -> Tensor:
    r"""$\|q_i - x_j\|^2$ by one matrix product, without its cancellation.

    The expansion $\|q\|^2 + \|x\|^2 - 2 q \cdot x$ is useless for data with a large common offset, so the mean of the
    bank is subtracted from both sides first. Pairs much closer to each other than to the center still cancel; they are
    recomputed from their differences, so coincident rows are at distance exactly 0.

    The gradient is computed in the same two ways, and can be differentiated again, but not in a compiled graph.

    Args:
        queries: ``[b, d]``, or ``[M, b, d]`` for M separate banks, though not in a compiled graph.
        bank: ``[N, d]``, or ``[M, N, d]``.

    Returns:
        ``[b, N]`` or ``[M, b, N]``, >= 0.

    >>> squared_distances(torch.tensor([[3000.0, 3000.0]]), torch.tensor([[3000.0, 3000.0], [3001.0, 3000.5]]))
    tensor([[0.0000, 1.2500]])
    """
    return distances(queries, bank, rooted=False)
