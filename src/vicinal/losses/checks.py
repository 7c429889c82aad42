"""What every loss checks in a call, and how it reduces."""

import math
from typing import get_args

import torch
from torch import Tensor

from vicinal.core import Reduction, check_choice


def check_scores_like(prediction: Tensor, target: Tensor, *, classes: bool = False) -> Tensor:
    """Check that both are floating tensors of one shape; returns ``target`` in the dtype of ``prediction``.

    Raises:
        TypeError: for anything but floating tensors.
        ValueError: for different shapes, or scores without a dimension of classes where one is needed.
    """
    for name, value in (("prediction", prediction), ("target", target)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
        if not value.is_floating_point():
            raise TypeError(f"{name}: expected scores of a floating dtype, got {value.dtype}; call .float() on it")
    if prediction.shape != target.shape:
        raise ValueError(
            f"target: expected the shape of the prediction, {tuple(prediction.shape)}, got {tuple(target.shape)}"
        )
    if classes and (prediction.ndim < 1 or prediction.shape[-1] < 1):
        raise ValueError(f"prediction: expected [..., K] scores of K classes, got {tuple(prediction.shape)}")
    return target.to(prediction.dtype)


def check_valid(valid: Tensor | None, scores: Tensor) -> None:
    """Check that ``valid``, if given, is boolean and of the shape of ``scores``."""
    if valid is None:
        return
    if not isinstance(valid, Tensor) or valid.dtype != torch.bool:
        raise TypeError(f"valid: expected a boolean tensor, got {getattr(valid, 'dtype', type(valid).__name__)}")
    if valid.shape != scores.shape:
        raise ValueError(f"valid: expected the shape of the scores, {tuple(scores.shape)}, got {tuple(valid.shape)}")


def check_domain(
    name: str, scores: Tensor, domain: tuple[float, float], closed: tuple[bool, bool], valid: Tensor | None = None
) -> None:
    """Check that all ``scores`` (of valid classes) lie in ``domain``; costs nothing where it has no end.

    Raises:
        ValueError: naming the first score outside, and the domain.
    """
    low, high = domain
    if math.isinf(low) and math.isinf(high):
        return
    with torch.no_grad():
        below = scores < low if closed[0] or math.isinf(low) else scores <= low
        above = scores > high if closed[1] or math.isinf(high) else scores >= high
        outside = below | above
        if valid is not None:
            outside = outside & valid
        if bool(outside.any()):
            value = float(scores[outside][0])
            left, right = (
                "[" if closed[0] and math.isfinite(low) else "(",
                "]" if closed[1] and high < math.inf else ")",
            )
            raise ValueError(
                f"{name}: expected scores in {left}{low:g}, {high:g}{right}, the domain of the link, got {value:g}; "
                "rescale the scores, clamp them, or give the link .cap(low, high)"
            )


def check_reduction(reduction: str) -> str:
    """Return ``reduction`` if it is one that :func:`reduce` knows."""
    return check_choice("reduction", reduction, get_args(Reduction))


def spread_weight(weight: Tensor, shape: torch.Size) -> Tensor:
    """``weight`` of ``shape``, or of its first dimensions, expanded to ``shape``.

    Raises:
        ValueError: for any other shape.
    """
    if weight.shape != shape[: weight.ndim]:
        raise ValueError(
            f"weight: expected the shape of the losses, {tuple(shape)}, or one a row, got {tuple(weight.shape)}"
        )
    return weight.reshape(*weight.shape, *[1] * (len(shape) - weight.ndim)).expand(shape)


def reduce(values: Tensor, weight: Tensor | None, active: Tensor | None, reduction: str) -> Tensor:
    """Reduce ``values`` with ``weight``, as torch does: a weighted mean divides by the sum of the weights.

    Args:
        values: ``[...]``.
        weight: >= 0, of the shape of ``values`` or of its first dimensions (a weight for each row); 0 leaves out.
        active: boolean, of the shape of ``values``; what is not active is 0 and does not count.
        reduction: "mean", "sum", "none" or "mean_nonzero" (the weighted mean over what is not 0).

    >>> reduce(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 1.0]), None, "mean")
    tensor(2.)
    """
    if weight is not None:
        weight = spread_weight(weight, values.shape).to(values.dtype)
    if active is not None:
        values = torch.where(active, values, 0.0)
        weight = active.to(values.dtype) if weight is None else torch.where(active, weight, 0.0)
    if weight is not None:  # a loss that does not count may be infinite
        values = torch.where((weight == 0) & ~values.isfinite(), 0.0, values)
    weighted = values if weight is None else weight * values
    if reduction == "none":
        return weighted
    if reduction == "sum":
        return weighted.sum()
    if reduction == "mean_nonzero":
        counted = (values != 0).to(values.dtype)
        weight = counted if weight is None else weight * counted
    if weight is None:
        return weighted.mean() if values.numel() else weighted.sum()
    total = weight.sum()
    return weighted.sum() / torch.where(total > 0, total, 1.0)
