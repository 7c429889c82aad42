"""Where a link or a scaling is sensitive: at high scores, low ones, both or neither; alone or among several classes."""

from typing import Literal

import torch
from torch import Tensor

from vicinal.core.checks import check_between, check_integer, check_number
from vicinal.links.curve import Curve

Sensitive = Literal["high-scores", "low-scores", "high-norms", "low-norms", "uniform"]
"""Where a loss is sensitive."""
Rank = Literal["top", "bottom", "none"]


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


def class_hessian(scaling: Curve, scores: Tensor, gamma: float = 1.0) -> Tensor:
    r"""$p_k\,\bigl(\kappa_{kj}\,q'(z_k)+(\kappa_{kj}-p_j)\,q(z_k)\,q(z_j)/\gamma\bigr)$: the Hessian of H (B.2).

    A small error $\delta$ of all scores at once costs $\tfrac12\,\delta^T\,\nabla^2H\,\delta$ (B.3), which is half of
    $\sum_k p_kq'_k\delta_k^2 + \mathrm{Var}_p(q\,\delta)/\gamma$. The diagonal is :func:`class_slope` (B.5).

    Args:
        scaling: the curve q of a composite softmax loss.
        scores: ``[..., K]``.
        gamma: the temperature of the softmax, > 0.

    Returns:
        ``[..., K, K]``, symmetric; without negative eigenvalues for a monotone scaling (theorem 4).

    >>> from vicinal.links import Constant
    >>> class_hessian(Constant(), torch.zeros(2))
    tensor([[ 0.2500, -0.2500],
            [-0.2500,  0.2500]])
    """
    check_between("gamma", gamma, 0, float("inf"))
    p, q = (scaling.primitive(scores) / gamma).softmax(-1), scaling(scores)
    bend, link = p * (scaling.slope(scores) + q * q / gamma), p * q
    return torch.diag_embed(bend) - link[..., :, None] * link[..., None, :] / gamma


def region(link: Curve, low: float = -3.0, high: float = 3.0) -> Sensitive:
    r"""Where the loss of one score is sensitive: how much a link rises over the thirds of an interval of scores.

    Also for a :class:`CompositeSigmoid`, whose region may be another than that of its scaling: a linear one is of high
    norms there (figure H.2). The rule is that of :func:`class_region`.

    Args:
        link: a curve.
        low: the lowest score, cut to the domain of the link.
        high: the highest score, likewise.

    >>> from vicinal.links import CompositeSigmoid, Identity, Sigmoid
    >>> region(Sigmoid()), region(Sigmoid(shift=3.0)), region(Identity()), region(CompositeSigmoid(Identity()))
    ('low-norms', 'high-scores', 'uniform', 'high-norms')
    """
    ends = torch.linspace(*_inside(link, low, high), 4, dtype=torch.float64)
    return _region_of(*link.rise(ends[1:], ends[:-1]).tolist())


def class_region(
    scaling: Curve, low: float = -3.0, high: float = 3.0, *, classes: int = 3, gamma: float = 1.0
) -> Sensitive:
    r"""Which of several classes a composite softmax is sensitive to: those of high scores, of low ones, of both.

    The scores of the classes are spread evenly from ``low`` to ``high``, as the paper draws them: -3, 0 and 3. What
    counts is the slope $p_k\,(q'+(1-p_k)\,q^2/\gamma)$ of each (:func:`class_slope`), so also its probability, which
    may undo what the scaling does (table H.2, figure H.6): tanh, of low norms for one score, is of high norms here.
    Means over the lowest, the middle and the highest third of the classes decide, by a factor of 1.2: both ends above
    the middle, "high-norms", unless one end is four times the other; the highest above the others, "high-scores"; the
    lowest, "low-scores"; the middle, "low-norms"; else, and for a constant scaling, "uniform".

    Args:
        scaling: the curve q.
        low: the lowest score, cut to the domain of the scaling.
        high: the highest score, likewise.
        classes: K, at least 3.
        gamma: the temperature of the softmax, > 0.

    >>> from vicinal.links import Sigmoid, Sinh, Tanh
    >>> class_region(Sinh()), class_region(Sinh(shift=-2.0)), class_region(Sinh(shift=2.0))
    ('high-norms', 'high-scores', 'low-scores')
    >>> class_region(Tanh()), class_region(Tanh(shift=2.0)), class_region(Sigmoid(shift=-2.0))
    ('high-norms', 'low-scores', 'high-scores')
    """
    third = check_integer("classes", classes, 3) // 3
    scores = torch.linspace(*_inside(scaling, low, high), classes, dtype=torch.float64)
    q = scaling(scores)
    if bool(q.max() == q.min()):
        return "uniform"
    felt = class_slope(scaling, scores, gamma)
    return _region_of(*(part.mean().item() for part in (felt[:third], felt[third:-third], felt[-third:])))


def class_ranking(
    scaling: Curve, low: float = -3.0, high: float = 3.0, *, gap: float = 1.0, gamma: float = 1.0
) -> Rank:
    """Which rank a composite softmax is most sensitive to, wherever on the axis the classes lie (ranking sensitivity).

    Three classes, ``gap`` apart, are moved together from ``low`` to ``high``. "top": the class of the highest score has
    the largest :func:`class_slope` all the way; "bottom": that of the lowest; "none": it depends on where they lie, or
    none has.

    Args:
        scaling: the curve q.
        low: the lowest score, cut to the domain of the scaling.
        high: the highest score, likewise.
        gap: > 0, between neighboring classes.
        gamma: the temperature of the softmax, > 0.

    >>> from vicinal.links import AntiExp, Exp, Sinh
    >>> class_ranking(Exp()), class_ranking(AntiExp()), class_ranking(Sinh())
    ('top', 'bottom', 'none')
    """
    first, last = _inside(scaling, low, high)
    check_between("gap", gap, 0, (last - first) / 2)
    start = torch.linspace(first, last - 2 * gap, 64, dtype=torch.float64)
    felt = class_slope(scaling, start[:, None] + gap * torch.arange(3, dtype=torch.float64), gamma)
    for rank, place in (("top", 2), ("bottom", 0)):
        others = torch.cat([felt[:, :place], felt[:, place + 1 :]], dim=1)
        if bool((felt[:, place, None] > others * (1 + 1e-9)).all()):
            return "top" if rank == "top" else "bottom"
    return "none"


def _inside(curve: Curve, low: float, high: float) -> tuple[float, float]:
    """The part of an interval that a curve has, 1 % inside of the ends of its domain, where it may be infinite."""
    first, last = (check_number(name, end) for name, end in (("low", low), ("high", high)))
    cut = max(first, curve.domain[0]), min(last, curve.domain[1])
    if not cut[0] < cut[1]:
        raise ValueError(f"high: expected scores above low inside {curve.domain}, got {low:g} and {high:g}")
    room = (cut[1] - cut[0]) / 100
    return cut[0] + room * (cut[0] == curve.domain[0]), cut[1] - room * (cut[1] == curve.domain[1])


def _region_of(left: float, middle: float, right: float, factor: float = 1.2) -> Sensitive:
    if min(left, right) > max(factor * middle, max(left, right) / 4):
        return "high-norms"
    if right > factor * max(left, middle):
        return "high-scores"
    if left > factor * max(middle, right):
        return "low-scores"
    return "low-norms" if middle > factor * max(left, right) else "uniform"
