"""How sensitive a loss is, and where: slope, BUST, BLUST, and the slope of each class of a composite loss."""

import torch
from torch import Tensor

from vicinal.core import check_between, check_number
from vicinal.links.base import Curve


def slope(link: Curve, score: Tensor) -> Tensor:
    """h'(score): a small error d there costs h' d^2 / 2. Of the shape of ``score``.

    >>> from vicinal.links import Sigmoid
    >>> slope(Sigmoid(), torch.tensor([0.0, 4.0]))
    tensor([0.2500, 0.0177])
    """
    return link.slope(score)


def _span(link: Curve, low: float, high: float) -> Tensor:
    low, high = check_number("low", low), check_number("high", high)
    if not low < high:
        raise ValueError(f"high: expected a score above low ({low:g}), got {high:g}")
    ends: Tensor = link(torch.tensor([low, high], dtype=torch.float64))
    span = ends[1] - ends[0]
    if not bool(span > 0):
        raise ValueError(f"link: expected one that rises between {low:g} and {high:g}, got {link!r}")
    return span


def bust(link: Curve, score: Tensor, step: float, low: float, high: float) -> Tensor:
    r"""$\frac{h(w+d)-h(w)}{h(S_M)-h(S_m)}$ (definition 1): the share of the link's rise that a step at a score takes.

    The rise is that from the lowest score $S_m$ to the highest $S_M$; steps that together lead from the one to the
    other have shares that sum to 1. What it is good for (theorem 1): a model that has one score w for all, fitted where
    a share $\pi$ of the observations is $S_M$ and the others $S_m$, has $h(w) = \pi h(S_M) + (1-\pi)\,h(S_m)$. So the
    share of the rise is by how much $\pi$ has to grow to move the fit from w to w + d.

    Args:
        link: a monotone link.
        score: w, any shape.
        step: d > 0.
        low: S_m, the lowest observed score.
        high: S_M, the highest observed score.

    Returns:
        Of the shape and dtype of ``score``; between 0 and 1 where w and w + d lie between the two.

    Raises:
        ValueError: for a step that is not above 0, or a link that does not rise between ``low`` and ``high``.

    >>> from vicinal.links import Identity
    >>> bust(Identity(), torch.tensor([0.0]), 0.5, -1.0, 1.0)
    tensor([0.2500])
    """
    check_between("step", step, 0, float("inf"))
    wide = score.double()  # the difference of two values of the link has few digits of a narrower one
    return ((link(wide + step) - link(wide)) / _span(link, low, high).to(wide)).to(score.dtype)


def blust(link: Curve, score: Tensor, low: float, high: float) -> Tensor:
    r"""$\frac{h'(w)}{h(S_M)-h(S_m)}$: the limit of :func:`bust` over its step, as the step gets small.

    Arguments are those of :func:`bust`.

    >>> from vicinal.links import Identity
    >>> blust(Identity(), torch.tensor([0.0]), -1.0, 1.0)
    tensor([0.5000])
    """
    return link.slope(score) / _span(link, low, high).to(score)


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
