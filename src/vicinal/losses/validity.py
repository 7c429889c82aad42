"""Which links and scalings give a convex loss, checked when the loss is made, with the reason and a suggestion."""

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_number
from vicinal.links import AbsPower, CompositeSoftmax, Constant, Cosh, Curve, Exp, Flip, Multiple, Sinh
from vicinal.links.custom import FromTransform
from vicinal.links.numerics import number
from vicinal.links.ranges import Least, Range, least

PAPER = "Selective Matching Losses, arXiv:2506.04446"

Domain = tuple[float, float]
_ROUNDING = 1e-12


def limits(curve: Curve | CompositeSoftmax, domain: Domain | None = None) -> tuple[Domain, tuple[bool, bool]]:
    """The part of ``domain`` that a curve has, and whether its ends count.

    Raises:
        ValueError: if there is none, or an end is no number.

    >>> from vicinal.links import Log
    >>> limits(Log(), (-5.0, 5.0))
    ((0.0, 5.0), (False, True))
    """
    low, high = curve.domain
    if domain is not None:
        ends_of_domain = (check_number("domain", domain[0]), check_number("domain", domain[1]))
        low, high = max(low, ends_of_domain[0]), min(high, ends_of_domain[1])
        if not low < high:
            raise ValueError(f"domain: expected low < high inside {curve.domain}, got {domain}")
    ends = zip((low, high), curve.domain, curve.closed, strict=True)
    left, right = (end != last or counts for end, last, counts in ends)
    return (low, high), (left, right)


def check_link(link: object, domain: Domain | None = None) -> Curve:
    """Return ``link`` if it is a curve that never falls on ``domain`` (None: all of its own).

    Raises:
        TypeError: if it is not a curve.
        ValueError: if it falls somewhere, naming where.

    >>> from vicinal.links import Cosh
    >>> check_link(Cosh(), domain=(0.0, 4.0))
    Cosh()
    """
    if not isinstance(link, Curve):
        raise TypeError(
            f"link: expected a curve of vicinal.links, got {type(link).__name__}; a function becomes one by "
            "vicinal.links.from_callable, text by vicinal.links.parse"
        )
    if isinstance(link, Constant):
        raise ValueError("link: expected a link that rises somewhere, got Constant, whose loss is 0; use Identity")
    part, _ = limits(link, domain)
    if link.is_monotone:
        return link
    smallest = _least_slope(link, part)
    if smallest.value < 0:
        raise ValueError(
            f"link: expected a curve that never falls, got {link!r}, which falls at {smallest.at:.8g}; the loss would "
            "not be convex. Give domain=(low, high) where it rises, or use it as a scaling of a composite loss"
        )
    return link


def _least_slope(curve: Curve, domain: Domain) -> Least:
    """The smallest slope of a curve on a domain, as far as it has floating values."""

    def bounds(low: Tensor, high: Tensor) -> Range:
        lowest, highest = curve.slope_range(low, high)
        return lowest, torch.where(_has_values(curve, low), highest + _ROUNDING * highest.abs(), torch.nan)

    with torch.no_grad():
        return least(bounds, domain, curve.landmarks)


def _has_values(curve: Curve, scores: Tensor) -> Tensor:
    slope = curve.slope(scores)
    return curve(scores).isfinite() & curve.primitive(scores).isfinite() & ~slope.isnan() & (slope != -torch.inf)


class Verdict(NamedTuple):
    """What :func:`check_scaling` found.

    Attributes:
        convex: "jointly": the loss is convex in all scores together. "each": in each score while the others stay,
            where its class has at most half of the mass, and everywhere if there is a bias of at least 1.
        margin: the smallest q' + (1 - p) q^2 / gamma that was seen; >= 0.
        proven: whether bounds, or a rule, hold for all scores of the domain; else only scores were tried, as for a
            curve from a function.
    """

    convex: Literal["jointly", "each"]
    margin: float
    proven: bool = True


