"""Parts of a loss that take the slope of the scores on the way, and are one node of a compiled graph.

Steps that depend on the data (how many related columns a row has, which labels are equal) would break a compiled graph
or make it compute for the worst case; and a sort is an order of magnitude quicker outside of it.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vicinal.losses.parts import Part
from vicinal.losses.rowwise import block_rows, parts

Made = tuple[Tensor, Tensor, Tensor, Tensor]
"""Total, number and nonzero of rows, ``[b]`` each, and the slope of the total by the scores, ``[b, N]``."""

Rows = Callable[..., Made]

_HELD = 1 << 17
"""Scores of a block on a CPU; of larger ones the memory that steps free is given back, and asked for again."""

_TAGS: dict[str, Any] = {"tags": (torch.Tag.cudagraph_unsafe,)} if hasattr(torch.Tag, "cudagraph_unsafe") else {}


def _in_blocks(steps: Rows, scores: Tensor, *given: Any) -> Made:
    """Of a block of rows after the other, so that what is made of them stays in the caches of a core."""

    def block(part: slice) -> Made:
        own = [each[part].contiguous() if isinstance(each, Tensor) else each for each in (scores, *given)]
        return steps(*own)

    size = block_rows(len(scores), scores.shape[1], scores.device)
    if scores.device.type == "cpu":
        size = min(size, max(32, _HELD // max(1, scores.shape[1])))
    slices = parts(len(scores), size)
    if len(slices) == 1:
        return block(slices[0])
    slope, sums = torch.empty(_sloped_shape(scores, given), dtype=scores.dtype, device=scores.device), []
    for part in slices:
        *each, own = block(part)
        sums.append(each)
        slope[part] = own
    total, number, nonzero = (torch.cat(each) for each in zip(*sums, strict=True))
    return total, number, nonzero, slope


def _sloped_shape(scores: Tensor, given: tuple[Any, ...]) -> tuple[int, int]:
    return len(scores), scores.shape[1] if given[-1] else 0


class _Sloped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, steps: Rows, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        *part, slope = _in_blocks(steps, *given, ctx.needs_input_grad[1])
        ctx.save_for_backward(slope)
        ctx.mark_non_differentiable(*part[1:])
        return part[0], part[1], part[2]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return None, slope * slopes[0][:, None], *[None] * (len(ctx.needs_input_grad) - 2)


def _node(name: str, steps: Rows) -> Callable[..., Made]:
    """An operator of a compiled graph; defined again, it takes the place of the former one."""

    def like(scores: Tensor, *given: Any) -> Made:
        rows = [scores.new_empty(len(scores)) for _ in range(3)]
        return rows[0], rows[1], rows[2], scores.new_empty(_sloped_shape(scores, given))

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Made) -> None:
        ctx.save_for_backward(output[3])
        ctx.rest = len(inputs) - 1
        ctx.mark_non_differentiable(*output[1:])

    def back(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0] * slopes[0][:, None], *[None] * ctx.rest

    schema = torch.library.infer_schema(steps, mutates_args=())
    run = functools.partial(_in_blocks, steps)
    node = torch.library.custom_op(f"vicinal::{name}", run, mutates_args=(), schema=schema, **_TAGS)
    node.register_fake(like)
    node.register_autograd(back, setup_context=keep)
    return node


def sloped(name: str) -> Callable[[Rows], Callable[..., Part]]:
    """Make a function of a whole matrix, with a gradient by its scores alone, of the steps of a block of rows.

    Args:
        name: of the node in a compiled graph.

    The steps take the scores ``[b, N]``, further matrices ``[b, N]`` and settings by position, and last whether the
    slope is wanted (else it is ``[b, 0]``). They are annotated, change nothing that is given and give new tensors.

    >>> @sloped("squares_of_rows")
    ... def squares(scores: Tensor, sloped: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    ...     ones = scores.new_ones(len(scores))
    ...     return scores.square().sum(-1), ones, ones.clone(), 2 * scores if sloped else scores[:, :0].clone()
    >>> x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    >>> torch.autograd.grad(squares(x).total.sum(), x)
    (tensor([[2., 4.]]),)
    """

    def make(steps: Rows) -> Callable[..., Part]:
        node = _node(name, steps)

        @functools.wraps(steps)
        def part(scores: Tensor, *given: Any) -> Part:
            if torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in given):
                raise ValueError(
                    f"relation, weight: expected none that needs a gradient, which {name} gives of the scores alone, "
                    "got one; detach it"
                )
            if torch.compiler.is_compiling():
                return Part(*node(scores, *given, scores.requires_grad and torch.is_grad_enabled())[:3])
            return Part(*_Sloped.apply(steps, scores, *given))  # type: ignore[no-untyped-call]

        return part

    return make
