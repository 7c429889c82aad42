"""Settings of curves: numbers, tensors that require grad, or learned positive numbers."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_number
from vicinal.links.numerics import Real


class Positive(nn.Module):
    """A learned number that stays above 0: the parameter is its logarithm.

    Args:
        start: its first value, > 0.

    >>> Positive(2.0)()
    tensor(2., grad_fn=<ExpBackward0>)
    """

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(check_between("start", start, 0, math.inf))))

    def forward(self) -> Tensor:
        """The number, a scalar tensor."""
        return self.log.exp()


Setting = float | Tensor | Positive


def read(setting: Setting) -> Real:
    """The value of a setting: a number, a tensor, or what a :class:`Positive` holds now."""
    return setting() if isinstance(setting, Positive) else setting


def number(setting: Setting) -> float:
    """The value of a setting as a Python number."""
    value = read(setting)
    return float(value.detach()) if isinstance(value, Tensor) else value


def check_setting(name: str, value: object, *, positive: bool = False) -> Any:
    """Return ``value`` if it is a finite number, a scalar tensor or a :class:`Positive`; > 0 where asked."""
    if isinstance(value, Positive):
        return value
    if isinstance(value, Tensor):
        if value.numel() != 1 or not value.is_floating_point():
            raise ValueError(f"{name}: expected one floating number, got {value.dtype} of shape {tuple(value.shape)}")
        plain = float(value.detach())
    else:
        plain = check_number(name, value)
    if positive:
        check_between(name, plain, 0, math.inf)
    check_number(name, plain)
    return value if isinstance(value, Tensor) else plain
