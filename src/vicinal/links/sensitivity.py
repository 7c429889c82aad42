"""How sensitive a link is at a score; and from a wish ("high scores matter five times as much") to a link."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_number
from vicinal.links.curve import Curve
from vicinal.links.high_norms import Sinh
from vicinal.links.low_norms import Arcsinh, HuberGrad, Identity
from vicinal.links.one_sided import AntiExp, Exp
from vicinal.links.shaped import Shaped

Density = Callable[[Tensor], Tensor]
"""Of scores, up to a factor: an elementwise function of torch, >= 0."""

_CELLS = 2**14


def slope(link: Curve, score: Tensor) -> Tensor:
    """h'(score): a small error d there costs h' d^2 / 2. Of the shape of ``score``.

    >>> from vicinal.links import Sigmoid
    >>> slope(Sigmoid(), torch.tensor([0.0, 4.0]))
    tensor([0.2500, 0.0177])
    """
    return link.slope(score)


@torch.no_grad()
def grows_exponentially(link: Curve, low: float, high: float) -> bool:
    r"""Whether a link grows, beyond scores from ``low`` to ``high``, as an exponential or to a pole, not as a power.

    On either side, at $t_i = 4, 8, 16$ half widths from the middle: of $z^d$ the logarithm of the slope rises as much
    from $t_2$ to $t_3$ as from $t_1$ to $t_2$; of $e^{az}$ twice as much.

    >>> from vicinal.links import parse
    >>> [grows_exponentially(parse(text), -2.0, 2.0) for text in ("exp", "tan(0.3)", "signed_power(3)", "tanh")]
    [True, True, False, False]
    """
    middle, half = (low + high) / 2, (high - low) / 2
    for side, closed in zip((-1, 1), link.closed, strict=True):
        scores = middle + side * half * torch.tensor([4.0, 8.0, 16.0], dtype=torch.float64)
        end = link.domain[(side + 1) // 2]
        if math.isfinite(end):
            if not closed and (end - middle) * side > half:  # a pole
                return True
            continue
        slopes = link.slope(scores)
        first, second = slopes.log().diff().tolist()
        if bool(slopes.isinf().any()) or second > 1.5 * first + 1e-6 > 0:
            return True
    return False


def _cells(low: float, high: float, cells: int) -> tuple[Tensor, Tensor]:
    """The ends ``[cells + 1]`` and the middles ``[cells]`` of equal cells of an interval."""
    ends = torch.linspace(low, high, cells + 1, dtype=torch.float64)
    return ends, (ends[1:] + ends[:-1]) / 2


def _dense(density: Density | None, scores: Tensor) -> Tensor:
    """The density at scores; 1 for None."""
    if density is None:
        return torch.ones_like(scores)
    values = density(scores)
    if not isinstance(values, Tensor) or values.shape != scores.shape or not bool((values >= 0).all()):
        raise ValueError("density: expected a function of torch with one number of at least 0 for each score")
    return values


def _reach(link: Curve, low: float, high: float, density: Density | None, power: int = 0) -> Tensor:
    r"""$\int w^k\rho(w)\,dh(w)$ from ``low`` to ``high``, jumps of the link included."""
    first, last = check_number("low", low), check_number("high", high)
    if not first < last:
        raise ValueError(f"high: expected a score above low ({first:g}), got {last:g}")
    ends, middles = _cells(first, last, 1 if density is None and not power else _CELLS)
    rise = link.rise(ends[1:], ends[:-1])
    reach = (_dense(density, middles) * middles**power * rise).sum()
    if not 0 < reach < math.inf:
        raise ValueError(f"link: expected one that rises by a finite amount between low and high, got {link!r}")
    return reach


def _wide_shift(
    link: Curve, score: Tensor, step: float, low: float, high: float, density: Density | None, width: float
) -> Tensor:
    """The shift of the optimum over ``width``, by equation 12: by bisection, as both sides rise with the shift."""
    if bool(((score - width / 2 < low) | (score + width / 2 > high)).any()):
        raise ValueError(f"width: expected intervals around the scores inside {low:g} to {high:g}, got {width:g}")
    share = torch.linspace(-0.5, 0.5, 513, dtype=torch.float64)
    inside = score[..., None] + width * (share[1:] + share[:-1]) / 2  # [..., 512]
    _, middles = _cells(low, high, 2048)

    def moved(places: Tensor, shift: Tensor) -> Tensor:
        """By a shift [...], in the mean over places of a density: of the link, or of H at the ends."""
        return (_dense(density, places) * link.rise(places + shift[..., None], places)).mean(-1)

    def primitive(place: Tensor, shift: Tensor) -> Tensor:
        return link.divergence(place + shift, place) + shift * link(place)  # H(z + d) - H(z)

    ends = [torch.full_like(score, end) for end in (low, high)]
    full = torch.full_like(score, step)
    if density is None:
        pull = (primitive(score + width / 2, full) - primitive(score - width / 2, full)) / (high - low)
    else:
        pull = moved(inside, full) * (width / (high - low))
    least, most = torch.zeros_like(score), torch.ones_like(score)  # in steps
    for _ in range(60):
        half = (least + most) / 2
        shift = half * step
        if density is None:
            answer = (primitive(ends[1], shift) - primitive(ends[0], shift)) / (high - low)
        else:
            answer = moved(middles, shift)
        short = answer.abs() < pull.abs()
        least, most = torch.where(short, half, least), torch.where(short, most, half)
    return (least + most) / 2 * step / width


def bust(
    link: Curve,
    score: Tensor,
    step: float,
    low: float,
    high: float,
    *,
    density: Density | None = None,
    width: float = 0.0,
) -> Tensor:
    r"""$\frac{h(w+d)-h(w)}{h(S_M)-h(S_m)}$: how far a biased interval of scores moves the optimum (theorem 1, BUST).

    A model predicts scores w, uniform on $[S_m, S_M]$, and is right, except in an interval of length $\tau$ around one
    score, where w + d is observed. It cannot tell that interval from the rest, so all it can do is to add one number
    $\hat\delta$ to every prediction. Definition 1 is the limit of $\hat\delta/\tau$ for small $\tau$. Where the link
    rises steeply, a bias moves the model far: it gives way to what is observed there.

    Of scores of a density $\rho$ it is $\rho(w)\,(h(w+d)-h(w)) / \int\rho\,h'$; with a ``width`` it is
    $\hat\delta/\tau$ of an interval of that length, which solves equation 12 (by H; by sums for a density).

    Args:
        link: a monotone link.
        score: $w_u$, any shape: the middle of the interval.
        step: d, the bias, not 0.
        low: $S_m$, the lowest score.
        high: $S_M$, the highest score.
        density: $\rho$ on [low, high], up to a factor; None: uniform.
        width: $\tau$; 0 for the limit. A wide interval has to lie between ``low`` and ``high``.

    Returns:
        Of the shape and dtype of ``score``, with the sign of the step.

    Raises:
        ValueError: for a step of 0, a ``high`` that is not above ``low``, a density below 0, a wide interval that lies
            outside, or a link that does not rise by a finite amount.

    >>> from vicinal.links import Identity, Sigmoid
    >>> bust(Identity(), torch.tensor([0.0]), 0.5, -1.0, 1.0)
    tensor([0.2500])
    >>> at = torch.tensor([0.7])
    >>> bust(Sigmoid(), at, 0.9, -3.0, 3.0, density=lambda w: torch.exp(-w * w / 2))  # normal scores
    tensor([0.2477])
    >>> bust(Sigmoid(), at, 0.9, -3.0, 3.0), bust(Sigmoid(), at, 0.9, -3.0, 3.0, width=2.0)
    (tensor([0.1810]), tensor([0.1775]))
    """
    reach, wide = _reach(link, low, high, density), score.double()
    if check_number("step", step) == 0:
        raise ValueError("step: expected a number other than 0, got 0; blust is the limit")
    if check_between("width", width, 0, high - low, closed=True):
        return _wide_shift(link, wide, step, low, high, density, width).to(score.dtype)
    return (_dense(density, wide) * link.rise(wide + step, wide) / reach).to(score.dtype)


def blust(link: Curve, score: Tensor, low: float, high: float, *, density: Density | None = None) -> Tensor:
    r"""$\frac{h'(w)}{h(S_M)-h(S_m)}$: the limit of :func:`bust` by its step, as the step gets small (BLUST).

    Of scores of a density it is $\rho(w)\,h'(w)/\int\rho\,h'$. Arguments are those of :func:`bust`.

    >>> from vicinal.links import Identity
    >>> blust(Identity(), torch.tensor([0.0]), -1.0, 1.0)
    tensor([0.5000])
    """
    return _dense(density, score) * link.slope(score) / _reach(link, low, high, density).to(score)


def llust(
    link: Curve, score: Tensor, step: float, low: float, high: float, *, density: Density | None = None
) -> Tensor:
    r"""$\frac{w\,\rho(w)\,(h(w+d)-h(w))}{\int w^2\rho\,h'}$: as :func:`bust`, of a model that can only scale (LLUST).

    Its prediction is $w\,(1+\hat\delta)$: what it lacks is a weight, not a constant. The same limit of
    $\hat\delta/\tau$ follows from the derivative of the mean loss by $\hat\delta$. Arguments are those of :func:`bust`.

    >>> from vicinal.links import Sigmoid
    >>> llust(Sigmoid(), torch.tensor([0.7]), 0.9, -3.0, 3.0)
    tensor([0.0692])
    """
    if check_number("step", step) == 0:
        raise ValueError("step: expected a number other than 0, got 0")
    reach, wide = _reach(link, low, high, density, 2), score.double()
    return (wide * _dense(density, wide) * link.rise(wide + step, wide) / reach).to(score.dtype)


def wide_slope(link: Curve, score: Tensor, step: float) -> Tensor:
    r"""$\frac{2}{d^2}\bigl(H(w+d)-H(w)-d\,h(w)\bigr)$: what :func:`slope` is for errors that are not small.

    It is the matching loss of a prediction w + d where w is observed, divided by half the squared error; for small d it
    tends to h'(w), and for the identity it is 1 everywhere. Errors up and down differ: it is the mean slope between w
    and w + d, weighted by the distance left to w + d. (How far a wide biased region moves a model, equation 12 of the
    paper, is :func:`bust` with a ``width``.)

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
        shape, reach, words = _SHAPES[check_choice("sensitive", sensitive, _SHAPES)]
        scale, middle = reach(ratio) / width, around
        link: Curve = shape(scale, around, 1 / scale)
        words = words.format(ratio=ratio, width=width)
        note = f"{shape.__name__} with scale {scale:.4g} (slope 1 at {around:g}, {words})"
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


_SHAPES: Mapping[str, tuple[type[Shaped], Callable[[float], float], str]] = {
    "high": (Exp, math.log, "{ratio:g} times as much for every {width:g} up"),
    "low": (AntiExp, math.log, "{ratio:g} times as much for every {width:g} down"),
    "low_norm": (Arcsinh, lambda ratio: math.sqrt(ratio * ratio - 1), "1/{ratio:g} at a distance of {width:g}"),
    "high_norm": (Sinh, math.acosh, "{ratio:g} at a distance of {width:g}"),
}
"""Of each kind of sensitivity the curve, its scale times the width where slopes differ by the ratio, and words."""
