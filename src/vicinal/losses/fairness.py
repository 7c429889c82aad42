"""Regularizers of predictions by protected attributes: distance covariance, and rates that are equal over groups."""

import functools
import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.blockwise.distances import distances
from vicinal.core import check_choice, register
from vicinal.core.checks import check_between, check_number, check_tensor

DCOR = "values of dcor 0.7 in float64"


def _centered(values: Tensor, *, unbiased: bool) -> Tensor:
    """Minus the doubly centered distances of rows, ``[n, n]``."""
    rows = check_tensor("values", values)
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    rows = rows[:, None] if rows.ndim == 1 else rows
    n = len(rows)
    if rows.ndim != 2 or n < (4 if unbiased else 1):
        raise ValueError(
            f"values: expected numbers [n] or [n, d] of at least {4 if unbiased else 1} rows, got {tuple(values.shape)}"
        )
    apart = distances(rows, rows)
    rows_by, all_by = (n - 2, (n - 1) * (n - 2)) if unbiased else (n, n * n)
    means = apart.sum(1, keepdim=True) / rows_by
    centered = means + means.T - apart - apart.sum() / all_by
    return centered.fill_diagonal_(0.0) if unbiased else centered


def _joint(parts: Sequence[Tensor], *, unbiased: bool) -> list[Tensor]:
    centered = [_centered(part, unbiased=unbiased) for part in parts]
    if len({len(each) for each in centered}) != 1:
        raise ValueError(f"attributes: expected as many rows as predictions, got {[len(each) for each in centered]}")
    return centered


def _mean(products: Tensor, *, unbiased: bool) -> Tensor:
    n = len(products)
    return products.sum() / (n * (n - 3) if unbiased else n * n)


_regularizer = functools.partial(register, "regularizer", family="fairness")


@_regularizer(
    "distance_covariance",
    "common-shift-invariant",
    "rotation-invariant",
    paper="Szekely et al., Annals of Statistics 2007",
    verified=DCOR,
)
def distance_covariance(predictions: Tensor, attributes: Tensor, *, unbiased: bool = False) -> Tensor:
    r"""Any dependence of predictions on attributes, squared: 0 in the limit only where there is none.

    $\frac{1}{n^2} \sum_{kl} U^x_{kl} U^y_{kl}$ with the distances $\|x_k - x_l\|$ of either side centered by rows and
    columns, and $\frac{1}{n (n - 3)} \sum$ with other divisors for the unbiased form, which may be below 0.

    Several attributes as columns of one matrix give CCdCov, which also sees their intersections; what the intersections
    alone add is the difference from the sum over single attributes. Divide the one-hot columns of a category by $\sqrt
    2$, so that categories are 1 apart, and scale numbers to [0, 1].

    Args:
        predictions: x, ``[n]`` or ``[n, d]``.
        attributes: y, ``[n]`` or ``[n, s]``.
        unbiased: center with n - 2 and n - 1; needs at least 4 rows.

    >>> distance_covariance(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 4.0]))
    tensor(1.)
    """
    with torch.autocast(predictions.device.type, enabled=False):
        one, other = _joint([predictions, attributes], unbiased=unbiased)
        return _mean(one * other, unbiased=unbiased)


@_regularizer(
    "joint_distance_covariance",
    paper="Chakraborty and Zhang, JASA 2019",
    verified="numpy in float64; of two parts dcor 0.7",
)
def joint_distance_covariance(
    predictions: Tensor,
    attributes: Sequence[Tensor],
    *,
    offset: float = 1.0,
    unbiased: bool = False,
    scale_free: bool = False,
) -> Tensor:
    r"""How far predictions and several attributes are from being independent all together (JdCov).

    $\frac{1}{n^2} \sum_{kl} \prod_r (U^r_{kl} + c) - c^q$ over the q parts, U as in :func:`distance_covariance`; with
    the divisor n (n - 3) and $c^q\, n/(n - 3)$ for the unbiased form.

    It also counts how the attributes depend on one another, which training cannot change. For two parts it is their
    distance covariance, whatever c.

    Args:
        predictions: ``[n]`` or ``[n, d]``.
        attributes: each ``[n]`` or ``[n, s]``, at least one.
        offset: c >= 0.
        unbiased: see above; needs at least 4 rows.
        scale_free: divide each part by the root of its distance covariance with itself; a constant part is left as it
            is.

    >>> joint_distance_covariance(torch.tensor([0.0, 1.0]), [torch.tensor([0.0, 4.0])], offset=3.0)
    tensor(1.)
    """
    check_between("offset", offset, 0, math.inf, closed=True)
    if not len(attributes):
        raise ValueError("attributes: expected at least one, got none")
    with torch.autocast(predictions.device.type, enabled=False):
        product = torch.ones(())
        parts = _joint([predictions, *attributes], unbiased=unbiased)
        for part in parts:
            alone = _mean(part.square(), unbiased=unbiased)
            product = product * ((part / alone.sqrt() if scale_free and bool(alone > 0) else part) + offset)
        n = len(parts[0])
        return _mean(product, unbiased=unbiased) - offset ** len(parts) * (n / (n - 3) if unbiased else 1)


Rate = Literal["positive", "true_positive", "false_positive", "positive_value", "false_omission", "accuracy"]