def check_scaling(
    scaling: object, gamma: float = 1.0, *, domain: Domain | None = None, classes: bool = False
) -> Verdict:
    r"""Check condition (G.2), $q'+(1-p)\,q^2/\gamma\ge0$, for a scaling that is not monotone.

    A monotone scaling always gives a jointly convex loss. For others p is $\sigma(Q/\gamma)$, against one competitor of
    score transform 1 (for several classes at most 1/2 below it). With several classes the condition makes the loss
    convex in each score, not in all together: along $v_k=1/q(z_k)$ the Hessian is $\sum_k p_kq'_k/q_k^2$, which needs
    q' >= 0. So such a loss of several classes may be negative and have other minima. In one score it is convex as long
    as a class whose q falls has at most half of the mass, which a bias of at least 1 ensures.

    The condition is checked on all of the domain, as far as the curve has floating values: by closed forms for
    :class:`Cosh` (gamma <= 1) and :class:`AbsPower` (c >= max(sqrt(2 gamma d), gamma d - 1/2)), shifted, scaled and
    mirrored as you like; for sums, caps and other combinations of named curves by bounds on q and q' over parts of the
    domain, which are halved until the bounds decide. For a plain function nothing is known between the scores tried.

    Args:
        scaling: the curve q.
        gamma: > 0.
        domain: scores that the loss will see; None: all.
        classes: True for a softmax over classes, False for a sigmoid.

    Raises:
        TypeError: if it is not a curve.
        ValueError: if the condition fails, naming where and what would help.

    >>> from vicinal.links import Cosh
    >>> check_scaling(Cosh(), gamma=0.7).convex
    'jointly'
    """
    if not isinstance(scaling, Curve):
        raise TypeError(
            f"scaling: expected a curve of vicinal.links, got {type(scaling).__name__}; text: vicinal.links.parse"
        )
    check_between("gamma", gamma, 0, math.inf)
    part, _ = limits(scaling, domain)
    if scaling.is_monotone:
        return Verdict("jointly", 0.0)
    slope = _least_slope(scaling, part)
    if slope.value >= 0:
        return Verdict("jointly", 0.0, slope.proven and scaling.ranges_are_bounds)
    convex: Literal["jointly", "each"] = "each" if classes else "jointly"
    smallest = _least_margin(scaling, gamma, part, classes=classes)
    if smallest.value < 0 and not _is_valid_form(scaling, gamma):
        raise ValueError(
            f"scaling: expected q' + (1 - p) q^2 / gamma >= 0 (condition G.2), got {smallest.value:.3g} at the score "
            f"{smallest.at:.8g} for {scaling!r} with gamma={gamma:g}; {_advice(scaling)}"
        )
    if _is_valid_form(scaling, gamma):
        return Verdict(convex, max(smallest.value, 0.0))
    return Verdict(convex, smallest.value, smallest.proven and scaling.ranges_are_bounds)


def _least_margin(scaling: Curve, gamma: float, domain: Domain, *, classes: bool) -> Least:
    """The smallest q' + (1 - p) q^2 / gamma on a domain."""

    def bounds(low: Tensor, high: Tensor) -> Range:
        slope_low, slope_high = scaling.slope_range(low, high)
        low_q, high_q = scaling.value_range(low, high)
        rest_low, rest_high = _rest_range(scaling, low, high, torch.maximum(low_q.abs(), high_q.abs()), gamma)
        if classes:
            rest_low, rest_high = rest_low.clamp(max=0.5), rest_high.clamp(max=0.5)
        squares = torch.stack([low_q, high_q]).square() / gamma
        bend_low = rest_low * torch.where(low_q * high_q > 0, squares.amin(0), 0.0)
        bend_high = rest_high * squares.amax(0)
        room = _ROUNDING * (slope_high.abs() + bend_high)
        lowest = torch.where(slope_low >= 0, slope_low, slope_low + bend_low.nan_to_num(0.0, torch.inf))
        highest = torch.where(slope_high >= 0, slope_high, slope_high + bend_high + room)
        return lowest, torch.where(_has_values(scaling, low), highest, torch.nan)

    with torch.no_grad():
        return least(bounds, domain, scaling.landmarks)


