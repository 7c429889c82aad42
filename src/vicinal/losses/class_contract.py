"""What losses of class scores share, ``f(scores [b, K], target, weight=None, valid=None, *, reduction="mean")``.

``@class_loss`` makes the function of a formula that only says the value of each row; :class:`ClassLoss` is its module.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, entry, register
from vicinal.core.checks import check_tensor
from vicinal.losses.contract import check_reduction, check_valid, own_settings, reduce, take_settings


class ClassScores:
    """What a formula sees: scores with the classes that count, in float32 or wider.

    Args:
        scores: ``[r, K]``, finite where a class does not count.
        target: a class each ``[r]``; of losses of several labels ``[r, K]`` in [0, 1].
        valid: boolean ``[r, K]``, which classes count, at least one in each row; None: all.
        row: which row of the batch each is, ``[r]``.
    """

    def __init__(self, scores: Tensor, target: Tensor, valid: Tensor | None, row: Tensor) -> None:
        self.scores, self.target, self.valid, self.row = scores, target, valid, row

    @property
    def count(self) -> Tensor:
        """Classes that count, ``[r]``."""
        if self.valid is None:
            return self.scores.new_full((len(self.scores),), self.scores.shape[1])
        return self.valid.sum(-1).to(self.scores.dtype)

    def hidden(self, values: Tensor, filler: float) -> Tensor:
        """``values [r, K]`` with ``filler`` where a class does not count."""
        return values if self.valid is None else values.masked_fill(~self.valid, filler)

    def of_target(self, values: Tensor) -> Tensor:
        """``values [r, K]`` of the target, ``[r]``."""
        return values.gather(1, self.target[:, None])[:, 0]

    def mean(self, values: Tensor) -> Tensor:
        """Of ``values [r, K]`` over the classes that count, ``[r]``."""
        return self.hidden(values, 0.0).sum(-1) / self.count

    def cross_entropy(self, logits: Tensor) -> Tensor:
        r"""$-\log p_y$ of a softmax over the classes that count, ``[r]``."""
        return nn.functional.cross_entropy(self.hidden(logits, -torch.inf), self.target, reduction="none")

    def gaps(self, margin: float, scores: Tensor | None = None) -> Tensor:
        r"""$s_k - s_y + c\,[k \ne y]$, ``[r, K]``; 0 for the target itself, -inf where a class does not count."""
        scores = self.scores if scores is None else scores
        gap = scores - (self.of_target(scores) - margin)[:, None]
        return self.hidden(gap.scatter_(1, self.target[:, None], 0.0), -torch.inf)


Formula = Callable[..., Tensor]
Settings = dict[str, Any]


def class_loss(
    name: str,
    *facts: str,
    family: str,
    paper: str,
    verified: str,
    of_batch: Callable[[Tensor, Settings], Settings] | None = None,
) -> Callable[[Formula], Formula]:
    """Make and register a loss of class scores from its formula, ``(rows, **settings) -> [r]``.

    Unless it declares "several-labels", a formula handles one class a row; several labels, or shares of them, become a
    weighted mean over rows of one class each.

    Args:
        name: how users name it.
        facts: what it declares.
        family: the group of similar losses that it is listed with.
        paper: where it comes from.
        verified: what it was checked against.
        of_batch: makes the settings for a batch from those given and the labels that count ``[b, K]``; for several
            labels only.
    """

    def make(formula: Formula) -> Formula:
        several = "several-labels" in facts

        @functools.wraps(formula)
        def loss(
            scores: Tensor,
            target: Tensor,
            weight: Tensor | None = None,
            valid: Tensor | None = None,
            *,
            reduction: str = "mean",
            **hyper: Any,
        ) -> Tensor:
            check_reduction(reduction), check_settings(hyper)
            _check(scores, target, valid)
            scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
            if of_batch is not None:
                labels = _shares(target, scores)
                hyper = of_batch(labels if valid is None else labels.masked_fill(~valid, 0.0), hyper)

            with torch.autocast(scores.device.type, enabled=False):
                values, active = (_of_labels if several else _of_classes)(formula, hyper, scores, target, valid)
            return reduce(values, weight, active, reduction)

        check_settings = take_settings(loss, formula)
        return register("class_loss", name, *facts, family=family, paper=paper, verified=verified)(loss)

    return make


def _check(scores: Tensor, target: Tensor, valid: Tensor | None) -> None:
    check_tensor("scores", scores), check_tensor("target", target)
    if scores.ndim != 2 or not scores.is_floating_point() or not scores.shape[1]:
        raise ValueError(f"scores: expected floating numbers [b, K], got {scores.dtype} {tuple(scores.shape)}")
    check_valid(valid, scores)
    b, classes = scores.shape
    if target.shape == scores.shape:
        if target.numel() and not 0 <= min(ends := _ends(target)) <= max(ends) <= 1:
            raise ValueError("target: expected numbers from 0 to 1 [b, K], got some outside")
        return
    if target.shape != (b,) or target.is_floating_point() or target.dtype == torch.bool:
        raise ValueError(
            f"target: expected whole numbers [{b}], or [{b}, {classes}] from 0 to 1, got {target.dtype} of shape "
            f"{tuple(target.shape)}"
        )
    if b and not 0 <= min(ends := _ends(target)) <= max(ends) < classes:
        raise ValueError(f"target: expected classes 0 to {classes - 1}, got {ends[0]} to {ends[1]}")


def _ends(target: Tensor) -> tuple[float, float]:
    low, high = target.detach().aminmax()
    return low.item(), high.item()


Rows = tuple[Tensor, Tensor]


def _shares(target: Tensor, scores: Tensor) -> Tensor:
    """Of the classes, ``[r, K]``."""
    if target.ndim == 1:
        return nn.functional.one_hot(target, scores.shape[1]).to(scores.dtype)
    return target.to(torch.promote_types(scores.dtype, torch.float32))


def _of_labels(formula: Formula, hyper: Settings, scores: Tensor, target: Tensor, valid: Tensor | None) -> Rows:
    """Values of rows whose labels count each for itself, and which rows have a class that counts."""
    shares = _shares(target, scores)
    every = torch.arange(len(scores), device=scores.device)
    if valid is None:
        return formula(ClassScores(scores, shares, None, every), **hyper), every >= 0
    active = valid.any(-1)
    scores, shares = scores.masked_fill(~valid, 0.0), shares.masked_fill(~valid, 0.0)
    return formula(ClassScores(scores, shares, valid | ~active[:, None], every), **hyper), active


def _of_classes(formula: Formula, hyper: Settings, scores: Tensor, target: Tensor, valid: Tensor | None) -> Rows:
    """Values of rows of one class, or their mean over the shares of a row; and which rows have a class that counts."""
    shares = _shares(target, scores) if target.ndim == 2 else None
    if shares is None:
        row, mass = torch.arange(len(scores), device=scores.device), scores.new_ones(0)
    else:
        row, target = (shares if valid is None else shares * valid).nonzero(as_tuple=True)
        mass = shares[row, target]
    if shares is not None and not torch.equal(row, torch.arange(len(scores), device=row.device)):
        scores, valid = scores[row], None if valid is None else valid[row]
    active = torch.ones_like(target, dtype=torch.bool)
    if valid is not None:  # a row whose class does not count is one of zeros without gradient
        active = valid.gather(1, target[:, None])[:, 0]
        scores = scores.masked_fill(~(valid & active[:, None]), 0.0)
        valid = valid | ~active[:, None]
    values = formula(ClassScores(scores, target, valid, row), **hyper)
    if shares is None:
        return values, active
    empty = shares.new_zeros(len(shares))
    total = empty.index_add(0, row, mass)
    return empty.index_add(0, row, mass * values) / torch.where(total > 0, total, 1.0), total > 0


class ClassLoss(nn.Module):
    """A registered loss of class scores with its settings: ``loss(scores, target, weight=None, valid=None)``.

    As ``loss=`` of a classifier it sees the logarithm of the predicted probabilities, which are scores of the classes;
    a loss of several labels sees their log odds.

    Args:
        name: of ``vicinal.core.entries("class_loss")``.
        reduction: "mean", "sum", "none" or "mean_nonzero".
        hyper: settings of the loss.

    >>> ClassLoss("comp_sum", tau=2.0)(torch.zeros(1, 4), torch.tensor([1]))
    tensor(0.7500)
    """

    def __init__(self, name: str, *, reduction: str = "mean", **hyper: Any) -> None:
        super().__init__()
        registered = entry("class_loss", name)
        self.loss, self.facts = registered.factory, registered.facts
        for setting in hyper:
            check_choice("setting", setting, own_settings(self.loss))
        self.reduction, self.hyper = check_reduction(reduction), hyper

    def forward(
        self, scores: Tensor, target: Tensor, weight: Tensor | None = None, valid: Tensor | None = None
    ) -> Tensor:
        """The loss.

        Args:
            scores: ``[b, K]``, higher = more likely.
            target: classes ``[b]``, or shares of the classes ``[b, K]`` in [0, 1].
            weight: >= 0, one for each row.
            valid: boolean ``[b, K]``; False leaves a class out. A label of such a class does not count, nor a row
                without any other.
        """
        return self.loss(scores, target, weight, valid, reduction=self.reduction, **self.hyper)

    def extra_repr(self) -> str:
        """Name and settings, for ``print``."""
        settings = [f"{name}={value!r}" for name, value in {**self.hyper, "reduction": self.reduction}.items()]
        return ", ".join([self.loss.__name__, *settings])


LARGEST_EXPONENT = 60.0
"""Beyond it an exponential goes on as a straight line, so that sums of it stay finite in float32."""


def bounded_exp(x: Tensor) -> Tensor:
    """The exponential, beyond :data:`LARGEST_EXPONENT` its tangent there."""
    return x.clamp(max=LARGEST_EXPONENT).exp() * (1 + (x - LARGEST_EXPONENT).relu())


def check_row_numbers(ids: Tensor, rows: int, most: int) -> None:
    """Check that ``ids`` are different whole numbers ``[rows]`` from 0 to below ``most``."""
    if ids.shape != (rows,) or ids.is_floating_point() or ids.dtype == torch.bool:
        raise ValueError(f"ids: expected whole numbers [{rows}], got {ids.dtype} of shape {tuple(ids.shape)}")
    if rows and not 0 <= int(ids.min()) <= int(ids.max()) < most:
        raise ValueError(f"ids: expected numbers of rows, 0 to {most - 1}, got {int(ids.min())} to {int(ids.max())}")
    if rows and int(ids.bincount().max()) > 1:
        raise ValueError("ids: expected each row once in a batch, got one twice")
