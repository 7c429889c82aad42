"""The gradient of a streamed prediction: each block is scored again, so nothing of size [b, N] is kept."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.heads.attending import Attention
from vicinal.heads.combining import Combine
from vicinal.heads.extremes import spread
from vicinal.heads.gradients import CostGradients
from vicinal.heads.maps import slope
from vicinal.heads.relative import Leads, Relative
from vicinal.masks import SoftStep
from vicinal.masks.steps import step_rows


class Pulled(NamedTuple):
    """Gradients of the inputs of a streamed prediction; None where there is no such input or none was asked for."""

    queries: Tensor
    bank: Tensor | None
    labels: Tensor | None
    numbers: Tensor | None
    parameters: list[Tensor]


class _RowGradients:
    """Gradients of what is one number a row: width, first cost and the numbers of the step, ``[b, 1]`` each."""

    def __init__(self, attention: Attention, relative: Relative, like: Tensor) -> None:
        self.relative, self.scratch = relative, attention.costs.scratch
        self.short = relative.short if attention.threshold is None else None
        count = 0 if relative.step is None else sum(isinstance(value, Tensor) for value in relative.step.rows)
        self.width, self.first, *self.numbers = (torch.zeros_like(like) for _ in range(2 + count))
        self.sums = like.new_zeros(len(like), 4)

    def open(self, attention: Attention, found: Leads) -> tuple[Tensor, list[Tensor]]:
        """Weights of a block, and what :meth:`through` needs."""
        if self.short is not None:
            weights, kept = self.short.at(found.rows).open(found.lead, self.scratch)
            return found.hide(weights, 0.0), kept
        weights = attention.weigh(found)
        return weights, [self.scratch.like(weights, 2)]  # drops, which Relative.drops has left there

    def through(self, rows: slice, of_scores: Tensor, kept: list[Tensor]) -> Tensor:
        """Gradient of leads from that of masked scores ``[r, B]``; those of row numbers are added up."""
        if self.relative.step is None:
            return of_scores
        if self.short is not None:
            of_leads, sums = self.short.at(rows).pull(of_scores, kept, self.scratch)
            self.sums[rows, : len(sums)] += torch.stack(sums, dim=1)
            return of_leads
        step, (drop,) = self.relative.step.at(rows), kept
        of_drop, of_numbers = step.rows.pull(drop, of_scores, self.scratch)
        for total, part in zip(self.numbers, of_numbers, strict=True):
            total[rows] += part
        of_drop /= step.width
        self.first[rows] += of_drop.sum(dim=1, keepdim=True)
        self.width[rows] -= (drop * of_drop).sum(dim=1, keepdim=True)
        return of_scores.add_(of_drop)

    def finish(self, scale: Tensor) -> None:
        """Turn sums over blocks, times ``scale [b, 1]``, into gradients."""
        if self.short is not None and self.relative.step is not None:
            self.first, self.width, self.numbers = self.short.finish(self.sums * scale, self.relative.step)
        elif self.relative.step is not None:
            self.first, self.width = self.first * scale, self.width * scale
            self.numbers = [value * scale for value in self.numbers]

    def combine(self, combine: Combine) -> None:
        """Add up those of all processes."""
        if self.numbers:
            self.width, self.first, *self.numbers = combine.add(self.width, self.first, *self.numbers)


class _Aim:
    """Where a prediction is to move: from weights to the gradient of masked scores.

    Attributes:
        scale: ``[b, 1]``, left out of the gradient of scores; a single target has its gradient there.
    """

    def __init__(self, attention: Attention, labels: Tensor, prediction: Tensor, gradient: Tensor) -> None:
        dtype = attention.costs.dtype
        self.simplex, self.scratch, self.single = attention.simplex, attention.costs.scratch, labels.shape[1] == 1
        mean = prediction if attention.simplex == "softmax" else attention.slopes.mean()
        self.mean, self.gradient = mean.to(dtype), gradient.to(dtype)
        if attention.threshold is None:  # the weights of a block come before their division by the sum of the row
            self.gradient = self.gradient / attention.sums.total.to(dtype)
        self.center = (self.gradient * mean).sum(dim=1, keepdim=True).to(dtype)
        self.scale = self.gradient if self.single else torch.ones_like(self.center)

    def of_labels(self, rows: slice, weights: Tensor) -> Tensor:
        """Gradient ``[B, T]`` of the labels of a block from its weights ``[r, B]``."""
        if self.single:
            return torch.mv(weights.T, self.gradient[rows, 0])[:, None]
        return weights.T @ self.gradient[rows]

    def of_scores(self, rows: slice, weights: Tensor, labels: Tensor) -> Tensor:
        """Gradient ``[r, B]`` of masked scores, without the scale, from weights and ``labels [B, T]``; in slot 9."""
        found = self.scratch.like(weights, 9)
        if self.single:
            torch.sub(labels.T, self.mean[rows], out=found)
        else:
            torch.mm(self.gradient[rows], labels.T, out=found).sub_(self.center[rows])
        return found.mul_(slope(self.simplex, weights))


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
    combine, dtype = attention.combine, costs.dtype
    aim = _Aim(attention, labels, prediction, combine.mean(gradient))
    gradients = CostGradients(costs, bank=asked[0], parameters=list(parameters))
    gradients.scale = -aim.scale
    of_labels = torch.zeros_like(labels) if asked[1] else None
    of_rows = _RowGradients(attention, relative, aim.scale)
    for block in costs.blocks():
        entries = attention.hidden.within(block.start, block.stop)
        part = slice(block.start, block.stop)
        gradients.open(block)
        for rows in costs.tiles():
            product, back = gradients.tracked(rows)
            weights, kept = of_rows.open(attention, relative.leads(costs, product, rows, entries))
            if of_labels is not None:
                of_labels[part] += aim.of_labels(rows, weights).to(labels.dtype)
            of_scores = aim.of_scores(rows, weights, labels[part].to(dtype))
            back(of_rows.through(rows, of_scores, kept))
        gradients.close()
    of_rows.finish(aim.scale)
    gradients.scale = torch.ones_like(aim.scale)
    of_rows.combine(combine)
    of_numbers_all = None if numbers is None else _pull_rows(attention, relative, numbers, of_rows, gradients)
    of_queries, *of_parameters = combine.add(gradients.queries(), *gradients.parameters)
    return Pulled(of_queries, gradients.bank, of_labels, of_numbers_all, of_parameters)


def _pull_rows(
    attention: Attention, relative: Relative, numbers: Tensor, of_rows: _RowGradients, gradients: CostGradients
) -> Tensor | None:
    """From the row numbers to the numbers of the mask, and to the bank rows that stand for the range of each row."""
    found, zone = attention.range, attention.zone
    if found is None or found.far is None or zone is None or not isinstance(attention.mask, SoftStep):
        return None
    extremes = (found.near, found.first, found.far)
    leaves = [attention.column(extreme) for extreme in extremes] + [numbers.to(attention.costs.dtype).detach()]
    with torch.enable_grad():
        leaves = [leaf.requires_grad_() for leaf in leaves]
        near, first, far, wide = leaves
        step = step_rows(attention.mask, wide, near, first, far, zone)
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
