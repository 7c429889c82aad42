"""Vectors that are scaled before their scores are made, so that scores are plain inner products."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from vicinal.losses.rowwise import Score, inner_products
from vicinal.similarity import Cosine, Dot
from vicinal.similarity.products import l2_normalize


class _Directions(torch.autograd.Function):
    """As :func:`directions`, with a gradient in three steps; it can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        largest = rows.abs().amax(dim=-1, keepdim=True)  # the norm of that name takes 20 times as long
        largest.masked_fill_(largest == 0, 1.0)
        unit: Tensor = rows / largest  # entries within [-1, 1]: squares cannot overflow
        length: Tensor = torch.linalg.vector_norm(unit, dim=-1, keepdim=True)
        inverse = length.masked_fill(length == 0, torch.inf).reciprocal_()  # a row of zeros stays zero, with slope 0
        unit *= inverse
        ctx.save_for_backward(rows, unit, inverse.div_(largest))
        return unit

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        rows, unit, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient of a gradient is wanted
            return cast(Tensor, torch.autograd.grad(l2_normalize(rows), rows, slopes[0], create_graph=True)[0])
        along: Tensor = torch.linalg.vecdot(unit, slopes[0])[:, None]
        return cast(Tensor, torch.addcmul(slopes[0], unit, along, value=-1) * inverse)


def by_products(similarity: nn.Module) -> bool:
    """Whether scores are inner products of vectors that are scaled first.

    >>> by_products(Cosine()), by_products(Dot(scaled=True))
    (True, False)
    """
    return type(similarity) is Cosine or (type(similarity) is Dot and not similarity.scaled)


def plain(similarity: nn.Module, queries: Tensor, columns: Tensor) -> tuple[Score, Tensor, Tensor]:
    """The similarity as a function of vectors that are scaled already, and these, in float32 or wider."""
    dtype = torch.promote_types(torch.promote_types(queries.dtype, columns.dtype), torch.float32)
    same = queries is columns
    queries, columns = queries.to(dtype), columns.to(dtype)
    if not by_products(similarity):
        return similarity, queries, columns
    if type(similarity) is Dot:
        return inner_products, queries, columns
    unit = _unit(queries)
    return inner_products, unit, unit if same else _unit(columns)


def _unit(rows: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or not rows.shape[1]:
        return l2_normalize(rows)
    unit: Tensor = _Directions.apply(rows)  # type: ignore[no-untyped-call]
    return unit