def _terms(predictions: Tensor, labels: Tensor | None, rate: Rate) -> tuple[Tensor, Tensor]:
    """Numerator and denominator of each row, ``[n]``."""
    p, one = predictions, torch.ones_like(predictions)
    if rate == "positive":
        return p, one
    if labels is None or labels.shape != p.shape:
        raise ValueError(f"labels: expected 0 and 1 {tuple(p.shape)} for the rate {rate!r}, got none or another shape")
    if not bool(((labels == 0) | (labels == 1)).all()):
        raise ValueError("labels: expected 0 and 1, got others")
    y = labels.to(p.dtype)
    terms: dict[str, tuple[Tensor, Tensor]] = {
        "true_positive": (y * p, y),
        "false_positive": ((1 - y) * p, 1 - y),
        "positive_value": (y * p, p),
        "false_omission": (y * (1 - p), 1 - p),
        "accuracy": (1 - y + (2 * y - 1) * p, one),
    }
    return terms[rate]


def group_rates(
    predictions: Tensor, groups: Tensor, labels: Tensor | None = None, *, rate: Rate = "positive"
) -> tuple[Tensor, Tensor]:
    r"""A rate in each group and overall, of probabilities: $g_k = \sum_i S_{ik} a_i / \sum_i S_{ik} b_i$.

    Args:
        predictions: p, ``[n]`` in [0, 1].
        groups: S, ``[n, s]``, one-hot or shares; or whole numbers ``[n]``.
        labels: y, 0 and 1 ``[n]``; not needed for "positive".
        rate: "positive" p over 1, "true_positive" and "false_positive" p over rows of y = 1 and 0, "positive_value" y
            over p, "false_omission" y over 1 - p, "accuracy".

    Returns:
        ``[s]``, and a number; 0 where both sums are 0.

    Raises:
        ValueError: for a group without rows, or labels that are not 0 and 1.

    >>> group_rates(torch.tensor([0.2, 0.4, 0.9]), torch.tensor([0, 0, 1]))
    (tensor([0.3000, 0.9000]), tensor(0.5000))
    """
    check_choice("rate", rate, get_args(Rate))
    if check_tensor("predictions", predictions).ndim != 1 or not predictions.is_floating_point():
        raise ValueError(f"predictions: expected probabilities [n], got {predictions.dtype} {tuple(predictions.shape)}")
    p = predictions.to(torch.promote_types(predictions.dtype, torch.float32))
    if p.numel() and not 0 <= float(p.detach().min()) <= float(p.detach().max()) <= 1:
        raise ValueError("predictions: expected probabilities from 0 to 1, got some outside")
    shares = groups
    if groups.ndim == 1 and not groups.is_floating_point():
        shares = torch.nn.functional.one_hot(torch.unique(groups, return_inverse=True)[1])
    if shares.ndim != 2 or len(shares) != len(p) or not bool((shares.sum(0) > 0).all()):
        raise ValueError(
            f"groups: expected [{len(p)}, s] with rows in every group, got {tuple(groups.shape)} or an empty group"
        )
    with torch.autocast(p.device.type, enabled=False):
        above, below = _terms(p, labels, rate)
        shares = shares.to(p.dtype)
        each = _ratio(shares.T @ above, shares.T @ below)
        return each, _ratio(above.sum(), below.sum())


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return torch.where(below != 0, above / torch.where(below != 0, below, 1.0), 0.0)


@_regularizer(
    "equal_rates", "group-labels", paper="arXiv:2310.17256", verified="fairret 0.1.3, value and gradient in float64"
)
def equal_rates(
    predictions: Tensor,
    groups: Tensor,
    labels: Tensor | None = None,
    *,
    rate: Rate = "positive",
    form: Literal["norm", "softmax"] = "norm",
    power: float = 1.0,
) -> Tensor:
    r"""A rate, such as that of positive predictions, that is the same in all groups (fairret).

    $\|v\|_p$ ("norm") or $\log \overline{e^{v_k}}$ ("softmax") of $v_k = |g_k / g - 1|$, with :func:`group_rates` g of
    the groups and overall.

    The paper's projections, which look for the nearest predictions with equal rates, are not implemented.

    Args:
        predictions: probabilities ``[n]``.
        groups: ``[n, s]``, one-hot or shares; or whole numbers ``[n]``.
        labels: 0 and 1 ``[n]``; not needed for "positive".
        rate: see :func:`group_rates`.
        form: see above.
        power: p >= 1, of the norm; infinity too.

    Raises:
        ValueError: if the overall rate is 0.

    >>> equal_rates(torch.tensor([0.2, 0.4, 0.9]), torch.tensor([0, 0, 1]))
    tensor(1.2000)
    """
    check_choice("form", form, ("norm", "softmax"))
    if power != math.inf and check_number("power", power) < 1:
        raise ValueError(f"power: expected a number of at least 1, got {power:g}")
    each, overall = group_rates(predictions, groups, labels, rate=rate)
    if float(overall.detach()) == 0:
        raise ValueError(f"predictions: expected a rate {rate!r} above 0 over all rows, got 0")
    gap = (each / overall - 1).abs()
    if form == "softmax":
        return gap.logsumexp(0) - math.log(len(gap))
    return torch.linalg.vector_norm(gap, power)
