"""Custom operators, each one node of a compiled graph, and how they are registered.

Steps that depend on the data (how many related columns a row has, which pairs are close) break a graph of
torch.compile, or make it compute for the worst case. As an operator they are one node of known shapes. Three functions:

- :func:`value_and_grad_op` for a function that returns its gradient with its value: losses. Eager and compiled.
- :func:`opaque_op`, a decorator, for steps without gradient: choices, searches, quantiles. Eager and compiled.
- :func:`custom_op` for everything else: an operator with its own backward, called inside a compiled graph only
  (``torch.compiler.is_compiling()``); eager code uses an ``autograd.Function``, which may keep more.

The function of an operator takes tensors, numbers and None by position, is annotated, does not modify its arguments and
returns new tensors. Registering a name again replaces the earlier operator.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

Steps = TypeVar("Steps", bound=Callable[..., Tensor])

ValueAndGrad = Callable[..., tuple[Tensor, ...]]
"""``(first, *others, with_grad) -> (value, *further, grad)``; see :func:`value_and_grad_op`."""


def custom_op(
    name: str,
    steps: Callable[..., Any],
    like: Callable[..., Any],
    *,
    save: Callable[..., None] | None = None,
    backward: Callable[..., tuple[Tensor | None, ...]] | None = None,
    schema_of: Callable[..., Any] | None = None,
    random: bool = False,
) -> Callable[..., Any]:
    """Register ``steps`` as the operator ``vicinal::name``.

    Args:
        name: of the operator.
        steps: the function of the operator.
        like: called like ``steps``, returns empty tensors of the shapes and dtypes of the result.
        save: ``(ctx, inputs, output)``, as ``setup_context`` of an ``autograd.Function``; with ``backward``.
        backward: ``(ctx, *gradients of the output) -> gradients of the inputs``; None: no gradient.
        schema_of: the function whose annotations give the types of arguments; None: ``steps``.
        random: the steps draw random numbers, so nodes with equal arguments must not be merged.
    """
    schema = torch.library.infer_schema(schema_of or steps, mutates_args=())
    tags = [torch.Tag.nondeterministic_seeded] if random else []
    if hasattr(torch.Tag, "cudagraph_unsafe"):  # steps look at the data, which waits for the accelerator
        tags.append(torch.Tag.cudagraph_unsafe)
    op = torch.library.custom_op(f"vicinal::{name}", steps, mutates_args=(), schema=schema, tags=tags)
    op.register_fake(like)
    if backward is not None:
        op.register_autograd(backward, setup_context=save)
    return op


def opaque_op(name: str, like: Callable[..., Tensor], *, random: bool = False) -> Callable[[Steps], Steps]:
    """Make steps without gradient one node of a compiled graph; in eager mode they are called directly.

    Args:
        name: of the operator.
        like: see :func:`custom_op`.
        random: see there.

    >>> @opaque_op("first_positive", lambda x: x.new_empty(len(x), dtype=torch.int64))
    ... def first_positive(x: Tensor) -> Tensor:
    ...     return (x > 0).int().argmax(dim=1)
    >>> first_positive(torch.tensor([[-1.0, 2.0]]))
    tensor([1])
    """

    def register(steps: Steps) -> Steps:
        op = custom_op(name, steps, like, random=random)

        @functools.wraps(steps)
        def call(*arguments: Any) -> Tensor:
            return cast(Tensor, (op if torch.compiler.is_compiling() else steps)(*arguments))

        return cast(Steps, call)

    return register


def _grad_of_first(grad: Tensor, outer: Tensor, arguments: int) -> tuple[Tensor | None, ...]:
    """Gradients of all ``arguments``, of which only the first has one: that of its value times ``outer``."""
    return grad * outer.reshape(outer.shape + (1,) * (grad.ndim - outer.ndim)), *[None] * (arguments - 1)


class _ValueAndGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, steps: ValueAndGrad, *arguments: Any) -> tuple[Tensor, ...]:
        *values, grad = steps(*arguments, ctx.needs_input_grad[1])
        ctx.save_for_backward(grad)
        ctx.mark_non_differentiable(*values[1:])
        return tuple(values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = ctx.saved_tensors
        return None, *_grad_of_first(grad, outer[0], len(ctx.needs_input_grad) - 1)


def value_and_grad_op(
    name: str,
    steps: ValueAndGrad,
    like: Callable[..., tuple[Tensor, ...]],
    *,
    others: str = "arguments",
    schema_of: ValueAndGrad | None = None,
) -> Callable[..., tuple[Tensor, ...]]:
    """A function whose gradient is computed along with its value, in eager mode and as one node of a compiled graph.

    Args:
        name: of the operator.
        steps: ``(first, *others, with_grad) -> (value, *further, grad)``: the value, ``[]`` or ``[b]``; further tensors
            without gradient; and, if ``with_grad``, the gradient of the value (of each ``value[i]`` by ``first[i]``)
            in the shape of ``first``, else any tensor. Annotated.
        like: called like ``steps``, returns empty tensors of the shapes and dtypes of the result.
        others: name of the further arguments in an error.
        schema_of: see :func:`custom_op`.

    Returns:
        a function of ``(first, *others)`` that returns the value and the further tensors. Only ``first`` gets a
        gradient, which can be taken once.

    Raises:
        ValueError: if one of the others needs a gradient.

    >>> def squares(rows: Tensor, with_grad: bool) -> tuple[Tensor, Tensor]:
    ...     return rows.square().sum(), 2 * rows
    >>> sum_of_squares = value_and_grad_op("squares", squares, lambda x, _: (x.new_empty(()), torch.empty_like(x)))
    >>> x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    >>> torch.autograd.grad(sum_of_squares(x)[0], x)
    (tensor([[2., 4.]]),)
    """

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(output[-1])
        ctx.arguments = len(inputs)
        ctx.mark_non_differentiable(*output[1:])

    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return _grad_of_first(ctx.saved_tensors[0], outer[0], ctx.arguments)

    op = custom_op(name, steps, like, save=save, backward=backward, schema_of=schema_of)

    def call(first: Tensor, *further: Any) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in further):
            raise ValueError(
                f"{others}: expected none that needs a gradient, which {name} gives of its first argument alone, got "
                "one; detach it"
            )
        if torch.compiler.is_compiling():
            return tuple(op(first, *further, first.requires_grad and torch.is_grad_enabled())[:-1])
        values: tuple[Tensor, ...] = _ValueAndGrad.apply(steps, first, *further)  # type: ignore[no-untyped-call]
        return values

    return call
