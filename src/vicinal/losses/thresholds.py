"""The loss that brings all classes to one threshold of the score."""

import warnings

from torch import Tensor

from vicinal.core import check_between, check_number
from vicinal.losses.contract import PML, pair_loss
from vicinal.losses.logsums import hinge
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products


@pair_loss("tcm", "row-separable", "soft-relation", paper="arXiv:2307.04047", verified=PML)
def tcm(
    pairs: Pairs,
    *,
    pos_margin: float = 0.9,
    neg_margin: float = 0.5,
    pos_factor: float = 1.0,
    neg_factor: float = 1.0,
) -> tuple[Part, Part]:
    r"""Threshold-consistent margins: hard related pairs above one score, hard unrelated ones below another.

    $\lambda_+ (m_+ - s_{ij})$ for related pairs with $s_{ij} \le m_+$ plus $\lambda_- (s_{ij} - m_-)$ for unrelated
    ones with $s_{ij} \ge m_-$, each with a mean of its own.

    The means are over the pairs that violate their margin only, also where the violation is 0. It is made to be added
    to another loss, so that one threshold fits all classes; :func:`vicinal.metrics.opis` measures whether it does.
    The defaults are those of cosine scores.

    Args:
        pairs: scores, relation and weight.
        pos_margin: $m_+$.
        neg_margin: $m_-$; a warning says so if it is above $m_+$.
        pos_factor: $\lambda_+ \ge 0$; 0 switches the related pairs off.
        neg_factor: $\lambda_- \ge 0$.

    >>> import torch
    >>> tcm(torch.tensor([[0.5, 0.95, 0.6, 0.1]]), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(0.5000)
    """
    if check_number("neg_margin", neg_margin) > check_number("pos_margin", pos_margin):
        warnings.warn(
            f"neg_margin: expected at most pos_margin = {pos_margin:g}, got {neg_margin:g}; pairs between them are "
            "hard whether related or not",
            stacklevel=4,
        )
    for name, factor in (("pos_factor", pos_factor), ("neg_factor", neg_factor)):
        check_between(name, factor, 0, float("inf"), closed=True)
    return (
        _violations(pairs, pos_margin - pairs.scores, pairs.positive, pos_factor),
        _violations(pairs, pairs.scores - neg_margin, pairs.negative, neg_factor),
    )


def _violations(pairs: Pairs, excess: Tensor, weight: Tensor, factor: float) -> Part:
    """The pairs whose excess is at least 0."""
    number = row_products((excess >= 0).to(weight.dtype), weight)
    nonzero = row_products((factor * excess > 0).to(weight.dtype), weight) if pairs.counting else number
    return Part(factor * row_products(hinge(excess), weight), number, nonzero)
