"""Faster ways to the terms of a loss, each registered beside its formula and equal to it in value and gradient.

A formula asks for its kernel, ``terms = kernel(pairs, *settings)``, and goes on by itself where that is None.
Steps that depend on the data (how many related columns a row has, which labels are equal) would break a compiled graph
or make it compute for the worst case; and a sort is an order of magnitude quicker outside of it. So a kernel of rows is
one node of such a graph, which takes the gradient by the scores on the way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vicinal.blockwise import policy, value_and_grad_op
from vicinal.blockwise.blocks import block_rows, row_slices
from vicinal.losses.contract import Pairs, RowTerms

Steps = Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]
"""``(scores, relation, weight or None, *settings, with_grad) -> (total, number, nonzero, gradient)``."""


@dataclass(frozen=True)
class Kernel:
    """A faster way to the terms of a loss.

    Attributes:
        name: of the kernel.
        loss: whose terms it gives.
        float32: largest error beside the formula in float32, relative to the largest entry; also of bfloat16 scores,
            which are computed in float32. In float64 it is 1e-9.
        run: ``(pairs, *settings) -> RowTerms``, or None where it does not apply.
    """

    name: str
    loss: str
    float32: float
    run: Callable[..., RowTerms | None]

    def __call__(self, pairs: Pairs, *settings: Any) -> RowTerms | None:
        """The terms, or None where the formula is to be computed."""
        return self.run(pairs, *settings) if _IN_USE[-1] else None


KERNELS: dict[str, Kernel] = {}
"""All kernels of rows by name."""

_IN_USE = [True]


def kernels_in_use() -> bool:
    """Whether kernels are used, which :func:`formulas_only` stops."""
    return _IN_USE[-1]


@contextmanager
def formulas_only() -> Iterator[None]:
    """No kernel is used as long as the block lasts; for tests and measurements."""
    _IN_USE.append(False)
    try:
        yield
    finally:
        _IN_USE.pop()


def kernel(name: str, *, loss: str, float32: float) -> Callable[[Callable[..., RowTerms | None]], Kernel]:
    """Register what is decorated, ``(pairs, *settings) -> RowTerms | None``, as a :class:`Kernel`."""

    def make(run: Callable[..., RowTerms | None]) -> Kernel:
        KERNELS[name] = Kernel(name, loss, float32, run)
        return KERNELS[name]

    return make


def row_kernel(name: str, *, loss: str, float32: float) -> Callable[[Steps], Kernel]:
    """Register :data:`Steps` of a block of rows as a :class:`Kernel` of all rows, with a gradient by the scores alone.

    It does not apply where relation or weight need a gradient. The steps are annotated, change nothing that they are
    given and give new tensors; without ``with_grad`` the gradient is ``[b, 0]``.
    """

    def make(steps: Steps) -> Kernel:
        terms = row_terms_op(name, steps)

        def run(pairs: Pairs, *settings: Any) -> RowTerms | None:
            weight = None if pairs.full else pairs.weight
            others = (pairs.relation,) if weight is None else (pairs.relation, weight)
            if torch.is_grad_enabled() and any(each.requires_grad for each in others):
                return None
            return terms(pairs.scores, pairs.relation, weight, *settings)

        return kernel(name, loss=loss, float32=float32)(run)

    return make


def row_terms_op(name: str, steps: Steps) -> Callable[..., RowTerms]:
    """The terms of all rows from :data:`Steps` of a block: blocks stay in the caches of a core."""

    def in_blocks(scores: Tensor, *others: Any) -> tuple[Tensor, ...]:
        def block(part: slice) -> tuple[Tensor, ...]:
            return steps(*(each[part].contiguous() if isinstance(each, Tensor) else each for each in (scores, *others)))

        size = block_rows(len(scores), max(1, scores.shape[1]), scores.device, entries=policy().sort_entries)
        slices = row_slices(len(scores), size)
        if len(slices) == 1:
            return block(slices[0])
        grad, sums = scores.new_empty(len(scores), scores.shape[1] if others[-1] else 0), []
        for part in slices:
            *each, grad[part] = block(part)
            sums.append(each)
        return *(torch.cat(each) for each in zip(*sums, strict=True)), grad

    def like(scores: Tensor, *others: Any) -> tuple[Tensor, ...]:
        rows = [scores.new_empty(len(scores)) for _ in range(3)]
        return *rows, scores.new_empty(len(scores), scores.shape[1] if others[-1] else 0)

    op = value_and_grad_op(name, in_blocks, like, others="relation, weight", schema_of=steps)
    return lambda scores, *others: RowTerms(*op(scores, *others))
