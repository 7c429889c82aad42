"""Numbers of rows that come with their slope, as nodes of a compiled graph that may look at the data."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.rest = len(inputs) - 1
    ctx.mark_non_differentiable(output[1])


def _back(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
    return ctx.saved_tensors[0] * slopes[0], *[None] * ctx.rest


def node_of_slope(name: str, make: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """One node of a compiled graph, differentiable by the rows, of a function that tells their slope itself.

    Args:
        name: of the node.
        make: annotated, ``(rows [b, d], ...) -> (number, slope [b, d])``; it changes nothing that is given.

    >>> def squares(rows: Tensor) -> tuple[Tensor, Tensor]:
    ...     return rows.square().sum(), 2 * rows
    >>> x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    >>> torch.autograd.grad(node_of_slope("squares", squares)(x)[0], x)
    (tensor([[2., 4.]]),)
    """
    node = torch.library.custom_op(f"vicinal::{name}", make, mutates_args=())
    node.register_fake(lambda rows, *_: (rows.new_empty(()), torch.empty_like(rows)))
    node.register_autograd(_back, setup_context=_keep)
    return node