def _rest_range(scaling: Curve, low: Tensor, high: Tensor, steepest: Tensor, gamma: float) -> Range:
    """The range of 1 - p = sigma(-Q / gamma): from that of Q, whose slope q is at most ``steepest`` in size."""
    at_low, at_high = scaling.primitive(low), scaling.primitive(high)
    middle, width = (at_low + at_high) / 2, (high - low) / 2
    reach = torch.where(width > 0, steepest * width, 0.0)
    return torch.sigmoid(-(middle + reach) / gamma), torch.sigmoid(-(middle - reach) / gamma)


def _is_valid_form(scaling: Curve, gamma: float) -> bool:
    """Whether a curve is one that meets the condition on the whole axis: of the one p is at most 1/2 where it falls.

    Then q' + q^2 / (2 gamma) >= 0 is enough. cosh^2 - 2 gamma |sinh| is (1 - |sinh|)^2 + 2 (1 - gamma) |sinh|.
    """
    if isinstance(scaling, Multiple):
        return _is_valid_form(scaling.curve, gamma / number(scaling.factor))
    if isinstance(scaling, Flip):
        return _is_valid_form(scaling.curve, gamma)
    if isinstance(scaling, Cosh | AbsPower):
        gamma *= number(scaling.scale) / number(scaling.amplitude)
    if isinstance(scaling, Cosh):
        return gamma <= 1
    return isinstance(scaling, AbsPower) and scaling.c >= max(math.sqrt(2 * gamma * scaling.d), gamma * scaling.d - 0.5)


def _advice(scaling: Curve) -> str:
    name = type(scaling).__name__
    if name == "Cosh":
        return "use gamma <= 1/sqrt(2), or Sinh, which is monotone"
    if name == "AbsPower":
        return "use c >= max(sqrt(2 gamma d), gamma d - 1/2), or SignedPower, which is monotone"
    return "use a smaller gamma, a monotone scaling, or domain=(low, high)"


class _Refused(NamedTuple):
    reason: str
    instead: str


REFUSED: Mapping[str, _Refused] = {
    "abs_power": _Refused("f = |z|^d has q = d / z, which falls on both sides of 0", "AbsPower or SignedPower"),
    "exp_sigmoid": _Refused("f = e^sigmoid has q = sigmoid', a bump that falls for z > 0", "Sigmoid"),
    "exp_tanh": _Refused("f = e^tanh has q = 1 / cosh^2, a bump that falls for z > 0", "Tanh"),
    "softplus": _Refused("f = softplus has q = sigmoid / softplus, which falls", "Constant or Exp"),
    "sigmoid": _Refused("f = sigmoid has q = 1 - sigmoid, which falls", "Sigmoid, whose f is 1 + e^z"),
    "sinh_abs": _Refused("f = sinh|z| has q = coth z, which falls on both sides of 0", "Sinh or Cosh"),
}
KNOWN: Mapping[str, Callable[[], Curve]] = {"exp": Constant, "exp_exp": Exp, "exp_cosh": Sinh, "exp_sinh": Cosh}


def transform_margin(
    transform: Callable[[Tensor], Tensor], scores: Tensor, gamma: float = 1.0, *, classes: bool = True
) -> Tensor:
    r"""$\frac{f''}{f}-\bigl(1-\frac{1-p}{\gamma}\bigr)\bigl(\frac{f'}{f}\bigr)^2$: condition (G.2) for f = e^Q.

    With q = f'/f it is $q'+(1-p)\,q^2/\gamma$; the loss is convex in a score where it is at least 0. For gamma 1: with
    one score for two classes, p = f / (1 + f), that says ln(1 + f) is convex; with several, where a class has at most
    half of the mass (p = 1/2 is the worst), that the square root of f is. A transform whose logarithm is convex meets
    it for every p. Of one score it is the left side of corollary G.2 over f; :func:`first_fall` is the cheaper G.3.

    Args:
        transform: a positive elementwise function of torch, twice differentiable.
        scores: of any shape, floating.
        gamma: > 0.
        classes: True for p = 1/2, False for $p=f^{1/\gamma}/(1+f^{1/\gamma})$.

    Returns:
        Of the shape of ``scores``.

    >>> transform_margin(torch.exp, torch.zeros(1)), transform_margin(torch.nn.functional.softplus, torch.ones(1))
    (tensor([0.5000]), tensor([-0.0052]))
    """
    check_between("gamma", gamma, 0, math.inf)
    with torch.enable_grad():
        at = scores.detach().clone().requires_grad_()
        value = transform(at)
        (first,) = torch.autograd.grad(value.sum(), at, create_graph=True)
        second = torch.zeros_like(first)
        if first.requires_grad:
            (second,) = torch.autograd.grad(first.sum(), at)
    value, first = value.detach(), first.detach()
    rest = 0.5 if classes else torch.sigmoid(-value.log() / gamma)
    return second / value - (1 - rest / gamma) * (first / value) ** 2


