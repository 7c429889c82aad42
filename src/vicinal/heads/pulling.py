"""The gradient of a streamed prediction: each block is scored again, so nothing of size [b, N] is kept."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.attending import Attention
from vicinal.heads.extremes import spread
from vicinal.heads.gradients import CostGradients
from vicinal.heads.maps import slope
from vicinal.heads.relative import Relative
from vicinal.masks import SoftStep
from vicinal.masks.steps import Step, step_rows


class Pulled(NamedTuple):
    """Gradients of the inputs of a streamed prediction; None where there is no such input or none was asked for."""

    queries: Tensor
    bank: Tensor | None
    labels: Tensor | None
    numbers: Tensor | None
    parameters: list[Tensor]


class _RowGradients:
    """Gradients of what is one number a row: width, first cost and the numbers of the step, ``[b, 1]`` each."""

    def __init__(self, step: Step | None, like: Tensor) -> None:
        count = 0 if step is None else sum(isinstance(value, Tensor) for value in step.rows)
        self.width, self.first, *self.numbers = (torch.zeros_like(like) for _ in range(2 + count))

    def add(self, rows: slice, step: Step, drop: Tensor, of_drop: Tensor, of_numbers: list[Tensor]) -> None:
        """Add those of a block; ``of_drop`` is written over by the gradient of the cost above ``first``."""
        for total, part in zip(self.numbers, of_numbers, strict=True):
            total[rows] += part
        of_drop /= step.width
        self.first[rows] += of_drop.sum(dim=1, keepdim=True)
        self.width[rows] -= (drop * of_drop).sum(dim=1, keepdim=True)


def pull(
    attention: Attention,
    labels: Tensor,
    numbers: Tensor | None,
    parameters: Sequence[Tensor],
    prediction: Tensor,
    gradient: Tensor,
    asked: tuple[bool, bool],
) -> Pulled:
    """Gradients of queries, bank, labels, SoftStep numbers and similarity parameters.

    Args:
        attention: as it stands after the prediction.
        labels: ``[N, T]``.
        numbers: ``[b, 4]`` of a SoftStep, or None.
        parameters: of the similarity.
        prediction: ``[b, T]``.
        gradient: of the prediction, ``[b, T]``.
        asked: whether the gradients of the bank and of the labels are asked for.
    """
    costs, relative = attention.costs, attention.relative
    if relative is None:
        raise ValueError("attention: expected one that has predicted, got one that has not")
    dtype = costs.dtype
    gradients = CostGradients(costs, bank=asked[0], parameters=list(parameters))
    of_labels = torch.zeros_like(labels) if asked[1] else None
    mean = prediction if attention.simplex == "softmax" else attention.slopes.mean()
    center = (gradient * mean).sum(dim=1, keepdim=True).to(dtype)
    gradient = gradient.to(dtype)
    if attention.threshold is None:  # the weights of a block come before their division by the sum of the row
        total = attention.sums.total.to(dtype)
        gradient, center = gradient / total, center / total
    of_rows = _RowGradients(relative.step, center)
    for block in costs.blocks():
        entries = attention.hidden.within(block.start, block.stop)
        part = slice(block.start, block.stop)
        gradients.open(block)
        for rows in costs.tiles():
            product, back = gradients.tracked(rows)
            found = relative.leads(costs, product, rows, entries, slot=1)
            weights = attention.weigh(found)
            if of_labels is not None:
                of_labels[part] += (weights.T @ gradient[rows]).to(labels.dtype)
            product_of = torch.mul if labels.shape[1] == 1 else torch.mm
            of_scores = product_of(gradient[rows], labels[part].to(dtype).T, out=costs.scratch.like(weights, 9))
            of_scores.sub_(center[rows]).mul_(slope(attention.simplex, weights))
            if found.step is not None and found.drop is not None:
                of_drop, of_numbers = found.step.rows.pull(found.drop, of_scores, costs.scratch)
                of_rows.add(rows, found.step, found.drop, of_drop, of_numbers)
                of_scores += of_drop
            back(found.costs, of_scores.neg_())
        gradients.close()
    of_numbers_all = None if numbers is None else _pull_rows(attention, relative, numbers, of_rows, gradients)
    return Pulled(gradients.queries(), gradients.bank, of_labels, of_numbers_all, gradients.parameters)


def _pull_rows(
    attention: Attention, relative: Relative, numbers: Tensor, of_rows: _RowGradients, gradients: CostGradients
) -> Tensor | None:
    """From the row numbers to the numbers of the mask, and to the bank rows that stand for the range of each row."""
    found = attention.range
    if found is None or found.far is None or relative.step is None or not isinstance(attention.mask, SoftStep):
        return None
    extremes = (found.near, found.first, found.far)
    leaves = [attention.column(extreme) for extreme in extremes] + [numbers.to(attention.costs.dtype).detach()]
    with torch.enable_grad():
        leaves = [leaf.requires_grad_() for leaf in leaves]
        near, first, far, wide = leaves
        step = step_rows(attention.mask, wide, near, first, far)
        outputs = [step.width, *(value for value in step.rows if isinstance(value, Tensor))]
        outputs = [value for value in outputs]
    grads = torch.autograd.grad(outputs, leaves, [of_rows.width, *of_rows.numbers], allow_unused=True)
    of_near, of_first, of_far = (torch.zeros_like(near) if g is None else g for g in grads[:3])
    of_first = of_first + of_rows.first
    counted = attention.hidden if found.first is found.near else None
    if found.first is found.near:
        spread(gradients, attention.hidden, found.near, (of_near + of_first)[:, 0])
    else:
        spread(gradients, attention.hidden, found.near, of_near[:, 0])
        spread(gradients, None, found.first, of_first[:, 0])
    spread(gradients, counted, found.far, of_far[:, 0])
    return None if grads[3] is None else grads[3].to(numbers.dtype)
