"""Which links and scalings give a convex loss, checked when the loss is made, with the reason and a suggestion."""

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice, check_number
from vicinal.links import Constant, Cosh, Curve, Exp, Shaped, Sinh, from_callable

Domain = tuple[float, float]
_GRID = 4001


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
    if link.is_monotone:
        return link
    grid = grid_of(link, domain)
    slope = link.slope(grid)
    if bool((slope < 0).any()):
        at = float(grid[int(slope.argmin())])
        raise ValueError(
            f"link: expected a curve that never falls, got {link!r}, which falls at {at:.4g}; the loss would not be "
            "convex. Give domain=(low, high) where it rises, or use it as a scaling of a composite loss"
        )
    return link


def grid_of(curve: Curve, domain: Domain | None) -> Tensor:
    """Scores to check a curve on: all of a finite domain, and for infinite ends as far as the curve has structure."""
    low, high = curve.domain
    if domain is not None:
        given = (check_number("domain", domain[0]), check_number("domain", domain[1]))
        low, high = max(low, given[0]), min(high, given[1])
        if not low < high:
            raise ValueError(f"domain: expected low < high inside {curve.domain}, got {domain}")
    reach = 20.0
    middle = 0.0
    if isinstance(curve, Shaped):
        middle = float(torch.as_tensor(curve.shift.detach() if isinstance(curve.shift, Tensor) else curve.shift))
        reach = 12.0 / float(curve.scale) if isinstance(curve.scale, int | float) else reach
    low, high = max(low, middle - reach), min(high, middle + reach)
    margin = 1e-6 * (high - low)
    return torch.linspace(low + margin, high - margin, _GRID, dtype=torch.float64)


class Verdict(NamedTuple):
    """What :func:`check_scaling` found.

    Attributes:
        convex: "jointly": the loss is convex in all scores together. "each": in each score while the others stay.
        margin: the smallest q' + (1 - p) q^2 / gamma that was seen; >= 0.
    """

    convex: Literal["jointly", "each"]
    margin: float


def check_scaling(
    scaling: object, gamma: float = 1.0, *, domain: Domain | None = None, classes: bool = False
) -> Verdict:
    r"""Check condition (G.2), $q'+(1-p)\,q^2/\gamma\ge0$, for a scaling that is not monotone.

    A monotone scaling always gives a jointly convex loss. For others p is $\sigma(Q/\gamma)$, against one competitor
    of score transform 1 (for several classes at most 1/2 below it). With several classes the condition makes the
    loss convex in each score, not in all together: along $v_k=1/q(z_k)$ the Hessian is $\sum_k p_kq'_k/q_k^2$, which
    needs q' >= 0. So such a loss of several classes may be below 0 and have other minima.

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
    if scaling.is_monotone:
        return Verdict("jointly", 0.0)
    grid = grid_of(scaling, domain)
    with torch.no_grad():
        rest = torch.sigmoid(-scaling.primitive(grid) / gamma)
        if classes:
            rest = rest.clamp(max=0.5)
        slope = scaling.slope(grid)
        margin = torch.where(slope >= 0, slope, slope + rest * scaling(grid) ** 2 / gamma)
    lowest = float(margin.min())
    if lowest < 0:
        at = float(grid[int(margin.argmin())])
        raise ValueError(
            f"scaling: expected q' + (1 - p) q^2 / gamma >= 0 (condition G.2), got {lowest:.3g} at the score {at:.4g} "
            f"for {scaling!r} with gamma={gamma:g}; {_advice(scaling)}"
        )
    if bool((slope >= 0).all()):
        return Verdict("jointly", 0.0)
    return Verdict("each" if classes else "jointly", lowest)


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


def scaling_of_transform(
    transform: str | Callable[[Tensor], Tensor],
    gamma: float = 1.0,
    *,
    domain: Domain | None = None,
    classes: bool = True,
) -> Curve:
    """The scaling q = d ln f / dz of a score transform f = e^Q, if it gives a convex loss.

    Args:
        transform: "exp" (plain softmax), "exp_exp", "exp_cosh", "exp_sinh"; or a positive torch function f.
        gamma: > 0.
        domain: scores that the loss will see.
        classes: True for a softmax, False for a sigmoid.

    Raises:
        ValueError: for the transforms that cannot (|z|^d, e^sigmoid, e^tanh, softplus, sigmoid, sinh|z|), with the
            reason and what to use instead; and for a function whose q fails condition G.2.

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
    f = transform

    def scaling(z: Tensor) -> Tensor:
        create = torch.is_grad_enabled()
        with torch.enable_grad():
            at = z if z.requires_grad else z.detach().requires_grad_()
            q: Tensor = torch.autograd.grad(f(at).log().sum(), at, create_graph=create)[0]
        return q

    try:
        return from_callable(scaling, domain or (-math.inf, math.inf), tolerance=1e-5)
    except ValueError as error:
        raise ValueError(
            "transform: expected a positive function f whose q = d ln f / dz never falls, got one that does not "
            f"({error}); see vicinal.losses.REFUSED for common cases"
        ) from error
