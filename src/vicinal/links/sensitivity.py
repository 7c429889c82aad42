"""Where a link is sensitive, and how much; and from a wish ("high scores matter five times as much") to a link."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_number
from vicinal.links.curve import Curve
from vicinal.links.high_norms import Sinh
from vicinal.links.low_norms import Arcsinh, HuberGrad, Identity
from vicinal.links.one_sided import AntiExp, Exp

Scores = float | tuple[float, float] | Tensor
"""One score, an interval of scores that are equally likely, or observed scores."""

ClassRegion = Literal["high-scores", "low-scores", "high-norms", "low-norms", "uniform"]


def slope(link: Curve, score: Tensor) -> Tensor:
    """h'(score): a small error d there costs h' d^2 / 2. Of the shape of ``score``.

    >>> from vicinal.links import Sigmoid
    >>> slope(Sigmoid(), torch.tensor([0.0, 4.0]))
    tensor([0.2500, 0.0177])
    """
    return link.slope(score)


def _mean_link(link: Curve, name: str, scores: Scores) -> Tensor:
    """The mean of the link over one score, an interval of scores that are equally likely, or observed scores."""
    if isinstance(scores, Tensor):
        if scores.numel() == 0 or not scores.is_floating_point():
            raise ValueError(
                f"{name}: expected at least one observed score, floating, got {list(scores.shape)} of {scores.dtype}"
            )
        values: Tensor = link(scores.double())
        return values.mean()
    if not isinstance(scores, tuple):
        value: Tensor = link(torch.tensor(check_number(name, scores), dtype=torch.float64))
        return value
    start, end = torch.tensor([check_number(name, score) for score in scores], dtype=torch.float64)
    if not start < end:
        raise ValueError(f"{name}: expected an interval that begins below its end, got {scores}")
    mean: Tensor = link(start) + link.divergence(end, start) / (end - start)  # (H(end) - H(start)) / (end - start)
    return mean


def _span(link: Curve, low: Scores, high: Scores) -> Tensor:
    first, second = _mean_link(link, "low", low), _mean_link(link, "high", high)
    if isinstance(low, float | int) and isinstance(high, float | int) and not low < high:
        raise ValueError(f"high: expected a score above low ({low:g}), got {high:g}")
    span = second - first
    if not bool(span > 0):
        raise ValueError(f"link: expected one that rises between low and high, got {link!r}")
    return span


def bust(link: Curve, score: Tensor, step: float, low: Scores, high: Scores) -> Tensor:
    r"""$\frac{h(w+d)-h(w)}{h(S_M)-h(S_m)}$ (definition 1): the share of the link's rise that a step at a score takes.

    The rise is that from the lowest score $S_m$ to the highest $S_M$; the shares of steps that lead from one to the
    other sum to 1. Why it matters (theorem 1): a model with a single score w, fitted to observations of which a share
    $\pi$ is $S_M$ and the rest $S_m$, has $h(w) = \pi h(S_M) + (1-\pi)\,h(S_m)$. So the share of the rise is how much
    $\pi$ has to grow to move the fit from w to w + d.

    The same holds for other distributions of the observations, with the mean of h over each in place of $h(S_M)$ and
    $h(S_m)$: for scores uniform on an interval that is $\frac{H(b)-H(a)}{b-a}$, for observed scores their mean of h.
    (Derived from the definition, without having seen the paper's treatment of other distributions.)

    Args:
        link: a monotone link.
        score: w, any shape.
        step: d > 0.
        low: S_m, the lowest observed score; or (a, b), or observed scores of any shape.
        high: S_M, the highest observed score; likewise.

    Returns:
        Of the shape and dtype of ``score``; between 0 and 1 where w and w + d lie between the two.

    Raises:
        ValueError: for a step that is not above 0, an interval or a tensor without scores, or a link whose mean does
            not rise between ``low`` and ``high``.

    >>> from vicinal.links import Identity
    >>> bust(Identity(), torch.tensor([0.0]), 0.5, -1.0, 1.0)
    tensor([0.2500])
    >>> bust(Identity(), torch.tensor([0.0]), 0.5, (-1.0, 0.0), (0.0, 1.0))  # means of -1/2 and 1/2
    tensor([0.5000])
    """
    check_between("step", step, 0, float("inf"))
    wide = score.double()  # the difference of two values of the link has few digits of a narrower one
    return ((link(wide + step) - link(wide)) / _span(link, low, high).to(wide)).to(score.dtype)


def blust(link: Curve, score: Tensor, low: Scores, high: Scores) -> Tensor:
    r"""$\frac{h'(w)}{h(S_M)-h(S_m)}$: the limit of :func:`bust` over its step, as the step gets small.

    Arguments are those of :func:`bust`.

    >>> from vicinal.links import Identity
    >>> blust(Identity(), torch.tensor([0.0]), -1.0, 1.0)
    tensor([0.5000])
    """
    return link.slope(score) / _span(link, low, high).to(score)


def wide_slope(link: Curve, score: Tensor, step: float) -> Tensor:
    r"""$\frac{2}{d^2}\bigl(H(w+d)-H(w)-d\,h(w)\bigr)$: what :func:`slope` is for errors that are not small.

    It is the matching loss of a prediction w + d where w is observed, divided by half the squared error; for small d it
    tends to h'(w), and for the identity it is 1 everywhere. Errors up and down differ: it is the mean slope between w
    and w + d, weighted by the distance left to w + d. (Our reading of the paper's sensitivity of large regions.)

    Args:
        link: a monotone link.
        score: w, any shape.
        step: d, not 0; below 0 for errors downward.

    Returns:
        Of the shape and dtype of ``score``.

    >>> from vicinal.links import Exp
    >>> wide_slope(Exp(), torch.zeros(1), 1.0), wide_slope(Exp(), torch.zeros(1), -1.0)
    (tensor([1.4366]), tensor([0.7358]))
    """
    if check_number("step", step) == 0:
        raise ValueError("step: expected a number other than 0, got 0; slope(link, score) is the limit")
    wide = score.double()
    return (2 * link.divergence(wide + step, wide) / step**2).to(score.dtype)


def class_slope(scaling: Curve, scores: Tensor, gamma: float = 1.0, valid: Tensor | None = None) -> Tensor:
    r"""$p_k\,\bigl(q'(z_k)+(1-p_k)\,q(z_k)^2/\gamma\bigr)$: the slope of each class's link in its own score (B.5).

    Args:
        scaling: the curve q of a composite softmax loss.
        scores: ``[..., K]``.
        gamma: the temperature of the softmax, > 0.
        valid: boolean ``[..., K]``; a class that is not valid has slope 0.

    Returns:
        ``[..., K]``; a negative value shows where condition G.2 fails.

    >>> from vicinal.links import Constant
    >>> class_slope(Constant(), torch.zeros(2))
    tensor([0.2500, 0.2500])
    """
    check_between("gamma", gamma, 0, float("inf"))
    if valid is not None:
        scores = torch.where(valid, scores, 0.0)
    logits = scaling.primitive(scores) / gamma
    if valid is not None:
        logits = torch.where(valid, logits, -torch.inf)
    p = logits.softmax(-1)
    return p * (scaling.slope(scores) + (1 - p) * scaling(scores) ** 2 / gamma)


def class_region(
    scaling: Curve, low: float = -3.0, high: float = 3.0, *, classes: int = 4, gamma: float = 1.0
) -> ClassRegion:
    r"""Where a composite softmax of a scaling is sensitive: at which scores of classes that are close to one another.

    K classes with the same score z share the mass equally, and an error in one of them is felt with
    $q'(z)+(1-\tfrac1K)\,q(z)^2/\gamma$ (times 1/K, see :func:`class_slope`). Its means over the lowest, the middle and
    the highest third of the scores decide: the highest more than twice the lowest, "high-scores"; less than half of it,
    "low-scores"; else both ends more than 1.5 times the middle, "high-norms"; the middle more than 1.5 times both,
    "low-norms"; else "uniform". For a scaling, its size matters as well as its slope, so the region can differ from
    that of the link for one score: tanh and sigmoid are not "low-norms" here. With a large gamma only the slope
    matters, as in the decomposed loss, which is the surer way to low norms.

    Args:
        scaling: the curve q.
        low: the lowest score, cut to the domain of the scaling.
        high: the highest score, likewise.
        classes: K, at least 2.
        gamma: the temperature of the softmax, > 0.

    >>> from vicinal.links import Arcsinh, Sinh
    >>> class_region(Sinh()), class_region(Sinh(shift=-2.0)), class_region(Sinh(shift=2.0)), class_region(Arcsinh())
    ('high-norms', 'high-scores', 'low-scores', 'high-norms')
    """
    check_integer("classes", classes, 2)
    first, last = (check_number(name, end) for name, end in (("low", low), ("high", high)))
    first, last = max(first, scaling.domain[0]), min(last, scaling.domain[1])
    if not first < last:
        raise ValueError(f"high: expected scores above low inside {scaling.domain}, got {low:g} and {high:g}")
    places = torch.linspace(first, last, 302, dtype=torch.float64)[1:-1]
    felt = class_slope(scaling, places[:, None].expand(-1, classes), gamma)[:, 0]
    left, middle, right = felt.reshape(3, -1).mean(1).tolist()
    if right > 2 * left:
        return "high-scores"
    if left > 2 * right:
        return "low-scores"
    if min(left, right) > 1.5 * middle:
        return "high-norms"
    return "low-norms" if middle > 1.5 * max(left, right) else "uniform"


def design(
    sensitive: tuple[float, float] | Literal["high", "low", "low_norm", "high_norm"],
    *,
    around: float = 0.0,
    width: float = 1.0,
    ratio: float = 5.0,
    cap: float | None = None,
) -> Curve:
    """A link that is ``ratio`` times as steep where it matters; its ``note`` says what was chosen.

    Args:
        sensitive: an interval (lo, hi): steep inside it, exactly; "high" or "low": steeper by ``ratio`` with every
            ``width`` up or down the axis; "low_norm": steepest at ``around``, by ``ratio`` over a ``width`` off it;
            "high_norm": the opposite.
        around: the score that the region is placed by, where the slope is 1 (not used for an interval).
        width: > 0, the distance over which the slope changes by ``ratio``.
        ratio: > 1, slope inside over slope outside. In a matching loss, errors inside then weigh like errors outside
            that are sqrt(ratio) times as large.
        cap: distance from ``around`` (for an interval, from its middle) beyond which the link goes on straight, so that
            the pull of far outliers grows only linearly; None for no cap.

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
