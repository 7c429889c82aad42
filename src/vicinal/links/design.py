"""From a wish ("high scores matter five times as much") to a link."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

from vicinal.core import check_between, check_choice, check_number
from vicinal.links.base import Curve
from vicinal.links.high_norms import Sinh
from vicinal.links.kinked import HuberGrad
from vicinal.links.low_norms import Arcsinh, Identity
from vicinal.links.one_sided import AntiExp, Exp

Region = Literal["high", "low", "low_norm", "high_norm"]


def design(
    sensitive: tuple[float, float] | Region,
    *,
    around: float = 0.0,
    width: float = 1.0,
    ratio: float = 5.0,
    cap: float | None = None,
) -> Curve:
    """A link that is ``ratio`` times as steep where it matters; ``note`` of what is returned says what was chosen.

    Args:
        sensitive: an interval (lo, hi): steep inside it, exactly; "high" or "low": steeper by ``ratio`` with every
            ``width`` up or down the axis; "low_norm": steepest at ``around``, by ``ratio`` over a ``width`` off it;
            "high_norm": the opposite.
        around: the score that the region is placed by, where the slope is 1 (not used for an interval).
        width: > 0, the distance over which the slope changes by ``ratio``.
        ratio: > 1, slope inside over slope outside. A matching loss feels the square root of it in the error.
        cap: distance from ``around`` (for an interval, from its middle) beyond which the link goes on straight, so
            that far outliers pull no more than linearly; None for no cap.

    Raises:
        ValueError: for a ratio not above 1, an empty interval or an unknown region.

    >>> import torch
    >>> link = design("high", ratio=4.0, cap=3.0)
    >>> link.slope(torch.tensor([0.0, 1.0, 9.0]))
    tensor([ 1.,  4., 64.])
    >>> link.note
    'Exp with scale 1.386 (slope 1 at 0, 4 times as much for every 1 up), straight beyond -3 and 3'
    """
    check_between("ratio", ratio, 1, math.inf)
    check_between("width", width, 0, math.inf)
    check_number("around", around)
    if isinstance(sensitive, str):
        maker = _MAKERS[check_choice("sensitive", sensitive, _MAKERS)]
        link, note = maker(around, width, ratio)
        middle = around
    else:
        link, note, middle = _interval(sensitive, ratio)
    if cap is not None:
        check_between("cap", cap, 0, math.inf)
        link = link.cap(middle - cap, middle + cap)
        note += f", straight beyond {middle - cap:g} and {middle + cap:g}"
    link.note = note
    return link


def _interval(sensitive: tuple[float, float], ratio: float) -> tuple[Curve, str, float]:
    low, high = (check_number("sensitive", end) for end in sensitive)
    if not low < high:
        raise ValueError(f"sensitive: expected an interval with low < high, got {sensitive}")
    middle, half = (low + high) / 2, (high - low) / 2
    link = Identity(shift=middle, amplitude=1 / ratio) + HuberGrad(half, shift=middle, amplitude=1 - 1 / ratio)
    return link, f"straight lines: slope 1 from {low:g} to {high:g}, {1 / ratio:.4g} outside", middle


def _high(around: float, width: float, ratio: float) -> tuple[Curve, str]:
    scale = math.log(ratio) / width
    note = f"Exp with scale {scale:.4g} (slope 1 at {around:g}, {ratio:g} times as much for every {width:g} up)"
    return Exp(scale, around, 1 / scale), note


def _low(around: float, width: float, ratio: float) -> tuple[Curve, str]:
    scale = math.log(ratio) / width
    note = f"AntiExp with scale {scale:.4g} (slope 1 at {around:g}, {ratio:g} times as much for every {width:g} down)"
    return AntiExp(scale, around, 1 / scale), note


def _low_norm(around: float, width: float, ratio: float) -> tuple[Curve, str]:
    scale = math.sqrt(ratio * ratio - 1) / width
    note = f"Arcsinh with scale {scale:.4g} (slope 1 at {around:g}, 1/{ratio:g} at a distance of {width:g})"
    return Arcsinh(scale, around, 1 / scale), note


def _high_norm(around: float, width: float, ratio: float) -> tuple[Curve, str]:
    scale = math.acosh(ratio) / width
    note = f"Sinh with scale {scale:.4g} (slope 1 at {around:g}, {ratio:g} at a distance of {width:g})"
    return Sinh(scale, around, 1 / scale), note


_MAKERS: Mapping[str, Callable[[float, float, float], tuple[Curve, str]]] = {
    "high": _high,
    "low": _low,
    "low_norm": _low_norm,
    "high_norm": _high_norm,
}
