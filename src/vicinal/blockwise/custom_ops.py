"""Custom operators, each one node of a compiled graph, and how they are registered.

Steps that depend on the data (how many related columns a row has, which pairs are close) break a graph of
torch.compile, or make it compute for the worst case. As an operator they are one node of known shapes. Two functions:

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


def custom_op(
    name: str,
    steps: Callable[..., Any],
    like: Callable[..., Any],
    *,
    save: Callable[..., None] | None = None,
    backward: Callable[..., tuple[Tensor | None, ...]] | None = None,
    random: bool = False,
) -> Callable[..., Any]:
    """Register ``steps`` as the operator ``vicinal::name``.

    Args:
        name: of the operator.
        steps: the function of the operator.
        like: called like ``steps``, returns empty tensors of the shapes and dtypes of the result.
        save: ``(ctx, inputs, output)``, as ``setup_context`` of an ``autograd.Function``; with ``backward``.
        backward: ``(ctx, *gradients of the output) -> gradients of the inputs``; None: no gradient.
        random: the steps draw random numbers, so nodes with equal arguments must not be merged.
    """
    schema = torch.library.infer_schema(steps, mutates_args=())
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
