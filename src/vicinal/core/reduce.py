"""Reduction of row values, and a logarithm of masks with finite gradients."""

from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core.checks import check_choice

Reduction = Literal["mean", "sum", "none", "mean_nonzero"]


def reduce_rows(values: Tensor, active: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    """Reduce ``values [b]`` over the rows that count.

    Args:
        values: ``[b]``, one value a row.
        active: boolean ``[b]``; a row that is not active counts as 0 and is left out of the mean. None: all count.
        reduction: "mean" over active rows, "sum", "none" (gives ``[b]``), "mean_nonzero" over active rows whose
            value is not 0. The mean over no rows is 0.

    >>> reduce_rows(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([True, False, True]))
    tensor(2.)
    """
    check_choice("reduction", reduction, get_args(Reduction))
    if active is not None:
        values = torch.where(active, values, 0.0)
    if reduction == "none":
        return values
    total = values.sum()
    if reduction == "sum":
        return total
    if reduction == "mean_nonzero":
        rows = values != 0
    else:
        rows = torch.ones_like(values, dtype=torch.bool) if active is None else active
    wide = torch.promote_types(values.dtype, torch.float32)  # half precision cannot hold a large count
    return (total.to(wide) / rows.sum().clamp(min=1)).to(values.dtype)


def log_mask(mask: Tensor) -> Tensor:
    """Natural log of ``mask`` (values >= 0): -inf where it is 0, with gradient 0 there instead of NaN.

    >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
    >>> log_mask(x)
    tensor([-inf, 0.], grad_fn=<WhereBackward0>)
    """
    positive = mask > 0
    return torch.where(positive, torch.where(positive, mask, 1.0).log(), -torch.inf)
