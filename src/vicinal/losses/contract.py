"""The contract of a pair loss: terms of pairs, weighed and summed for each row, then reduced.

``@pair_loss`` makes ``f(scores, relation, weight=None, *, reduction="mean", **hyper)`` out of a function that only
says which terms a block of rows has. What all losses share (checks, half precision, columns that are left out, the
four reductions) is here and in the files it imports; the files of the families hold the mathematics.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, cast, get_args

import torch
from torch import Tensor

from vicinal.core import Reduction, check_choice, register
from vicinal.losses.pairs import Pairs, prepare
from vicinal.losses.parts import Part, reduce_parts

PML = "pytorch-metric-learning 2.9.0, value and gradient in float64"
NUMPY = "numpy in float64"
PAPER_CODE = "values of the paper's code, value and gradient in float64"

_ARGUMENTS = """scores: ``[b, N]``, higher = more alike.
        relation: ``[b, N]``, how truly related.
        weight: ``[b, N]`` in [0, 1]; 0 leaves a pair out, whatever its score. None: all count.
        reduction: "mean", "sum", "none" (``[b]``) or "mean_nonzero"; see :func:`reduce_parts`."""


class PairLoss(Protocol):
    """A loss of a matrix of scores; ``terms`` gives its parts before they are reduced."""

    __name__: str
    terms: Callable[..., tuple[Part, ...]]
    of_pairs: Callable[..., tuple[Part, ...]]
    across: Callable[..., tuple[Tensor, ...]] | None
    single: bool
    complete: bool
    chosen: Callable[..., tuple[Tensor, Tensor, tuple[Tensor, ...]]] | None
    of_classes: Callable[..., Part | None] | None

    def __call__(
        self, scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, reduction: str = "mean", **hyper: Any
    ) -> Tensor:
        """The loss."""


def pair_loss(
    name: str,
    *facts: str,
    family: str,
    paper: str,
    verified: str,
    across: Callable[..., tuple[Tensor, ...]] | None = None,
    complete: bool = False,
    chosen: Callable[..., tuple[Tensor, Tensor, tuple[Tensor, ...]]] | None = None,
    of_classes: Callable[..., Part | None] | None = None,
) -> Callable[[Callable[..., Any]], PairLoss]:
    """Make and register a pair loss of a function ``(pairs, **hyper) -> Part`` or a tuple of parts.

    Args:
        name: how users name it.
        facts: what it declares.
        family: which losses it is like, as ``vicinal losses`` shows it.
        paper: where it comes from.
        verified: against what.
        across: of a loss whose rows depend on one another, ``(pairs, **hyper) -> tensors [1, ...] or [b, ...]``: what
            a block of rows adds to ``pairs.shared``, where the tensors of all blocks are joined.
        complete: the loss needs no more than what is shared.
        chosen: of a loss that looks at few rows and columns, which (``across`` then looks at no scores): of what is
            shared and the number of columns, both and what they share among themselves.
        of_classes: of a loss that a batch with classes gives without all its scores, ``(similarity, rows [b, d],
            classes [b], **hyper) -> Part``, or None where it does not.
    """

    def make(function: Callable[..., Any]) -> PairLoss:
        def of_pairs(pairs: Pairs, **hyper: Any) -> tuple[Part, ...]:
            with torch.autocast(pairs.given.device.type, enabled=False):
                if across is not None and not pairs.shared:
                    pairs.shared = across(pairs, **hyper)
                parts = function(pairs, **hyper)
            return (parts,) if isinstance(parts, Part) else parts

        def terms(scores: Tensor, relation: Tensor, weight: Tensor | None = None, **hyper: Any) -> tuple[Part, ...]:
            return of_pairs(prepare(scores, relation, weight), **hyper)

        @functools.wraps(function)
        def loss(
            scores: Tensor, relation: Tensor, weight: Tensor | None = None, *, reduction: str = "mean", **hyper: Any
        ) -> Tensor:
            check_choice("reduction", reduction, get_args(Reduction))
            pairs = prepare(scores, relation, weight)
            pairs.counting = reduction == "mean_nonzero"
            return reduce_parts(of_pairs(pairs, **hyper), reduction)

        for each in cast(tuple[Any, ...], (of_pairs, terms, loss)):  # torch.compile tells them apart by code alone
            each.__code__ = each.__code__.replace(co_name=name)
        given = list(inspect.signature(loss, follow_wrapped=False).parameters.values())[:-1]
        own = list(inspect.signature(function).parameters.values())[1:]
        loss.__doc__ = (function.__doc__ or "").replace("pairs: scores, relation and weight.", _ARGUMENTS)
        loss.__dict__["__signature__"] = inspect.Signature([*given, *own], return_annotation=Tensor)
        single = inspect.signature(function).return_annotation is Part
        facts_ = {"across": across, "single": single, "complete": complete, "chosen": chosen}
        loss.__dict__.update(terms=terms, of_pairs=of_pairs, of_classes=of_classes, **facts_)
        return cast(PairLoss, register("pair_loss", name, *facts, family=family, paper=paper, verified=verified)(loss))

    return make