def first_fall(transform: Callable[[Tensor], Tensor], scores: Tensor, gamma: float = 1.0) -> float | None:
    r"""Where the derivative of a score transform falls (corollary G.3): the cheapest check, of one derivative.

    $f''/f=q'+q^2$ is at least $q'+(1-p)\,q^2$ whatever the other classes are, so f' must never fall, else no loss of f
    is convex; for another $\gamma$ the same holds for $f^{1/\gamma}$. It is necessary, not sufficient: softplus passes
    and fails :func:`transform_margin`.

    Args:
        transform: a positive elementwise function of torch.
        scores: the places to look at, ``[n]``, rising.
        gamma: > 0.

    Returns:
        The first score after which the derivative is less than it was; None if there is none.

    >>> z = torch.linspace(-3, 3, 61)
    >>> first_fall(torch.exp, z), abs(round(first_fall(torch.sigmoid, z), 2))
    (None, 0.0)
    """
    check_between("gamma", gamma, 0, math.inf)
    with torch.enable_grad():
        at = scores.detach().double().requires_grad_()
        (slope,) = torch.autograd.grad(transform(at).pow(1 / gamma).sum(), at)
    falls = (slope.diff() < -_ROUNDING * slope[:-1].abs()).nonzero()
    return float(scores[int(falls[0])]) if len(falls) else None


def scaling_of_transform(
    transform: str | Callable[[Tensor], Tensor],
    gamma: float = 1.0,
    *,
    domain: Domain | None = None,
    classes: bool = True,
) -> Curve:
    """The scaling q = d ln f / dz of a score transform f = e^Q, if it gives a convex loss.

    Args:
        transform: "exp" (plain softmax), "exp_exp", "exp_cosh", "exp_sinh"; or a positive elementwise torch function
            f, twice differentiable by autograd.
        gamma: > 0.
        domain: scores that the loss will see; f has to be above 0 and finite on it.
        classes: True for a softmax, False for a sigmoid.

    Raises:
        ValueError: for the transforms that cannot (|z|^d, e^sigmoid, e^tanh, softplus, sigmoid, sinh|z|), with the
            reason and what to use instead; and for a function whose q falls and fails condition G.2 on the domain.

    >>> scaling_of_transform(lambda z: z.sinh().exp(), gamma=0.7, domain=(-2.0, 2.0)).is_monotone  # q = cosh z
    False
    >>> scaling_of_transform("softplus")
    Traceback (most recent call last):
    ValueError: transform: expected one with a scaling that gives a convex loss, got 'softplus': f = softplus has ...
    """
    if isinstance(transform, str):
        if transform in REFUSED:
            refused = REFUSED[transform]
            raise ValueError(
                "transform: expected one with a scaling that gives a convex loss, got "
                f"{transform!r}: {refused.reason}; use {refused.instead} of vicinal.links as the scaling"
            )
        curve = KNOWN[check_choice("transform", transform, [*KNOWN, *REFUSED])]()
        check_scaling(curve, gamma, domain=domain, classes=classes)
        return curve
    try:
        low, high = domain or (-math.inf, math.inf)
        fall = first_fall(transform, torch.linspace(max(low, -8.0), min(high, 8.0), 401, dtype=torch.float64), gamma)
        if fall is not None:
            raise ValueError(f"its derivative falls at {fall:.3g}: corollary G.3")
        scaling = FromTransform(transform, (low, high))
        check_scaling(scaling, gamma, classes=classes)
    except ValueError as error:
        raise ValueError(
            "transform: expected a positive function f whose q = d ln f / dz rises or meets condition (G.2), got one "
            f"that does not ({error}); see vicinal.losses.validity.REFUSED for common cases"
        ) from error
    return scaling
